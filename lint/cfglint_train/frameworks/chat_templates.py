"""Chat templates and the models that were tuned with them, under LLaMA-Factory's names (`chat_templates.json`)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

DATA: Final = os.path.join(os.path.dirname(__file__), "chat_templates.json")


class _TemplateTable(Frozen):
    """Formats of the templates, and templates of the chat models."""

    formats: Mapping[str, str]
    """Template -> format."""
    templates: Mapping[str, str]
    """Chat model (`_normalize_model`) -> template."""


def _normalize_model(model: str) -> str:
    """Return a model's name without its owner (mirrors keep it) and the "Meta-" that Llama 3.1 dropped."""
    return model.partition("/")[2].lower().removeprefix("meta-")


@cache
def _load_table() -> _TemplateTable:
    with open(DATA, encoding="utf-8") as stream:
        data = json.load(stream)
    return _TemplateTable(
        {name: format_ for format_, names in data["formats"].items() for name in names},
        {_normalize_model(model): template for template, models in data["models"].items() for model in models},
    )


# A common format: models are tuned to its tokens on purpose.
_GENERIC: Final = frozenset(("chatml", "chatml_de"))


def find_contradicted_template(model: str, template: str) -> str | None:
    """Return the template of a chat model if `template` marks turns with other special tokens.

    Return None if both write the same tokens, or if the model or the template is unknown.
    """
    table = _load_table()
    expected = table.templates.get(_normalize_model(model)) if model.count("/") == 1 and model[0] not in "./~" else None
    if expected is None or template not in table.formats or template in _GENERIC:
        return None
    return expected if table.formats[template] != table.formats[expected] else None

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
    """The formats of templates, and the templates of chat models."""

    formats: Mapping[str, str]
    """Format by template."""
    templates: Mapping[str, str]
    """Template by chat model, as `_normalize_model` spells it."""


def _normalize_model(model: str) -> str:
    """Return a model's name in lower case, without its owner and the prefix "Meta-".

    Mirrors have other owners but keep the name; Meta dropped the prefix with Llama 3.1.
    """
    return model.partition("/")[2].lower().removeprefix("meta-")


@cache
def _load_table() -> _TemplateTable:
    with open(DATA, encoding="utf-8") as stream:
        data = json.load(stream)
    return _TemplateTable(
        {name: format_ for format_, names in data["formats"].items() for name in names},
        {_normalize_model(model): template for template, models in data["models"].items() for model in models},
    )


# Templates of the generic ChatML format, to which models are often tuned on purpose.
_GENERIC: Final = frozenset(("chatml", "chatml_de"))


def find_contradicted_template(model: str, template: str) -> str | None:
    """Return the template of a chat model if `template` marks turns with other special tokens.

    Return None if both templates write the same tokens, if `template` is ChatML, or if the model or the template is
    unknown.
    """
    table = _load_table()
    expected = table.templates.get(_normalize_model(model)) if model.count("/") == 1 and model[0] not in "./~" else None
    if expected is None or template not in table.formats or template in _GENERIC:
        return None
    return expected if table.formats[template] != table.formats[expected] else None

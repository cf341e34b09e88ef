"""axolotl: a YAML file, read by PyYAML and validated by pydantic, which silently drops unknown keys.

Sources: axolotl 0.18.0 and 0.21.0 (`utils/schemas/`, `utils/config/__init__.py`, `core/builders/`, `loaders/model.py`,
`utils/trainer.py`). Defaults by release come from the schemas of 17 releases.
"""

from __future__ import annotations

from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.axolotl.infer import infer
from cfglint_train.frameworks.axolotl.keys import AxolotlKeys
from cfglint_train.frameworks.axolotl.lenses import LENSES
from cfglint_train.frameworks.axolotl.recognise import list_references
from cfglint_train.frameworks.framework import Framework, LaunchInterface, Traits
from cfglint_train.frameworks.hf_trainer.infer import fill_auto
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.loaders import PYDANTIC

NEWEST: Final = "0.21.0"


def _parse_trailing(config: Config, words: list[str]) -> dict[Route, Any]:
    from cfglint_train.frameworks.axolotl.options import parse_trailing  # needed only if a script starts the config

    return parse_trailing(config, words)


# LLaMA-Factory's name for each template that belongs to a model family (axolotl utils/schemas/enums.py ChatTemplate).
_TEMPLATES: Final = {
    "llama3": "llama3", "llama4": "llama4", "gemma": "gemma", "gemma3": "gemma3", "gemma3n": "gemma3n",
    "gemma4": "gemma4", "qwen_25": "qwen", "qwen3": "qwen3", "qwen2_vl": "qwen2_vl",
}  # fmt: skip


def _suggest_template(model: str, template: str) -> str | None:
    """Return `tokenizer_default`, the model's own template, if `template` belongs to another model family, or None."""
    from cfglint_train.frameworks.chat_templates import find_contradicted_template  # few files name a template

    llamafactory_name = _TEMPLATES.get(template)
    return (
        None
        if llamafactory_name is None or find_contradicted_template(model, llamafactory_name) is None
        else "tokenizer_default"
    )


FRAMEWORK: Final = Framework(
    name="axolotl",
    default_release=NEWEST,
    lenses=LENSES,
    loader=PYDANTIC,
    references=list_references,
    infer=infer,
    fill_auto=fill_auto,
    keys_type=AxolotlKeys,
    launch_interface=LaunchInterface(
        parse_trailing=_parse_trailing,
    ),
    traits=Traits(
        runs_trainer=True,
        suggest_template=_suggest_template,
        strict_json=True,
    ),
)

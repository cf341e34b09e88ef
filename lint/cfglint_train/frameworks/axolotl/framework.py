"""axolotl: one YAML file, read by PyYAML and validated by pydantic, which drops unknown keys silently.

Sources: axolotl 0.18.0 and 0.21.0 (`utils/schemas/`, `utils/config/__init__.py`, `core/builders/`, `loaders/model.py`,
`utils/trainer.py`); defaults by release from the schemas of 17 releases.
"""

from __future__ import annotations

from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.axolotl.infer import infer
from cfglint_train.frameworks.axolotl.keys import AxolotlKeys
from cfglint_train.frameworks.axolotl.lenses import LENSES
from cfglint_train.frameworks.axolotl.recognise import references
from cfglint_train.frameworks.chat_templates import contradicted
from cfglint_train.frameworks.framework import Framework, Launching, Traits
from cfglint_train.frameworks.hf_trainer.infer import fill_auto
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.loaders import PYDANTIC

NEWEST: Final = "0.21.0"


def _trailing(config: Config, words: list[str]) -> dict[Route, Any]:
    from cfglint_train.frameworks.axolotl.options import trailing  # only where a script starts the file

    return trailing(config, words)


# utils/schemas/enums.py ChatTemplate: those of a family of models, by LLaMA-Factory's names.
_TEMPLATES: Final = {
    "llama3": "llama3", "llama4": "llama4", "gemma": "gemma", "gemma3": "gemma3", "gemma3n": "gemma3n",
    "gemma4": "gemma4", "qwen_25": "qwen", "qwen3": "qwen3", "qwen2_vl": "qwen2_vl",
}  # fmt: skip


def _template_of(model: str, template: str) -> str | None:
    """`tokenizer_default`, the template that the model brings along."""
    known = _TEMPLATES.get(template)
    return None if known is None or contradicted(model, known) is None else "tokenizer_default"


FRAMEWORK: Final = Framework(
    name="axolotl",
    newest=NEWEST,
    lenses=LENSES,
    loader=PYDANTIC,
    references=references,
    infer=infer,
    auto=fill_auto,
    keys_of=AxolotlKeys,
    launching=Launching(
        trailing=_trailing,
    ),
    traits=Traits(
        runs_trainer=True,
        template_of=_template_of,
        strict_json=True,
    ),
)

"""Which arguments the class takes that a script makes its training arguments of."""

from __future__ import annotations

from cfglint_schemas.status import PRESENT, Context
from cfglint_schemas.vocabulary import load
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trl.script import Settings
from cfglint_train.frameworks.trl.script_names import HF_CONFIGS
from cfglint_train.frameworks.trl.settings import context_of

_OTHER_CLASSES: Final = ("ModelConfig", "ScriptArguments")
"""Classes of a recipe's keys that no trainer gets as its `args`."""


def untaken(config: Config, name: str) -> str:
    """Why a new argument cannot be added to the call; empty where it can, or where nothing is added to that call."""
    node = config.node()
    if not isinstance(node, Settings) or not node.arguments or name in node.parts or node.get(name) is not None:
        return ""
    if node.arguments in HF_CONFIGS:
        known = load("transformers")
        release = config.releases.get("transformers") or known.newest
        fact = known.fact((name,), release, Context(entry=node.entry))
        title = f"transformers {release}"
    else:
        fact = (config.evidence.vocabulary or load("trl")).fact((name,), config.release, context_of(config))
        title = f"TRL {config.release}"
    if fact is not None and fact.status().kind == PRESENT and not fact.definition.endswith(_OTHER_CLASSES):
        return ""
    return f"`{node.arguments}` of {title} has no `{name}`"

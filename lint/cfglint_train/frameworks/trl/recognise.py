"""Which files are TRL's, and which other files each of them names."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.document import Document, Route
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import Found, Reference
from cfglint_train.frameworks.lens import Config, Override
from cfglint_train.frameworks.trl.clues import FOREIGN, LAUNCHER_FILES, OWN, STRONG, TRAINS


def recognise(document: Document) -> list[Found]:
    """A mapping with `model_name_or_path`, keys of TRL's own classes and the Trainer's, and hardly any others."""
    if document.syntax == "shell":
        from cfglint_train.frameworks.trl.commands import commands  # most of its files are YAML

        return commands(document)
    if document.syntax == "python":
        from cfglint_train.frameworks.trainer_script.runs import scripts

        return scripts(document)
    root = document.root
    if not isinstance(root, MappingNode) or "model_name_or_path" not in root.index:
        return []
    keys = root.index.keys()
    own = len(keys & OWN)
    if own < 2 or not keys & STRONG or not keys & TRAINS or keys & FOREIGN:
        return []
    from cfglint_train.frameworks.trl.settings import mostly_known  # it asks the vocabulary, which few files need

    if not mostly_known(keys):
        return []
    return [Found((), 45 + 2 * own, f"model_name_or_path and {own} keys of TRL")]


def prepare(document: Document) -> None:
    """Options of a command line are read as keys, and a script's calls as runs."""
    if document.syntax == "shell":
        from cfglint_train.frameworks.trl.commands import read_as_keys

        read_as_keys(document)
    elif document.syntax == "python":
        from cfglint_train.frameworks.trainer_script import runs

        runs.prepare(document)


def references(config: Config) -> tuple[Reference, ...]:
    """The launcher's file that `trl` is given, and the DeepSpeed configuration (a path, or a mapping in place), which
    counts above what the launcher's file has of its own.
    """
    found: list[Reference] = []
    for key in LAUNCHER_FILES:
        launched = config.get(key)
        if isinstance(launched, str):
            found.append(Reference("accelerate", (key,), launched, _over(config)))
    stated = config.get("deepspeed")
    if isinstance(stated, (str, dict)):
        found.append(Reference("deepspeed", ("deepspeed",), stated if isinstance(stated, str) else None))
    return tuple(found)


# What `trl` hands on to the launcher beside its file, and what counts above that.
_OPTIONS: Final = ("num_processes", "num_machines", "mixed_precision", "use_deepspeed", "use_fsdp", "zero_stage")


def _over(config: Config) -> Mapping[Route, Override]:
    """The settings of the recipe that the launcher takes above those of its file."""
    from cfglint_train.frameworks.accelerate.command import launched  # few recipes name a launcher's file

    options = {name: config.get(name) for name in _OPTIONS if config.get(name) is not None}
    routes = launched({**options, "config_file": None}).items()
    return {route: Override(value, config.origin(name)) for route, (name, value) in routes if name in options}

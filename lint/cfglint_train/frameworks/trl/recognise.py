"""Recognition of TRL's files and of the companions that they name."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.document import Document, Route
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import RecognisedConfig, Reference
from cfglint_train.frameworks.lens import Config, Override
from cfglint_train.frameworks.trl.clues import DISTINCTIVE_KEYS, FOREIGN_KEYS, LAUNCHER_FILES, OWN_KEYS, TRAINING_KEYS


def recognise(document: Document) -> list[RecognisedConfig]:
    """Return the TRL configs of a file: a recipe, commands with options, or trainers in a Python script.

    A recipe is a mapping with `model_name_or_path`, two or more keys of TRL's own classes, a key of the Trainer, and
    few unknown keys. Keys of other tools rule it out.
    """
    if document.syntax == "shell":
        from cfglint_train.frameworks.trl.commands import recognise_commands  # most of TRL's files are YAML

        return recognise_commands(document)
    if document.syntax == "python":
        from cfglint_train.frameworks.trainer_script.runs import recognise_scripts

        return recognise_scripts(document)
    root = document.root
    if not isinstance(root, MappingNode) or "model_name_or_path" not in root.index:
        return []
    keys = root.index.keys()
    own_count = len(keys & OWN_KEYS)
    if own_count < 2 or not keys & DISTINCTIVE_KEYS or not keys & TRAINING_KEYS or keys & FOREIGN_KEYS:
        return []
    from cfglint_train.frameworks.trl.settings import (
        has_mostly_known_keys,
    )  # loads the vocabulary, which few files need

    if not has_mostly_known_keys(keys):
        return []
    return [RecognisedConfig((), 45 + 2 * own_count, f"model_name_or_path and {own_count} TRL keys")]


def prepare(document: Document) -> None:
    """Make the document read command-line options as keys, and a Python script's calls as runs."""
    if document.syntax == "shell":
        from cfglint_train.frameworks.trl.commands import read_as_keys

        read_as_keys(document)
    elif document.syntax == "python":
        from cfglint_train.frameworks.trainer_script import runs

        runs.show_runs(document)


def list_references(config: Config) -> tuple[Reference, ...]:
    """Return the companions: the launcher's file that `trl` receives, and the DeepSpeed config (a path or a mapping).

    This DeepSpeed config has priority over the DeepSpeed config in the launcher's file.
    """
    companions: list[Reference] = []
    for key in LAUNCHER_FILES:
        launcher_file = config.get(key)
        if isinstance(launcher_file, str):
            companions.append(Reference("accelerate", (key,), launcher_file, _build_overrides(config)))
    deepspeed = config.get("deepspeed")
    if isinstance(deepspeed, (str, dict)):
        companions.append(Reference("deepspeed", ("deepspeed",), deepspeed if isinstance(deepspeed, str) else None))
    return tuple(companions)


# Options that `trl` passes to the launcher in addition to its file, and that have priority over it.
_LAUNCHER_OPTIONS: Final = (
    "num_processes",
    "num_machines",
    "mixed_precision",
    "use_deepspeed",
    "use_fsdp",
    "zero_stage",
)


def _build_overrides(config: Config) -> Mapping[Route, Override]:
    """Return the settings of the recipe that override those of the launcher's file."""
    from cfglint_train.frameworks.accelerate.command import read_launcher_options  # few recipes name a launcher's file

    options = {name: config.get(name) for name in _LAUNCHER_OPTIONS if config.get(name) is not None}
    routes = read_launcher_options({**options, "config_file": None}).items()
    return {route: Override(value, config.get_origin(name)) for route, (name, value) in routes if name in options}

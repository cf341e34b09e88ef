"""accelerate: the dataclasses of its configuration file, and the launcher's flags behind each nested section.

The launcher copies every key of a nested mapping to its options, so the keys of a section are names of flags. A key
without a flag is copied too, but never read.
"""

from __future__ import annotations

import ast
from typing import Final

from cfglint_schemas.readers.flags import ParserFlag, read_parser
from cfglint_schemas.readers.models import ModelReader
from cfglint_schemas.readers.source import Class, Module, Source, UndecidedError
from cfglint_schemas.readers.table import Definition, ReleaseTable, TableKey
from cfglint_train.foundation.frozen import Frozen


class Section(Frozen):
    """The flags that a nested mapping of the configuration file corresponds to."""

    prefix: str
    """Common prefix of the flags' names; empty if the argument group identifies the flags."""
    group: str
    """Variable of the argument group; empty if the prefix identifies the flags."""


_SECTIONS: Final[dict[str, Section]] = {
    "deepspeed_config": Section("", "deepspeed_args"),
    "dynamo_config": Section("dynamo_", ""),
    "fp8_config": Section("fp8_", ""),
    "fsdp_config": Section("fsdp_", ""),
    "ipex_config": Section("ipex", ""),
    "megatron_lm_config": Section("megatron_lm_", ""),
    "mpirun_config": Section("mpirun_", ""),
    "parallelism_config": Section("parallelism_config_", ""),
    "tp_config": Section("tp_", ""),
}


def read(package: str, source: Source) -> ReleaseTable:
    """Return the vocabulary of one release; raise UndecidedError for an unexpected layout."""
    config_module = source.require_module("accelerate.commands.config.config_args")
    launcher = source.require_module("accelerate.commands.launch")
    models = ModelReader()
    flags = list(read_parser(launcher).flags)
    definitions: dict[str, Definition] = {}
    for name in ("ClusterConfig", "SageMakerConfig"):
        class_ = config_module.resolve_name(name)
        if not isinstance(class_, Class):
            raise UndecidedError(f"{package} {source.tree.release}: {name} is not a class")
        keys = models.read_keys(class_)
        for section, flag_group in _SECTIONS.items():
            if name == "ClusterConfig" and section in keys:
                definitions[section] = Definition(
                    _read_section(flags, flag_group, _is_prefix_added(launcher, flag_group.prefix)), "dropped"
                )
                keys[section] = TableKey({"anyOf": [{"$ref": f"#/$defs/{section}"}, {"type": "null"}], "default": None})
        definitions[name] = Definition(keys)
    entries = {"cluster": ("ClusterConfig",), "sagemaker": ("SageMakerConfig",)}
    return ReleaseTable({**definitions, **models.list_definitions()}, entries)


def _read_section(flags: list[ParserFlag], flag_group: Section, adds_prefix: bool) -> dict[str, TableKey]:
    keys = {}
    for flag in flags:
        name = flag.name.lstrip("-").replace("-", "_")
        if flag.group != flag_group.group if flag_group.group else not name.startswith(flag_group.prefix):
            continue
        short = (name[len(flag_group.prefix) :],) if adds_prefix else ()
        # The launcher uses values from the file unchecked: types and choices only apply to the command line.
        keys[name] = TableKey({**flag.key.schema, "x-unchecked": True}, tuple(word for word in short if word))
    return keys


def _is_prefix_added(launcher: Module, prefix: str) -> bool:
    """Return whether the launcher adds a section's prefix to keys that lack it (`key = "fsdp_" + key`)."""
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Add)
        and isinstance(node.left, ast.Constant)
        and node.left.value == prefix
        and prefix != ""
        for node in ast.walk(launcher.tree)
    )

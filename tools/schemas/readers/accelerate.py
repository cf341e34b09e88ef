"""accelerate: the dataclass of its configuration file, and the launcher's flags behind each nested section.

The launcher copies every key of a nested mapping onto its own options, so the names of a section are those of flags;
what is no flag is set and never looked at.
"""

from __future__ import annotations

import ast
from typing import Final

from cfglint_schemas.readers.flags import Flag, parser
from cfglint_schemas.readers.models import Models
from cfglint_schemas.readers.source import Class, Module, Source, UndecidedError
from cfglint_schemas.readers.table import Definition, Key, Table
from cfglint_train.foundation.frozen import Frozen


class Section(Frozen):
    """A nested mapping of the configuration file and the flags that it stands for."""

    prefix: str
    """What the flags' names begin with; empty where the group alone determines it."""
    group: str
    """The variable of the argument group, where names do not determine it."""


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


def read(package: str, source: Source) -> Table:
    """The vocabulary of one release. Raises UndecidedError for an unexpected layout."""
    home = source.need("accelerate.commands.config.config_args")
    launcher = source.need("accelerate.commands.launch")
    models = Models()
    every = list(parser(launcher).flags)
    definitions: dict[str, Definition] = {}
    for name in ("ClusterConfig", "SageMakerConfig"):
        of = home.resolve(name)
        if not isinstance(of, Class):
            raise UndecidedError(f"{package} {source.tree.release}: {name} is not a class")
        keys = models.keys(of)
        for section, where in _SECTIONS.items():
            if name == "ClusterConfig" and section in keys:
                definitions[section] = Definition(_section(every, where, _strips(launcher, where.prefix)), "dropped")
                keys[section] = Key({"anyOf": [{"$ref": f"#/$defs/{section}"}, {"type": "null"}], "default": None})
        definitions[name] = Definition(keys)
    entries = {"cluster": ("ClusterConfig",), "sagemaker": ("SageMakerConfig",)}
    return Table({**definitions, **models.definitions()}, entries)


def _section(every: list[Flag], where: Section, strips: bool) -> dict[str, Key]:
    keys = {}
    for flag in every:
        name = flag.name.lstrip("-").replace("-", "_")
        if flag.group != where.group if where.group else not name.startswith(where.prefix):
            continue
        short = (name[len(where.prefix) :],) if strips else ()
        # The launcher takes what the file says as it is: types and choices hold for the command line only.
        keys[name] = Key({**flag.key.schema, "x-unchecked": True}, tuple(word for word in short if word))
    return keys


def _strips(launcher: Module, prefix: str) -> bool:
    """Whether the launcher adds a section's prefix to keys that lack it (`key = "fsdp_" + key`)."""
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Add)
        and isinstance(node.left, ast.Constant)
        and node.left.value == prefix
        and prefix != ""
        for node in ast.walk(launcher.tree)
    )

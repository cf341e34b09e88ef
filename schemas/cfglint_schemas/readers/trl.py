"""TRL: the dataclasses behind each training script, with transformers' training arguments on an axis of their own."""

from __future__ import annotations

import ast
from typing import Final

from cfglint_schemas.readers.flags import parser
from cfglint_schemas.readers.models import Models
from cfglint_schemas.readers.source import Class, Module, Source, UndecidedError, dotted_name
from cfglint_schemas.readers.table import Definition, Key, Table

# The commands of `trl`, then trainers that have a configuration class and an example script, but no command.
_TRAINERS: Final = {
    "sft": "SFTConfig",
    "dpo": "DPOConfig",
    "grpo": "GRPOConfig",
    "kto": "KTOConfig",
    "rloo": "RLOOConfig",
    "reward": "RewardConfig",
    "orpo": "ORPOConfig",
    "cpo": "CPOConfig",
}
_ANY: Final = "any"
_TRANSFORMERS: Final = "TrainingArguments"
_LAUNCH: Final = "LaunchArguments"
_ADDS: Final = "add_argument"
_HOMES: Final = ("trl.scripts.utils", "trl.utils", "trl.commands.cli_utils")


def read(package: str, source: Source) -> Table:
    """One package's share of the vocabulary at one release. Raises UndecidedError for an unexpected layout."""
    models = Models()
    if package == "transformers":
        arguments = source.need("transformers.training_args").resolve(_TRANSFORMERS)
        if not isinstance(arguments, Class):
            raise UndecidedError(f"transformers {source.tree.release}: {_TRANSFORMERS} is no class")
        return Table({_TRANSFORMERS: Definition(models.keys(arguments)), **models.definitions()}, {})
    # What `trl` hands on to the launcher, and `env`, are in no class.
    definitions: dict[str, Definition] = {_LAUNCH: Definition({})}
    entries: dict[str, tuple[str, ...]] = {}
    for trainer, name in _TRAINERS.items():
        own = _config(source, trainer, name)
        if own is None:
            continue
        names = []
        for part in (own, *_beside(source, trainer)):
            title = part.name
            if title in definitions and definitions[title].keys.keys() != models.keys(part).keys():
                title = f"{trainer}.{part.name}"  # the scripts of early releases have classes of one name
            definitions[title] = Definition(models.keys(part))
            names.append(title)
        if added := _added(source, trainer):
            title = f"{trainer}.flags"
            definitions[title] = Definition(added)
            names.append(title)
        definitions.setdefault(_TRANSFORMERS, Definition({}))
        entries[trainer] = (*names, _TRANSFORMERS, _LAUNCH)
    if not entries:
        raise UndecidedError(f"trl {source.tree.release} has none of {', '.join(_TRAINERS.values())}")
    union = dict.fromkeys(name for names in entries.values() for name in names)
    return Table({**definitions, **models.definitions()}, {**entries, _ANY: tuple(union)})


def _config(source: Source, trainer: str, name: str) -> Class | None:
    """The class of a trainer's arguments; what `trl.trainer` has may be an empty child of the experimental one."""
    for home in (f"trl.trainer.{trainer}_config", f"trl.experimental.{trainer}.{trainer}_config"):
        module = source.module(home)
        if module is None or not isinstance(module.bindings.get(name), ast.ClassDef):
            continue
        found = module.resolve(name)
        if isinstance(found, Class) and any(isinstance(node, ast.AnnAssign) for node in found.node.body):
            return found
    return None


def _beside(source: Source, trainer: str) -> list[Class]:
    """The classes that a trainer's script parses beside its arguments."""
    script = _script(source, trainer)
    listed = _parsed(script) if script is not None else []
    found = [_named(source, script, name) for name in listed or _usual(trainer)]
    return [of for of in found if of is not None and of.name != _TRAINERS[trainer]]


def _script(source: Source, trainer: str) -> Module | None:
    names = [trainer, "reward_modeling"] if trainer == "reward" else [trainer]
    homes = [f"{folder}.{name}" for name in names for folder in ("trl.scripts", "trl.commands.scripts")]
    return next((module for home in homes if (module := source.module(home)) is not None), None)


def _added(source: Source, trainer: str) -> dict[str, Key]:
    """What a trainer's script adds to its parser beside the classes: upstream's add nothing, a copy's may."""
    script = _script(source, trainer)
    if script is None or not any(isinstance(one, ast.Attribute) and one.attr == _ADDS for one in ast.walk(script.tree)):
        return {}
    flags = (flag for flag in parser(script).flags if flag.name.startswith("--"))
    return {flag.name.lstrip("-").replace("-", "_"): flag.key for flag in flags}


def _usual(trainer: str) -> tuple[str, ...]:
    """The classes beside a trainer's arguments where its script is not there: a copy may lack the link to it.
    In 0.9 each trainer had a class of its own (trl 0.9.6 commands/cli_utils.py).
    """
    return f"{trainer.upper()}ScriptArguments", "ScriptArguments", "ModelConfig"


def _parsed(script: Module) -> list[str]:
    """The names of the dataclasses that a script hands to its parser."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "dataclass_types":
            tuple_ = node.value
        elif isinstance(node, ast.Call) and (dotted_name(node.func) or "").endswith("Parser") and node.args:
            tuple_ = node.args[0]
        else:
            continue
        if isinstance(tuple_, ast.Tuple):
            return [name for item in tuple_.elts if (name := dotted_name(item))]
    return []


def _named(source: Source, script: Module | None, name: str) -> Class | None:
    """A class by its name: the script's own, else one of TRL's."""
    if script is not None and isinstance(script.bindings.get(name), ast.ClassDef):
        found = script.resolve(name)
        return found if isinstance(found, Class) else None
    for home in ("trl.trainer.model_config", *_HOMES):
        module = source.module(home)
        if module is not None and isinstance(module.bindings.get(name), ast.ClassDef):
            found = module.resolve(name)
            return found if isinstance(found, Class) else None
    return None

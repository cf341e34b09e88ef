"""TRL: the dataclasses of each training script; the training arguments follow transformers' releases."""

from __future__ import annotations

import ast
from typing import Final

from cfglint_schemas.readers.flags import read_parser
from cfglint_schemas.readers.models import ModelReader
from cfglint_schemas.readers.source import Class, Module, Source, UndecidedError, get_dotted_name
from cfglint_schemas.readers.table import Definition, ReleaseTable, TableKey

# The commands of `trl`, then trainers that have a configuration class and an example script but no command.
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
_ADD_ARGUMENT: Final = "add_argument"
_MODULES: Final = ("trl.scripts.utils", "trl.utils", "trl.commands.cli_utils")


def read(package: str, source: Source) -> ReleaseTable:
    """Return one package's part of the vocabulary at one release; raise UndecidedError for an unexpected layout."""
    models = ModelReader()
    if package == "transformers":
        arguments = source.require_module("transformers.training_args").resolve_name(_TRANSFORMERS)
        if not isinstance(arguments, Class):
            raise UndecidedError(f"transformers {source.tree.release}: {_TRANSFORMERS} is not a class")
        return ReleaseTable({_TRANSFORMERS: Definition(models.read_keys(arguments)), **models.list_definitions()}, {})
    # For `env` and the arguments that `trl` passes on to the launcher; no class declares them.
    definitions: dict[str, Definition] = {_LAUNCH: Definition({})}
    entries: dict[str, tuple[str, ...]] = {}
    for trainer, name in _TRAINERS.items():
        config_class = _find_config_class(source, trainer, name)
        if config_class is None:
            continue
        names = []
        for class_ in (config_class, *_find_other_classes(source, trainer)):
            title = class_.name
            if title in definitions and definitions[title].keys.keys() != models.read_keys(class_).keys():
                title = f"{trainer}.{class_.name}"  # in early releases, several scripts have a class of this name
            definitions[title] = Definition(models.read_keys(class_))
            names.append(title)
        if added_keys := _read_added_flags(source, trainer):
            title = f"{trainer}.flags"
            definitions[title] = Definition(added_keys)
            names.append(title)
        definitions.setdefault(_TRANSFORMERS, Definition({}))
        entries[trainer] = (*names, _TRANSFORMERS, _LAUNCH)
    if not entries:
        raise UndecidedError(f"trl {source.tree.release} has none of {', '.join(_TRAINERS.values())}")
    union = dict.fromkeys(name for names in entries.values() for name in names)
    return ReleaseTable({**definitions, **models.list_definitions()}, {**entries, _ANY: tuple(union)})


def _find_config_class(source: Source, trainer: str, name: str) -> Class | None:
    """Return the configuration class of a trainer, or None if the release has none.

    The class in `trl.trainer` may be an empty subclass of the experimental class, which is then returned.
    """
    for module_name in (f"trl.trainer.{trainer}_config", f"trl.experimental.{trainer}.{trainer}_config"):
        module = source.find_module(module_name)
        if module is None or not isinstance(module.bindings.get(name), ast.ClassDef):
            continue
        symbol = module.resolve_name(name)
        if isinstance(symbol, Class) and any(isinstance(node, ast.AnnAssign) for node in symbol.node.body):
            return symbol
    return None


def _find_other_classes(source: Source, trainer: str) -> list[Class]:
    """Return the dataclasses that a trainer's script parses in addition to the trainer's configuration class."""
    script = _find_script(source, trainer)
    names = _find_parsed_classes(script) if script is not None else []
    classes = [_find_class(source, script, name) for name in names or _list_default_classes(trainer)]
    return [class_ for class_ in classes if class_ is not None and class_.name != _TRAINERS[trainer]]


def _find_script(source: Source, trainer: str) -> Module | None:
    names = [trainer, "reward_modeling"] if trainer == "reward" else [trainer]
    module_names = [f"{folder}.{name}" for name in names for folder in ("trl.scripts", "trl.commands.scripts")]
    return next(
        (module for module_name in module_names if (module := source.find_module(module_name)) is not None), None
    )


def _read_added_flags(source: Source, trainer: str) -> dict[str, TableKey]:
    """Return the keys that a trainer's script adds to its parser; upstream scripts add none, but a copy may."""
    script = _find_script(source, trainer)
    if script is None or not any(
        isinstance(node, ast.Attribute) and node.attr == _ADD_ARGUMENT for node in ast.walk(script.tree)
    ):
        return {}
    flags = (flag for flag in read_parser(script).flags if flag.name.startswith("--"))
    return {flag.name.lstrip("-").replace("-", "_"): flag.key for flag in flags}


def _list_default_classes(trainer: str) -> tuple[str, ...]:
    """Return the names of the classes to expect besides a trainer's configuration class if the script is not readable.

    A copy may lack the link to the script. In TRL 0.9, each trainer had its own class (trl 0.9.6
    commands/cli_utils.py).
    """
    return f"{trainer.upper()}ScriptArguments", "ScriptArguments", "ModelConfig"


def _find_parsed_classes(script: Module) -> list[str]:
    """Return the names of the dataclasses that a script passes to its parser."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "dataclass_types":
            types = node.value
        elif isinstance(node, ast.Call) and (get_dotted_name(node.func) or "").endswith("Parser") and node.args:
            types = node.args[0]
        else:
            continue
        if isinstance(types, ast.Tuple):
            return [name for item in types.elts if (name := get_dotted_name(item))]
    return []


def _find_class(source: Source, script: Module | None, name: str) -> Class | None:
    """Return the class with a name in the script, or else in TRL's shared modules, or None."""
    if script is not None and isinstance(script.bindings.get(name), ast.ClassDef):
        symbol = script.resolve_name(name)
        return symbol if isinstance(symbol, Class) else None
    for module_name in ("trl.trainer.model_config", *_MODULES):
        module = source.find_module(module_name)
        if module is not None and isinstance(module.bindings.get(name), ast.ClassDef):
            symbol = module.resolve_name(name)
            return symbol if isinstance(symbol, Class) else None
    return None

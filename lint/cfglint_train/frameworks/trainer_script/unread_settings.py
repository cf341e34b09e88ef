"""Fields of `ModelConfig` that a program parses and passes to nothing, so that they have no effect.

Sources: trl 0.9.6 to 1.16.0 `trainer/model_config.py`, `trainer/utils.py` (get_peft_config, get_quantization_config).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache

from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.syntax import get_callee_name
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.trainer_script.class_sources import find_class, walk_bases
from cfglint_train.frameworks.trainer_script.parser import MAX_CACHED_PROGRAMS, list_parsed_objects

_CLASS: Final = "ModelConfig"
_HELPERS: Final = {
    "get_peft_config": ("use_peft",),
    "get_quantization_config": ("load_in_4bit", "load_in_8bit"),
}
"""TRL's functions that read the whole object -> the switches that they read."""
_SHOWN: Final = frozenset(("critical", "debug", "error", "info", "log", "pprint", "print", "warning"))
"""Functions that only show the object."""
REMEDIES: Final[Mapping[str, str]] = {
    "use_peft": "pass `peft_config=get_peft_config(...)` to the trainer",
    "load_in_4bit": "load the model with `quantization_config=get_quantization_config(...)`",
    "load_in_8bit": "load the model with `quantization_config=get_quantization_config(...)`",
    "attn_implementation": "load the model with `attn_implementation=`, or set it in `model_init_kwargs`",
}
"""Fields that are checked -> what the program must do for them to have an effect."""


@lru_cache(maxsize=MAX_CACHED_PROGRAMS)
def find_unread_settings(program: PythonScript) -> tuple[str, ...]:
    """Return the fields that a program parses and never reads; empty if some use of the object is unknown."""
    names = [
        name
        for name, expression in list_parsed_objects(program)
        if any(
            item is not None and item.package == "trl" and item.name == _CLASS
            for item in walk_bases(find_class(program, expression))
        )
    ]
    if len(names) != 1:
        return ()
    read_names = _list_read_names(program, names[0])
    return () if read_names is None else tuple(name for name in REMEDIES if name not in read_names)


def _list_read_names(program: PythonScript, name: str) -> set[str] | None:
    """Return the attributes that a program reads of an object, or None if some use of the object is unknown."""
    read_names: set[str] = set()
    known_uses: set[int] = set()
    for attribute in program.list_nodes(ast.Attribute):
        if isinstance(attribute.value, ast.Name) and attribute.value.id == name:
            if attribute.attr.startswith("_") or not isinstance(attribute.ctx, ast.Load):
                return None
            known_uses.add(id(attribute.value))
            read_names.add(attribute.attr)
    for call in program.list_nodes(ast.Call):
        for place, argument in _list_arguments(call):
            if not isinstance(argument, ast.Name) or argument.id != name:
                continue
            callee = get_callee_name(call)
            if callee in _HELPERS:
                read_names.update(_HELPERS[callee])
            elif callee not in _SHOWN and not _keeps_name(program, callee, place, name):
                return None
            known_uses.add(id(argument))
    for shown in program.list_nodes(ast.FormattedValue):
        known_uses.add(id(shown.value))
    uses = (node for node in program.list_nodes(ast.Name) if node.id == name and isinstance(node.ctx, ast.Load))
    return read_names if all(id(node) in known_uses for node in uses) else None


def _list_arguments(call: ast.Call) -> Iterator[tuple[int | str | None, ast.expr]]:
    """Yield the arguments of a call with their positions or names."""
    yield from enumerate(call.args)
    yield from ((keyword.arg, keyword.value) for keyword in call.keywords)


def _keeps_name(program: PythonScript, callee: str, place: int | str | None, name: str) -> bool:
    """Return whether a function of the program receives an argument under the name that it has at the call."""
    functions = [node for node in program.list_nodes(ast.FunctionDef) if node.name == callee]
    if len(functions) != 1:
        return False
    parameters = [item.arg for item in (*functions[0].args.posonlyargs, *functions[0].args.args)]
    if isinstance(place, int):
        return place < len(parameters) and parameters[place] == name
    return place == name and name in (*parameters, *(item.arg for item in functions[0].args.kwonlyargs))

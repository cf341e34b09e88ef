"""LLaMA-Factory: the dataclasses of each command; the training arguments follow transformers' releases."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from cfglint_schemas.readers.models import ModelReader
from cfglint_schemas.readers.source import Class, External, Module, Source, UndecidedError, get_dotted_name
from cfglint_schemas.readers.table import Definition, ReleaseTable, TableKey

# Command -> the list in `hparams/parser.py` that names its dataclasses.
_COMMANDS: Final = {
    "train": "_TRAIN_ARGS",
    "infer": "_INFER_ARGS",
    "eval": "_EVAL_ARGS",
    "mca": "_TRAIN_MCA_ARGS",
    "megatron_bridge": "_TRAIN_MBRIDGE_ARGS",
}
# The package's name and former name; the first releases under the former name had the parser in `model`.
_NAMES: Final = ("llamafactory", "llmtuner")
_V1_CLASSES: Final = ("ModelArguments", "DataArguments", "TrainingArguments", "SampleArguments")
_TRANSFORMERS: Final = "TrainingArguments"


def read(package: str, source: Source) -> ReleaseTable:
    """Return one package's part of the vocabulary at one release; raise UndecidedError for an unexpected layout."""
    if package == "transformers":
        arguments = source.require_module("transformers.training_args_seq2seq").resolve_name("Seq2SeqTrainingArguments")
        if not isinstance(arguments, Class):
            raise UndecidedError(f"transformers {source.tree.release}: Seq2SeqTrainingArguments is not a class")
        models = ModelReader()
        return ReleaseTable({_TRANSFORMERS: Definition(models.read_keys(arguments)), **models.list_definitions()}, {})
    parser = source.require_module(*(f"{name}.hparams.parser" for name in _NAMES), "llmtuner.model.parser")
    models = ModelReader()
    definitions: dict[str, Definition] = {}
    entries: dict[str, tuple[str, ...]] = {}
    for command, list_name in _COMMANDS.items():
        names = []
        for class_ in (*_read_class_list(parser, list_name), *_find_added_classes(parser, list_name)):
            if isinstance(class_, Class):
                definitions[class_.name] = Definition(_add_asserted_words(class_, models.read_keys(class_)))
                names.append(class_.name)
            elif class_.name.startswith("transformers."):
                definitions.setdefault(_TRANSFORMERS, Definition({}))
                names.append(_TRANSFORMERS)
            else:
                # Another package defines the class, or it is chosen at run time, so any name may be a key of it.
                definitions[class_.name] = Definition({}, "kept")
                names.append(class_.name)
        if names:
            entries[command] = tuple(names)
    if "train" not in entries:
        raise UndecidedError(f"{parser.name} lists no classes for training")
    _name_templates(source, definitions)
    _add_stages(source, definitions)
    v1_definitions = _read_v1_classes(source, models)
    if v1_definitions:
        entries["v1"] = tuple(v1_definitions)
    return ReleaseTable({**definitions, **v1_definitions, **models.list_definitions()}, entries)


def _find_module(source: Source, name: str) -> Module | None:
    """Return a module of the package under its current or former name, or None."""
    return next((module for package in _NAMES if (module := source.find_module(f"{package}.{name}")) is not None), None)


def _add_asserted_words(class_: Class, keys: Mapping[str, TableKey]) -> dict[str, TableKey]:
    """Return a dataclass's keys, whose enumerations also have the words that the class asserts.

    `parse_dict` does not check values against a `Literal`; only `assert self.key in [...]` in `__post_init__` rejects
    other words.
    """
    extended = dict(keys)
    for node in ast.walk(class_.node):
        test = node.test if isinstance(node, ast.Assert) else None
        if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.In):
            continue
        name, words = get_dotted_name(test.left) or "", test.comparators[0]
        key = extended.get(name.removeprefix("self."))
        if key is None or "enum" not in key.schema or not isinstance(words, (ast.List, ast.Tuple)):
            continue
        asserted = [item.value for item in words.elts if isinstance(item, ast.Constant)]
        enum = [*key.schema["enum"], *(word for word in asserted if word not in key.schema["enum"])]
        extended[name.removeprefix("self.")] = key._replace(schema={**key.schema, "enum": enum})
    return extended


def _name_templates(source: Source, definitions: dict[str, Definition]) -> None:
    """Set the enumeration of `template` to the registered templates, if every registration states a literal name.

    `get_template_and_fix_tokenizer` rejects other names. The README asks users to add templates to this file, so an
    unknown name may be a user's template (`x-registry`).
    """
    module, data = _find_module(source, "data.template"), definitions.get("DataArguments")
    if module is None or data is None or "template" not in data.keys:
        return
    names: list[str] = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and (get_dotted_name(node.func) or "").lstrip("_") == "register_template":
            name = next((word.value for word in node.keywords if word.arg == "name"), None)
            if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
                return
            names.append(name.value)
    if names:
        schema = {"enum": [*sorted(dict.fromkeys(names)), None], "x-registry": True, "default": None}
        keys = {**data.keys, "template": data.keys["template"]._replace(schema=schema)}
        definitions["DataArguments"] = data._replace(keys=keys)


def _add_stages(source: Source, definitions: dict[str, Definition]) -> None:
    """Add the stages that `run_exp` compares `stage` with to the enumeration, because the `Literal` is not enforced."""
    tuner, arguments = _find_module(source, "train.tuner"), definitions.get("FinetuningArguments")
    stage = None if arguments is None else arguments.keys.get("stage")
    if tuner is None or arguments is None or stage is None or "enum" not in stage.schema:
        return
    schema = stage.schema
    compared_stages = [
        node.comparators[0].value
        for node in ast.walk(tuner.tree)
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Attribute)
        and node.left.attr == "stage"
        and isinstance(node.ops[0], ast.Eq)
        and isinstance(node.comparators[0], ast.Constant)
    ]
    enum = [*dict.fromkeys((*schema["enum"], *compared_stages))]
    keys = {**arguments.keys, "stage": stage._replace(schema={**schema, "enum": enum})}
    definitions["FinetuningArguments"] = arguments._replace(keys=keys)


def _read_class_list(parser: Module, list_name: str) -> list[Class | External]:
    """Return the classes in a named list of dataclasses; if it is assigned several times, the longest list counts."""
    lists = [
        node.value.elts
        for node in ast.walk(parser.tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.List)
        and any(isinstance(target, ast.Name) and target.id == list_name for target in node.targets)
    ]
    classes: list[Class | External] = []
    for item in max(lists, key=len, default=[]):
        class_ = _resolve_class(parser, item)
        if class_ is None:
            raise UndecidedError(f"{parser.name}: {ast.unparse(item)} is not a class")
        classes.append(class_)
    return classes


def _find_added_classes(parser: Module, list_name: str) -> Iterator[Class | External]:
    """Yield the classes that a parser adds to a list of dataclasses (`HfArgumentParser(_TRAIN_ARGS + [chosen])`).

    A class that is chosen at run time is returned as `External`, named by its expression.
    """
    for node in ast.walk(parser.tree):
        if isinstance(node, ast.Call) and get_dotted_name(node.func) == "HfArgumentParser" and node.args:
            parts = tuple(_list_operands(node.args[0]))
            if any(isinstance(part, ast.Name) and part.id == list_name for part in parts):
                others = (part for part in parts if get_dotted_name(part) != list_name)
                yield from (_resolve_class(parser, part) or External(ast.unparse(part)) for part in others)


def _resolve_class(parser: Module, node: ast.expr) -> Class | External | None:
    """Return the class that an expression names, or None if the source does not determine it."""
    name = get_dotted_name(node)
    try:
        symbol = parser.resolve_name(name) if name else None
    except UndecidedError:
        return None
    return symbol if isinstance(symbol, (Class, External)) else None


def _list_operands(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the items of the lists in a sum, and its operands that are not list displays."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _list_operands(node.left)
        yield from _list_operands(node.right)
    elif isinstance(node, (ast.List, ast.Tuple)):
        for item in node.elts:
            yield from _list_operands(item)
    else:
        yield node.value if isinstance(node, ast.Starred) else node


def _read_v1_classes(source: Source, models: ModelReader) -> dict[str, Definition]:
    """Return the dataclasses of v1 (`USE_V1=1`), or an empty mapping if the release has none."""
    definitions = {}
    for module in source.list_modules("llamafactory/v1/config"):
        for name in _V1_CLASSES:
            symbol = module.resolve_name(name) if isinstance(module.bindings.get(name), ast.ClassDef) else None
            if isinstance(symbol, Class):
                definitions[f"v1.{name}"] = Definition(models.read_keys(symbol))
    return dict(sorted(definitions.items(), key=lambda item: _V1_CLASSES.index(item[0].removeprefix("v1."))))

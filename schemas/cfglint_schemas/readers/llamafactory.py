"""LLaMA-Factory: the dataclasses behind each command, with transformers' training arguments on an axis of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from cfglint_schemas.readers.models import Models
from cfglint_schemas.readers.source import Class, External, Module, Source, UndecidedError, dotted_name
from cfglint_schemas.readers.table import Definition, Key, Table

# Command -> the list in `hparams/parser.py` that names its dataclasses.
_COMMANDS: Final = {
    "train": "_TRAIN_ARGS",
    "infer": "_INFER_ARGS",
    "eval": "_EVAL_ARGS",
    "mca": "_TRAIN_MCA_ARGS",
    "megatron_bridge": "_TRAIN_MBRIDGE_ARGS",
}
# The package's name and its former one, under which its first releases had the parser in `model`.
_NAMES: Final = ("llamafactory", "llmtuner")
_V1: Final = ("ModelArguments", "DataArguments", "TrainingArguments", "SampleArguments")
_TRANSFORMERS: Final = "TrainingArguments"


def read(package: str, source: Source) -> Table:
    """One package's share of the vocabulary at one release. Raises UndecidedError for an unexpected layout."""
    if package == "transformers":
        arguments = source.need("transformers.training_args_seq2seq").resolve("Seq2SeqTrainingArguments")
        if not isinstance(arguments, Class):
            raise UndecidedError(f"transformers {source.tree.release}: Seq2SeqTrainingArguments is not a class")
        models = Models()
        return Table({_TRANSFORMERS: Definition(models.keys(arguments)), **models.definitions()}, {})
    parser = source.need(*(f"{name}.hparams.parser" for name in _NAMES), "llmtuner.model.parser")
    models = Models()
    definitions: dict[str, Definition] = {}
    entries: dict[str, tuple[str, ...]] = {}
    for command, listed in _COMMANDS.items():
        names = []
        for of in (*_listed(parser, listed), *_added(parser, listed)):
            if isinstance(of, Class):
                definitions[of.name] = Definition(_accepted(of, models.keys(of)))
                names.append(of.name)
            elif of.name.startswith("transformers."):
                definitions.setdefault(_TRANSFORMERS, Definition({}))
                names.append(_TRANSFORMERS)
            else:
                # A class of another package, or one that is chosen at run time: every name may be one of its own.
                definitions[of.name] = Definition({}, "kept")
                names.append(of.name)
        if names:
            entries[command] = tuple(names)
    if "train" not in entries:
        raise UndecidedError(f"{parser.name} lists no classes for training")
    _name_templates(source, definitions)
    _add_stages(source, definitions)
    newer = _v1(source, models)
    if newer:
        entries["v1"] = tuple(newer)
    return Table({**definitions, **newer, **models.definitions()}, entries)


def _module(source: Source, name: str) -> Module | None:
    """A module of the package, under whichever of its names it has one."""
    return next((found for of in _NAMES if (found := source.module(f"{of}.{name}")) is not None), None)


def _accepted(of: Class, keys: Mapping[str, Key]) -> dict[str, Key]:
    """A dataclass's keys, with the words that it asserts beside those that it declares.

    `parse_dict` holds no value against a `Literal`: what refuses is `assert self.key in [...]` of `__post_init__`.
    """
    found = dict(keys)
    for node in ast.walk(of.node):
        test = node.test if isinstance(node, ast.Assert) else None
        if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.In):
            continue
        name, words = dotted_name(test.left) or "", test.comparators[0]
        key = found.get(name.removeprefix("self."))
        if key is None or "enum" not in key.schema or not isinstance(words, (ast.List, ast.Tuple)):
            continue
        asserted = [item.value for item in words.elts if isinstance(item, ast.Constant)]
        enum = [*key.schema["enum"], *(word for word in asserted if word not in key.schema["enum"])]
        found[name.removeprefix("self.")] = key._replace(schema={**key.schema, "enum": enum})
    return found


def _name_templates(source: Source, definitions: dict[str, Definition]) -> None:
    """Make the registered templates the words of `template`, where each is registered by a plain name.

    `get_template_and_fix_tokenizer` refuses other names. People add templates in this very file, as the README has
    them do, so that a name that no release has may be one of their own (`x-registry`).
    """
    module, data = _module(source, "data.template"), definitions.get("DataArguments")
    if module is None or data is None or "template" not in data.keys:
        return
    names: list[str] = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and (dotted_name(node.func) or "").lstrip("_") == "register_template":
            name = next((word.value for word in node.keywords if word.arg == "name"), None)
            if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
                return
            names.append(name.value)
    if names:
        schema = {"enum": [*sorted(dict.fromkeys(names)), None], "x-registry": True, "default": None}
        keys = {**data.keys, "template": data.keys["template"]._replace(schema=schema)}
        definitions["DataArguments"] = data._replace(keys=keys)


def _add_stages(source: Source, definitions: dict[str, Definition]) -> None:
    """Add the stages that `run_exp` compares with to those that are declared: no `Literal` refuses any."""
    tuner, arguments = _module(source, "train.tuner"), definitions.get("FinetuningArguments")
    stage = None if arguments is None else arguments.keys.get("stage")
    if tuner is None or arguments is None or stage is None or "enum" not in stage.schema:
        return
    schema = stage.schema
    compared = [
        node.comparators[0].value
        for node in ast.walk(tuner.tree)
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Attribute)
        and node.left.attr == "stage"
        and isinstance(node.ops[0], ast.Eq)
        and isinstance(node.comparators[0], ast.Constant)
    ]
    enum = [*dict.fromkeys((*schema["enum"], *compared))]
    keys = {**arguments.keys, "stage": stage._replace(schema={**schema, "enum": enum})}
    definitions["FinetuningArguments"] = arguments._replace(keys=keys)


def _listed(parser: Module, listed: str) -> list[Class | External]:
    """The classes that a list of dataclasses names, wherever it is assigned; the longest assignment counts."""
    lists = [
        node.value.elts
        for node in ast.walk(parser.tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.List)
        and any(isinstance(target, ast.Name) and target.id == listed for target in node.targets)
    ]
    classes: list[Class | External] = []
    for item in max(lists, key=len, default=[]):
        found = _class(parser, item)
        if found is None:
            raise UndecidedError(f"{parser.name}: {ast.unparse(item)} is not a class")
        classes.append(found)
    return classes


def _added(parser: Module, listed: str) -> Iterator[Class | External]:
    """The classes that a parser gets beside a list of them (`HfArgumentParser(_TRAIN_ARGS + [chosen])`); what is chosen
    at run time under the words that name it.
    """
    for node in ast.walk(parser.tree):
        if isinstance(node, ast.Call) and dotted_name(node.func) == "HfArgumentParser" and node.args:
            parts = tuple(_parts(node.args[0]))
            if any(isinstance(part, ast.Name) and part.id == listed for part in parts):
                others = (part for part in parts if dotted_name(part) != listed)
                yield from (_class(parser, part) or External(ast.unparse(part)) for part in others)


def _class(parser: Module, node: ast.expr) -> Class | External | None:
    """The class that an expression names; None where none can be determined."""
    name = dotted_name(node)
    try:
        symbol = parser.resolve(name) if name else None
    except UndecidedError:
        return None
    return symbol if isinstance(symbol, (Class, External)) else None


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """The items of a sum of lists, and the lists that it names."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _parts(node.left)
        yield from _parts(node.right)
    elif isinstance(node, (ast.List, ast.Tuple)):
        for item in node.elts:
            yield from _parts(item)
    else:
        yield node.value if isinstance(node, ast.Starred) else node


def _v1(source: Source, models: Models) -> dict[str, Definition]:
    """The dataclasses of the second generation (`USE_V1=1`), where the release has them."""
    found = {}
    for module in source.modules("llamafactory/v1/config"):
        for name in _V1:
            symbol = module.resolve(name) if isinstance(module.bindings.get(name), ast.ClassDef) else None
            if isinstance(symbol, Class):
                found[f"v1.{name}"] = Definition(models.keys(symbol))
    return dict(sorted(found.items(), key=lambda item: _V1.index(item[0].removeprefix("v1."))))

"""How long the samples are that a script of the HF Trainer makes, which no setting of the Trainer says.

What a script tokenizes with counts: `tokenizer(texts, truncation=True, max_length=512, padding="max_length")`, wherever
the data are mapped, and `[ids[i : i + block_size] for i in range(0, total, block_size)]`, which packs them. Sources:
transformers 4.57 and 5.23 `tokenization_utils_base.py` (`__call__`: nothing is cut without `truncation`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cfglint_train.documents.document import Unknown
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.tree import Part, Record, Value
from cfglint_train.documents.python.values import Argument, Arguments, Function, Partial, Scope
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.trainer_script.facts import class_of, named
from cfglint_train.frameworks.trainer_script.line import Launched

LENGTH: Final = "_LENGTH_"
"""Tokens to which samples are cut, or that each block has, as a fact of a run."""
PACKED: Final = "_PACKED_"
PADDED: Final = "_PADDED_"
LIMIT: Final = "model_max_length"
"""What a tokenizer cuts to where a call names no length."""

_CUTS: Final = (True, "longest_first", "only_first", "only_second")


class Cut(Frozen):
    """A call of a tokenizer that cuts what it gets, or the expression that makes blocks of one length."""

    node: ast.expr
    length: Any
    padded: bool = False
    block: bool = False


class Sampled(Launched):
    """A walk that notes how a script cuts its samples."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.cuts: dict[int, Cut] = {}
        self.instances: dict[str, Arguments] = {}
        """What classes are made with, the first time."""

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """As in the base class."""
        if isinstance(node, ast.Call):
            self._note_call(node, scope)
        elif isinstance(node, (ast.ListComp, ast.DictComp, ast.GeneratorExp)):
            for inner in ast.walk(node):  # what comprehensions compute is not followed
                size = _block_size(inner) if isinstance(inner, ast.ListComp) else None
                if size is not None and isinstance(inner, ast.ListComp):
                    self._note(Cut(inner, super().value(size, scope), block=True))
                elif isinstance(inner, ast.Call):
                    self._note_call(inner, scope)
        return super().value(node, scope)

    def record(self, node: ast.Call, name: str, arguments: Arguments, *given: Any, **named: Any) -> Record:
        """As in the base class."""
        self.instances.setdefault(name, arguments)
        return super().record(node, name, arguments, *given, **named)

    def _note_call(self, node: ast.Call, scope: Scope) -> None:
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if "truncation" not in given:
            return
        switch = super().value(given["truncation"], scope)
        if isinstance(switch, Value) and switch.value in (False, None, "do_not_truncate"):
            return
        padding = super().value(given["padding"], scope) if "padding" in given else None
        padded = isinstance(padding, Value) and padding.value == "max_length"
        if isinstance(switch, Value) and switch.value in _CUTS and "max_length" in given:
            length = super().value(given["max_length"], scope)
            if isinstance(given["max_length"], ast.Attribute) and given["max_length"].attr == LIMIT:
                length = self._limit(length)
        elif isinstance(switch, Value) and switch.value in _CUTS and None not in given:
            length = self._limit(None)
        else:
            length = self.unknown(node, "whether a call of the tokenizer cuts")
        self._note(Cut(node, length, padded))

    def _limit(self, found: Any) -> Any:
        """The limit of the script's tokenizers, where they all have one; `found` where they have none."""
        limits = [
            entry.value
            for record in self.made
            if "Tokenizer" in class_of(record) and (entry := record.get(LIMIT)) is not None
        ]
        values = {one.value for one in limits if isinstance(one, Value) and not isinstance(one.value, Unknown)}
        return limits[0] if len(values) == 1 and len(limits) == len(values) else found

    def _note(self, cut: Cut) -> None:
        """Keep what is known: a function may be entered once with its arguments, and once without."""
        present = self.cuts.get(id(cut.node))
        if present is None or _tokens(present) is None:
            self.cuts[id(cut.node)] = cut


def _tokens(cut: Cut) -> int | None:
    value = cut.length.value if isinstance(cut.length, Value) else None
    return value if type(value) is int and value > 0 else None


def _block_size(node: ast.ListComp) -> ast.expr | None:
    """The expression for N in `[ids[i : i + N] for i in range(0, total, N)]`; None for other comprehensions."""
    source, target = node.generators[0].iter, node.generators[0].target
    if len(node.generators) != 1 or not isinstance(target, ast.Name) or not isinstance(source, ast.Call):
        return None
    if not (isinstance(source.func, ast.Name) and source.func.id == "range" and len(source.args) == 3):
        return None
    cut = node.elt.slice if isinstance(node.elt, ast.Subscript) else None
    if not isinstance(cut, ast.Slice) or not isinstance(cut.upper, ast.BinOp) or not isinstance(cut.upper.op, ast.Add):
        return None
    size = ast.dump(source.args[2])
    ends = [ast.dump(cut.upper.left), ast.dump(cut.upper.right)]
    starts = isinstance(cut.lower, ast.Name) and cut.lower.id == target.id
    return source.args[2] if starts and ends.count(size) == 1 else None


def mapped(evaluator: Evaluator, node: ast.Call, owner: Any, arguments: Arguments) -> Any:
    """`dataset.map(tokenize, fn_kwargs={"max_length": 512})`."""
    function = arguments.positional[0] if arguments.positional else arguments.get("function")
    if isinstance(evaluator, Sampled) and isinstance(function, (Function, Partial)):
        given = arguments.get("fn_kwargs")
        further = {
            entry.name or "": Argument(entry.value, entry.key.span)
            for entry in (given.entries if isinstance(given, Record) else ())
        }
        evaluator.attempt(function, Arguments((evaluator.unknown(node, "the samples"),), further), node)
    return None


def follow(evaluator: Sampled) -> None:
    """Enter the functions and methods that cut samples, and that nothing has entered."""
    for owner in evaluator.document.nodes(ast.ClassDef):
        methods = {node.name: node for node in owner.body if isinstance(node, ast.FunctionDef)}
        if not any(map(_cuts, methods.values())):
            continue
        instance = Record(evaluator.document.span(owner.body[0]), [], open_="an object of the script's own class")
        given = evaluator.instances.get(owner.name, Arguments(complete=False))
        maker = methods.pop("__init__", None)
        if maker is not None:
            evaluator.attempt(Function(maker, evaluator.module, instance), given, owner.body[0])
        for method in filter(_cuts, methods.values()):
            evaluator.attempt(Function(method, evaluator.module, instance), Arguments(complete=False), owner.body[0])
    for value in list(evaluator.module.names.values()):
        if isinstance(value, Function) and id(value.node) not in evaluator.called and _cuts(value.node):
            evaluator.enter(value)


def _cuts(function: ast.AST) -> bool:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(keyword.arg == "truncation" for node in calls for keyword in node.keywords)


def put_samples(evaluator: Sampled, found: Record) -> None:
    """Put what is known of a script's samples among the facts of a run."""
    cuts = list(evaluator.cuts.values())
    blocks = [cut for cut in cuts if cut.block]
    counted = blocks or cuts
    if not counted:
        return
    longest = max(counted, key=lambda cut: _tokens(cut) or 0)
    unread = next((cut for cut in counted if _tokens(cut) is None), None)
    reason = "" if unread is None else "the length to which samples are cut"
    if not blocks and any(len(group) > 1 for group in _of_one_function(evaluator, cuts)):
        reason = "the length of samples that several calls of the tokenizer make"
    place = evaluator.document.span((unread or longest).node)
    length = longest.length if isinstance(longest.length, Value) else Value(place, Unknown(reason))
    for name, value in (
        (LENGTH, Value(place, Unknown(reason)) if reason else Value(place, length.value, length.how)),
        (PACKED, Value(place, bool(blocks))),
        (PADDED, Value(place, bool(blocks) or all(cut.padded for cut in cuts))),
    ):
        found.parts[name] = Part(None, "max_length", named(name, value, place))


def _of_one_function(evaluator: Sampled, cuts: list[Cut]) -> Iterator[list[Cut]]:
    """The cuts that the innermost functions around them share."""
    groups: dict[int, list[Cut]] = {}
    functions = evaluator.document.nodes(ast.FunctionDef)
    for cut in cuts:
        around = [node for node in functions if any(inner is cut.node for inner in ast.walk(node))]
        if around:
            groups.setdefault(id(min(around, key=lambda node: node.end_lineno - node.lineno)), []).append(cut)  # type: ignore[operator]
    yield from groups.values()

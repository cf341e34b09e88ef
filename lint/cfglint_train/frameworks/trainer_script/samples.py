"""Sample lengths in scripts of the HF Trainer, which has no argument for them.

The lengths come from tokenizer calls, `tokenizer(texts, truncation=True, max_length=512, padding="max_length")`,
wherever the script maps its data, and from `[ids[i : i + block_size] for i in range(0, total, block_size)]`, which
packs samples.

Sources: transformers 4.57 and 5.23 `tokenization_utils_base.py` (`__call__`: nothing is cut without `truncation`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cfglint_train.documents.document import Unknown
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.syntax import get_callee_name
from cfglint_train.documents.python.tree import OtherCallSetting, Record, Value
from cfglint_train.documents.python.values import Argument, Arguments, Function, Partial, Scope
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.trainer_script.facts import build_entry, get_class
from cfglint_train.frameworks.trainer_script.line import LaunchedWalk

LENGTH: Final = "_LENGTH_"
"""Name of the run fact that holds the length in tokens of truncated samples or of blocks."""
PACKED: Final = "_PACKED_"
PADDED: Final = "_PADDED_"
UNSEEN: Final = "_UNSEEN_"
"""Name of the run fact that code outside the script must apply the length."""
LIMIT: Final = "model_max_length"
"""Tokenizer setting that limits the samples of calls without `max_length`."""

_TRUNCATION_STRATEGIES: Final = (True, "longest_first", "only_first", "only_second")


class Truncation(Frozen):
    """A tokenizer call that truncates its input, or an expression that cuts it into blocks of equal length."""

    node: ast.expr
    length: Any
    is_padded: bool = False
    is_block: bool = False


class SampleWalk(LaunchedWalk):
    """A walk that records the truncations in a script."""

    def __init__(self, *arguments: Any) -> None:
        """Start a walk without truncations."""
        super().__init__(*arguments)
        self.truncations: dict[int, Truncation] = {}
        self.instances: dict[str, Arguments] = {}
        """Arguments of the first call of each class, by class name."""

    def evaluate(self, node: ast.expr, scope: Scope) -> Any:
        """Evaluate as in the base class, and record truncations."""
        if isinstance(node, ast.Call):
            self._record_call(node, scope)
        elif isinstance(node, (ast.ListComp, ast.DictComp, ast.GeneratorExp)):
            for inner in ast.walk(node):  # comprehensions are not evaluated
                size = _find_block_size(inner) if isinstance(inner, ast.ListComp) else None
                if size is not None and isinstance(inner, ast.ListComp):
                    self._record(Truncation(inner, super().evaluate(size, scope), is_block=True))
                elif isinstance(inner, ast.Call):
                    self._record_call(inner, scope)
        return super().evaluate(node, scope)

    def build_record(self, node: ast.Call, name: str, arguments: Arguments, *rest: Any, **keywords: Any) -> Record:
        """Build the record as in the base class, and keep the arguments of the first call of `name`."""
        self.instances.setdefault(name, arguments)
        return super().build_record(node, name, arguments, *rest, **keywords)

    def _record_call(self, node: ast.Call, scope: Scope) -> None:
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        if "truncation" not in keywords:
            return
        switch = super().evaluate(keywords["truncation"], scope)
        if isinstance(switch, Value) and switch.value in (False, None, "do_not_truncate"):
            return
        padding = super().evaluate(keywords["padding"], scope) if "padding" in keywords else None
        is_padded = isinstance(padding, Value) and padding.value == "max_length"
        if isinstance(switch, Value) and switch.value in _TRUNCATION_STRATEGIES and "max_length" in keywords:
            length = super().evaluate(keywords["max_length"], scope)
            if isinstance(keywords["max_length"], ast.Attribute) and keywords["max_length"].attr == LIMIT:
                length = self.find_limit(length)
        elif isinstance(switch, Value) and switch.value in _TRUNCATION_STRATEGIES and None not in keywords:
            length = self.find_limit(None)
        else:
            length = self.build_unknown(node, "whether a tokenizer call truncates")
        self._record(Truncation(node, length, is_padded))

    def find_limit(self, default: Any) -> Any:
        """Return the tokenizer's `model_max_length`, or `default` unless exactly one tokenizer states it."""
        limits = [
            entry.value
            for record in self.records
            if "Tokenizer" in get_class(record) and (entry := record.get(LIMIT)) is not None
        ]
        values = {limit.value for limit in limits if isinstance(limit, Value) and not isinstance(limit.value, Unknown)}
        return limits[0] if len(values) == 1 and len(limits) == len(values) else default

    def _record(self, truncation: Truncation) -> None:
        """Record a truncation, unless its length is already known.

        The walk may enter a function twice: with its arguments, and without them.
        """
        present = self.truncations.get(id(truncation.node))
        if present is None or _get_tokens(present) is None:
            self.truncations[id(truncation.node)] = truncation


def _get_tokens(truncation: Truncation) -> int | None:
    value = truncation.length.value if isinstance(truncation.length, Value) else None
    return value if type(value) is int and value > 0 else None


def _find_block_size(node: ast.ListComp) -> ast.expr | None:
    """Return the expression N of `[ids[i : i + N] for i in range(0, total, N)]`, or None for other comprehensions."""
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
    has_start = isinstance(cut.lower, ast.Name) and cut.lower.id == target.id
    return source.args[2] if has_start and ends.count(size) == 1 else None


def handle_map(evaluator: Evaluator, node: ast.Call, owner: Any, arguments: Arguments) -> Any:
    """Handle `dataset.map(tokenize, fn_kwargs={"max_length": 512})`: evaluate `tokenize` with these arguments."""
    function = arguments.positional[0] if arguments.positional else arguments.get("function")
    if isinstance(evaluator, SampleWalk) and isinstance(function, (Function, Partial)):
        options = arguments.get("fn_kwargs")
        keywords = {
            entry.name or "": Argument(entry.value, entry.key.span)
            for entry in (options.entries if isinstance(options, Record) else ())
        }
        evaluator.try_call(function, Arguments((evaluator.build_unknown(node, "the samples"),), keywords), node)
    return None


def enter_uncalled_tokenizers(evaluator: SampleWalk) -> None:
    """Enter all methods that truncate samples, and the functions that truncate samples and were not entered yet."""
    for owner in evaluator.document.list_nodes(ast.ClassDef):
        methods = {node.name: node for node in owner.body if isinstance(node, ast.FunctionDef)}
        if not any(map(_has_truncation, methods.values())):
            continue
        instance = Record(evaluator.document.find_span(owner.body[0]), [], open_="an object of the script's own class")
        arguments = evaluator.instances.get(owner.name, Arguments(is_complete=False))
        initializer = methods.pop("__init__", None)
        if initializer is not None:
            evaluator.try_call(Function(initializer, evaluator.module, instance), arguments, owner.body[0])
        for method in filter(_has_truncation, methods.values()):
            evaluator.try_call(
                Function(method, evaluator.module, instance), Arguments(is_complete=False), owner.body[0]
            )
    for value in list(evaluator.module.names.values()):
        if (
            isinstance(value, Function)
            and id(value.node) not in evaluator.entered_functions
            and _has_truncation(value.node)
        ):
            evaluator.enter_function(value)


def _has_truncation(function: ast.AST) -> bool:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(keyword.arg == "truncation" for node in calls for keyword in node.keywords)


def put_sample_facts(evaluator: SampleWalk, run: Record) -> None:
    """Add the length, packing and padding of a script's samples to the facts of a run."""
    truncations = list(evaluator.truncations.values())
    blocks = [truncation for truncation in truncations if truncation.is_block]
    counted = blocks or truncations
    if not counted:
        limit = evaluator.find_limit(None)
        callees = (get_callee_name(call).lower() for call in evaluator.document.list_nodes(ast.Call))
        is_tokenized = any(name in ("tokenizer", "processor") for name in callees)
        if isinstance(limit, Value) and not is_tokenized:  # samples that the script tokenizes itself are not cut
            for name, value in ((LENGTH, limit), (UNSEEN, Value(limit.span, True))):
                run.parts[name] = OtherCallSetting(None, LIMIT, build_entry(name, value, limit.span))
        return
    longest = max(counted, key=lambda truncation: _get_tokens(truncation) or 0)
    unread = next((truncation for truncation in counted if _get_tokens(truncation) is None), None)
    reason = "" if unread is None else "the length to which samples are truncated"
    if not blocks and any(len(group) > 1 for group in _group_by_function(evaluator, truncations)):
        reason = "the sample length of several tokenizer calls"
    place = evaluator.document.find_span((unread or longest).node)
    length = longest.length if isinstance(longest.length, Value) else Value(place, Unknown(reason))
    for name, value in (
        (LENGTH, Value(place, Unknown(reason)) if reason else Value(place, length.value, length.how)),
        (PACKED, Value(place, bool(blocks))),
        (PADDED, Value(place, bool(blocks) or all(truncation.is_padded for truncation in truncations))),
    ):
        run.parts[name] = OtherCallSetting(None, "max_length", build_entry(name, value, place))


def _group_by_function(evaluator: SampleWalk, truncations: list[Truncation]) -> Iterator[list[Truncation]]:
    """Yield the truncations of each function as a list; a truncation belongs to the innermost function around it."""
    groups: dict[int, list[Truncation]] = {}
    functions = evaluator.document.list_nodes(ast.FunctionDef)
    for truncation in truncations:
        enclosing = [node for node in functions if any(inner is truncation.node for inner in ast.walk(node))]
        if enclosing:
            groups.setdefault(id(min(enclosing, key=lambda node: node.end_lineno - node.lineno)), []).append(truncation)  # type: ignore[operator]
    yield from groups.values()

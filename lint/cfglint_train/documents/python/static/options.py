"""Options that a script declares with argparse, with their default values."""

from __future__ import annotations

import ast

from cfglint_train.documents.document import Unknown
from cfglint_train.documents.python.static.evaluator import Evaluator
from cfglint_train.documents.python.static.standard import FUNCTIONS
from cfglint_train.documents.python.tree import Value
from cfglint_train.documents.python.values import ParsedOptions


def build_options(evaluator: Evaluator, node: ast.expr) -> ParsedOptions:
    """Return the namespace that argparse produces if no option is passed."""
    if not evaluator.is_program:  # the options of a launch are not read there
        return ParsedOptions({}, evaluator.document.find_span(node))
    if evaluator.declared_options is None:
        evaluator.declared_options = {}
        for call in evaluator.document.find_calls("add_argument"):
            _declare_option(evaluator, call)
    return ParsedOptions(evaluator.declared_options, evaluator.document.find_span(node), evaluator.option_spellings)


def _declare_option(evaluator: Evaluator, call: ast.Call) -> None:
    assert evaluator.declared_options is not None
    names = [item.value for item in call.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    if not names:
        return
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    long = [name for name in names if name.startswith("--")]
    spelling = (long or names)[0]
    name = spelling.lstrip("-").replace("-", "_")
    target = keywords.get("dest")
    if isinstance(target, ast.Constant) and isinstance(target.value, str):
        name = target.value
    action = keywords.get("action")
    switch = action.value if isinstance(action, ast.Constant) else None
    span = evaluator.document.find_span(call)
    if "default" in keywords:
        default = evaluator.evaluate(keywords["default"], evaluator.module)
        default = default if isinstance(default, Value) else evaluator.build_unknown(keywords["default"])
        kind = keywords.get("type")
        if isinstance(default.value, str) and isinstance(kind, ast.Name) and kind.id in ("int", "float"):
            try:
                default = Value(default.span, FUNCTIONS[kind.id](default.value), default.how)
            except ValueError:
                default = evaluator.build_unknown(keywords["default"])
    elif switch in ("store_true", "store_false"):
        default = Value(span, switch == "store_false")
    elif not names[0].startswith("-") or "required" in keywords:
        default = Value(span, Unknown(f"the argument {name}"))
    else:
        default = Value(span, None)
    evaluator.declared_options[name] = default
    evaluator.option_spellings[name] = spelling

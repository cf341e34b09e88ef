"""Regular expressions of the program: compiled on first use, and all of them valid."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from importlib import import_module

import pytest

from cfglint_train.foundation import expressions
from cfglint_train.foundation.expressions import compile_on_use
from tests.support.corpus import REPOSITORY

CATALOGUE = "cfglint_rules.catalogue"
"""The build imports this module alone, without cfglint."""


def list_calls_at_import(node: ast.AST) -> Iterator[str]:
    """Yield the functions that a module calls while it is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield ast.unparse(child.func)
        if not isinstance(child, (ast.FunctionDef, ast.Lambda)):
            yield from list_calls_at_import(child)


def list_expressions(value: object) -> Iterator[re.Pattern[str]]:
    """Yield the expressions in a value and in the collections that it contains."""
    if isinstance(value, expressions._Expression):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        yield from list_expressions(item)


def test_no_module_compiles_an_expression_while_it_is_imported_and_all_are_valid():
    count = 0
    for file in sorted(file for root in ("lint", "rules", "schemas") for file in (REPOSITORY / root).rglob("*.py")):
        name = ".".join(file.relative_to(REPOSITORY).with_suffix("").parts[1:])
        calls = list(list_calls_at_import(ast.parse(file.read_text())))
        assert name == CATALOGUE or "re.compile" not in calls, name
        if "compile_on_use" in calls:
            values = vars(import_module(name)).values()
            found = {id(item): item for value in values for item in list_expressions(value)}
            assert len(found) >= calls.count("compile_on_use"), name
            count += sum(item.search(type(item.pattern)()) is None for item in found.values())
    assert count > 200


def test_an_expression_has_the_methods_of_a_compiled_one():
    ours, theirs = (
        compile_on_use(r"(?P<word>[a-z]+)\d", re.IGNORECASE),
        re.compile(r"(?P<word>[a-z]+)\d", re.IGNORECASE),
    )
    assert pickle.loads(pickle.dumps(ours)).pattern == ours.pattern == theirs.pattern
    text = "ab1, Cd2"
    assert [match["word"] for match in ours.finditer(text)] == [match["word"] for match in theirs.finditer(text)]
    assert ours.findall(text) == theirs.findall(text)
    assert ours.split(text) == theirs.split(text)
    assert ours.sub("-", text, count=1) == theirs.sub("-", text, count=1)
    assert ours.subn("-", text) == theirs.subn("-", text)
    assert ours.match(text, 5)[0] == theirs.match(text, 5)[0] == "Cd2"
    assert ours.search("1") is ours.fullmatch(text) is None
    assert pickle.loads(pickle.dumps(ours)).findall(text) == theirs.findall(text)


def test_an_invalid_expression_is_refused_on_first_use():
    expression = compile_on_use("(")
    with pytest.raises(re.error):
        expression.match("")

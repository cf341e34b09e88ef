"""Python with newer grammar than the running interpreter's: parsed, with all other code at its position."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import libcst
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cfglint_train
from cfglint_train.foundation import python_grammar
from cfglint_train.foundation.python_grammar import parse_python
from tests.support.cases import for_each

NEWER = [
    'x = f"reading {PATHS["train"]}"',
    'x = f"{", ".join(names)}"',
    "x = f'{a['b']!r:>{w['x']}}' + f'{a}'",
    'x = f"{f"{f"{1}"}"}"',
    "x = f\"{'\\n'.join(names)}\"",
    'x = rf"\\d{a["b"]}"',
    'x = f"\\N{DASH}{a["b"]}{{c}}"',
    'x = f"{a[\n  "b"\n  ]}"',
    'x = f"{a  # why\n}"',
    'x = f"""{a["""b"""]}\n{c}\n"""',
    'x = f"{d["a"] != 1}{(lambda y: y)(d["b"])}{d["c"]:%Y-%m}"',
    'print(f"{a["é"]}", b)',
    "def first[T](items: list[T]) -> T:\n    return items[0]",
    "async def first[T: (int, str) = int, *Ts, **P](items): ...",
    'class Box[T: "x]y"](Base): ...',
    "type Pair[T] = tuple[T, T]",
    "type Numbers = list[int]",
    "if a:\n    type Numbers = list[int]",
]
NEWEST = [  # libcst does not parse these yet
    "try:\n    a\nexcept ValueError, TypeError:\n    b",
    "try:\n    a\nexcept a.B, C:\n    b",
    'x = t"{a["b"]} and {c}"',
    "lazy import torch",
    "lazy from torch import nn",
]
BEHIND = '\nbehind = make(a=1, b="two")\n'


@for_each("text", [*NEWER, *NEWEST])
def test_a_newer_construct_is_read(text):
    tree = parse_python(text + BEHIND)
    last = tree.body[-1]
    assert isinstance(last, ast.Assign)
    assert ast.unparse(last) == ast.unparse(ast.parse(BEHIND))
    # The code after the construct keeps its line and byte position.
    assert last.lineno == text.count("\n") + 2
    assert (last.col_offset, last.end_col_offset) == (0, len(BEHIND.strip()))


@for_each("text", NEWER)
def test_the_grammar_has_it(text):
    libcst.parse_module(text + BEHIND)


@for_each("text", [*NEWER, *NEWEST])
def test_what_replaces_it_is_as_long(text):
    lowered = python_grammar._Lowering(text + BEHIND).run()
    assert [len(line.encode()) for line in lowered.split("\n")] == [
        len(line.encode()) for line in (text + BEHIND).split("\n")
    ]


def test_its_value_is_unknown():
    value = parse_python('x = f"{PATHS["train"]}"').body[0].value  # type: ignore[attr-defined]
    assert isinstance(value, ast.JoinedStr)
    assert not all(isinstance(part, ast.Constant) for part in value.values)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('x = f"{a["b"]}"\ny = = 1', 2),
        ("def f[T](x:\n    pass", 1),
        ('x = f"{a["b"]"', 1),
        ("type = 1\nx y", 2),
        ("x = 'abc", 1),
        ("print 'hello'", 1),
        ("except ValueError, e:\n  pass", 1),
    ],
)
def test_what_no_release_accepts_is_an_error_of_the_text_as_it_is(text, line):
    with pytest.raises(SyntaxError) as raised:
        parse_python(text)
    if sys.version_info < (3, 12) and 'f"{' not in text.split("\n")[0]:
        assert raised.value.lineno == line


@pytest.mark.parametrize(
    "text",
    [
        "type = 1\ntype[0] = 2\nprint(type)",
        "lazy = 1\nmatch = lazy",
        'x = \'type X = 1\' # f"{a["b"]}"',
        "def f(x): return x[0]",
        'x = f"{a}" f"{{" "}}"',
        "try:\n    a\nexcept (A, B):\n    c",
    ],
)
def test_what_this_python_reads_is_left_alone(text):
    assert ast.dump(parse_python(text)) == ast.dump(ast.parse(text))
    assert python_grammar._Lowering(text).run() == text


def test_the_files_of_this_project_are_left_alone():
    for path in sorted(Path(cfglint_train.__file__).parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert python_grammar._Lowering(text).run() == text, path


_INSIDE = st.recursive(
    st.sampled_from(["a", "1", "b.c", "d", "'x'", '"y"', "(lambda z: z)", "e != f"]),
    lambda inner: st.one_of(
        inner.map(lambda text: f"g[{text}]"),
        inner.map(lambda text: f'f"{{{text}}}"'),
        inner.map(lambda text: f"f'a{{{text}}}{{{{b'"),
        st.tuples(inner, inner).map(lambda two: f"h({two[0]}, {two[1]})"),
        inner.map(lambda text: f'f"{{{text}!r:>{{w}}}}"'),
    ),
    max_leaves=6,
)


@given(inside=_INSIDE)
def test_strings_in_strings(inside):
    text = f'x = f"{{{inside}}}"'
    libcst.parse_module(text)
    assert ast.unparse(parse_python(text + BEHIND).body[-1]) == ast.unparse(ast.parse(BEHIND))


@given(text=st.text(alphabet="f'\"{}[]:! \n\\abt#=,", max_size=30))
def test_any_text_is_read_or_refused(text):
    try:
        expected = ast.dump(ast.parse(text))
    except (SyntaxError, ValueError):
        try:
            parse_python(text)
        except (SyntaxError, ValueError):
            return
        return
    assert ast.dump(parse_python(text)) == expected

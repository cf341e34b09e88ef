"""Python scripts: positions, comments, and edits that change only their target."""

from __future__ import annotations

import ast
import io
import tokenize
from typing import Any

import libcst
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfglint_train.documents.document import (
    BOM,
    Append,
    CannotEdit,
    Change,
    Delete,
    DocumentError,
    Position,
    Rename,
    Set,
    Span,
    apply_edits,
)
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.python.static.walk import Walk
from cfglint_train.documents.python.tree import Record
from cfglint_train.documents.python.values import External
from cfglint_train.documents.python.write import PythonSource, format_literal


def parse_document(text: str | bytes) -> PythonDocument:
    return PythonDocument("x.py", text.encode() if isinstance(text, str) else text)


def show_record(text: str | bytes, call: str = "Config") -> PythonDocument:
    """Return a document whose tree is the first record of a call."""
    parsed = parse_document(text)
    evaluator = Walk(parsed, {}, {}, {})
    evaluator.module.names.update({name: External(f"library.{name}") for name in ("Config", "Other")})
    evaluator.run()
    parsed.attach_tree(
        next(record for record in evaluator.records if record.index["_CLASS_"].value.value.endswith(call)), build_remedy
    )
    return parsed


def build_remedy(route: Any, value: Any) -> str:
    return f"pass --{'.'.join(map(str, route))}={value}"


def apply_changes(text: str | bytes, *changes: Change, call: str = "Config") -> str:
    parsed = show_record(text, call)
    return apply_edits(parsed.source, parsed.build_edits(changes)).decode()


SCRIPT = '''# -*- coding: utf-8 -*-
"""Docstring über alles."""
import os

NAME = "größe"  # ß
\f
def build(a, *, b=(1 + 2)):
\tvalue = Config(
\t\tfirst = (a),
\t\tsecond=[1, 2,
\t\t\t3],  # ü
\t\t**{"x": "ö"},
\t)
\treturn value if a \\
\t\telse None
'''


class TestPositions:
    @pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
    @pytest.mark.parametrize("mark", [b"", BOM])
    def test_every_node_has_its_own_text(self, newline: str, mark: bytes) -> None:
        parsed = parse_document(mark + SCRIPT.replace("\n", newline).encode())
        text = SCRIPT.encode()
        plain = parse_document(text)
        for node, same in zip(ast.walk(parsed.module), ast.walk(plain.module)):
            if isinstance(node, (ast.expr, ast.stmt, ast.keyword, ast.alias)):
                segment = ast.get_source_segment(SCRIPT, same)  # type: ignore[arg-type]
                assert parsed.get_text(parsed.find_span(node)).replace("\r\n", "\n").replace("\r", "\n") == segment

    def test_positions_count_characters(self) -> None:
        parsed = parse_document(BOM + b'x = "\xc3\xa4\xc3\xb6"; y = 1')
        call = parsed.module.body[1]
        assert parsed.locate(parsed.find_span(call).start) == Position(1, 11)

    @given(st.text(alphabet="ab\"'#\\\n\r\t\f (){}ä=1,:", max_size=40))
    def test_spans_lie_in_the_text(self, text: str) -> None:
        try:
            parsed = parse_document(text)
        except DocumentError as error:
            error_position = error.position
            assert min(error_position) >= 1
            return
        lines = text.replace("\r\n", "\n").replace("\r", "\n")
        for node in ast.walk(parsed.module):
            if isinstance(node, (ast.expr, ast.stmt)):
                segment = ast.get_source_segment(lines, node)
                assert parsed.get_text(parsed.find_span(node)).replace("\r\n", "\n").replace("\r", "\n") == segment

    def test_brackets_and_items(self) -> None:
        parsed = parse_document("x = ((f))  (  # c )\n  (a) , ((b)), c=(1) # )\n , *d, **e)")
        call = parsed.module.body[0].value  # type: ignore[attr-defined]
        brackets = parsed.find_brackets(call)
        assert parsed.get_text(brackets).startswith("(  # c")
        assert parsed.get_text(brackets).endswith(")")
        items = sorted([*call.args, *call.keywords], key=parsed.find_span)
        assert [parsed.get_text(parsed.find_item_span(item, brackets)) for item in items] == [
            "(a)",
            "((b))",
            "c=(1)",
            "*d",
            "**e",
        ]


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "message", "position"),
        [
            (b"x = (\n", "not Python: '(' was never closed", Position(1, 5)),
            (b"if x:\ny = 1\n", "expected an indented block", Position(2, 1)),
            (b"x = '\xff'\n", "not UTF-8", Position(1, 6)),
            (b"\tx = 1\n  y = 2\n", "not Python", Position(1, 1)),
        ],
    )
    def test_say_where(self, text: bytes, message: str, position: Position) -> None:
        with pytest.raises(DocumentError) as caught:
            parse_document(text)
        assert message in caught.value.message
        assert caught.value.position == position

    @pytest.mark.parametrize(
        "text", ["(" * 5000 + ")" * 5000, "-" * 100_000 + "1", "x" + ".y" * 50_000, "x = '\0'", "9" * 9000, "[" * 99]
    )
    def test_nothing_absurd_escapes(self, text: str) -> None:
        try:
            parsed = parse_document(text)
        except DocumentError:
            return
        Walk(parsed, {}, {}, {}).run()

    def test_an_empty_file_is_a_script(self) -> None:
        assert parse_document("").module.body == []

    def test_warnings_of_the_script_are_not_ours(self, recwarn: pytest.WarningsRecorder) -> None:
        parse_document("x = '\\d'\nassert (x, 'y')\n1 is 1\n")
        assert not recwarn.list


class TestComments:
    @pytest.mark.parametrize("newline", ["\n", "\r\n"])
    @pytest.mark.parametrize("mark", [b"", BOM])
    def test_all_and_only_comments(self, newline: str, mark: bytes) -> None:
        text = '# one\nx = "# no" # twö\ny = ("a" # three\n  "b")\nz = """\n# no\n"""  # four\nw = f"#{x}" #five'
        parsed = parse_document(mark + text.replace("\n", newline).encode())
        comments = parsed.list_comments()
        assert [comment.text for comment in comments] == ["# one", "# twö", "# three", "# four", "#five"]
        assert [parsed.get_text(comment.span) for comment in comments] == [comment.text for comment in comments]

    def test_agree_with_tokenize(self) -> None:
        parsed = parse_document(SCRIPT)
        tokens = tokenize.tokenize(io.BytesIO(SCRIPT.encode()).readline)
        assert [c.text for c in parsed.list_comments()] == [t.string for t in tokens if t.type == tokenize.COMMENT]


class TestReplacing:
    @pytest.mark.parametrize(
        ("before", "value", "after"),
        [
            ("Config(a=1)", 2, "Config(a=2)"),
            ("Config(a=-1)", 2, "Config(a=2)"),
            ("Config(a=1_000)", -5, "Config(a=-5)"),
            ("Config( a = (1) )", 2, "Config( a = (2) )"),
            ("Config(a=True)", None, "Config(a=None)"),
            ("Config(a='x')", "y", "Config(a='y')"),
            ('Config(a="x")', "it's", 'Config(a="it\'s")'),
            ("Config(a=0.5)", 0.25, "Config(a=0.25)"),
            ("Config(a=2 * 4096)", 4096, "Config(a=1 * 4096)"),
            ("Config(a=2 * 4096)", 5, "Config(a=5)"),
            ("Config(a=4096 * 2)", 4096, "Config(a=2048 * 2)"),
            ("Config(a=int(4e12))", 8, "Config(a=8)"),
            ("N = 4096\nConfig(a=4 * N, b=N)", 8192, "N = 4096\nConfig(a=2 * N, b=N)"),
            ("N = 7\nConfig(a=N)", 8, "N = 8\nConfig(a=N)"),
            ("N: int = 2 * 8\nConfig(a=N)", 8, "N: int = 1 * 8\nConfig(a=N)"),
            ("from m import E\nConfig(a=E.full)", "budget", "from m import E\nConfig(a=E.budget)"),
            ("import m\nConfig(a=m.E.full)", "budget", "import m\nConfig(a=m.E.budget)"),
            ("c = Config(a=1)\nc.a = 3", 4, "c = Config(a=1)\nc.a = 4"),
            ("c = Config(a=1)\nc.b.a = 3\nc.a = 2 * 2", 2, "c = Config(a=1)\nc.b.a = 3\nc.a = 1 * 2"),
        ],
    )
    def test_one_place_changes(self, before: str, value: Any, after: str) -> None:
        assert apply_changes(before, Set(("a",), value)) == after

    @pytest.mark.parametrize(
        "before",
        [
            "N = 7\nConfig(a=N, b=N)",
            "Config(a=f(x))",
            "Config(a=x + 1)",
            "import os\nConfig(a=len(os.environ))",
            "N = 3\nif f():\n    N = 4\nConfig(a=N)",
            "c = Config(a=1)\nif f():\n    c.a = 2",
            "def build(n):\n    return Config(a=n)\nbuild(4)",
            "def build():\n    return Config(a=1)\nbuild()\nbuild()",
            "Config(a=1 if f() else 2)",
            "Config(a=Other(x=1))",
            "Config(a=[1, 2])",
        ],
    )
    def test_what_no_one_place_decides_is_refused_with_a_remedy(self, before: str) -> None:
        with pytest.raises(CannotEdit, match=r"pass --a=99"):
            apply_changes(before, Set(("a",), 99))

    def test_a_present_value_is_no_edit(self) -> None:
        for text, value in (("Config(a=2 * 8)", 16), ("Config(a='x')", "x"), ("Config(a=[1, 'b'])", [1, "b"])):
            parsed = show_record(text)
            assert parsed.build_edits([Set(("a",), value)]) == []

    @pytest.mark.parametrize("newline", ["\n", "\r\n"])
    def test_nothing_else_changes(self, newline: str) -> None:
        text = "\ufeff# top\nx = Config( # c\n\ta = 1, # one\n)\n\f# end".replace("\n", newline)
        assert apply_changes(text, Set(("a",), 2)) == text.replace("a = 1", "a = 2")


INSERTIONS = (
    ("Config(a=1)", "Config(a=1, b=2)"),
    ("Config()", "Config(b=2)"),
    ("Config(a=1,)", "Config(a=1, b=2,)"),
    ("Config(1, *x)", None),
    ("Config(\n    a=1,\n)", "Config(\n    a=1,\n    b=2,\n)"),
    ("Config(\n    a=1\n)", "Config(\n    a=1,\n    b=2\n)"),
    ("Config(\n    a=1,  # one\n)", "Config(\n    a=1,  # one\n    b=2,\n)"),
    ("Config(\n    a=1  # one\n)", "Config(\n    a=1,  # one\n    b=2\n)"),
    ("Config(\n    a=(1),\n    c=((3)),\n)", "Config(\n    a=(1),\n    b=2,\n    c=((3)),\n)"),
    ("Config(\n\ta=1,\n\tc=3,\n)", "Config(\n\ta=1,\n\tb=2,\n\tc=3,\n)"),
    ("Config(x.y(1), a=f(2, 3), c=3)", "Config(x.y(1), a=f(2, 3), b=2, c=3)"),
)


class TestInserting:
    @pytest.mark.parametrize("newline", ["\n", "\r\n"])
    @pytest.mark.parametrize(("before", "after"), INSERTIONS)
    def test_an_argument_takes_the_layout_of_its_neighbours(self, before: str, after: str | None, newline: str) -> None:
        before = before.replace("\n", newline)
        if after is None:
            with pytest.raises(CannotEdit):
                apply_changes(before, Set(("b",), 2, ("a",)))
            return
        assert apply_changes(before, Set(("b",), 2, ("a",))) == after.replace("\n", newline)

    @pytest.mark.parametrize(("before", "after"), [pair for pair in INSERTIONS if pair[1]])
    def test_libcst_sees_one_more_argument_and_no_other_change(self, before: str, after: str) -> None:
        def parse_call(text: str) -> libcst.Call:
            statement = libcst.parse_module(text).body[0]
            assert isinstance(statement, libcst.SimpleStatementLine)
            expression = statement.body[0]
            assert isinstance(expression, libcst.Expr)
            assert isinstance(expression.value, libcst.Call)
            return expression.value

        new, old = parse_call(apply_changes(before, Set(("b",), 2, ("a",)))), parse_call(before)
        other_arguments = [
            argument for argument in new.args if argument.keyword is None or argument.keyword.value != "b"
        ]
        assert len(new.args) == len(old.args) + 1
        assert [a.value.deep_equals(b.value) for a, b in zip(other_arguments, old.args)] == [True] * len(
            other_arguments
        )
        assert new.func.deep_equals(old.func)

    @pytest.mark.parametrize(
        "before",
        [
            "Config(a=1, **more)",
            "def f(n):\n    return Config(a=n)\nf(1)\nf(2)",
            "x = Config(a=1)\nif f():\n    x = Config(a=2)",
            "Config(x for x in y)",
        ],
    )
    def test_unclear_calls_are_left_alone(self, before: str) -> None:
        with pytest.raises(CannotEdit):
            apply_changes(before, Set(("b",), 2))

    def test_a_name_that_is_no_argument(self) -> None:
        for name in ("class", "a-b", ""):
            with pytest.raises(CannotEdit):
                apply_changes("Config(a=1)", Set((name,), 2))

    def test_a_long_call_is_broken(self) -> None:
        text = "Config(\n    a=1,\n)"
        source = PythonSource(
            "SomeRatherLongClassName(first_argument=1, second_argument=2, third_argument_of_it=33333333333333)", {}
        )
        assert apply_changes(text, Set(("b",), source)) == (
            "Config(\n    a=1,\n    b=SomeRatherLongClassName(\n"
            "        first_argument=1, second_argument=2, third_argument_of_it=33333333333333\n    ),\n)"
        )


class TestImports:
    SOURCE = PythonSource("Mode(x=1)", {}, (("pkg.sub", "Mode"),))

    LAYOUTS = (
        ("import Alpha, Zeta\n", "import Alpha, Mode, Zeta\n"),
        ("import Zeta\n", "import Mode, Zeta\n"),
        ("import Alpha\n", "import Alpha, Mode\n"),
        ("import (Alpha)\n", "import (Alpha, Mode)\n"),
        ("import (\n    Alpha,\n    Zeta,\n)\n", "import (\n    Alpha,\n    Mode,\n    Zeta,\n)\n"),
        ("import (\n    Zeta,\n)\n", "import (\n    Mode,\n    Zeta,\n)\n"),
        ("import (\n    Zeta,  # z\n    Alpha\n)\n", "import (\n    Zeta,  # z\n    Alpha,\n    Mode\n)\n"),
        ("import Mode\n", "import Mode\n"),
        ("import *\nimport os\n", "import *\nfrom pkg.sub import Mode\nimport os\n"),
    )

    @pytest.mark.parametrize("newline", ["\n", "\r\n"])
    @pytest.mark.parametrize(("before", "after"), LAYOUTS)
    def test_extend_the_import_that_is_there(self, before: str, after: str, newline: str) -> None:
        text = f"from pkg.sub {before}x = Config(a=1)\n".replace("\n", newline)
        expected = f"from pkg.sub {after}x = Config(a=1, b=Mode(x=1))\n".replace("\n", newline)
        assert apply_changes(text, Set(("b",), self.SOURCE)) == expected

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("from pkg.other import Mode\n", "from pkg.other import Mode\n"),
            (
                "from pkg import a\nfrom pkg.z import b\nimport os\n",
                "from pkg import a\nfrom pkg.sub import Mode\nfrom pkg.z import b\nimport os\n",
            ),
            ("from pkg.z import b\n", "from pkg.sub import Mode\nfrom pkg.z import b\n"),
            ("import os  # c\n", "import os  # c\nfrom pkg.sub import Mode\n"),
        ],
    )
    def test_are_added_where_they_belong(self, before: str, after: str) -> None:
        tail = "x = Config(a=1)\n"
        assert apply_changes(before + tail, Set(("b",), self.SOURCE)) == after + "x = Config(a=1, b=Mode(x=1))\n"

    def test_a_long_line_gets_no_longer(self) -> None:
        names = ", ".join(f"Name{n:02}" for n in range(11))
        text = f"from pkg.sub import {names}\nx = Config(a=1)\n"
        assert "\nfrom pkg.sub import Mode\n" in apply_changes(text, Set(("b",), self.SOURCE))

    def test_a_name_that_is_taken(self) -> None:
        for text in ("import os\nMode = 3\nConfig(a=1)", "def f():\n    from x import Mode\n    Mode()\nConfig(a=1)"):
            with pytest.raises(CannotEdit):
                apply_changes(text, Set(("b",), self.SOURCE))

    def test_a_script_without_imports(self) -> None:
        with pytest.raises(CannotEdit):
            apply_changes("Config(a=1)", Set(("b",), self.SOURCE))

    def test_the_result_is_python(self) -> None:
        text = "from pkg.sub import (\n    Zeta,\n)\nConfig(\n    a=1,\n)\n"
        ast.parse(apply_changes(text, Set(("b",), self.SOURCE)))


class TestOtherChanges:
    def test_delete(self) -> None:
        assert apply_changes("Config(a=1, b=2)", Delete(("a",))) == "Config(b=2)"
        assert apply_changes("Config(a=1, b=(2))", Delete(("b",))) == "Config(a=1)"
        assert apply_changes("Config(\n    a=1,\n    b=2,\n)", Delete(("b",))) == "Config(\n    a=1,\n)"
        assert apply_changes("Config(a=1)", Delete(("c",))) == "Config(a=1)"
        with pytest.raises(CannotEdit):
            apply_changes("c = Config(a=1)\nc.b = 2", Delete(("b",)))

    def test_rename(self) -> None:
        assert apply_changes("Config(old=1, b=2)", Rename(("old",), "new")) == "Config(new=1, b=2)"
        assert apply_changes("Config(a=1)", Rename(("b",), "c")) == "Config(a=1)"

    def test_append(self) -> None:
        assert apply_changes("Config(a=[1, 2])", Append(("a",), 3)) == "Config(a=[1, 2, 3])"
        assert apply_changes("Config(a=[\n    1,\n    (2),\n])", Append(("a",), "x")) == (
            'Config(a=[\n    1,\n    (2),\n    "x",\n])'
        )
        with pytest.raises(CannotEdit):
            apply_changes("Config(a=(1, 2))", Append(("a",), 3))

    def test_changes_of_one_place_are_refused(self) -> None:
        with pytest.raises(CannotEdit):
            apply_changes("Config(a=1)", Set(("a",), 2), Set(("a",), 3))

    def test_what_is_not_there(self) -> None:
        with pytest.raises(CannotEdit, match=r"pass --x\.y=1"):
            apply_changes("Config(a=1)", Set(("x", "y"), 1))


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


class TestLiterals:
    @given(PLAIN, st.booleans())
    def test_come_back(self, value: Any, single: bool) -> None:
        text = format_literal(value, single)
        assert ast.literal_eval(text) == value

    def test_no_literal(self) -> None:
        for value in (float("inf"), object(), {1, 2}):
            with pytest.raises(CannotEdit):
                format_literal(value)


def test_records_are_mappings_with_keys_in_place() -> None:
    parsed = show_record("x = Config(first=1, second=Other(inner='y'))")
    assert isinstance(parsed.root, Record)
    entry = parsed.find_entry(("second", "inner"))
    assert entry is not None
    assert parsed.get_text(entry.span) == "inner='y'"
    assert parsed.get_text(entry.key.span) == "inner"
    assert parsed.get_value(("second",)) == {"_CLASS_": "library.Other", "inner": "y"}
    assert parsed.get_text(parsed.root.span) == "Config(first=1, second=Other(inner='y'))"
    assert parsed.find_node(("first",)).span == Span(17, 18)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "part", "whole"),
    [
        ('given["length"] = 512', '"length"]', 'given["length"]'),
        ('given["length"] = 512', '"length"] = 512', 'given["length"] = 512'),
        ("made = f(length=(int(x)))", "length=(int(x))", "length=(int(x))"),
        ("made = f(length=(int(x)))", "length=(int(x)", "length=(int(x))"),
        ("made = f(length=int(x), width=2)", "length=int(x)", "length=int(x)"),
        ("made = {'length': int(x), 'width': 2}", "'length': int(x)", "'length': int(x)"),
    ],
)
def test_a_span_that_ends_inside_an_expression_is_widened(text: str, part: str, whole: str) -> None:
    document = PythonDocument("train.py", text.encode())
    start = text.index(part)
    assert document.get_text(document.widen_to_node(Span(start, start + len(part)))) == whole

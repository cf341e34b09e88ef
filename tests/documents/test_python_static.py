"""The static reader of scripts: the values it claims are those that Python would compute, and it executes nothing."""

from __future__ import annotations

import contextlib
import random
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_train.documents.document import Unknown
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.python.static.evaluator import MAX_KEYS
from cfglint_train.documents.python.static.walk import Walk
from cfglint_train.documents.python.tree import Record, Step, Value
from cfglint_train.documents.python.values import (
    Class,
    External,
    FileText,
    Function,
    ParsedOptions,
    Partial,
    is_conditional,
    prune_tree,
)

MANY = ", ".join(f"a{index}=1" for index in range(5_000))
PAIRS = ", ".join(f"'a{index}': 1" for index in range(5_000))


def walk_script(text: str) -> Walk:
    evaluator = Walk(PythonDocument("x.py", text.encode()), {}, {}, {})
    evaluator.run()
    return evaluator


def read_names(text: str) -> dict[str, Any]:
    return walk_script(text).module.names


def convert_to_plain(record: Record) -> Any:
    """Return the settled record as plain data."""
    complete = prune_tree(record)
    assert complete is not None
    return PythonDocument("x", b"").build_value(complete)


def read_value(text: str, name: str = "x") -> Any:
    """Return the value of a name: Unknown if it cannot be determined, "?" if it depends on a condition."""
    value = read_names(text)[name]
    if isinstance(value, Record) and value.implicit:
        return Unknown(value.open)
    if isinstance(value, FileText):
        return Unknown(value.path)
    assert isinstance(value, Value), value
    return "?" if is_conditional(value) else value.value


class TestExpressions:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("1_024 * 4", 4096),
            ("2**20", 1 << 20),
            ("-3", -3),
            ("+3.5", 3.5),
            ("7 // 2", 3),
            ("7 / 2", 3.5),
            ("7 % 4", 3),
            ("int(4e12)", 4 * 10**12),
            ("int('12')", 12),
            ("max(3, 8)", 8),
            ("min(3, 8.5)", 3),
            ("round(2.6)", 3),
            ("abs(-2)", 2),
            ("str(3)", "3"),
            ("'a' 'b'", "ab"),
            ("'a' + 'b'", "ab"),
            ("f'a{1}{\"b\"}'", "a1b"),
            ("f'plain'", "plain"),
            ("None or 4", 4),
            ("3 or 4", 3),
            ("0 and 4", 0),
            ("not 0", True),
            ("1 if 2 > 1 else 3", 1),
            ("1 < 2", True),
            ("'a' == 'a'", True),
            ("None is None", True),
            ("3 is not None", True),
            ("(y := 4) + 1", 5),
            ("[1, 2][1]", 2),
            ("{'a': 5}['a']", 5),
            ("(lambda n: n + 1)(2)", 3),
        ],
    )
    def test_known(self, expression: str, value: Any) -> None:
        assert read_value(f"x = {expression}") == value

    @pytest.mark.parametrize(
        "expression",
        [
            "f()", "y", "1 / 0", "'a' * 3", "2 ** 1000", "2 ** -1e9", "10 ** 10 ** 10", "int('z')", "int(1e400)",
            "b'a'", "1j", "...", "[n for n in range(3)]", "1 < 2 < 3", "open('/etc/passwd')", "input()", "-'a'",
            "int(f())",
            "f'{1:>{2}}'", "f'{1!r}'", "1 << 3", "await_", "{**{}}['a']", "[1][9]", "'a' < 1", "max()", "max('a', 1)",
        ],
    )  # fmt: skip
    def test_unknown(self, expression: str) -> None:
        assert isinstance(read_value(f"x = {expression}"), Unknown)

    def test_math_is_read_but_not_imported_code(self) -> None:
        assert read_value("import math\nx = math.ceil(2.1)") == 3
        assert read_value("from math import sqrt as root\nx = root(16)") == 4
        assert isinstance(read_value("import os\nx = os.getpid()"), Unknown)


class TestScripts:
    def test_functions_partials_and_defaults(self) -> None:
        text = "from functools import partial\ndef f(a, b=2, *, c=3):\n    d = a + b\n    return d * c\n"
        assert read_value(text + "x = f(1)") == 9
        assert read_value(text + "x = f(1, c=4)") == 12
        assert read_value(text + "x = partial(f, 1, c=4)(b=1)") == 8
        assert isinstance(read_value(text + "x = f(*y)"), Unknown)

    def test_keywords_that_are_spread(self) -> None:
        assert read_value("def f(a, b):\n    return a + b\nx = f(**{'a': 1, 'b': 2})") == 3

    def test_early_returns(self) -> None:
        text = "def f(a):\n    if a > 1:\n        return 1\n    return 2\n"
        assert read_value(text + "x = f(5)") == 1
        assert read_value(text + "x = f(0)") == 2
        assert read_value(text + "x = f(y)") == "?"

    def test_classes(self) -> None:
        text = "class C:\n    size = 4 * 2\n    @classmethod\n    def build(cls, n):\n        return cls.size * n\n"
        assert read_value(text + "x = C.build(3)") == 24

    def test_objects_of_the_script(self) -> None:
        text = (
            "class C:\n    given: int\n    made: int\n    def __post_init__(self):\n        self.made = 3\n"
            "c = C(given=1, made=2)\n"
        )
        assert read_value(text + "x = c.given") == 1
        assert read_value(text + "x = c.made") == 3

    def test_options_of_argparse(self) -> None:
        text = (
            "import argparse\nN = 5\np = argparse.ArgumentParser()\n"
            "p.add_argument('run')\np.add_argument('-l', '--length', type=int, default='7')\n"
            "p.add_argument('--size', default=N * 2)\np.add_argument('--flag', action='store_true')\n"
            "p.add_argument('--no', action='store_false')\np.add_argument('--out', dest='target', default='o')\n"
            "p.add_argument('--must', required=True)\np.add_argument('--none')\n"
            "opts, rest = p.parse_known_args()\n"
        )
        for name, value in (
            ("length", 7),
            ("size", 10),
            ("flag", False),
            ("no", True),
            ("target", "o"),
            ("none", None),
        ):
            assert read_value(f"{text}x = opts.{name}") == value
        for name in ("run", "must", "unheard_of"):
            assert isinstance(read_value(f"{text}x = opts.{name}"), Unknown)
        assert read_value(text + "x = opts.none or 12") == 12

    def test_the_way_of_a_value(self) -> None:
        text = "N = 2 * 4\ndef f(n):\n    return n\nx = f(N)"
        value = read_names(text)["x"]
        assert [(step.kind, step.text) for step in value.how] == [("parameter", "n"), ("constant", "N")]
        assert text[value.how[1].span.start : value.how[1].span.end] == "2 * 4"

    def test_records(self) -> None:
        text = (
            "from lib.conf import Config, Kind\nimport lib\n"
            "c = Config(a=1, kind=Kind.big, inner=lib.Inner.make(z=2))\nc.a = 5\nc.inner.z += 1\nc.new = 'n'\n"
            "x = c.a"
        )
        record = read_names(text)["c"]
        assert isinstance(record, Record)
        assert convert_to_plain(record) == {
            "_CLASS_": "lib.conf.Config",
            "a": 5,
            "kind": "big",
            "inner": {"_CLASS_": "lib.Inner", "_FACTORY_": "make", "z": 3},
            "new": "n",
        }
        assert read_value(text) == 5

    def test_attributes_that_only_the_library_knows(self) -> None:
        text = "from lib import Config\nc = Config()\nc.deep.er.value = 3\ny = c.other.thing\n"
        assert convert_to_plain(read_names(text)["c"]) == {"_CLASS_": "lib.Config", "deep": {"er": {"value": 3}}}

    @pytest.mark.parametrize("value", ["load()['k']", "load().k", "load().a.b", "Config.load('x').k", "Config().k"])
    def test_a_value_of_another_object_is_unknown(self, value: str) -> None:
        text = f"from lib import Config, load\nc = Config(first={value})\nc.second = {value}\n"
        plain = convert_to_plain(read_names(text)["c"])
        assert isinstance(plain["first"], Unknown)
        assert isinstance(plain["second"], Unknown)

    def test_copies(self) -> None:
        text = "import dataclasses\nfrom lib import Config\na = Config(n=1, m=2)\nb = dataclasses.replace(a, n=3)\n"
        assert read_value(text + "x = a.n") == 1
        assert read_value(text + "x = b.n") == 3
        assert read_value(text + "x = b.replace(m=9).m") == 9

    def test_the_main_part_is_read(self) -> None:
        assert read_value("if __name__ == '__main__':\n    x = 1\nelse:\n    x = 2") == 1

    def test_kinds_of_value(self) -> None:
        values = read_names(
            "import a.b\ndef f():\n    pass\nclass C:\n    pass\nfrom functools import partial\np = partial(f)"
        )
        assert values["a"] == External("a")
        assert isinstance(values["f"], Function)
        assert isinstance(values["C"], Class)
        assert isinstance(values["p"], Partial)
        assert isinstance(read_names("import argparse\no = argparse.ArgumentParser().parse_args()")["o"], ParsedOptions)


class TestConditions:
    def test_what_may_change_hinges(self) -> None:
        value = read_names("x = 2\nif f():\n    x *= 2")["x"]
        assert value.value == 2
        assert is_conditional(value)
        assert [step for step in value.how if step.kind == "depends"] == [Step("depends", "if f()", (9, 12))]

    @pytest.mark.parametrize(
        "text",
        [
            "x = 1\nif f():\n    x = 2\nelse:\n    x = 3",
            "if f():\n    x = 2\nelse:\n    x = 3",
            "x = 1\nfor i in f():\n    x = 2",
            "x = 1\nwhile f():\n    x = 2",
            "x = 1\ntry:\n    f()\nexcept E:\n    x = 2",
            "x = 1 if f() else 2",
            "x = f() or 3",
            "y = 1\nif f():\n    y = 2\nx = y + 1",
            "def g(a):\n    if a:\n        return 1\n    return 2\nx = g(f())",
            "x = 1\nif f():\n    if g():\n        x = 2",
            "x = 1\nmatch f():\n    case 1:\n        x = 2",
            # Values that a later turn of a loop reads, values after the loop, and assignments that an exception skips.
            "x = 1\ny = 2\nfor i in f():\n    if y == 1:\n        x = 2\n    y = 1",
            "x = 1\nfor i in f():\n    g()\nelse:\n    x = 2",
            "x = 1\ntry:\n    f()\n    x = 2\nexcept E:\n    pass",
            "x = 1\ndef g():\n    global x\n    x = 2\nif f():\n    g()",
        ],
    )
    def test_hinge(self, text: str) -> None:
        assert read_value(text) == "?"

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("import sys\nx = 1\nif f():\n    sys.exit(1)", 1),
            ("x = 1\nif f():\n    raise E\nelse:\n    x = 2", 2),
            ("x = 1\nif f():\n    x = 2\nelse:\n    raise E", 2),
            ("x = 1\ntry:\n    x = 2\nexcept E:\n    raise", 2),
            ("x = 1\nif 1 > 2:\n    x = f()", 1),
            ("x = 1\nwith f() as g:\n    x = 2", 2),
            ("x = 1\nassert f()", 1),
            ("x = 1\ndef g():\n    global x\n    x = 2\ng()", 2),
        ],
    )
    def test_branches_that_are_settled(self, text: str, value: int) -> None:
        assert read_value(text) == value

    def test_records_hinge_too(self) -> None:
        text = "from lib import C\nc = C(n=1)\nif f():\n    c.n = 2\n    c.m = 3\n"
        record = read_names(text)["c"]
        assert record.index["n"].value.value == 1
        assert is_conditional(record.index["n"].value)
        assert isinstance(record.index["m"].value.value, Unknown)
        assert is_conditional(read_names("from lib import C\nc = C(n=1)\nif f():\n    c = C(n=2)\n")["c"])


class TestClasses:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("class C:\n    n = 1\nx = C.n", 1),
            ("class C:\n    n: int = 1\nx = C.n", 1),
            ("class C:\n    n = 1\n    n = 2\nx = C.n", 2),
            ("class C:\n    n = 1\n    if f():\n        n = 2\nx = C.n", None),
            ("class C:\n    n = m = 1\nx = C.n", None),
            ("class C:\n    n = 1\nC.n = 2\nx = C.n", None),
            ("class C:\n    n = 1\n    n += 2\nx = C.n", None),
            ("class C:\n    n = 1\n    n, m = 2, 3\nx = C.n", None),
        ],
    )
    def test_members(self, text: str, value: int | None) -> None:
        assert read_value(text) == value if value is not None else isinstance(read_value(text), Unknown)


class TestBounds:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "text",
        [
            "def f(n):\n    return f(n)\nx = f(1)",
            "def f(n):\n    return f(n) + f(n)\nx = f(1)",
            "a = 'aaaaaaaa'\n" + "a = a + a\n" * 200,
            "a = 'aaaaaaaa'\n" + "a = f'{a}{a}'\n" * 200,
            "a = 2\n" + "a = a * a\n" * 200,
            "a = 2\n" + "a = a ** a\n" * 20,
            "from lib import C\nc = C()\nc.c = c\nc.d = C(c=c)\nc.d.e = c.d",
            "x = " + " + ".join(["1"] * 300),
            "x = " + "not " * 500 + "1",
            "x = 1\n" * 60_000,
            "def f(g):\n    return g(g)\nx = f(f)",
            "d = {}\nd['d'] = d",
            "from lib import C\nc = C()\nc.all = [c]\nc.d = {'a': [c]}\nc.e = C(a=[c, (c,)])",
            "from lib import C\nc = C()\nc.a.b.c = 1\nc.a.b.d = c.a\nc.a.b.c.e = c",
            # Every value is used twice: these few lines unfold to 2**60 values.
            "a = 0\n" + "a = a + a\n" * 60,
            "a = f()\n" + "a = a + a\n" * 60,
            "a = 1\n" + "a = a and max(a, a)\n" * 60,
            "x = 1\n" + "x = (x, x)\n" * 20_000,
            "from lib import C\nc = C(x=1)\n" + "c = C(a=c, b=c)\n" * 60,
            "from lib import C\nc = C(x=1)\n" + "d = C()\nd.a = c\nd.b = c\nc = d\n" * 60,
            "from lib import C\nc = C(x=1)\n" + "c = C(a=[c, c])\n" * 60,
            # Deep nesting.
            "from lib import C\nc = C(x=1)\n" + "c = C(a=c)\n" * 5_000,
            "from lib import C\nc = C()\nd = c\n" + "d = d.a.b.c.d.e\n" * 3_000,
            "from lib import C\nc = C()\nd = c\n" + "d = d.a.b.c.d.e\n" * 3_000 + "d.x = 1\n",
            # A wide record that is searched again and again.
            f"from lib import C\nc = C({MANY})\nd = C()\n" + "d.x = c\n" * 5_000,
            f"from lib import C\nc = C({MANY})\n" + "d = c.replace(z=1)\n" * 5_000,
            f"from lib import C\nc = C({MANY})\nd = {{}}\n" + "d.update(c)\n" * 5_000,
            f"from lib import C\nc = dict({MANY})\nd = {{{PAIRS}}}\n" + "C(**c)\nC(**d)\n" * 5_000,
            f"import functools\np = functools.partial(f, {MANY})\n" + "p = functools.partial(p, a=1)\n" * 5_000,
            "class X:\n    def f(self):\n" + "        self.a = self.b = 1\n" * 5_000 + "X()\n" * 5_000,
            "class X:\n" + "".join(f"    a{i} = 1\n" for i in range(5_000)) + "x = X.a4999\n" * 5_000,
            "x = 1\n" + "if f():\n    x = 2\n" * 5_000,
            "def f():\n" + "    if g():\n        return 1\n" * 5_000 + "x = f()\n" * 5,
        ],
    )
    def test_nothing_runs_away(self, text: str) -> None:
        """Finish every walk, with values that unfold to no more than fits into memory."""
        evaluator = walk_script(text)
        values = [*evaluator.records[-20:], *(value for value in evaluator.module.names.values())]
        for record in values:
            complete = prune_tree(record) if isinstance(record, Record) else None
            if complete is not None:
                PythonDocument("x", b"").build_value(complete)

    def test_wide_records_say_so(self) -> None:
        record = read_names(f"from lib import C\nc = C({MANY})\n")["c"]
        assert len(record.entries) == MAX_KEYS
        assert record.open

    @pytest.mark.parametrize(
        "text",
        [
            "from lib import C\nc = C(x=1)\n" + "c = C(a=c, b=c)\n" * 60,
            "from lib import C\nc = C(x=1)\n" + "c = C(a=[c, c])\n" * 60,
            "from lib import C\nc = C(x=1)\n" + "c = C(a=c)\n" * 100,
        ],
    )
    def test_what_is_beyond_any_configuration_is_no_tree(self, text: str) -> None:
        assert prune_tree(read_names(text)["c"]) is None

    def test_a_walk_that_was_cut_short_says_so(self) -> None:
        assert walk_script("x = 1\n" * 60_000).is_exhausted
        assert not walk_script("x = 1\n" * 1_000).is_exhausted

    def test_nothing_is_executed(self, tmp_path: Path) -> None:
        victim = tmp_path / "victim"
        victim.write_text("here")
        text = (
            f"import os, shutil, subprocess\nos.remove({str(victim)!r})\nopen({str(victim)!r}, 'w').write('gone')\n"
            f"subprocess.run(['rm', {str(victim)!r}])\n__import__('os').unlink({str(victim)!r})\n"
            f"exec('raise SystemExit')\neval('1/0')\nclass X:\n    os.remove({str(victim)!r})\nraise SystemExit(3)\n"
        )
        walk_script(text)
        assert victim.read_text() == "here"


# --- against Python itself -------------------------------------------------------------------------------------------

VARIABLES = "abcde"


class Programs:
    """Random small programs that Python can run, with some conditions that the reader cannot decide."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def draw_expression(self, depth: int = 2) -> str:
        pick = self.random.randrange(9 if depth else 3)
        inner = [self.draw_expression(depth - 1) for _ in range(2)] if depth else []
        if pick == 0:
            return str(self.random.randrange(-4, 9))
        if pick in (1, 2):
            return self.random.choice((*VARIABLES, "box.x", "box.y"))
        if pick in (3, 4):
            return f"({inner[0]} {self.random.choice(['+', '-', '*', '//', '%'])} {inner[1]})"
        if pick == 5:
            return f"({inner[0]} if {self.draw_condition()} else {inner[1]})"
        if pick == 6:
            return f"({inner[0]} {self.random.choice(('or', 'and'))} {inner[1]})"
        if pick == 7:
            return f"{self.random.choice(('max', 'min'))}({inner[0]}, {inner[1]})"
        return f"helper({inner[0]}, k={inner[1]})"

    def draw_condition(self) -> str:
        name, compare = self.random.choice((*VARIABLES, "box.x")), self.random.choice(("<", "==", ">="))
        comparison = f"{name} {compare} {self.random.randrange(5)}"
        return self.random.choice((comparison, "coin()", f"not ({comparison})"))

    def draw_block(self, depth: int, indent: str) -> str:
        return "".join(self.draw_statement(depth, indent) for _ in range(self.random.randrange(1, 4)))

    def draw_statement(self, depth: int, indent: str) -> str:
        name = self.random.choice((*VARIABLES, "box.x", "box.y"))
        pick = self.random.randrange(11 if depth else 5)
        if pick in (0, 1):
            return f"{indent}{name} = {self.draw_expression()}\n"
        if pick == 2:
            return f"{indent}{name} {self.random.choice(('+=', '-=', '*='))} {self.draw_expression(1)}\n"
        if pick == 3:
            return f"{indent}{self.random.choice(('touch', 'turn'))}({self.draw_expression(1)})\n"
        if pick == 4:
            return (
                f"{indent}{name}, {self.random.choice(VARIABLES)} = {self.draw_expression(1)}, "
                f"{self.draw_expression(1)}\n"
            )
        inner = self.draw_block(depth - 1, indent + "    ")
        other = self.draw_block(depth - 1, indent + "    ")
        leave = (
            f"{indent}    if {self.draw_condition()}:\n{indent}        {self.random.choice(('break', 'continue'))}\n"
        )
        inside = (leave if self.random.random() < 0.3 else "") + inner
        rest = f"{indent}else:\n{other}" if self.random.random() < 0.4 else ""
        if pick in (5, 6):
            return f"{indent}if {self.draw_condition()}:\n{inner}{rest}"
        if pick == 7:
            return f"{indent}for _ in turns():\n{inside}{rest}"
        if pick == 8:
            return f"{indent}while coin():\n{inside}{rest}"
        if pick == 9:
            return f"{indent}try:\n{inner}{indent}    risky()\n{inner}{indent}except OSError:\n{other}"
        return f"{indent}with calm():\n{inner}"

    def draw_program(self) -> str:
        start = "".join(f"{name} = {self.random.randrange(9)}\n" for name in VARIABLES)
        helper = f"def helper(n, k=2):\n    if n > {self.random.randrange(5)}:\n        return k\n    return n - k\n"
        others = (
            "def touch(n):\n    if box.x < n:\n        box.y = n\n    box.x = n\n"
            "def turn(n):\n    global a\n    for _ in turns():\n        a = n\n        box.y += 1\n"
        )
        return start + "box = Box(x=1, y=2)\n" + helper + others + self.draw_block(2, "")


def run_program(text: str, luck: int) -> dict[str, Any]:
    """Return the values that Python computes for a program's names and its box."""
    coins = random.Random(luck)

    def raise_randomly() -> None:
        if coins.random() < 0.5:
            raise OSError

    truth: dict[str, Any] = {
        "coin": lambda: coins.random() < 0.5,
        "turns": lambda: range(coins.randrange(3)),
        "risky": raise_randomly,
        "calm": contextlib.nullcontext,
        "unseen": lambda: coins.choice(("p", "q", "z")),
        "more": lambda: {"p": 7} if coins.random() < 0.5 else {},
        "Box": types.SimpleNamespace,
    }
    exec(compile(text, "program", "exec"), truth)
    return truth | {f"box.{name}": value for name, value in vars(truth["box"]).items()}


def list_claims(text: str) -> dict[str, Any]:
    """Return the reader's values of the same names; Unknown also if the value depends on a condition."""
    values_by_name = read_names("from lib import Box\n" + text)
    values = {name: values_by_name[name] for name in VARIABLES}
    values |= {f"box.{entry.name}": entry.value for entry in values_by_name["box"].entries if entry.name in ("x", "y")}
    return {
        name: value.value if isinstance(value, Value) and not is_conditional(value) else Unknown("it hinges")
        for name, value in values.items()
    }


class Dictionaries:
    """Random small programs that change a dictionary in every possible way."""

    KEYS = ("p", "q", "r")

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def draw_statement(self, depth: int, indent: str) -> str:
        key, number = self.random.choice(self.KEYS), self.random.randrange(9)
        other = self.random.choice(("unseen()", "'p'", "'z'"))
        simple = (
            f"bag[{key!r}] = {number}",
            f"bag[{other}] = {number}",
            f"bag.pop({key!r}, None)",
            f"bag.pop({other}, None)",
            f"bag['q'] = bag.pop({key!r}, {number})",
            f"if {key!r} in bag: del bag[{key!r}]",
            f"bag.setdefault({key!r}, {number})",
            f"bag.update({key}={number})",
            f"bag.update({{{key!r}: {number}}}, r={number})",
            f"bag.update([({key!r}, {number})])",
            "bag.update(more())",
            f"bag.__setitem__({key!r}, {number})",
            f"spare = bag.copy(); spare.pop({key!r}, None)",
            f"taken = {{k: bag.pop(k, 0) for k in ({key!r}, 'z')}}",
            "bag.clear()" if self.random.random() < 0.3 else f"change(bag, {number})",
        )
        pick = self.random.randrange(len(simple) + (5 if depth else 0))
        if pick < len(simple):
            return f"{indent}{simple[pick]}\n"
        inner = "".join(self.draw_statement(depth - 1, indent + "    ") for _ in range(2))
        if pick == len(simple):
            return f"{indent}for key in list(bag):\n{indent}    if coin():\n{indent}        bag.pop(key)\n"
        if pick == len(simple) + 1:
            return f"{indent}for _ in turns():\n{inner}"
        if pick == len(simple) + 2:
            return f"{indent}try:\n{inner}{indent}    risky()\n{inner}{indent}except OSError:\n{indent}    pass\n"
        return f"{indent}if coin():\n{inner}"

    def draw_program(self) -> str:
        start = "bag = {'p': 1, 'q': 2}\ndef change(given, n):\n    given['r'] = n\n    given.pop('q', None)\n"
        body = "".join(self.draw_statement(2, "") for _ in range(self.random.randrange(1, 5)))
        return f"{start}{body}seen = dict(bag)\nbox = Box(x=1)\n"


class TestAgainstPython:
    @settings(max_examples=600, deadline=None)
    @given(st.integers(0, 10**9), st.integers(0, 10**9))
    def test_what_is_known_of_a_dictionary_is_so(self, seed: int, luck: int) -> None:
        """Verify that claimed values are right, and that a dictionary claimed to be complete has no other key."""
        text = Dictionaries(seed).draw_program()
        truth = run_program(text, luck)["seen"]
        bag = read_names("from lib import Box\n" + text)["bag"]
        assert isinstance(bag, Record)
        claimed = {entry.name: entry.value for entry in bag.entries}
        certain = {name for name, value in claimed.items() if not is_conditional(value)}
        assert certain <= truth.keys(), text
        assert bag.open or truth.keys() <= claimed.keys(), text
        for name in certain:
            value = claimed[name]
            assert isinstance(value, Value)
            assert isinstance(value.value, Unknown) or value.value == truth[name], (name, text)

    def test_the_dictionaries_are_worth_it(self) -> None:
        bags = [read_names("from lib import Box\n" + Dictionaries(seed).draw_program())["bag"] for seed in range(200)]
        complete_count = sum(
            not bag.open and any(not is_conditional(entry.value) for entry in bag.entries) for bag in bags
        )
        assert 40 < complete_count < 160

    @settings(max_examples=300, deadline=None)
    @given(st.integers(0, 10**9), st.integers(0, 10**9))
    def test_what_is_known_is_so(self, seed: int, luck: int) -> None:
        """Verify that Python computes every value claimed without a condition, whatever the coins decide."""
        text = Programs(seed).draw_program()
        try:
            truth = run_program(text, luck)
        except (ZeroDivisionError, OverflowError):
            return
        for name, value in list_claims(text).items():
            if not isinstance(value, Unknown):
                assert (value, type(value)) == (truth[name], type(truth[name])), (name, text)

    def test_the_programs_are_worth_it(self) -> None:
        """Guard against a vacuous property: many values are known, and many are unknown."""
        answers = [value for seed in range(200) for value in list_claims(Programs(seed).draw_program()).values()]
        unknown = sum(isinstance(value, Unknown) for value in answers)
        assert unknown > 300
        assert len(answers) - unknown > 300

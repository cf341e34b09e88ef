"""YAML accepted and rejected exactly as by the frameworks' loaders: PyYAML's `safe_load` and OmegaConf.

The texts are seeded mutants of real files; `CFGLINT_FUZZ_TIMES` multiplies their number, and `CFGLINT_FUZZ_SEED` (1)
seeds them.
"""

from __future__ import annotations

import io
import os
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from cfglint_train.documents.document import DocumentError, decode
from cfglint_train.documents.limits import LimitExceeded
from cfglint_train.documents.yaml.dialects import PYYAML, Dialect, get_omegaconf_dialect
from cfglint_train.documents.yaml.document import YamlDocument
from tests.fuzz.mutation import list_seed_files, mutate
from tests.support.corpus import REPOSITORY, SHARED

TIMES = int(os.environ.get("CFGLINT_FUZZ_TIMES", "1"))
SEED = int(os.environ.get("CFGLINT_FUZZ_SEED", "1"))
MUTANTS = 1500 * TIMES
FILES = [
    path for path in list_seed_files(REPOSITORY / "fixtures", SHARED / "corpus") if path.suffix in (".yaml", ".yml")
]
PIECES = [
    "\t", " ", "  ", "\n", "\r\n", "\r", ":", ": ", "- ", "-", "? ", "?", "&a ", "&b ", "*a", "*a ", "!t ", "!!str ",
    "!!int ", "!!float ", "!!bool ", "!!set ", "!!omap ", "!!pairs ", "!!timestamp ", "!!binary ", "!!null ", "!!map ",
    "!!seq ", "! ", "!", "!<tag:yaml.org,2002:str> ", "!<x", "<<: ", "<<: *a\n", "<<: [*a, *b]\n", "<<", "=", "= ",
    " =\n", "{", "}", "[", "]", ",", ", ", "|", "|\n", "|#", ">-\n", "|2\n", "|+", ">#x\n", '"', "'", "\\", '"\\x41"',
    '"\\u00"', "\"\\'\"", '"\\/"', '"\\uD800"', '"\\U00110000"', "#", " #", "# c\n", "%", "%YAML 1.1\n---\n",
    "%YAML 1.3\n---\n", "%TAG ! tag:x,1:\n---\n", "%FOO\n", "---\n", "--- ", "...\n", "...", "\ufeff", "\x85", "\u2028",
    "\xa0", "\x07", "\x7f", "\x00", "@", "`", "~", "null", "2026-02-30", "2026-13-01", "2026-01-01", "0b_", "0x_",
    "2026-01-01 25:00:00", "2026-01-01T10:00:00Z", "0_", "1:60", "1:59", "190:20:30.15", ".inf", "._", "1_000", "1e5",
    "08", "0o7", "{a: 1}", "{a:}", "{a:1}", '{"a":1}', "[a:b]", "[a: ]", "[?]", "[? a : b]", "{? a}", "[a, [b]]",
    "{[a]: 1}", "{[a]}", "[-]", "[- a]", "[a b?]", '"a":b', "'a' : b\n", "a: b: c\n", "k" * 1030 + ": 1\n", "-\n",
    "x: |\n  y\n", "x: >2\n    y\n", "null: 1\n", "~: 1\n", "1: 2\n", "{,}", "[,]", "[a,,b]", "http://x:80/", "0b1",
    "1" + ":0" * 180 + ".0", "9" * 4301, ":\n",
]  # fmt: skip
PLACES = re.compile(rb": |- |\n|, |\[|\{|:|#")
VALUE = re.compile(rb"(?m)(?<=: )[^\n#]+$")
KEY = re.compile(rb"(?m)^ *[\w-]+(?=:)")


def mutate_structure(source: bytes, draw: random.Random) -> bytes:
    """Return the text after one to five changes, most of them where YAML has structure."""
    for _ in range(draw.choice((1, 1, 1, 2, 2, 3, 5))):
        piece, kind = draw.choice(PIECES).encode(), draw.random()
        if kind < 0.2:
            source = mutate(source, draw)
        elif kind < 0.5:
            at = draw.choice([0, *(matches.end() for matches in PLACES.finditer(source))])
            source = source[:at] + piece + source[at:]
        elif kind < 0.6:
            at = draw.randrange(len(source) + 1)
            source = source[:at] + piece + source[at:]
        else:
            matches = list((VALUE if kind < 0.85 else KEY).finditer(source))
            if matches:
                start, end = draw.choice(matches).span()
                source = source[:start] + piece + source[end:]
    return source


def is_accepted(source: bytes, dialect: Dialect, loader: int) -> bool | None:
    """Return whether cfglint claims that a loader accepts a text, or None beyond its limits."""
    try:
        refusals = YamlDocument("x.yaml", source).find_refusals(dialect)
    except LimitExceeded:
        return None
    except DocumentError:
        return False
    return not refusals or refusals[loader] is None


def load_pyyaml(text: str) -> Any:
    return yaml.safe_load(io.StringIO(text, newline=None))


class UndecidedError(Exception):
    """Failure of a loader at a problem that is not about YAML, or that another rule reports."""


def load_omegaconf(text: str) -> Any:
    library = pytest.importorskip("omegaconf")
    try:
        return library.OmegaConf.load(io.StringIO(text, newline=None))
    except library.errors.GrammarParseError:
        raise UndecidedError from None  # about an interpolation
    except yaml.constructor.ConstructorError as error:
        raise UndecidedError if "duplicate key" in str(error) else error from None  # SYN003
    except OSError:
        raise UndecidedError from None  # neither list nor mapping: not a configuration


def find_disagreement(source: bytes, dialect: Dialect, loader: int, load: Callable[[str], Any]) -> str | None:
    """Return both answers about a text if they differ."""
    if b"{{" in source:
        return None  # a placeholder of a template, which is filled in before
    ours = is_accepted(source, dialect, loader)
    try:
        load(decode(source))
        theirs = ""
    except (RecursionError, UndecidedError):
        return None
    except Exception as error:  # any exception of a loader stops the run
        theirs = f"{type(error).__name__}: {error}"
    return None if ours in (None, not theirs) else f"{'taken' if ours else 'refused'} here, by the loader: {theirs}"


def compare_mutants(dialect: Dialect, loader: int, load: Callable[[str], Any], number: int) -> None:
    draw = random.Random(SEED + number)
    texts = [path.read_bytes() for path in FILES]
    accepted = 0
    for _ in range(MUTANTS):
        source = mutate_structure(draw.choice(texts), draw)
        difference = find_disagreement(source, dialect, loader, load)
        assert difference is None, f"{difference}\n{source!r}"
        accepted += bool(is_accepted(source, dialect, loader))
    assert 0.15 < accepted / MUTANTS < 0.85, "the mutants are all taken or all refused"


@pytest.mark.slow
def test_pyyaml_takes_and_refuses_the_same():
    compare_mutants(PYYAML, 0, load_pyyaml, 1)


@pytest.mark.slow
def test_omegaconf_takes_and_refuses_the_same():
    version = pytest.importorskip("omegaconf").__version__
    compare_mutants(
        get_omegaconf_dialect(), 0 if tuple(map(int, version.split(".")[:2])) < (2, 4) else 1, load_omegaconf, 2
    )


@pytest.mark.parametrize(
    "around", ["a: {}\n", "{}: a\n", "- {}\n", "a: [{}]\n", "a: {{x: {}}}\n", "a: b {}\nc: d\n", "{}"]
)
def test_every_piece_at_every_place(around):
    for piece in PIECES:
        source = around.format(piece).encode()
        assert find_disagreement(source, PYYAML, 0, load_pyyaml) is None, source

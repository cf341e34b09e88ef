"""Hostile names, keys and values that could control a terminal or mislead a log or reader, and results made of them."""

from __future__ import annotations

import json
import os
import unicodedata
from pathlib import Path

from hypothesis import strategies as st

from cfglint_train.documents.document import Document, Edit, Position, Span
from cfglint_train.findings.finding import SEVERITIES, FileEdit, Finding, Related, Remedy
from cfglint_train.judging.result import CheckedFile, Result, Trouble
from cfglint_train.plan.certainty import CERTAINTIES, Ground
from cfglint_train.plan.origin import Place
from cfglint_train.reports.formats import find_reporter
from cfglint_train.reports.style import PLAIN, Style
from cfglint_train.repository.documents import SkippedFile
from tests.support.configs import AXOLOTL, BROKEN, CONTRADICTED, DEEPSPEED, REMOTE_CODE, TWICE

HOSTILE = [
    "::error file=x::forged",
    "  ::error::indented",
    "\u00a0::debug::after a space that is none",
    "\u3000::warning::x",
    "::stop-commands::x",
    "::add-mask::a",
    "##[error]older form",
    "x ##[group]anywhere",
    "##vso[task.setvariable variable=x]y",
    "x ##VSO[task.complete result=Succeeded]",
    "##teamcity[buildStatus text='x']",
    "section_start:1:x\r\x1b[0K",
    "##",
    "[error]",
    "\x1b[2J\x1b[31mred",
    "\x1b]0;title\x07",
    "\x1b]8;;http://x\x1b\\",
    "\x9b31m",
    "\x90\x9c",
    "\u202eesrever",
    "\u2066isolated\u2069",
    "\u200e\u200f\u061c",
    "a\u2028::error::b",
    "a\u2029b\x85c\x0bd\x0ce",
    "a\nb",
    "a\n::error::b",
    "a\r::error::b",
    "\r\n",
    "%0A::error::x",
    "100%25, a:b,c=d",
    "a,b=c;d",
    "\ud800",
    "\udcff\udc80",
    "\x00\x7f\x08",
    "\u200b\ufeff\u2060",
    "日本語 e\u0301 \U0001f600",
    "\t tab",
    " ",
]

PIECES = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=8), st.characters())
TEXTS = st.lists(PIECES, max_size=5).map("".join)
NAMES = TEXTS.filter(lambda name: name.strip("\0") and "\0" not in name)
POSITIONS = st.builds(Position, st.integers(1, 5), st.integers(1, 400))


@st.composite
def draw_document(draw) -> Document:
    source = draw(st.lists(TEXTS, max_size=5).map("\n".join))
    return Document(draw(NAMES), source.encode("utf-8", "surrogatepass"))


@st.composite
def draw_place(draw) -> Place:
    document = draw(draw_document())
    start = draw(st.integers(0, len(document.source)))
    return Place(document, Span(start, draw(st.integers(start, len(document.source)))))


GROUNDS = st.builds(
    Ground, TEXTS.filter(bool), st.none() | TEXTS | st.integers() | st.booleans(), st.sampled_from(CERTAINTIES), TEXTS
)


@st.composite
def draw_finding(draw) -> Finding:
    place = draw(draw_place())
    document = place.document
    remedies = st.builds(
        Remedy,
        st.sampled_from(["safe", "unsafe", "display"]),
        TEXTS,
        st.lists(
            st.builds(FileEdit, NAMES, st.builds(Edit, st.just(Span(0, 0)), TEXTS), POSITIONS, POSITIONS), max_size=2
        ).map(tuple),
        st.none() | TEXTS,
    )
    return Finding(
        code=draw(st.sampled_from(["KEY001", "MEM001", "SYN002"])),
        name=draw(st.sampled_from(["unknown-key", "step-exceeds-gpu"])),
        severity=draw(st.sampled_from(SEVERITIES)),
        message=draw(TEXTS.filter(bool)),
        path=document.path,
        start=document.locate(place.span.start),
        end=document.locate(place.span.end),
        place=draw(st.sampled_from([place, None])),
        fix=draw(st.none() | remedies),
        related=tuple(draw(st.lists(st.builds(Related, draw_place(), TEXTS), max_size=2))),
        help=draw(st.none() | TEXTS),
        notes=tuple(draw(st.lists(TEXTS, max_size=2))),
        certainty=draw(st.sampled_from(CERTAINTIES)),
        rests_on=tuple(draw(st.lists(GROUNDS, max_size=2))),
    )


TROUBLES = st.builds(Trouble, NAMES, TEXTS, st.none() | POSITIONS, st.none() | st.just("MEM001"), st.booleans())
RESULTS = st.builds(
    Result,
    files=st.lists(
        st.builds(CheckedFile, NAMES, st.just("axolotl"), st.sampled_from(["main", "companion"])), max_size=2
    ).map(tuple),
    findings=st.lists(draw_finding(), max_size=4).map(tuple),
    troubles=st.lists(TROUBLES, max_size=2).map(tuple),
    skipped=st.just((SkippedFile("x", "y"),)),
    runs=st.just(()),
    secrets=st.just(frozenset()),
    digests=st.just(()),
)


def render_report(result: Result, form: str, style: Style = PLAIN) -> str:
    """Return the report as printed; it must be encodable as UTF-8."""
    return "".join(f"{line}\n" for line in find_reporter(form)(result, style)).encode("utf-8").decode("utf-8")


def find_control_characters(output: str, allowed: str = "\n") -> list[str]:
    """Return the characters that would control a terminal or mislead a reader."""
    directions = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    return [
        character
        for character in output
        if character not in allowed
        and (
            unicodedata.category(character) in ("Cc", "Zl", "Zp", "Cs")
            or unicodedata.bidirectional(character) in directions
        )
    ]


def write_folder_with_all_kinds(tmp_path: Path) -> Path:
    """Write files with findings, fixes, companions and errors of every kind and return the folder."""
    (tmp_path / ".git").mkdir()
    for name, content in {
        "a.yaml": TWICE,
        "b/remote.yaml": REMOTE_CODE,
        "b/ds.json": DEEPSPEED,
        "c/main.yaml": AXOLOTL + "deepspeed: ds.json\n",
        "c/ds.json": CONTRADICTED,
        "d.yaml": BROKEN,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


def write_hostile_folder(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    names = [
        b"::error file=x::forged.yaml",
        b"a\n::error::b.yaml",
        b"\x1b[31mred.yaml",
        b"##[error]x.yaml",
        b"not \xff utf-8.yaml",
        "\u202etxt.yaml".encode(),
        b"100%, a:b.yaml",
        b" ::debug::x.json",
    ]
    for name in names:
        text = (DEEPSPEED if name.endswith(b"json") else TWICE + "trust_remote_code: true\n") + ""
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
            file.write(text.encode())
    keys = [json.dumps(piece) for piece in HOSTILE if "\ud800" not in piece and "\udcff" not in piece]
    body = "".join(f"{key}: {key}\n" for key in keys)
    (tmp_path / "keys.yaml").write_text(AXOLOTL + body + body)
    (tmp_path / "keys.json").write_text(DEEPSPEED.rstrip("}\n") + "".join(f",\n{key}: {key}" for key in keys) + "}\n")
    (tmp_path / "pragma.yaml").write_text(
        AXOLOTL + "# cfglint: nodes=##[error]\n# cfglint: ::error::x\n# cfglint: ignore[::error::x]\n"
    )
    (tmp_path / "context.json").write_text(
        DEEPSPEED.replace('    "train_micro', '::error::x,\n##[error]: 1,\n"\x1b[31m": 1,\n    "train_micro')
    )
    (tmp_path / "broken.yaml").write_text("base_model: x\n::error::x: *##[error]\n")
    (tmp_path / "long.yaml").write_text(f"# {'x' * 100_000}\n" + TWICE + f"x: {'y' * 100_000}\n")
    (tmp_path / "run.sh").write_text(
        "python -m openrlhf.cli.train_sft --pretrain x --$'\\x1b[31m' '::error::x' \\\n::error::y\n"
    )
    return tmp_path

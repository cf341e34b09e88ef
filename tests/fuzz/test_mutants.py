"""Seeded fuzzer: readers, edits and their inverse, every rewriting command, and every report writer.

Every pull request is tested with the same mutants; `CFGLINT_FUZZ_TIMES` multiplies their number, and
`CFGLINT_FUZZ_SEED` (1) seeds them. A failure names its seed and keeps the mutant, which becomes a fixture.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from cfglint_train import api
from cfglint_train.documents.document import CannotEdit, Document, DocumentError, Scalar, Set
from cfglint_train.findings import read_back
from cfglint_train.judging.remedies import attach_edits
from cfglint_train.reports.formats import find_reporter
from cfglint_train.reports.style import PLAIN
from cfglint_train.repository import files
from cfglint_train.settings.settings import FORMATS
from tests.fuzz.mutation import SYNTAXES, list_seed_files, mutate
from tests.fuzz.rewriting import build_rewriting
from tests.support.corpus import REPOSITORY, SHARED
from tests.support.pace import measure_slowness

TIMES = int(os.environ.get("CFGLINT_FUZZ_TIMES", "1"))
SEED = int(os.environ.get("CFGLINT_FUZZ_SEED", "1"))
FILES = list_seed_files(REPOSITORY / "fixtures", SHARED / "corpus")
SLOWEST = 3.0
"""Processor seconds of the reference machine that one mutant may take."""


def check_reader(path: Path, source: bytes, draw: random.Random) -> None:
    """Check that a reader returns a document or raises a located error, and that an edit can be read back."""
    try:
        document = files.parse(path.name, source, SYNTAXES[path.suffix])
    except DocumentError as error:
        if not error.message or error.position.line < 1:
            raise AssertionError("an error without its place") from error
        return
    if document.syntax in ("yaml", "json"):
        _check_edit(document, draw)


def _check_edit(document: Document, draw: random.Random) -> None:
    entries = [
        (*route, entry.name)
        for route, mapping in document.list_mappings()
        for entry in mapping.entries
        if entry.name is not None and isinstance(entry.value, Scalar) and len(mapping.entries) == len(mapping.index)
    ]
    if entries:
        change = Set(draw.choice(entries), draw.choice([1, "x", None, True, 0.5, [1], "a: b"]))
        try:
            edits = document.build_edits([change])
            read_back.check_tree(document, [change], edits)
        except (CannotEdit, DocumentError):
            return


def check_lint(path: Path, source: bytes, draw: random.Random) -> None:
    """Check that every command returns a result without internal failures, and that every format can render it."""
    options = api.Options(isolated=True)
    fixed = api.fix(options=options, sources={path.name: source}, unsafe=draw.random() < 0.5)
    assert not any("please report it" in refusal.reason for refusal in fixed.raw.refused), fixed.raw.refused
    results = [fixed.raw.result]
    if fixed.sources:  # otherwise this is the lint of the mutant itself, which is done already
        results.append(api.lint(options=options, sources={path.name: source}).raw)
    for result in results:
        assert not any(trouble.is_internal for trouble in result.troubles), result.troubles
        "\n".join(find_reporter(draw.choice(FORMATS))(attach_edits(result), PLAIN)).encode()


def check_rewriting(path: Path, source: bytes, draw: random.Random) -> None:
    """Check that every reader that accepts the mutant accepts the results of `--fix`, `fit` and `migrate`."""
    problems = list(build_rewriting(path, SYNTAXES[path.suffix], source, draw).find_problems())
    assert problems == []


@pytest.mark.oracle
@pytest.mark.parametrize(("judge", "executions"), [(check_reader, 3_000), (check_lint, 60), (check_rewriting, 60)])
def test_mutants_are_answered(judge, executions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The folder is its own repository, because ours has hundreds of Python files that may change a setting first.
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    draw = random.Random(SEED)
    for count in range(executions * TIMES):
        path = draw.choice(FILES)
        if judge is check_rewriting:  # only readable files can be rewritten
            other = draw.choice([candidate for candidate in FILES if candidate.suffix == path.suffix])
            source = mutate(path.read_bytes(), draw, 0.15, other.read_bytes())
        else:
            source = mutate(path.read_bytes(), draw)
        start = time.process_time()
        try:
            judge(path, source, draw)
            spent = time.process_time() - start
            assert spent < SLOWEST or spent < SLOWEST * measure_slowness(), "it takes too long"
        except Exception as error:
            copy = tmp_path / path.name
            copy.write_bytes(source)
            raise AssertionError(f"seed {SEED}, execution {count}, of {path}: {error!r}; kept as {copy}") from error

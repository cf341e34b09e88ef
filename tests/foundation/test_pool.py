"""Work shared among processes: the same results as from a single process, even if other processes fail."""

from __future__ import annotations

import os
import signal
import time

import pytest

from cfglint_train import api
from cfglint_train.foundation import pool
from cfglint_train.judging import dispatch
from cfglint_train.judging.result import Result
from cfglint_train.reports import formats
from cfglint_train.settings.error import SettingsError
from cfglint_train.settings.settings import FORMATS
from tests.support.corpus import REPOSITORY
from tests.support.linting import change_directory

pytestmark = pytest.mark.skipif(pool.count_processors() == 1 and not hasattr(os, "fork"), reason="no fork here")


def process_items(items) -> tuple[int, list[int]]:
    return os.getpid(), list(items)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100, 20_000])
def test_each_item_goes_to_one_process(count):
    outcomes = pool.gather(process_items, list(range(count)), 3)
    assert len({process for process, _ in outcomes}) == 3
    assert outcomes[0][0] == os.getpid()
    assert sorted(item for _, items in outcomes for item in items) == list(range(count))


def test_neighbours_stay_together_and_in_order():
    for _, items in pool.gather(process_items, list(range(100)), 2):
        assert items == sorted(items)
        assert all({item - item % pool._MIN_BLOCK, min(99, item | pool._MIN_BLOCK - 1)} <= set(items) for item in items)


def test_whoever_is_ready_takes_the_next():
    original = os.getpid()

    def process_slowly(items) -> list[int]:
        return [item for item in items if os.getpid() != original or not time.sleep(0.02)]

    slow, fast = pool.gather(process_slowly, list(range(160)), 2)
    assert len(fast) > len(slow)


def test_an_exception_of_a_copy_is_raised_here():
    original = os.getpid()

    def raise_in_copy(items) -> list[int]:
        if os.getpid() != original:
            raise SettingsError("not in a copy")
        return list(items)

    with pytest.raises(SettingsError, match="not in a copy"):
        pool.gather(raise_in_copy, [1, 2], 2)


def test_what_a_copy_took_before_it_died_is_done_here():
    original = os.getpid()

    def kill_copy(items) -> list[int]:
        for item in items:
            if os.getpid() != original:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.05)
            return [item, *items]
        return []

    outcomes = pool.gather(kill_copy, list(range(100)), 3)
    assert sorted(item for items in outcomes for item in items) == list(range(100))


def test_no_copy_is_left_behind():
    pool.gather(list, [1, 2, 3, 4], 4)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def list_contents(result: Result) -> tuple[object, ...]:
    findings = [
        (
            finding.sort_key, finding.end, finding.severity, finding.help,
            None if finding.fix is None else finding.fix._replace(
                edits=tuple(edit._replace(document=None) for edit in finding.fix.edits)
            ),
            [(note.place.document.path, note.place.span, note.message) for note in finding.related],
            None if finding.place is None else (finding.place.document.path, finding.place.span),
        )
        for finding in result.findings
    ]  # fmt: skip
    return findings, result.files, result.troubles, set(result.skipped), result.secrets


@pytest.mark.slow
def test_a_shared_lint_finds_what_one_process_finds(tmp_path, monkeypatch):
    """Lint all fixtures: companions of several runs, suppressions, credentials, unreadable files."""
    monkeypatch.setattr(dispatch, "FILES_PER_JOB", 1)
    monkeypatch.setattr(dispatch, "MAX_SECONDS", 1000.0)
    (tmp_path / "broken.yaml").write_text("base_model: [\n")
    paths = [str(REPOSITORY / "fixtures"), str(tmp_path)]
    alone = api.lint(paths, api.Options()).raw
    shared = api.lint(paths, api.Options(jobs=3)).raw
    assert len(alone.findings) > 100
    assert any(finding.fix is not None and finding.fix.edits for finding in shared.findings)
    assert list_contents(shared) == list_contents(alone)
    assert alone.runs
    assert shared.runs == ()


def test_a_companion_of_runs_in_two_processes_is_one_finding_and_needs_its_suppression(tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "FILES_PER_JOB", 1)
    host = "base_model: x/y\ndatasets:\n- path: a\n  type: b\nsequence_len: 512\ndeepspeed: ds.json\nbf16: true\n"
    for number in range(4):
        (tmp_path / f"run{number}.yaml").write_text(host + f"micro_batch_size: {number + 1}\n")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": false}}')
    (tmp_path / ".git").mkdir()
    names = [str(path) for path in sorted(tmp_path.glob("*.*")) if path.is_file()]
    alone = api.lint(names, api.Options(isolated=True)).raw
    shared = api.lint(names, api.Options(isolated=True, jobs=2)).raw
    assert "XFL001" in {finding.code for finding in alone.findings}
    assert list_contents(shared) == list_contents(alone)


def test_settings_that_mean_nothing_are_refused_from_every_process(tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "FILES_PER_JOB", 1)
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.yaml").write_text("base_model: x/y\ndatasets: []\nmicro_batch_size: 1\nsequence_len: 8\n")
    (tmp_path / "0" / "cfglint.toml").write_text("selct = []\n")
    with pytest.raises(SettingsError, match="selct"):
        api.lint([str(tmp_path)], api.Options(jobs=2))


DIGESTS = {form: digest for form in FORMATS if (digest := formats.find_digest(form)) is not None}


def compute_digests(runs) -> list[dict[str, object]]:
    return [dict(zip(DIGESTS, digests)) for digests in zip(*(digest(runs) for digest in DIGESTS.values()))]


@pytest.fixture(scope="module")
def results() -> tuple[Result, Result]:
    """Return the rules' fixtures linted by a single process and by three, without a time limit.

    The bundled copies of frameworks next to them are parsed for the first file that needs them.
    """
    with change_directory(REPOSITORY / "fixtures" / "rules"), pytest.MonkeyPatch.context() as patched:
        patched.setattr(dispatch, "MAX_SECONDS", 1000.0)
        alone = api.lint(["."], api.Options(isolated=True), digest=compute_digests).raw
        shared = api.lint(["."], api.Options(isolated=True, jobs=3), digest=compute_digests).raw
        return alone, shared


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_says_the_same_of_a_shared_lint(form, results):
    """Include fixes in companions and budgets of runs, whichever process computes them."""

    def render_report(result: Result) -> list[str]:
        digests = tuple(digest[form] for digest in result.digests) if form in DIGESTS else ()
        return list(formats.find_reporter(form)(result._replace(digests=digests)))

    alone, shared = map(render_report, results)
    assert shared == alone
    assert sum(map(len, alone)) > 10_000

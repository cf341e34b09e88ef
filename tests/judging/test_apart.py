"""Fixes of one report do not undo each other."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cfglint_rules import registry
from cfglint_train.documents.document import Set
from cfglint_train.findings.finding import Finding, Fix, Report
from cfglint_train.fixing import loop
from cfglint_train.frameworks.lens import Config
from cfglint_train.judging import dispatch
from cfglint_train.judging.fix_preconditions import apart
from cfglint_train.runs.workspace import Workspace
from tests.support.acceptance import expectation
from tests.support.cases import for_each
from tests.support.configs import AXOLOTL
from tests.support.corpus import CORPUS, REPOSITORY, needs_corpus
from tests.support.linting import lint, options, runs_in, working_in

RULES = sorted((REPOSITORY / "fixtures" / "rules").glob("*/fires"))
MANY = {"BAT002"}
"""Rules with so many files in a folder that linting it again after each fix takes long."""
CASES = sorted(path.parent for path in (REPOSITORY / "fixtures" / "acceptance").glob("*/*/expect.json"))
PARTS = 16
"""Tests that share the cases: a few, so that two processes are busy to the end."""
RESUMED = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
stage: sft
do_train: true
finetuning_type: full
dataset: identity
template: qwen
fsdp: full_shard auto_wrap
output_dir: out
resume_from_checkpoint: out/checkpoint-5
save_only_model: false
"""


def undone(workspace: Workspace, paths: list[str], findings: list[Finding]) -> Iterator[str]:
    """The pairs of findings of some files of which the second restores what the fix of the first has changed."""
    judged: dict[frozenset[tuple[str, bytes]], tuple[Workspace, list[Finding]]] = {}
    for one in findings:
        fix, run = one.intent, one.run
        if fix is None or fix.applicability == "display":
            continue
        made = loop._apply(workspace, run, fix)
        texts = {} if isinstance(made, str) else made.sources()
        if not texts:
            continue
        key = frozenset(texts.items())
        if key not in judged:
            fixed = workspace.updated(texts)
            judged[key] = fixed, list(dispatch.lint(fixed, workspace.collect(paths), options()).findings)
        after, left = judged[key]
        for other in left:
            back = other.intent
            if back is None or back.applicability == "display":
                continue
            again = loop._apply(after, other.run, back)
            now = {**texts, **({} if isinstance(again, str) else again.sources())}
            if all(now[path] == workspace.sources.read(path) for path in texts):
                yield f"{one.path}: {one.code}, then {other.code}: {back.message}"
            for field, value in fix.changes.items() if run is not None and other.run is not None else ():
                same = other.run.main.document.path == run.main.document.path and field in back.changes
                if same and back.changes[field] == run.base.get(field) != value:
                    yield f"{one.path}: {one.code}, then {other.code}: {field} is {back.changes[field]} again"


def contradictions(findings: list[Finding]) -> Iterator[tuple[str, str, str]]:
    """The pairs of fixes that would be applied and set one key to different values."""
    met: dict[object, tuple[str, str]] = {}
    for one in findings:
        fix = one.intent
        if fix is None or fix.applicability == "display":
            continue
        wanted = {(loop._home(one), field): value for field, value in fix.changes.items()}
        wanted |= {
            (config.document.path, change.route): change.value
            for config, changes in fix.keys
            for change in changes
            if isinstance(change, Set)
        }
        for place, value in wanted.items():
            code, other = met.setdefault(place, (one.code, repr(value)))
            if other != repr(value):
                yield code, one.code, str(place)


def copied(case: Path, folder: Path) -> Path:
    """Return a copy of a case that is a repository."""
    shutil.copytree(case, folder / "x")
    (folder / "x" / ".git").mkdir(exist_ok=True)
    return folder / "x"


def law(folder: Path, paths: list[str]) -> None:
    with working_in(folder):
        workspace = dispatch.workspace_for(options())
        found = list(dispatch.lint(workspace, workspace.collect(paths), options()).findings)
        assert list(contradictions(found)) == []
        assert list(undone(workspace, paths, found)) == []


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(path, id=path.parent.name, marks=[pytest.mark.slow] if path.parent.name in MANY else [])
        for path in RULES
    ],
)
def test_no_fix_of_the_rules_is_undone(case: Path, tmp_path: Path) -> None:
    law(copied(case, tmp_path), ["."])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_fix_of_the_cases_is_undone(tmp_path: Path, part: int) -> None:
    @for_each("case", CASES[part::PARTS], ids=lambda case: "/".join(case.parts[-2:]))
    def holds(case: Path, tmp_path: Path) -> None:
        repository = copied(case, tmp_path)
        law(repository, expectation(repository).get("paths", ["."]))

    holds(tmp_path=tmp_path)


@pytest.mark.slow
@needs_corpus
@pytest.mark.parametrize("name", sorted(path.name for path in CORPUS.glob("*") if path.is_dir()))
def test_no_two_fixes_of_upstream_examples_contradict_each_other(name: str) -> None:
    with working_in(CORPUS / name):
        workspace = dispatch.workspace_for(options())
        found = dispatch.lint(workspace, workspace.collect(["."]), options())
    assert list(contradictions(list(found.findings))) == []


def setting(value: int, code: str) -> Callable[[Config], Iterator[Report]]:
    """A rule whose fix gives one key a value."""

    def check(config: Config) -> Iterator[Report]:
        route = ("micro_batch_size",)
        place = config.origin(*route).place
        assert place is not None
        yield Report(code, place, fix=Fix("safe", f"it is {value}", keys=((config, (Set(route, value),)),)))

    return check


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("", {"KEY001": "it is 4", "KEY002": "it is 8; not applied: KEY001 changes the same setting"}),
        ("  # cfglint: ignore[KEY001]", {"KEY002": "it is 8"}),
    ],
)
def test_of_two_fixes_of_one_key_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comment: str, expected: dict[str, str]
) -> None:
    """A fix whose finding is silenced holds up no other."""
    monkeypatch.setitem(registry._checkers, "KEY001", setting(4, "KEY001"))
    monkeypatch.setitem(registry._checkers, "KEY002", setting(8, "KEY002"))
    (tmp_path / ".git").mkdir()
    text = AXOLOTL.replace("micro_batch_size: 1\n", f"micro_batch_size: 1{comment}\n")
    (tmp_path / "run.yaml").write_text(text)
    found = lint(tmp_path, options(["KEY001", "KEY002"])).findings
    assert {one.code: one.fix.message for one in found if one.fix is not None} == expected


def test_a_fix_that_a_rule_would_undo_is_shown_alone(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.yaml").write_text(RESUMED)
    [run] = runs_in(tmp_path, nodes="1", gpus_per_node="8")
    place = run.place("checkpoint.model_only")
    start = place.document.position(place.span.start)
    for changes, applicability in (({"checkpoint.model_only": True}, "display"), ({"checkpoint.keep": 1}, "safe")):
        fix = Fix("safe", "a change", changes)
        one = Finding("CKP002", "x", "info", "x", "run.yaml", start, start, place, intent=fix, run=run)
        [kept] = apart([one])
        assert kept.intent is not None
        assert kept.intent.applicability == applicability
    wanted = "CKP006 would ask for the former value of `save_only_model`"
    text = RESUMED.replace("save_only_model: false", "save_only_model: true").encode()
    with working_in(tmp_path):
        assert run.refused_with({"run.yaml": text}) == {wanted}

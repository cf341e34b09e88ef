"""Fixes of one report, which must not undo each other."""

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
from cfglint_train.judging.fix_preconditions import drop_conflicting_fixes
from cfglint_train.runs.workspace import Workspace
from tests.support.acceptance import read_expectation
from tests.support.cases import for_each
from tests.support.configs import AXOLOTL
from tests.support.corpus import CORPUS, REPOSITORY, needs_corpus
from tests.support.linting import build_options, change_directory, lint, list_runs

RULES = sorted((REPOSITORY / "fixtures" / "rules").glob("*/fires"))
MANY = {"BAT002"}
"""Rules with so many files in a folder that linting it again after each fix takes long."""
CASES = sorted(path.parent for path in (REPOSITORY / "fixtures" / "acceptance").glob("*/*/expect.json"))
PARTS = 16
"""Number of tests that share the cases: a few, so that two processes are busy to the end."""
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


def yield_undone(workspace: Workspace, paths: list[str], findings: list[Finding]) -> Iterator[str]:
    """Yield each pair of findings if the fix of the second restores what the fix of the first changed."""
    linted_after: dict[frozenset[tuple[str, bytes]], tuple[Workspace, list[Finding]]] = {}
    for finding in findings:
        fix, run = finding.intent, finding.run
        if fix is None or fix.applicability == "display":
            continue
        rewritten = loop._apply_fix(workspace, run, fix)
        texts = {} if isinstance(rewritten, str) else rewritten.render_sources()
        if not texts:
            continue
        key = frozenset(texts.items())
        if key not in linted_after:
            fixed = workspace.replace_files(texts)
            linted_after[key] = fixed, list(dispatch.lint(fixed, workspace.collect(paths), build_options()).findings)
        after, remaining = linted_after[key]
        for other in remaining:
            other_fix = other.intent
            if other_fix is None or other_fix.applicability == "display":
                continue
            other_rewritten = loop._apply_fix(after, other.run, other_fix)
            final_texts = {**texts, **({} if isinstance(other_rewritten, str) else other_rewritten.render_sources())}
            if all(final_texts[path] == workspace.sources.read(path) for path in texts):
                yield f"{finding.path}: {finding.code}, then {other.code}: {other_fix.message}"
            for field, value in fix.changes.items() if run is not None and other.run is not None else ():
                is_same_field = other.run.main.document.path == run.main.document.path and field in other_fix.changes
                if is_same_field and other_fix.changes[field] == run.stated_plan.get(field) != value:
                    yield (
                        f"{finding.path}: {finding.code}, then {other.code}: {field} is "
                        f"{other_fix.changes[field]} again"
                    )


def yield_contradictions(findings: list[Finding]) -> Iterator[tuple[str, str, str]]:
    """Yield the pairs of fixes that would be applied and set one key to different values."""
    first_by_place: dict[object, tuple[str, str]] = {}
    for finding in findings:
        fix = finding.intent
        if fix is None or fix.applicability == "display":
            continue
        new_values = {(loop._get_main_path(finding), field): value for field, value in fix.changes.items()}
        new_values |= {
            (config.document.path, change.route): change.value
            for config, changes in fix.keys
            for change in changes
            if isinstance(change, Set)
        }
        for place, value in new_values.items():
            code, other_value = first_by_place.setdefault(place, (finding.code, repr(value)))
            if other_value != repr(value):
                yield code, finding.code, str(place)


def copy_case(case: Path, folder: Path) -> Path:
    """Return a copy of the case that is a repository."""
    shutil.copytree(case, folder / "x")
    (folder / "x" / ".git").mkdir(exist_ok=True)
    return folder / "x"


def check_fixes(folder: Path, paths: list[str]) -> None:
    with change_directory(folder):
        workspace = dispatch.open_workspace(build_options())
        findings = list(dispatch.lint(workspace, workspace.collect(paths), build_options()).findings)
        assert list(yield_contradictions(findings)) == []
        assert list(yield_undone(workspace, paths, findings)) == []


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(path, id=path.parent.name, marks=[pytest.mark.slow] if path.parent.name in MANY else [])
        for path in RULES
    ],
)
def test_no_fix_of_the_rules_is_undone(case: Path, tmp_path: Path) -> None:
    check_fixes(copy_case(case, tmp_path), ["."])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_fix_of_the_cases_is_undone(tmp_path: Path, part: int) -> None:
    @for_each("case", CASES[part::PARTS], ids=lambda case: "/".join(case.parts[-2:]))
    def check_case(case: Path, tmp_path: Path) -> None:
        repository = copy_case(case, tmp_path)
        check_fixes(repository, read_expectation(repository).get("paths", ["."]))

    check_case(tmp_path=tmp_path)


@pytest.mark.slow
@needs_corpus
@pytest.mark.parametrize("name", sorted(path.name for path in CORPUS.glob("*") if path.is_dir()))
def test_no_two_fixes_of_upstream_examples_contradict_each_other(name: str) -> None:
    with change_directory(CORPUS / name):
        workspace = dispatch.open_workspace(build_options())
        result = dispatch.lint(workspace, workspace.collect(["."]), build_options())
    assert list(yield_contradictions(list(result.findings))) == []


def build_rule(value: int, code: str) -> Callable[[Config], Iterator[Report]]:
    """Return a rule whose fix sets one key to the value."""

    def check(config: Config) -> Iterator[Report]:
        route = ("micro_batch_size",)
        place = config.get_origin(*route).place
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
    """Let a silenced finding block no other fix."""
    monkeypatch.setitem(registry._checkers, "KEY001", build_rule(4, "KEY001"))
    monkeypatch.setitem(registry._checkers, "KEY002", build_rule(8, "KEY002"))
    (tmp_path / ".git").mkdir()
    text = AXOLOTL.replace("micro_batch_size: 1\n", f"micro_batch_size: 1{comment}\n")
    (tmp_path / "run.yaml").write_text(text)
    findings = lint(tmp_path, build_options(["KEY001", "KEY002"])).findings
    assert {finding.code: finding.fix.message for finding in findings if finding.fix is not None} == expected


def test_a_fix_that_a_rule_would_undo_is_shown_alone(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "run.yaml").write_text(RESUMED)
    [run] = list_runs(tmp_path, nodes="1", gpus_per_node="8")
    place = run.find_place("checkpoint.model_only")
    start = place.document.locate(place.span.start)
    for changes, applicability in (({"checkpoint.model_only": True}, "display"), ({"checkpoint.keep": 1}, "safe")):
        fix = Fix("safe", "a change", changes)
        finding = Finding("CKP002", "x", "info", "x", "run.yaml", start, start, place, intent=fix, run=run)
        [remaining] = drop_conflicting_fixes([finding])
        assert remaining.intent is not None
        assert remaining.intent.applicability == applicability
    reason = "CKP006 would require the old value of `save_only_model`"
    text = RESUMED.replace("save_only_model: false", "save_only_model: true").encode()
    with change_directory(tmp_path):
        assert run.find_refusals({"run.yaml": text}) == {reason}

"""Fixes: applied to a fixpoint, verified first, written atomically, and limited to the request."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cfglint_rules import registry
from cfglint_rules.rule import Rule
from cfglint_train.documents.document import CannotEdit, Change, Delete, Document, Edit, Set, Span
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.yaml import document as yaml_document
from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.findings import read_back
from cfglint_train.findings.finding import Fix, Related, Report
from cfglint_train.fixing import loop
from cfglint_train.fixing.ignoring import add_ignores
from cfglint_train.fixing.write import write_fixes, write_sources
from cfglint_train.foundation import atomic, regular_files
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.axolotl import recognise as recogniser
from cfglint_train.frameworks.lens import Config
from cfglint_train.judging import dispatch
from cfglint_train.judging.options import LintOptions
from cfglint_train.reports import diff
from cfglint_train.runs.run import Run
from cfglint_train.settings.settings import Settings
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL, BROKEN, CONTRADICTED, DEEPSPEED, REMOTE_CODE, SMALL
from tests.support.linting import build_options, change_directory, copy_folder, fix, lint, read_contents

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
MICRO, ACCUMULATION = "batch.micro", "batch.accumulation"


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "config.yaml").write_text(AXOLOTL)
    return tmp_path


@pytest.fixture
def rule(monkeypatch) -> Callable[..., LintOptions]:
    """Return a function that registers a test rule and returns options which select all rules registered so far."""
    added: list[str] = []

    def add(check: Callable[[Any], Iterator[Report]], scope: str = "run", **attributes: Any) -> LintOptions:
        code = f"TST{len(added) + 1:03}"
        new_rule = Rule(code, f"test-{len(added)}", "warning", "-", scope, **attributes)
        monkeypatch.setitem(registry.RULES, code, new_rule)
        monkeypatch.setitem(registry._checkers, code, check)
        added.append(code)
        return build_options(select=["TST"])

    return add


def make_rule(when: Callable[[Run], bool], kind: str = "safe", **changes: Any) -> Callable[[Run], Iterator[Report]]:
    """Return a rule that changes plan fields (`batch__micro=4`) if `when` holds."""
    fields = {field.replace("__", "."): value for field, value in changes.items()}

    def check(run: Run) -> Iterator[Report]:
        if when(run):
            yield Report("wrong", run.find_place(*fields), fix=Fix(kind, f"set {fields}", fields))  # type: ignore[arg-type]

    return check


def has_micro(*values: int) -> Callable[[Run], bool]:
    return lambda run: run.plan.batch.micro in values


def read_config(here: Path, name: str = "config.yaml") -> str:
    return (here / name).read_text()


SFT = "deepspeed --module openrlhf.cli.train_sft \\\n  --pretrain Qwen/Qwen2.5-0.5B \\\n  --dataset orchard \\ \n"


# --- passes ----------------------------------------------------------------------------------------------------------


def test_fixes_follow_from_one_another(here, rule):
    rule(make_rule(has_micro(1), batch__micro=2))
    rule(make_rule(has_micro(2), batch__micro=4))
    chosen = rule(make_rule(lambda run: has_micro(4)(run) and run.plan.batch.accumulation == 1, batch__accumulation=8))
    fixed = fix(here, chosen)
    assert [applied_fix.code for applied_fix in fixed.applied] == ["TST001", "TST002", "TST003"]
    assert fixed.result.findings == ()
    assert read_config(here) == AXOLOTL.replace("micro_batch_size: 1", "micro_batch_size: 4").replace(
        "_steps: 1", "_steps: 8"
    )
    assert fix(here, chosen).applied == ()


def test_of_two_fixes_of_one_field_the_second_waits_and_may_be_gone(here, rule):
    rule(make_rule(has_micro(1), batch__micro=4))
    chosen = rule(make_rule(has_micro(1), batch__micro=8))
    fixed = fix(here, chosen)
    assert [applied_fix.code for applied_fix in fixed.applied] == ["TST001"]
    assert "micro_batch_size: 4" in read_config(here)


def test_fixes_of_different_fields_are_made_in_one_pass(here, rule, monkeypatch):
    rule(make_rule(has_micro(1), batch__micro=4))
    chosen = rule(make_rule(lambda run: run.plan.batch.accumulation == 1, batch__accumulation=2))
    passes = []
    real = dispatch.lint
    monkeypatch.setattr(dispatch, "lint", lambda *arguments: passes.append(1) or real(*arguments))
    assert len(fix(here, chosen).applied) == 2
    assert len(passes) == 2


@pytest.mark.parametrize(("reason", "needed"), [("num_epochs", 2), ("gradient_accumulation_steps", 3)])
def test_a_fix_waits_for_no_other_than_that_of_its_reason(here, rule, monkeypatch, reason: str, needed: int):
    def check_with_related(run: Run) -> Iterator[Report]:
        if has_micro(1)(run):
            related = (Related(run.main.find_place(reason), "because of this"),)
            yield Report("wrong", run.find_place(MICRO), fix=Fix("safe", "set it", {MICRO: 4}), related=related)

    rule(check_with_related)
    chosen = rule(make_rule(lambda run: run.plan.batch.accumulation == 1, batch__accumulation=2))
    passes = []
    real = dispatch.lint
    monkeypatch.setattr(dispatch, "lint", lambda *arguments: passes.append(1) or real(*arguments))
    assert len(fix(here, chosen).applied) == 2
    assert len(passes) == needed


def test_fixes_that_undo_each_other_leave_the_file_alone(here, rule):
    rule(make_rule(has_micro(1), batch__micro=2))
    rule(make_rule(has_micro(2), batch__micro=4))
    chosen = rule(make_rule(has_micro(4), batch__micro=2))
    fixed = fix(here, chosen)
    assert fixed.sources == {}
    assert fixed.applied == ()
    [trouble] = fixed.result.troubles
    assert trouble.path == "config.yaml"
    assert trouble.message == ("the fixes of TST002, TST003 do not converge (please report it); the file is unchanged")
    assert read_config(here) == AXOLOTL
    with change_directory(here):
        assert diff.build_diff(fixed).lines == ()


def test_what_does_not_settle_in_one_file_is_no_matter_of_the_others(here, rule):
    (here / "fine.yaml").write_text(AXOLOTL.replace("micro_batch_size: 1", "micro_batch_size: 16"))
    rule(make_rule(has_micro(1), batch__micro=4))
    rule(make_rule(has_micro(4), batch__micro=1))
    chosen = rule(make_rule(has_micro(16), batch__micro=32))
    fixed = fix(here, chosen)
    assert list(fixed.sources) == ["fine.yaml"]
    assert [applied_fix.path for applied_fix in fixed.applied] == ["fine.yaml"]
    assert "micro_batch_size: 32" in read_config(here, "fine.yaml")
    assert read_config(here) == AXOLOTL


def test_a_fix_that_grows_for_ever_ends(here, rule):
    def check(run: Run) -> Iterator[Report]:
        size = run.plan.batch.micro
        assert size is not None
        yield Report("more", run.find_place(MICRO), fix=Fix("safe", "more", {MICRO: size + 1}))

    fixed = fix(here, rule(check))
    assert fixed.sources == {}
    [trouble] = fixed.result.troubles
    assert "the fixes of TST001 do not converge" in trouble.message
    assert read_config(here) == AXOLOTL


def test_many_fixes_in_one_list_all_come_to_their_turn(here, rule):
    items = "".join(f"  - path: data/{number}.jsonl\n    type: alpaca\n    junk: 1\n" for number in range(30))
    head, _, tail = AXOLOTL.partition("  - path: data/train.jsonl\n    type: alpaca\n")
    (here / "config.yaml").write_text(head + items + tail)

    def check(config: Config) -> Iterator[Report]:
        for number, item in enumerate(config.get("datasets")):
            if "junk" in item:
                change = Delete((*config.root, "datasets", number, "junk"))
                place = config.find_place("datasets", number, "junk")
                yield Report(f"junk in {number}", place, fix=Fix("safe", "drop", keys=((config, (change,)),)))

    fixed = fix(here, rule(check, scope="config"))
    assert len(fixed.applied) == 30
    assert read_config(here) == head + items.replace("    junk: 1\n", "") + tail


# --- applicability ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "unsafe", "applied"),
    [
        ("safe", False, True),
        ("safe", True, True),
        ("unsafe", False, False),
        ("unsafe", True, True),
        ("display", True, False),
    ],
)
def test_applicability(here, rule, kind, unsafe, applied):
    chosen = rule(make_rule(has_micro(1), kind, batch__micro=4))
    [finding] = lint(here, chosen).findings
    assert finding.fix.applicability == kind
    assert bool(finding.fix.edits) == (kind != "display")
    fixed = fix(here, chosen, unsafe=unsafe)
    assert bool(fixed.applied) == applied
    assert (read_config(here) != AXOLOTL) == applied


def test_display_is_not_promoted(here, rule):
    chosen = rule(make_rule(has_micro(1), "display", batch__micro=4))
    chosen = chosen._replace(settings=Settings(str(here), safe_fixes=("TST",)))
    assert fix(here, chosen, unsafe=True).applied == ()


def test_silenced_findings_are_not_fixed(here, rule):
    chosen = rule(make_rule(has_micro(1), batch__micro=4))
    silenced = AXOLOTL.replace("micro_batch_size: 1", "micro_batch_size: 1  # cfglint: ignore[TST001]")
    (here / "config.yaml").write_text(silenced)
    assert fix(here, chosen).applied == ()
    assert read_config(here) == silenced


def test_a_file_in_which_the_comments_raise_a_finding_is_left_alone(here, rule):
    """Write comments that silence findings into the other files."""

    def report_always(config: Config) -> Iterator[Report]:
        yield Report("always", config.find_place("micro_batch_size"))

    def report_commented(config: Config) -> Iterator[Report]:
        if config.document.path == "config.yaml" and config.document.list_comments():
            yield Report("commented", config.find_place("output_dir"))

    (here / "other.yaml").write_text(AXOLOTL)
    rule(report_always, scope="config")
    chosen = rule(report_commented, scope="config")
    with change_directory(here):
        fixed = add_ignores(["config.yaml", "other.yaml"], chosen)
    assert [applied_fix.path for applied_fix in fixed.applied] == list(fixed.sources) == ["other.yaml"]
    [refusal] = fixed.refused
    assert (refusal.path, refusal.code) == ("config.yaml", "TST001")
    assert refusal.reason == "the comments would change the findings in this file"
    assert [(finding.path, finding.code) for finding in fixed.result.findings] == [("config.yaml", "TST001")]


@pytest.mark.slow
def test_idempotence_over_all_fixtures(tmp_path):
    folder = copy_folder(FIXTURES / "rules", tmp_path / "rules")
    first = fix(folder, unsafe=True)
    assert first.applied
    after = read_contents(folder)
    second = fix(folder, unsafe=True)
    assert second.applied == ()
    assert read_contents(folder) == after
    assert [trouble for trouble in second.result.troubles if trouble.is_internal] == []


# --- verification ----------------------------------------------------------------------------------------------------


class LyingLens:
    """A lens that reads like `honest` but writes `changes`."""

    def __init__(self, honest: Any, *changes: Change) -> None:
        """Wrap the lens `honest`."""
        self.honest = honest
        self.changes = changes

    fields = property(lambda self: self.honest.fields)
    keys = property(lambda self: self.honest.keys)

    def read(self, config: Config) -> Any:
        return self.honest.read(config)

    def write(self, config: Config, changes: Any) -> list[Change]:
        return list(self.changes)


def install_lying_lens(monkeypatch, *changes: Change) -> None:
    real = frameworks.load("axolotl")
    lenses = tuple(LyingLens(lens, *changes) if MICRO in lens.fields else lens for lens in real.lenses)
    monkeypatch.setitem(frameworks._loaded_frameworks, "axolotl", real._replace(lenses=lenses))


@pytest.mark.parametrize(
    "changes",
    [
        (Set(("micro_batch_size",), 5),),
        (Set(("micro_batch_size",), 4), Set(("gradient_accumulation_steps",), 2)),
        (Set(("gradient_accumulation_steps",), 4),),
        (Delete(("micro_batch_size",)),),
        (Set(("micro_batch_size",), "many"),),
    ],
)
def test_a_lens_that_lies_writes_nothing_and_is_told(here, rule, monkeypatch, changes):
    install_lying_lens(monkeypatch, *changes)
    rule(make_rule(has_micro(1), batch__micro=4))
    chosen = rule(make_rule(lambda run: run.plan.model.trust_remote_code is False, model__trust_remote_code=True))
    fixed = fix(here, chosen)
    assert [applied_fix.code for applied_fix in fixed.applied] == ["TST002"]
    [refusal] = fixed.refused
    assert tuple(refusal) == ("config.yaml", "TST001", "reading the file back would not give the intended settings")
    assert list(diff.render_summary(fixed))[-1] == (
        "not fixed: config.yaml: TST001: reading the file back would not give the intended settings"
    )
    assert sorted(read_config(here).splitlines()) == sorted([*AXOLOTL.splitlines(), "trust_remote_code: true"])
    # The finding remains.
    assert [finding.code for finding in fixed.result.findings] == ["TST001"]


def test_a_document_that_writes_something_else_is_caught(here, rule, monkeypatch):
    monkeypatch.setattr(YamlDocument, "build_edits", lambda self, changes: [Edit(Span(0, 0), "extra: 1\n")])
    fixed = fix(here, rule(make_rule(has_micro(1), batch__micro=4)))
    assert [refusal.reason for refusal in fixed.refused] == ["the edited text would not read back as intended"]
    assert read_config(here) == AXOLOTL


def test_an_edit_that_breaks_the_syntax_is_caught(here, rule, monkeypatch):
    monkeypatch.setattr(YamlDocument, "build_edits", lambda self, changes: [Edit(Span(0, 0), "a: [\n")])
    fixed = fix(here, rule(make_rule(has_micro(1), batch__micro=4)))
    assert len(fixed.refused) == 1
    assert read_config(here) == AXOLOTL


# --- comments and the order of fixes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("comment", "kept"),
    [
        ("", False),
        ("  # per GPU", False),
        ("  # 16 of them", False),
        ("  # 1 per GPU", True),
        ("\n# 1*2*8 = 16 in all", True),
        ("\n# 1 x 2 x 8", True),
        ("\n# on 1x80GB, and 1 of 2", False),
        ("\n# 16*2", False),
    ],
)
def test_a_comment_is_not_made_false(here, rule, comment: str, kept: bool):
    source = AXOLOTL.replace("micro_batch_size: 1\n", f"micro_batch_size: 1{comment}\n")
    assert source.count("micro_batch_size: 1") == 1
    (here / "config.yaml").write_text(source)
    fixed = fix(here, rule(make_rule(has_micro(1), batch__micro=4)))
    assert (read_config(here) == source) is kept
    assert any("would become wrong" in refusal.reason for refusal in fixed.refused) is kept


@pytest.mark.parametrize("companion", ["a.json", "z.json"])
@pytest.mark.parametrize("accumulation", ["gradient_accumulation_steps", "gradient_accumulation_step"])
def test_a_fix_waits_for_the_setting_that_is_its_reason(tmp_path, companion: str, accumulation: str):
    """Keep a setting that ZeRO-2 ignores if the same pass switches to ZeRO-3, in either order of files."""
    zero = {"stage": 2, "stage3_gather_16bit_weights_on_model_save": True}
    deepspeed = {"zero_optimization": zero, "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": "auto"}
    (tmp_path / companion).write_text(json.dumps(deepspeed, indent=2))
    (tmp_path / "config.yaml").write_text(
        "model_name_or_path: Qwen/Qwen2.5-32B\nstage: dpo\ndo_train: true\nfinetuning_type: full\ndataset: x\n"
        f"template: qwen\ncutoff_len: 8192\nper_device_train_batch_size: 8\n{accumulation}: 2\nbf16: true\n"
        f"deepspeed: {companion}\noutput_dir: o\n"
    )
    cluster = {"gpu": "A100-80GB", "nodes": "2", "gpus_per_node": "8", "host_memory": "1TB"}
    fix(tmp_path, build_options(select=["KEY001", "KEY005", "MEM001"], **cluster), unsafe=True)
    after = json.loads((tmp_path / companion).read_text())["zero_optimization"]
    assert after["stage"] == 3
    assert after["stage3_gather_16bit_weights_on_model_save"] is True


@pytest.mark.parametrize("possible", [True, False])
def test_a_fix_waits_for_what_it_is_made_from(here, rule, possible: bool):
    """Fix a rule that reads the micro batch after the rule that writes it, or alone if that rule cannot be fixed."""

    def check_eval_micro(run: Run) -> Iterator[Report]:
        if run.plan.batch.eval_micro != run.plan.batch.micro:
            fix = Fix("safe", "as in training", {"batch.eval_micro": run.plan.batch.micro})
            yield Report("another size", run.find_place("batch.eval_micro"), fix=fix)

    rule(check_eval_micro)
    chosen = rule(make_rule(has_micro(1), batch__micro=4))
    before = AXOLOTL.replace("micro_batch_size: 1\n", "micro_batch_size: 1  # 1\n") if not possible else AXOLOTL
    (here / "config.yaml").write_text("eval_batch_size: 7\n" + before)
    fix(here, chosen)
    assert f"eval_batch_size: {4 if possible else 1}\n" in read_config(here)


# --- crashes ---------------------------------------------------------------------------------------------------------


def raise_error(*_: Any, **__: Any) -> Any:
    raise RuntimeError("boom")


def test_a_rule_that_crashes_is_told_and_stops_nobody(here, rule):
    def check(run: Run) -> Iterator[Report]:
        yield Report("first", run.find_place(MICRO))
        raise_error()

    rule(check)
    chosen = rule(make_rule(has_micro(1), batch__micro=4))
    (here / "z.yaml").write_text(AXOLOTL)
    result = lint(here, chosen)
    assert [finding.message for finding in result.findings] == ["first", "wrong", "first", "wrong"]
    assert [(trouble.path, trouble.rule) for trouble in result.troubles] == [
        ("config.yaml", "TST001"),
        ("z.yaml", "TST001"),
    ]
    assert "RuntimeError: boom (in tests.fixing.test_fixer, line " in result.troubles[0].message
    assert len(fix(here, chosen).applied) == 2


def test_a_crash_is_exit_2_on_one_line_and_in_json(here, monkeypatch):
    monkeypatch.setitem(registry._checkers, "KEY001", raise_error)
    outcome = run_cfglint("--select", "KEY001", cwd=here)
    assert outcome.code == 2
    assert "error: config.yaml: rule KEY001 crashed (please report it): RuntimeError: boom (in " in outcome.out
    assert run_cfglint("--select", "KEY001", "--exit-zero", cwd=here).code == 2
    assert run_cfglint("--select", "KEY001", "--fix-only", cwd=here).code == 2
    [error] = json.loads(run_cfglint("--select", "KEY001", "--output-format", "json", cwd=here).out)["errors"]
    assert (error["path"], error["rule"]) == ("config.yaml", "KEY001")


@pytest.mark.parametrize("part", ["recognise", "prepare", "references", "infer"])
def test_a_framework_that_crashes_costs_only_its_file(here, monkeypatch, part):
    if part == "recognise":
        monkeypatch.setattr(recogniser, "recognise", raise_error)
    else:
        real = frameworks.load("axolotl")
        monkeypatch.setitem(frameworks._loaded_frameworks, "axolotl", real._replace(**{part: raise_error}))
    (here / "ds.json").write_text(DEEPSPEED)
    outcome = run_cfglint(*SMALL, "--output-format", "concise", cwd=here)
    assert outcome.code == 2
    assert outcome.lines[0].startswith("ds.json:2:5: error BAT001")
    assert "error: config.yaml: cfglint failed (please report it): RuntimeError: boom (in " in outcome.out


def test_a_parser_that_crashes_costs_only_its_file(here, monkeypatch):
    monkeypatch.setattr(yaml_document, "compose", raise_error)
    (here / "ds.json").write_text(DEEPSPEED)
    outcome = run_cfglint(*SMALL, "--output-format", "concise", cwd=here)
    assert outcome.code == 2
    assert "BAT001" in outcome.lines[0]


def test_a_lens_that_crashes_while_it_writes_costs_only_the_fix(here, rule, monkeypatch):
    install_lying_lens(monkeypatch)
    monkeypatch.setattr(LyingLens, "write", raise_error)
    chosen = rule(make_rule(has_micro(1), batch__micro=4))
    [finding] = lint(here, chosen).findings
    assert finding.fix.applicability == "display"
    assert finding.fix.refused.startswith("internal error (please report it): RuntimeError: boom")
    fixed = fix(here, chosen)
    assert fixed.refused[0].reason.startswith("internal error (please report it): RuntimeError: boom")
    assert read_config(here) == AXOLOTL


def test_one_unreadable_file_does_not_stop_the_rest(here):
    (here / "a.yaml").write_text(BROKEN)
    (here / "ds.json").write_text(DEEPSPEED)
    outcome = run_cfglint(*SMALL, "--fix", "nowhere.yaml", "a.yaml", "ds.json", cwd=here)
    assert outcome.code == 2
    assert read_config(here, "ds.json") != DEEPSPEED
    assert "fixed: ds.json: BAT001" in outcome.err
    assert "a.yaml:2:11: error SYN002" in outcome.out
    assert "nowhere.yaml:1:1: error SYN001" in outcome.out


# --- writing ---------------------------------------------------------------------------------------------------------


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
def test_whatever_happens_before_the_rename_the_old_file_is_whole(here, monkeypatch, step, failure):
    def fail(*_: Any) -> None:
        raise failure

    (here / "ds.json").write_text(DEEPSPEED)
    before = list_names(here)
    with monkeypatch.context() as patched:
        patched.setattr(atomic.os, step, fail)
        patched.setattr(atomic, "exchange", lambda *_: False)  # simulates a system without an atomic exchange
        outcome = run_cfglint(*SMALL, "--fix", "ds.json", cwd=here)
    assert read_config(here, "ds.json") == DEEPSPEED
    assert list_names(here) == before
    if isinstance(failure, KeyboardInterrupt):
        assert outcome.code == 130
        return
    assert outcome.code == 2
    # The report matches the disk.
    assert "error: ds.json: not written: No space left on device" in outcome.out
    assert "ds.json:2:5: error BAT001" in outcome.out
    assert "fixed: " not in outcome.err


def test_a_folder_that_may_not_be_written_to(here, monkeypatch):
    (here / "a").mkdir()
    for name in ("a/ds.json", "ds.json"):
        (here / name).write_text(DEEPSPEED)
    real = os.open

    def refuse_open(path: Any, flags: int, *mode: int) -> int:
        if flags & os.O_CREAT and str(path).startswith(str(here / "a")):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, flags, *mode)

    monkeypatch.setattr(atomic.os, "open", refuse_open)
    outcome = run_cfglint(*SMALL, "--fix", cwd=here)
    assert outcome.code == 2
    assert "error: a/ds.json: not written: Permission denied" in outcome.out
    assert read_config(here, "a/ds.json") == DEEPSPEED
    assert read_config(here, "ds.json") != DEEPSPEED
    assert "fixed: ds.json: BAT001" in outcome.err
    assert "fixed: a/ds.json" not in outcome.err


def test_a_read_only_file_is_respected(here, monkeypatch):
    (here / "ds.json").write_text(DEEPSPEED)
    (here / "ds.json").chmod(0o444)
    # Root may write to every file: check access as another user.
    monkeypatch.setattr(atomic.os, "access", lambda path, mode: bool(os.stat(path).st_mode & 0o222))
    outcome = run_cfglint(*SMALL, "--fix", "ds.json", cwd=here)
    assert outcome.code == 2
    assert "error: ds.json: not written: it is read-only" in outcome.out
    assert read_config(here, "ds.json") == DEEPSPEED


def test_a_file_that_changes_meanwhile_is_not_overwritten(here, monkeypatch):
    (here / "ds.json").write_text(DEEPSPEED)
    theirs = DEEPSPEED.replace("100", "200")
    real = loop.fix_all

    def fix_slowly(*arguments: Any) -> Any:
        fixed = real(*arguments)
        (here / "ds.json").write_text(theirs)
        return fixed

    monkeypatch.setattr(loop, "fix_all", fix_slowly)
    outcome = run_cfglint(*SMALL, "--fix", "ds.json", cwd=here)
    assert outcome.code == 2
    assert "error: ds.json: not written: another program changed it in the meantime" in outcome.out
    assert read_config(here, "ds.json") == theirs


def test_a_file_that_goes_away_meanwhile_stays_away(here):
    (here / "ds.json").write_text(DEEPSPEED)
    with change_directory(here):
        fixed = loop.fix_all(["ds.json"], build_options(select=["BAT001"]), False, {})
        os.unlink("ds.json")
        assert [failure.path for failure in write_sources(fixed)] == ["ds.json"]
    assert list_names(here) == [".git", "config.yaml"]


def check_both(run: Run) -> Iterator[Report]:
    """Propose one fix that changes the configuration and its companion."""
    companion = run.find_companion("deepspeed")
    if run.plan.batch.micro == 1 and companion is not None:
        keys = (
            (run.main, (Set(("micro_batch_size",), 4),)),
            (companion, (Set(("train_micro_batch_size_per_gpu",), 4),)),
        )
        yield Report("both", run.find_place(MICRO), fix=Fix("safe", "both", keys=keys))


@pytest.mark.parametrize("stuck", ["config.yaml", "ds.json"])
@pytest.mark.parametrize("step", ["stage", "commit"])
def test_files_that_a_fix_changes_together_are_written_together(here, rule, monkeypatch, stuck, step):
    chosen = rule(check_both)
    (here / "config.yaml").write_text(AXOLOTL + "deepspeed: ds.json\n")
    (here / "ds.json").write_text(CONTRADICTED)
    (here / "alone.yaml").write_text(AXOLOTL + "deepspeed: other.json\n")
    (here / "other.json").write_text(CONTRADICTED)
    before = read_contents(here)
    real = getattr(atomic, step)

    def fail_on_stuck(path: Any, *more: Any) -> Any:
        target = path if isinstance(path, str) else path.target
        if target.endswith(stuck):
            if step == "commit":
                atomic.discard(path)
            raise OSError(errno.EIO, "Input/output error", target)
        return real(path, *more)

    monkeypatch.setattr(atomic, step, fail_on_stuck)
    with change_directory(here):
        fixed = loop.fix_all(["alone.yaml", "config.yaml"], chosen, False, {})
        report = write_fixes(fixed, ["config.yaml"], chosen)
    failures = {trouble.path: trouble.message.removeprefix("not written: ") for trouble in report.result.troubles}
    after = read_contents(here)
    assert after["alone.yaml"] != before["alone.yaml"]
    assert after["other.json"] != before["other.json"]
    assert failures[stuck] == "Input/output error"
    assert after[stuck] == before[stuck]
    if step == "stage" or stuck == "config.yaml":
        # The second rename is the last step that can fail for both files.
        assert set(failures) == {"config.yaml", "ds.json"}
        assert after["config.yaml"] == before["config.yaml"]
        assert after["ds.json"] == before["ds.json"]
    assert [trouble.path for trouble in report.applied] == ["alone.yaml"]
    assert list_names(here) == [".git", "alone.yaml", "config.yaml", "ds.json", "other.json"]


def test_permissions_owner_and_links(here):
    target = here / "ds.json"
    target.write_text(DEEPSPEED)
    target.chmod(0o4750)
    if os.geteuid() == 0:
        os.chown(target, 12345, 54321)
        target.chmod(0o4750)
    status = target.stat()
    (here / "link.json").symlink_to("ds.json")
    with change_directory(here):
        atomic.commit(atomic.stage("link.json", b"{}", DEEPSPEED.encode()))
    assert (here / "link.json").is_symlink()
    now = target.stat()
    assert target.read_bytes() == b"{}"
    assert stat.S_IMODE(now.st_mode) == stat.S_IMODE(status.st_mode) == 0o4750
    assert (now.st_uid, now.st_gid) == (status.st_uid, status.st_gid)
    assert now.st_ino != status.st_ino


def test_temporary_files_of_others_are_left_alone(here):
    (here / "ds.json").write_text("old")
    temporary = here / f".cfglint-{os.getpid()}-0"
    temporary.write_text("theirs")
    staged = atomic.stage(str(here / "ds.json"), b"new", b"old")
    assert staged.temporary.endswith("-1")
    assert stat.S_IMODE(os.stat(staged.temporary).st_mode) == stat.S_IMODE((here / "ds.json").stat().st_mode)
    atomic.discard(staged)
    assert temporary.read_text() == "theirs"
    assert read_config(here, "ds.json") == "old"
    assert list_names(here) == [temporary.name, ".git", "config.yaml", "ds.json"]


def test_nothing_is_written_without_fixes(here):
    (here / "remote.yaml").write_text(REMOTE_CODE)
    inodes = {path: path.stat().st_ino for path in here.iterdir()}
    assert run_cfglint(*SMALL, "--fix", "--fail-on", "info", cwd=here).code == 1
    assert run_cfglint(*SMALL, "--fix-only", cwd=here).code == 0
    assert {path: path.stat().st_ino for path in here.iterdir()} == inodes


def test_a_pipe_is_never_replaced(here):
    os.mkfifo(here / "ds.json")
    with pytest.raises(OSError, match="not a regular file"):
        atomic.stage(str(here / "ds.json"), b"x", b"")
    assert stat.S_ISFIFO((here / "ds.json").stat().st_mode)


def test_documents_do_not_change_under_a_fix(here, rule):
    """Create new bytes for a fix; rules that still read the old document see it unchanged."""
    documents: list[Document] = []

    def check(run: Run) -> Iterator[Report]:
        documents.append(run.main.document)
        yield from make_rule(has_micro(1), batch__micro=4)(run)

    fix(here, rule(check))
    assert documents[0].source == AXOLOTL.encode()
    assert documents[-1].source != AXOLOTL.encode()
    assert regular_files.read(str(here / "config.yaml")) == documents[-1].source


def test_what_would_not_read_back_is_not_offered(here, rule, monkeypatch):
    """Offer the fix that reads back; show the other fix of the file with the reason for its rejection."""
    honest = YamlDocument.build_edits

    def edit_wrongly(self, changes):
        return [Edit(Span(0, 0), "extra: 1\n")] if changes[0].route == ("micro_batch_size",) else honest(self, changes)

    monkeypatch.setattr(YamlDocument, "build_edits", edit_wrongly)
    rule(make_rule(has_micro(1), batch__micro=4))
    chosen = rule(make_rule(lambda run: run.plan.model.trust_remote_code is False, model__trust_remote_code=True))
    rejected, offered = sorted(lint(here, chosen).findings, key=lambda finding: finding.code)
    assert (rejected.fix.applicability, rejected.fix.refused) == (
        "display",
        "the edited text would not read back as intended",
    )
    assert (offered.fix.applicability, offered.fix.refused) == ("safe", None)


# --- findings that a fix must not add --------------------------------------------------------------------------------


def test_a_fix_that_brings_a_finding_is_not_made_and_the_others_are(here, rule):
    def check(run: Run) -> Iterator[Report]:
        if run.plan.batch.micro == 4:
            yield Report("worse", run.find_place(MICRO))

    rule(make_rule(has_micro(1), batch__micro=4))
    rule(make_rule(lambda run: run.plan.batch.accumulation == 1, batch__accumulation=2))
    fixed = fix(here, rule(check))
    assert [item.code for item in fixed.applied] == ["TST002"]
    assert [(item.code, item.reason) for item in fixed.refused] == [("TST001", "it would cause TST003: worse")]
    assert read_config(here) == AXOLOTL.replace("_steps: 1", "_steps: 2")
    assert fixed.result.troubles == ()


@pytest.mark.parametrize("kind", ["info", "fixable", "figures", "rest"])
def test_what_is_no_harm_stops_no_fix(here, rule, kind):
    """Apply a fix in spite of a harmless new finding.

    Harmless are an info, a finding that the next pass fixes, an earlier finding with other figures, and the rest of an
    excess.
    """

    def check(run: Run) -> Iterator[Report]:
        size = run.plan.batch.micro
        if kind == "figures":
            yield Report(f"{size} is not enough", run.find_place(MICRO))
        elif kind == "rest":
            yield (
                Report("tight", run.find_place(MICRO))
                if size == 4
                else next(make_rule(has_micro(1), batch__micro=4)(run))
            )
        elif size == 4:
            again = Fix("safe", "again", {MICRO: 8}) if kind == "fixable" else None
            yield Report("worse", run.find_place(MICRO), "info" if kind == "info" else None, fix=again)

    if kind != "rest":
        rule(make_rule(has_micro(1), batch__micro=4))
    fixed = fix(here, rule(check, estimates=("gpu",)))
    assert len(fixed.applied) == (2 if kind == "fixable" else 1)
    assert fixed.refused == ()


def test_a_file_that_its_loader_refuses_is_left_alone(here, rule):
    (here / "config.yaml").write_text(AXOLOTL + "wandb_name:\tx\n")
    fixed = fix(here, rule(make_rule(has_micro(1), batch__micro=4)))
    assert fixed.sources == {}
    [refusal] = fixed.refused
    assert refusal.reason == "PyYAML refuses the file: found character '\\t' that cannot start any token"


@pytest.mark.parametrize(
    ("behind", "goes_on"),
    [
        ("python eval.py --ckpt out\n", False),
        ("export OUT=work\n", False),
        ("for i in 1 2; do\n  echo $i\ndone\n", False),
        ("if true; then echo; fi\n", False),
        ("f() {\n  echo\n}\n", False),
        ("case x in x) echo ;; esac\n", False),
        ("while false; do :; done\n", False),
        ("(echo)\n", False),
        ("{ echo; }\n", False),
        ("LR=3\n", False),
        ("# done\n", False),
        ("\necho\n", False),
        ("", False),
        ("  --max_len 1024\n", True),
        ("  --max_len 1024 2>&1 | tee log\n", True),
        ("  > log\n", True),
        ("  2>&1 | tee log\n", True),
        ('  "$@"\n', None),
        ("$LAUNCHER eval.py\n", None),
    ],
)
def test_the_backslash_goes_where_nothing_continues_the_command(here, behind, goes_on):
    (here / "config.yaml").unlink()
    (here / "run.sh").write_text(SFT + behind)
    fix(here, build_options(select=["SYN007"]))
    first = SFT if goes_on is None else SFT.rstrip(" \n" if goes_on else " \\\n") + "\n"
    assert read_config(here, "run.sh") == first + behind
    assert subprocess.run(["bash", "-n", here / "run.sh"], check=False).returncode == 0


@pytest.mark.parametrize("backslashes", [1, 2, 3])
def test_white_space_stays_behind_a_backslash_that_is_a_character(here, backslashes):
    (here / "config.yaml").unlink()
    source = SFT.rstrip(" \\\n") + "\\" * backslashes + " \n  --zero_stage 2\n"
    (here / "run.sh").write_text(source)
    fix(here, build_options(select=["SYN007"]), unsafe=True)
    joins = backslashes % 2 == 1
    assert read_config(here, "run.sh") == (source.replace("\\ \n", "\\\n") if joins else source)


def test_the_ends_of_lines_stay(here):
    (here / "run.sh").write_bytes((SFT + "echo\n").replace("\n", "\r\n").encode())
    fix(here, build_options(select=["SYN007"]))
    assert (here / "run.sh").read_bytes() == (SFT.rstrip(" \\\n") + "\necho\n").replace("\n", "\r\n").encode()


@pytest.mark.parametrize(
    "broken",
    ["for i in 1; do echo; done", "if true; then echo; fi", "echo $(date)", "echo 'a'", "x=(a b)", "f() { echo; }"],
)
def test_a_text_with_a_new_error_of_syntax_is_no_fix(broken):
    """Cut off text that bash requires."""
    for length in range(1, len(broken)):
        process = subprocess.run(["bash", "-n"], check=False, input=broken[:length], text=True, capture_output=True)
        document = ShellDocument("x.sh", broken.encode())
        edit = Edit(Span(length, len(broken)), "")
        if process.returncode != 0:
            with pytest.raises(CannotEdit, match="syntax error"):
                read_back.check_tree(document, [], [edit])
        else:
            read_back.check_tree(document, [], [edit])

"""The Python API, and the command line as a thin layer on it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from argparse import SUPPRESS
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Literal, get_type_hints

import pytest

from cfglint_train import api, records
from cfglint_train.front.commands.check_flags import build_check_parser
from cfglint_train.reports import estimate as estimate_report
from cfglint_train.reports import json as json_report
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL, BROKEN, CONTRADICTED, REMOTE_CODE, TWICE
from tests.support.linting import NEEDED_RULES, change_directory, copy_folder, isolate_folder, read_contents

REPOSITORY = Path(__file__).resolve().parents[2]
RULES = REPOSITORY / "fixtures" / "rules"
CASES = sorted(path for path in (REPOSITORY / "fixtures" / "cases").iterdir() if path.is_dir())
CODES = sorted(path.name for path in RULES.iterdir())
ALONE = api.Options(isolated=True)
WITH_DEEPSPEED = AXOLOTL + "deepspeed: ds.json\n"


def convert_to_json(value):
    """Return a record as parsed JSON."""
    return json.loads(json.dumps(asdict(value)))


@pytest.fixture
def here(tmp_path):
    (tmp_path / ".git").mkdir()
    with change_directory(tmp_path):
        yield tmp_path


# --- the command line as a thin layer --------------------------------------------------------------------------------


@pytest.mark.parametrize("code", CODES)
def test_the_json_report_is_the_result_of_lint(code):
    folder = isolate_folder(RULES / code / "fires")
    report = json.loads(run_cfglint("--isolated", "--output-format", "json", cwd=folder).out)
    with change_directory(folder):
        result = api.lint(options=ALONE)
        assert [convert_to_json(item) for item in result.findings] == report["findings"]
        assert [convert_to_json(item) for item in result.files] == report["files"]
        assert [convert_to_json(item) for item in result.errors] == report["errors"]
    assert result.findings


@pytest.mark.parametrize("code", [code for code in CODES if (RULES / code / "fixed").is_dir()])
def test_fixing_writes_what_fix_says(code, tmp_path):
    by_command = copy_folder(RULES / code / "fires", tmp_path / "command")
    by_api = copy_folder(RULES / code / "fires", tmp_path / "api")
    before = read_contents(by_api)
    settings_file = by_api / "cfglint.toml"
    settings = ("--config", str(settings_file)) if settings_file.exists() else ("--isolated",)
    chosen = [code, *NEEDED_RULES.get(code, ())]
    run_cfglint(*settings, "--fix", "--unsafe-fixes", "--select", ",".join(chosen), cwd=by_command)
    wanted = (
        api.Options(select=chosen, config=settings_file) if settings_file.exists() else ALONE._replace(select=chosen)
    )
    with change_directory(by_api):
        planned = api.fix(options=wanted, unsafe=True)
        assert read_contents(by_api) == before
        assert not planned.written
        fixed = api.fix(options=wanted, unsafe=True, write=True)
    assert fixed.written
    assert fixed.sources == planned.sources
    assert read_contents(by_command) == read_contents(by_api) == {**before, **planned.sources}
    assert {applied_fix.code for applied_fix in fixed.applied} == {code}
    assert fixed.lint.findings == planned.lint.findings


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_the_estimate_report_is_the_result_of_estimate(folder):
    report = json.loads(
        run_cfglint("estimate", "--isolated", "--output-format", "json", ".", cwd=isolate_folder(folder)).out
    )
    with change_directory(isolate_folder(folder)):
        assert [convert_to_json(run) for run in api.estimate(".", ALONE).runs] == report["runs"]


@pytest.mark.parametrize("name", sorted(name for name in api.__all__ if is_dataclass(getattr(api, name))))
def test_the_types_of_a_record_can_be_asked_for(name):
    record = getattr(api, name)
    assert list(get_type_hints(record)) == [field.name for field in fields(record)]


def test_the_types_of_a_record_are_those_of_its_values():
    assert get_type_hints(api.RunEstimate)["framework"] == str | None
    assert get_type_hints(api.RunFit)["verdict"] == (
        Literal["fits", "tight", "probably does not fit", "does not fit"] | None
    )
    assert get_type_hints(api.CheckedFile)["role"].__args__ == ("main", "companion")


def test_records_have_every_field_of_the_reports():
    with change_directory(isolate_folder(RULES / "MEM001" / "fires")):
        raw = api.lint(options=ALONE).raw
    document = json_report.build_document(raw)
    run = estimate_report.build_document([raw.runs[0]])["runs"][0]
    phase = next(phase for phase in run["phases"] if phase["gpu"] is not None)
    finding = next(finding for finding in document["findings"] if finding["fix"] and finding["fix"]["edits"])
    for record, value in (
        (api.Finding, finding),
        (api.Fix, finding["fix"]),
        (api.Edit, finding["fix"]["edits"][0]),
        (api.CheckedFile, document["files"][0]),
        (api.RunEstimate, run),
        (api.Model, run["model"]),
        (api.Phase, phase),
        (api.Budget, phase["gpu"]),
        (api.Component, phase["gpu"]["components"][0]),
    ):
        assert [field.name for field in fields(record)] == list(value), record


# Flags that are no option of the API, by their purpose.
_PARAMETERS = {"paths", "stdin_filename", "fix", "fix_only", "diff", "unsafe_fixes", "write_baseline", "add_ignore"}
_PRESENTATION = {
    "help", "version", "output_format", "output_file", "color", "exit_zero", "exit_non_zero_on_fix", "fail_on",
    "fail_on_assumed", "shown", "explain", "verbose", "quiet", "no_baseline",
}  # fmt: skip
_NO_FLAGS = {"settings_files", "launch_environment"}
"""Options that only other code sets: the Action reads the settings of a commit, `preflight` its own environment."""
_RENAMED = {"release": "releases", "set": "overrides", "model_folder": "model_folders"}


def test_every_flag_that_is_no_presentation_is_an_option_of_the_api():
    flags = {action.dest for action in build_check_parser()._actions if action.dest != SUPPRESS}
    options = {_RENAMED.get(flag, flag) for flag in flags - _PARAMETERS - _PRESENTATION}
    assert options == set(api.Options._fields) - _NO_FLAGS


def list_imports(path):
    """Return the names that a module imports at run time."""
    tree = ast.parse(path.read_text())
    for_types = {
        id(inner)
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    return {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and id(node) not in for_types
        for alias in node.names
    }


FRONT = REPOSITORY / "lint" / "cfglint_train" / "front"


def test_the_command_line_reaches_the_engine_through_the_api_only():
    front = [FRONT / "cli.py", *(FRONT / "commands").glob("*.py")]
    imported = set().union(*(list_imports(path) for path in front if path.name not in ("models.py", "schema.py")))
    engine = (
        "judging", "fixing", "findings", "runs", "forks", "mutations", "launches", "releases", "repository", "settings",
        "frameworks", "documents", "memory", "plan",
    )  # fmt: skip
    allowed = (
        "cfglint_train.settings.settings",
        "cfglint_train.settings.cluster_facts",
        "cfglint_train.findings.finding",
        "cfglint_train.frameworks.registry",  # data
    )
    forbidden = [name for name in imported if name.split(".")[1] in engine and not name.startswith(allowed)]
    assert forbidden == []
    assert {"cfglint_train.api", "cfglint_train.api.Options"} & imported


def test_the_command_line_does_not_pay_for_the_records(tmp_path):
    (tmp_path / "config.yaml").write_text(AXOLOTL)
    code = (
        "import sys; from cfglint_train.front.cli import main; main(['--isolated', 'config.yaml']);"
        "print([name for name in ('dataclasses', 'cfglint_train.records') if name in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert process.stdout.splitlines()[-1] == "[]"


# --- texts ---------------------------------------------------------------------------------------------------------


def test_a_text_is_linted_without_a_file(here):
    result = api.lint(sources={"config.yaml": TWICE})
    assert [(finding.path, finding.line, finding.code) for finding in result.findings if finding.code == "SYN003"] == [
        ("config.yaml", 10, "SYN003")
    ]
    assert list(here.iterdir()) == [here / ".git"]


def test_texts_lie_over_the_disk_and_companions_are_found_among_them(here):
    (here / "ds.json").write_text("{}")
    result = api.lint("config.yaml", sources={"config.yaml": WITH_DEEPSPEED, "ds.json": CONTRADICTED.encode()})
    alone = api.lint("config.yaml", sources={"config.yaml": WITH_DEEPSPEED})
    assert [finding.path for finding in result.findings if finding.code == "XFL001"] == ["ds.json"]
    assert "XFL001" not in {finding.code for finding in alone.findings}


def test_companions_may_exist_as_texts_only(here):
    config = (here / "deep" / "config.yaml").as_posix()
    result = api.lint(config, sources={config: WITH_DEEPSPEED, "ds.json": CONTRADICTED})
    assert [convert_to_json(file) for file in result.files] == [
        {"path": config, "framework": "axolotl", "role": "main"},
        {"path": "ds.json", "framework": "deepspeed", "role": "companion"},
    ]


def test_fixing_a_text_touches_no_file(here):
    (here / "config.yaml").write_text("untouched: true\n")
    fixed = api.fix(sources={"config.yaml": REMOTE_CODE}, unsafe=True, write=True)
    assert not fixed.written
    assert fixed.texts == {"config.yaml": fixed.sources["config.yaml"]}
    assert b"trust_remote_code: true" not in fixed.texts["config.yaml"]
    assert (here / "config.yaml").read_text() == "untouched: true\n"
    assert fixed.diff()[0] == "--- config.yaml"


def test_a_text_that_is_no_utf_8_is_an_error_of_the_file(here):
    result = api.lint(sources={"config.yaml": AXOLOTL + "# \udce8\n"})
    assert [error.path for error in result.errors] == ["config.yaml"]


def test_errors_and_skipped_files_are_told(here):
    (here / "broken.yaml").write_text(BROKEN)
    (here / "notes.yaml").write_text("hello: world\n")
    result = api.lint([here / "broken.yaml", "notes.yaml"])
    assert [(item.path, item.line, item.rule) for item in result.errors] == [
        ((here / "broken.yaml").as_posix(), 2, None)
    ]
    assert [item.path for item in result.skipped] == ["notes.yaml"]
    assert result.skipped[0].reason


def test_a_fit_of_what_cannot_be_read_says_so(here):
    result = api.fit(str(here / "none.yaml"))
    assert [error.path for error in result.errors] == [(here / "none.yaml").as_posix()]


def test_no_texts_are_no_files(here):
    assert api.lint(sources={}).files == ()


def test_credentials_are_masked_in_the_records(here):
    token = "hf_" + "a1B2c3D4e5F6g7H8" * 2
    text = TWICE + f"hub_token: {token}\noutput_dir: {token}\n"
    output = repr([api.lint(sources={"config.yaml": text}).findings, api.fix(sources={"config.yaml": text}).applied])
    assert "SEC002" in output
    assert token not in output


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "option", "given"),
    [
        ({"select": ["MEN001"]}, "select", "MEN001"),
        ({"select": "MEN001"}, "select", "MEN001"),
        ({"ignore": ["MEM", "unparseable"]}, "ignore", "unparseable"),
        ({"releases": {"tensorflow": "2.0"}}, "releases", "tensorflow=2.0"),
        ({"overrides": {"a..b": 1}}, "overrides", "a..b=1"),
    ],
)
def test_options_that_mean_nothing_are_refused(here, options, option, given):
    with pytest.raises(api.OptionError) as refused:
        api.lint(sources={"config.yaml": AXOLOTL}, options=api.Options(**options))
    assert (refused.value.option, refused.value.value) == (option, given)
    assert refused.value.problem in str(refused.value)


def test_every_refusal_is_a_usage_error(here):
    (here / "cfglint.toml").write_text("selct = []\n")
    with pytest.raises(api.SettingsError):
        api.lint()
    with pytest.raises(api.FactError):
        api.lint(options=api.Options(isolated=True, nodes=0))
    assert issubclass(api.SettingsError, api.UsageError)
    assert issubclass(api.FactError, api.UsageError)
    assert issubclass(api.OptionError, api.UsageError)


def test_facts_and_overrides_reach_the_run(here):
    options = api.Options(nodes=4, gpus_per_node=2, gpu="H100", overrides={"micro_batch_size": 3}, isolated=True)
    (run,) = api.estimate(None, options, {"config.yaml": AXOLOTL}).raw.runs
    assert (run.plan.launch.nodes, run.plan.launch.gpus_per_node, run.plan.batch.micro) == (4, 2, 3)
    assert run.hardware.gpu.startswith("H100")


def test_every_name_of_the_api_is_there():
    for name in api.__all__:
        assert getattr(api, name) is not None
    with pytest.raises(AttributeError):
        _ = api.nothing
    assert {name for name, value in vars(records).items() if hasattr(value, "__dataclass_fields__")} < set(api.__all__)


def test_records_are_data_classes_to_their_users():
    edit = api.Edit("a.yaml", 1, 2, 1, 4, "x")
    assert is_dataclass(edit)
    assert replace(edit, content="y") == api.Edit("a.yaml", 1, 2, 1, 4, "y")
    assert asdict(api.Fix("safe", "m", (edit,)))["edits"] == (asdict(edit),)
    with pytest.raises(AttributeError):
        edit.content = "y"


def test_the_documented_examples_run(capsys):
    blocks = re.findall(
        r"^```python\n(.*?)^```", (REPOSITORY / "docs" / "api.md").read_text(), re.MULTILINE | re.DOTALL
    )
    namespace: dict[str, object] = {}
    with change_directory(REPOSITORY):
        for block in blocks:
            exec(compile(block, "docs/api.md", "exec"), namespace)
    assert len(blocks) == 7
    output = capsys.readouterr().out
    assert "fixtures/cases/" in output
    assert "+++ fixtures/rules/BAT001/fires/multiple.json" in output
    assert "backward" in output


def test_the_documented_options_are_the_options():
    table = re.findall(r"^\| (`.*?) \|", (REPOSITORY / "docs" / "api.md").read_text(), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(table))) == set(api.Options._fields)


@pytest.mark.slow
def test_users_see_the_types(tmp_path):
    (tmp_path / "use.py").write_text(
        "from cfglint_train import api\n"
        "from cfglint_train.api import Finding, LintResult, Options, RunEstimate\n"
        "result: LintResult = api.lint('configs', Options(gpu='H100', nodes=8, releases={'torch': '2.8'}))\n"
        "worst: list[Finding] = [one for one in result.findings if one.severity == 'error']\n"
        "runs: tuple[RunEstimate, ...] = api.estimate('configs').runs\n"
        "reveal_type(api.fix(sources={'a.yaml': 'x'}).sources)\n"
        "reveal_type(runs[0].phases[0].gpu)\n"
        "worst[0].severity = 'info'\n"
        "api.Options(gpus=8)\n"
    )
    roots = os.pathsep.join(str(REPOSITORY / root) for root in ("lint", "rules", "schemas"))
    process = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file=", "use.py"],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": roots}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    told_by_line = dict(re.findall(r"^use\.py:(\d+): (?:note|error): (.*)$", process.stdout, re.MULTILINE))
    assert told_by_line["6"] == 'Revealed type is "typing.Mapping[str, bytes]"'
    assert told_by_line["7"] == 'Revealed type is "cfglint_train.records.Budget | None"'
    assert "read-only" in told_by_line["8"]
    assert "gpus" in told_by_line["9"]
    assert told_by_line.keys() == {"6", "7", "8", "9"}


# --- results as values -----------------------------------------------------------------------------------------------


def test_results_are_compared_shown_and_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(AXOLOTL + "micro_batch_size: 2\n")
    for work in (api.lint, api.fix, api.estimate, api.fit):
        result, two = work("config.yaml"), work("config.yaml")
        assert result == two
        assert result != work([])
        assert result != 1
        assert repr(result).startswith(f"{type(result).__name__}(")
        assert result.replace() == result
        with pytest.raises(TypeError, match="has no field raw; its fields are "):
            result.replace(raw=None)
    result = api.lint("config.yaml")
    none = result.replace(findings=())
    assert (none.findings, none.files, result.findings != ()) == ((), result.files, True)
    assert repr(none) == "LintResult(findings=0, files=1, not_checked=0, unsupported=0, errors=0, skipped=0)"
    assert api.Options().replace(gpu="H100") == api.Options(gpu="H100")
    with pytest.raises(ValueError, match="gpus"):
        api.Options().replace(gpus=2)


EXAMPLE = """
from cfglint_train import api


def grave(folder: str) -> list[str]:
    found = api.lint(folder, api.Options(gpu="H100", nodes=2).replace(host_memory="1TB"))
    kept: api.LintResult = found.replace(findings=tuple(one for one in found.findings if one.severity == "error"))
    fixed = api.fix(folder, unsafe=False)
    largest = [phase.gpu.expected for run in api.estimate(folder).runs for phase in run.phases if phase.gpu is not None]
    needed: bool = api.fit(folder, goal="memory").needs_change
    print(kept == found, fixed.diff(), largest, needed)
    return [f"{one.path}:{one.line}: {one.code} {one.message}" for one in kept.findings]
"""


@pytest.mark.slow
def test_strict_mypy_takes_what_users_write(tmp_path):
    """Run mypy outside of the package, with the installed types."""
    (tmp_path / "example.py").write_text(EXAMPLE)
    environment = {name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")}
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "example.py"]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout
    (tmp_path / "example.py").write_text(EXAMPLE.replace("one.code", "one.number"))
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert 'has no attribute "number"' in process.stdout

"""Terminal output: what each stream shows, reports in place of findings, help and completion."""

from __future__ import annotations

import html
import io
import json
import os
import re
import shutil
import subprocess
import time
from argparse import SUPPRESS
from pathlib import Path
from typing import Any

import pytest

from cfglint_rules.registry import RULES
from cfglint_train import api
from cfglint_train.documents.document import Position
from cfglint_train.findings.finding import Finding
from cfglint_train.front import cli, completion, progress
from cfglint_train.front.commands.check_flags import build_check_parser
from cfglint_train.front.commands.completion import capture_help
from cfglint_train.front.terminal import detect_style
from cfglint_train.judging.result import Result
from cfglint_train.plan.fields import FIELDS
from cfglint_train.reports import addresses, effective, statistics
from cfglint_train.reports.style import Style
from cfglint_train.settings.settings import FORMATS
from cfglint_train.version import VERSION
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL, CONTRADICTED, REMOTE_CODE, SMALL, TWICE
from tests.support.hostile import find_control_characters, write_hostile_folder
from tests.support.linting import change_directory


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


# --- output per stream -----------------------------------------------------------------------------------------------


class Stream(io.StringIO):
    """A text stream that is a terminal or not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(
    ("terminal", "flag", "environment", "color", "links", "wide"),
    [
        (True, "auto", {}, True, True, True),
        (False, "auto", {}, False, False, False),
        (True, "auto", {"NO_COLOR": "1"}, False, False, True),
        (True, "auto", {"NO_COLOR": ""}, True, True, True),
        (True, "auto", {"TERM": "dumb"}, False, False, False),
        (True, "auto", {"TERM": "linux"}, True, False, True),
        (False, "auto", {"FORCE_COLOR": "1"}, True, False, False),
        (True, "auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False, True),
        (True, "never", {"FORCE_COLOR": "1"}, False, False, True),
        (False, "always", {"NO_COLOR": "1"}, True, False, False),
        (False, "auto", {"FORCE_HYPERLINK": "1"}, False, True, False),
        (True, "auto", {"FORCE_HYPERLINK": "0"}, True, False, True),
    ],
)
def test_what_a_stream_shows(monkeypatch, terminal, flag, environment, color, links, wide):
    for name in ("NO_COLOR", "FORCE_COLOR", "FORCE_HYPERLINK", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert detect_style(Stream(terminal), flag) == Style(color, links, 100 if wide else None)


@pytest.mark.parametrize("stated", ["0", "-5", "x", "99999", ""])
def test_a_width_without_sense_is_none(monkeypatch, stated):
    monkeypatch.setenv("COLUMNS", stated)
    width = detect_style(Stream(True)).width
    assert width is not None
    assert 1 < width < 1000


def test_rules_are_linked_in_a_terminal(here):
    (here / "config.yaml").write_text(TWICE)
    (here / "cfglint.toml").write_text('select = ["SYN"]\nrule-url = "https://example.org/rules/{name}#{code}"\n')
    link = "\x1b]8;;https://example.org/rules/duplicate-key#SYN003\x1b\\"
    assert link in run_cfglint(cwd=here, terminal=True, environment={"TERM": "xterm"}).out
    assert "\x1b]8" not in run_cfglint(cwd=here, environment={"TERM": "xterm"}).out
    assert "\x1b" not in run_cfglint(cwd=here, terminal=True, environment={"TERM": "xterm", "NO_COLOR": "1"}).out
    assert (
        "\x1b"
        not in run_cfglint("--output-file", "out.txt", cwd=here, terminal=True, environment={"TERM": "xterm"}).out
    )
    assert "\x1b" not in (here / "out.txt").read_text()


DOCUMENTATION = "https://docs.acme.example/cfglint"


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Return a function that installs the package's metadata with URLs of the project."""

    def write_metadata(urls):
        folder = tmp_path / "installed" / f"cfglint_train-{VERSION}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nProject-URL: {urls}\n\nThe text.\n")
        find_rule_pages = addresses.find_rule_pages
        monkeypatch.setattr(addresses, "find_rule_pages", lambda: find_rule_pages(str(folder.parent)))

    return write_metadata


@pytest.mark.parametrize(
    ("stated", "pages"),
    [
        (
            f"Homepage, https://x.example\nProject-URL: Documentation, {DOCUMENTATION}/",
            f"{DOCUMENTATION}/rules/{{code}}/",
        ),
        ("Documentation, https://OWNER.github.io/cfglint", None),
        ("Homepage, https://x.example", None),
    ],
)
def test_the_rules_are_where_the_package_says(install, stated, pages):
    assert addresses.choose_rule_pages(None) is None
    install(stated)
    assert addresses.choose_rule_pages(None) == pages
    assert addresses.choose_rule_pages("https://own.example/{code}") == "https://own.example/{code}"
    assert addresses.choose_rule_pages("") is None


def list_page_urls(form, output):
    """Return the URLs of the rule pages in a report, read as the format's readers do."""
    if form in ("json", "json-lines"):
        records = json.loads(output)["findings"] if form == "json" else map(json.loads, output.splitlines())
        return {record["url"] for record in records if "url" in record}
    if form == "sarif":
        rules = json.loads(output)["runs"][0]["tool"]["driver"]["rules"]
        return {rule["helpUri"] for rule in rules if "helpUri" in rule}
    if form == "rdjson":
        codes = [diagnostic["code"] for diagnostic in json.loads(output)["diagnostics"]]
        return {code["url"] for code in codes if "url" in code}
    pattern = {
        "text": r"\x1b]8;;([^\x1b]+)", "concise": r"\x1b]8;;([^\x1b]+)", "grouped": r"\x1b]8;;([^\x1b]+)",
        "html": r'href="(https:[^"]*/(?:rules/)?SYN003/?)"', "markdown": r'href="(.*?)"',
    }.get(form, r"(https:[^\s\"%]*SYN003/?)")  # fmt: skip
    return set(map(html.unescape, re.findall(pattern, output)))


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_links_to_the_rule_pages(here, install, form):
    install(f"Documentation, {DOCUMENTATION}")
    (here / "config.yaml").write_text(TWICE)

    def read_urls(*settings):
        (here / "cfglint.toml").write_text("\n".join(('select = ["SYN003"]', *settings)))
        arguments = ("--output-format", form)
        output = run_cfglint(*arguments, cwd=here, terminal=True, environment={"TERM": "xterm"}).out
        assert "SYN003" in output
        return list_page_urls(form, output)

    assert read_urls() == {f"{DOCUMENTATION}/rules/SYN003/"}
    assert read_urls('rule-url = "https://own.example/{code}"') == {"https://own.example/SYN003"}
    assert read_urls('rule-url = ""') == set()


def test_lines_end_where_the_terminal_does(here):
    (here / "config.yaml").write_text(TWICE + f"x: {'long ' * 60}\n" + "trust_remote_code: true\n")
    environment = {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "60"}
    for form in ("text", "grouped"):
        arguments = ("--isolated", "--select", "SYN,SEC", "--output-format", form)
        narrow = run_cfglint(*arguments, cwd=here, terminal=True, environment=environment)
        assert max(map(len, narrow.lines)) <= 60
        free = run_cfglint(*arguments, cwd=here)
        assert max(map(len, free.lines)) > 60
        assert re.sub(r"\n +\| ", " ", narrow.out).split() != []


# --- reports in place of findings ------------------------------------------------------------------------------------


def test_statistics(here):
    for name in ("a", "b", "c"):
        (here / f"{name}.yaml").write_text(TWICE)
    (here / "d.yaml").write_text(REMOTE_CODE)
    outcome = run_cfglint("--isolated", *SMALL, "--statistics", cwd=here)
    assert outcome.code == 1
    assert outcome.lines[:3] == [
        "3  SYN003      warning  duplicate-key",
        "1  SEC001  [*] info     trust-remote-code",
        "[*] all fixable with --fix (some need --unsafe-fixes), [-] some fixable",
    ]
    assert outcome.lines[3] == "Found 3 warnings, 1 info in 4 files."
    rows = json.loads(run_cfglint("--isolated", *SMALL, "--statistics", "--output-format", "json", cwd=here).out)
    assert rows == [
        {"code": "SYN003", "name": "duplicate-key", "severity": "warning", "severities": {"warning": 3},
         "findings": 3, "files": 3, "fixable": 0, "frameworks": {"axolotl": 3}},
        {"code": "SEC001", "name": "trust-remote-code", "severity": "info", "severities": {"info": 1},
         "findings": 1, "files": 1, "fixable": 1, "frameworks": {"axolotl": 1}},
    ]  # fmt: skip
    assert run_cfglint("--isolated", "--select", "XFL", "--statistics", cwd=here).code == 0
    (here / "ds.json").write_text(
        '{"zero_optimization": {"stage": 2}, "train_batch_size": 3, "bf16": {"enabled": "x"}}'
    )
    several = run_cfglint("--isolated", *SMALL, "--statistics", cwd=here).lines
    assert "3  SYN003      warning  duplicate-key (axolotl 3)" in several
    assert not any(line.startswith("Found") for line in run_cfglint("--isolated", "-q", "--statistics", cwd=here).lines)


def test_statistics_count_the_severities_of_one_rule():
    severities = ("info", "error", "info", "warning", "warning")
    findings = tuple(
        Finding("KEY002", "removed-key", severity, "m", f"{number}.yaml", Position(1, 1), Position(1, 2))
        for number, severity in enumerate(severities)
    )
    result = Result((), findings, (), (), (), frozenset())
    assert next(statistics.render_table(result, Style())) == "5  KEY002      1 error, 2 warnings, 2 info  removed-key"
    [row] = json.loads("".join(statistics.render_json(result)))
    assert (row["severity"], row["severities"]) == ("error", {"error": 1, "warning": 2, "info": 2})


def test_show_files(here):
    (here / "config.yaml").write_text(AXOLOTL + "deepspeed: ds.json\n")
    (here / "ds.json").write_text(CONTRADICTED)
    (here / "notes.yaml").write_text("title: x\n")
    outcome = run_cfglint("--isolated", "--show-files", "--verbose", cwd=here)
    assert outcome.code == 0
    assert outcome.lines == ["config.yaml  axolotl main", "ds.json      deepspeed companion"]
    assert "not checked: notes.yaml: " in outcome.err
    rows = json.loads(run_cfglint("--isolated", "--show-files", "--output-format", "json", cwd=here).out)
    assert rows[1] == {"path": "ds.json", "framework": "deepspeed", "role": "companion"}
    assert json.loads(run_cfglint("--show-files", "--output-format", "json", "notes.yaml", cwd=here).out) == []


def test_show_settings(here):
    (here / "cfglint.toml").write_text(
        'ignore = ["PRF"]\nselect = ["ALL"]\n[per-file-ignores]\n"old/**" = ["MEM001"]\n[hardware]\nnodes = 4\n'
        '[[overrides]]\npaths = ["old"]\nhardware = {gpu = "H100"}\n'
    )
    (here / "old").mkdir()
    (here / "old" / "config.yaml").write_text(AXOLOTL)
    outcome = run_cfglint("--show-settings", "--ignore", "SYN003", "old/config.yaml", cwd=here)
    assert outcome.code == 0
    assert outcome.lines[0] == f"# old/config.yaml: {here / 'cfglint.toml'}"
    assert 'ignore = ["PRF"]' in outcome.lines
    assert "# fact: gpu=H100" in outcome.lines
    states = {line.split()[1]: line.split(None, 4)[2::2] for line in outcome.lines if re.match(r"#   [A-Z]{3}\d", line)}
    assert states["MEM001"] == ["off", "ignored for this path: MEM001 (" + str(here / "cfglint.toml") + ")"]
    assert states["MEM002"] == ["on", "select ALL (cfglint.toml)"]
    assert states["PRF001"] == ["off", "ignore PRF (cfglint.toml)"]
    assert states["SYN003"] == ["off", "ignore SYN003 (--ignore)"]
    assert set(states) == set(RULES)
    plain = run_cfglint("--isolated", "--show-settings", cwd=here).lines
    assert plain[0] == "# .: no settings file, only defaults" or plain[0].startswith("# ./: no settings file")
    assert any(line.startswith("#   MEM001  on ") and line.endswith("select ALL (default)") for line in plain)
    rows = json.loads(run_cfglint("--show-settings", "--output-format", "json", "old/config.yaml", ".", cwd=here).out)
    assert [row["facts"] for row in rows] == [{"nodes": "4", "gpu": "H100"}, {"nodes": "4"}]


@pytest.mark.parametrize(
    "select", [None, (), ("ALL",), ("MEM",), ("MEM001", "SYN"), ("mem",), ("step-exceeds-gpu",), ("SYN003", "ALL")]
)
@pytest.mark.parametrize("ignore", [(), ("ALL",), ("MEM",), ("MEM001",), ("SYN003", "PRF")])
@pytest.mark.parametrize(
    "stated", ["", 'select = ["MEM"]', 'ignore = ["MEM001", "SYN"]', 'extend-ignore = ["MEM"]\nselect = ["MEM001"]']
)
def test_the_reason_agrees_with_the_engine(here, select, ignore, stated):
    (here / "cfglint.toml").write_text(stated)
    options = api.Options(select=select, ignore=ignore, config=here / "cfglint.toml")
    with change_directory(here):
        enabled = api.rules(options, "config.yaml")
        rows: dict[str, Any] = effective.collect_settings("config.yaml", api.settings(options), options, enabled)[
            "rules"
        ]
    for code, row in rows.items():
        assert row["on"] == (code in enabled) == row["because"].startswith("select "), (code, row)


def test_origins_of_every_field(here):
    (here / "config.yaml").write_text(AXOLOTL + "deepspeed: ds.json\n")
    (here / "ds.json").write_text(CONTRADICTED)
    (here / "run.sh").write_text("torchrun --nnodes 4 -m axolotl.cli.train config.yaml --micro-batch-size 2\n")
    outcome = run_cfglint("--isolated", "--gpu", "H100", "--explain-origins", "config.yaml", cwd=here)
    assert (outcome.code, outcome.err) == (0, "")
    rows = {line.split()[0]: line.split(None, 1)[1] for line in outcome.lines[1:] if line.startswith("  ")}
    assert re.fullmatch(r"2 +run\.sh:1:\d+ \(micro_batch_size\)", rows["batch.micro"])
    assert re.fullmatch(r"1 +config\.yaml:7:1 \(gradient_accumulation_steps\)", rows["batch.accumulation"])
    assert re.fullmatch(r"4 +run\.sh:1:\d+ \(--nnodes\)", rows["launch.nodes"])
    assert re.fullmatch(r"2 +ds\.json:4:\d+ \(zero_optimization\.stage\)", rows["parallel.zero_stage"])
    assert "default of axolotl" in rows["checkpoint.keep"]
    assert rows["batch.global_"].partition(" ")[2].strip().startswith("inferred: ")
    assert rows["gpu"].endswith("command line")
    assert "assumed: the newest known release" in rows["axolotl"]
    [unknown] = [line for line in outcome.lines if line.startswith("  not known: ")]
    named = set(unknown.removeprefix("  not known: ").split(", "))
    # Every field is shown exactly once: with its value, or as unknown.
    assert named | (set(rows) & {*FIELDS}) == {*FIELDS}
    assert not named & set(rows)


def test_origins_for_programs(here):
    (here / "config.yaml").write_text(AXOLOTL)
    report = json.loads(run_cfglint("--isolated", "--explain-origins", "--output-format", "json", cwd=here).out)
    [run] = report["runs"]
    assert set(run["fields"]) == {*FIELDS}
    assert run["fields"]["batch.micro"] == {
        "value": 1, "origin": "explicit", "note": "", "key": "micro_batch_size", "path": "config.yaml", "line": 6,
        "column": 1,
    }  # fmt: skip
    assert run["fields"]["launch.nodes"]["origin"] == "assumed"
    assert run["releases"]["axolotl"]["origin"] == "assumed"


@pytest.mark.parametrize("flag", ["--statistics", "--show-files", "--show-settings", "--explain-origins"])
def test_what_stands_instead_obeys_no_file_either(tmp_path, flag):
    folder = write_hostile_folder(tmp_path)
    for form in ("text", "json"):
        outcome = run_cfglint(flag, "--output-format", form, cwd=folder)
        assert find_control_characters(outcome.out) == []
        assert "##[" not in outcome.out
        assert not any(line.lstrip().startswith("::") for line in outcome.lines)
        if form == "json":
            json.loads(outcome.out)


def test_other_formats_are_refused_and_one_at_a_time(here):
    (here / "config.yaml").write_text(AXOLOTL)
    outcome = run_cfglint("--statistics", "--output-format", "sarif", cwd=here)
    assert outcome.code == 2
    assert "--statistics needs --output-format text or json, not sarif" in outcome.err
    assert run_cfglint("--statistics", "--show-files", cwd=here).code == 2
    # The setting is for findings, so it does not conflict.
    (here / "cfglint.toml").write_text('output-format = "github"\n')
    assert run_cfglint("--statistics", cwd=here).code == 0


def test_secrets_are_no_origins(here):
    token = "hf_" + "aB3dE6gH9j" * 4
    (here / "config.yaml").write_text(AXOLOTL.replace("./out", f"./{token}") + f"hub_token: {token}\n")
    for form in ("text", "json"):
        shown = run_cfglint("--isolated", "--explain-origins", "--output-format", form, cwd=here)
        assert token not in shown.out + shown.err


# --- progress --------------------------------------------------------------------------------------------------------


def test_long_work_is_shown_on_a_terminal_and_wiped_away(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    stream = Stream(True)
    end = time.monotonic() + 10
    with progress.show_progress(stream, "checking"):
        while not stream.getvalue() and time.monotonic() < end:
            sum(range(1000))
    assert re.match(r"\r[|/\\-] checking, 0 s\x1b\[K", stream.getvalue())
    assert stream.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("terminal", [True, False])
def test_short_work_is_not(terminal):
    stream = Stream(terminal)
    with progress.show_progress(stream, "checking"):
        pass
    assert stream.getvalue() == ""


def test_nothing_is_left_behind_by_an_interruption(monkeypatch):
    import signal

    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    before = signal.getsignal(signal.SIGALRM)
    stream = Stream(True)

    def raise_interrupt() -> None:
        with progress.show_progress(stream, "checking"):
            while not stream.getvalue():
                sum(range(1000))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        raise_interrupt()
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert stream.getvalue().endswith("\r\x1b[K")


# --- help ------------------------------------------------------------------------------------------------------------


def test_help_names_every_command_and_every_flag_says_what_it_does(here):
    outcome = run_cfglint("--help-all", cwd=here, environment={"COLUMNS": "100"})
    assert outcome.code == 0
    # argparse never wraps a list of choices.
    assert max(len(line) for line in outcome.lines if "{" not in line) <= 100
    for name in cli.COMMANDS:
        assert re.search(rf"^  {name}\b", outcome.out, re.M), name
    for action in build_check_parser()._actions:
        assert action.help, action.dest
        if action.help != SUPPRESS and action.option_strings:
            assert f"  {', '.join(action.option_strings)}" in outcome.out
    for heading in ("examples:", "exit codes:", "environment:", "files:"):
        assert f"\n{heading}\n" in outcome.out


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_command_has_a_help_that_fits_one_screen(here, name):
    outcome = run_cfglint(name, "--help", cwd=here, environment={"COLUMNS": "80"})
    assert outcome.code == 0
    assert outcome.out.startswith("usage: cfglint")
    assert len(outcome.lines) <= 65
    every = run_cfglint(name, "--help-all", cwd=here, environment={"COLUMNS": "80"})
    assert every.code == 0
    flags = {line.split()[0] for line in outcome.lines if line.startswith("  --")} - {"--help-all"}
    assert flags <= {line.split()[0] for line in every.lines if line.startswith("  --")}
    assert (len(every.lines) > len(outcome.lines)) == ("--help-all" in outcome.out)


def test_the_help_names_every_command_and_framework(here):
    shown = run_cfglint("--help", cwd=here).out
    assert all(re.search(rf"^  {name}\b", shown, re.M) for name in cli.COMMANDS)
    assert "LLaMA-Factory" in shown
    assert "--help-all" in shown


def test_the_examples_of_the_help_are_valid(here):
    (here / "config.yaml").write_text(AXOLOTL)
    (here / "configs").mkdir()
    examples = run_cfglint("--help", cwd=here).out.partition("examples:\n")[2].partition("\n\n")[0]
    for line in examples.splitlines():
        command = re.split(r"  +", line.strip())[0].split()
        assert command[0] == "cfglint"
        outcome = run_cfglint(*command[1:], cwd=here)
        unmet = "--explain" in command and "no finding" in outcome.err
        assert outcome.code in (0, 1) or unmet, command


# --- completion ------------------------------------------------------------------------------------------------------


def test_flags_are_read_from_help():
    text = capture_help("check")
    command = completion.parse_command("check", text, ["MEM001", "MEM"])
    flags = {name: flag for flag in command.flags for name in flag.names}
    parser = build_check_parser()
    options = {
        option for action in parser._actions for option in action.option_strings if action.help != "==SUPPRESS=="
    }
    assert set(flags) == options
    assert flags["--output-format"].values[:2] == ("text", "concise")
    assert flags["--select"].values == ("MEM001", "MEM")
    assert flags["--config"].takes_path
    assert not flags["--nodes"].takes_path
    assert flags["--fix"].help == "apply the safe fixes, then report what is left"


def complete(folder: Path, *words: str) -> list[str]:
    """Return the words that bash offers for the last word."""
    script = run_cfglint("completion", "bash", cwd=folder).out
    quoted = " ".join(f"'{word}'" for word in words)
    program = (
        f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _cfglint; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    process = subprocess.run(["bash", "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert process.stderr == ""
    return process.stdout.split()


def test_bash_completes(here):
    (here / "config.yaml").write_text(AXOLOTL)
    assert complete(here, "cfglint", "est") == ["estimate"]
    assert {"rule", "rules"} <= set(complete(here, "cfglint", "ru"))
    assert "config.yaml" in complete(here, "cfglint", "")
    assert complete(here, "cfglint", "--unsafe") == ["--unsafe-fixes"]
    assert complete(here, "cfglint", "--output-format", "sa") == ["sarif"]
    assert complete(here, "cfglint", "--select", "SYN00")[:2] == ["SYN001", "SYN002"]
    assert complete(here, "cfglint", "rule", "MEM001") == ["MEM001"]
    assert complete(here, "cfglint", "--config", "conf") == ["config.yaml"]
    assert complete(here, "cfglint", "estimate", "--output-fo") == ["--output-format"]
    assert complete(here, "cfglint", "completion", "")[:3] == ["bash", "zsh", "fish"]
    assert complete(here, "cfglint", "--nonsense") == []


@pytest.mark.parametrize(
    ("shell", "check"),
    [
        ("bash", ["-n"]),
        pytest.param("zsh", ["-n"], marks=pytest.mark.slow),
        pytest.param("fish", ["--no-execute"], marks=pytest.mark.slow),
    ],
)
def test_scripts_of_completion_are_valid(here, shell, check):
    script = here / "completion"
    script.write_text(run_cfglint("completion", shell, cwd=here).out)
    text = script.read_text()
    for name in cli.COMMANDS:
        assert name in text
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    process = subprocess.run([shell, *check, str(script)], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (0, "")


def test_the_environment_is_as_before(here):
    before = dict(os.environ)
    run_cfglint("completion", "fish", cwd=here)
    assert dict(os.environ) == before

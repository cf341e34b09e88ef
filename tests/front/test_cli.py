"""The command line: exit codes, streams, flags, and what happens to files."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cfglint_rules import registry
from cfglint_train.foundation.regular_files import MAX_BYTES
from cfglint_train.front.commands.check import _parse_arguments, _parse_switch
from cfglint_train.front.commands.check_defaults import DEFAULTS
from cfglint_train.front.commands.check_flags import build_check_parser
from cfglint_train.version import VERSION
from tests.support.command import run_cfglint
from tests.support.configs import (
    AXOLOTL,
    BROKEN,
    CONTRADICTED,
    DEEPSPEED,
    LATIN_1,
    LIMITED,
    REMOTE_CODE,
    SMALL,
    TWICE,
    UNKNOWN_MODEL,
)

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def here(tmp_path) -> Path:
    """Create an isolated repository, so that no file around it counts."""
    (tmp_path / ".git").mkdir()
    return tmp_path


def list_codes(outcome) -> list[str]:
    return [finding["code"] for finding in json.loads(outcome.out)["findings"]]


# --- exit codes ------------------------------------------------------------------------------------------------------


def test_clean_is_0(here):
    (here / "config.yaml").write_text(AXOLOTL)
    outcome = run_cfglint(*SMALL, "config.yaml", cwd=here)
    assert outcome == (0, "No findings in 1 file.\n", "")


@pytest.mark.parametrize(("text", "mildest"), [(TWICE, "warning"), (REMOTE_CODE, "info")])
def test_findings_are_1_from_the_severity_on_that_fails(here, text, mildest):
    (here / "config.yaml").write_text(text)
    for severity, code in (("error", 0), ("warning", int(mildest == "warning")), ("info", 1), ("never", 0)):
        assert run_cfglint(*SMALL, "--fail-on", severity, "config.yaml", cwd=here).code == code
        (here / "cfglint.toml").write_text(f'fail-on = "{severity}"')
        assert run_cfglint(*SMALL, "config.yaml", cwd=here).code == code
        (here / "cfglint.toml").unlink()
    assert run_cfglint(*SMALL, "config.yaml", cwd=here).code == int(mildest == "warning")
    assert run_cfglint(*SMALL, "--exit-zero", "config.yaml", cwd=here).code == 0


@pytest.mark.parametrize(
    ("text", "code", "setting"), [(LIMITED, "MEM001", "fail-on-assumed"), (UNKNOWN_MODEL, "CHK001", "require-checked")]
)
def test_what_rests_on_an_assumption_or_was_not_checked_fails_only_where_asked(here, text, code, setting):
    (here / "config.yaml").write_text(text)
    only = ("--select", code, "--fail-on", "info")
    assert run_cfglint(*only, cwd=here).code == 0
    assert run_cfglint(*only, f"--{setting}", cwd=here).code == 1
    (here / "cfglint.toml").write_text(f"{setting} = true")
    assert run_cfglint(*only, cwd=here).code == 1
    assert run_cfglint(*only, f"--no-{setting}", cwd=here).code == 0
    assert run_cfglint(*only, "--statistics", cwd=here).code == 1


IGNORING = {
    "ignore": 'ignore = ["CHK"]',
    "code": 'ignore = ["CHK001"]',
    "select": 'select = ["MEM"]',
    "off": '[severity]\nCHK = "off"',
    "milder": '[severity]\nCHK = "warning"',
}


@pytest.mark.parametrize("ignoring", IGNORING)
def test_what_must_be_checked_fails_whatever_the_settings_ignore(here, ignoring):
    (here / "config.yaml").write_text(UNKNOWN_MODEL)
    (here / "cfglint.toml").write_text(f'fail-on = "error"\n{IGNORING[ignoring]}')
    assert run_cfglint(cwd=here).code == 0
    outcome = run_cfglint("--require-checked", cwd=here)
    assert outcome.code == 1
    assert "CHK001" in outcome.out
    (here / "cfglint.toml").write_text(f'fail-on = "error"\nrequire-checked = true\n{IGNORING[ignoring]}')
    assert run_cfglint(cwd=here).code == 1
    assert run_cfglint("--no-require-checked", cwd=here).code == 0


@pytest.mark.parametrize("flags", [("--ignore", "CHK"), ("--ignore", "CHK001"), ("--select", "SYN")])
def test_what_must_be_checked_fails_whatever_the_flags_ignore(here, flags):
    (here / "config.yaml").write_text(UNKNOWN_MODEL)
    assert run_cfglint(*flags, cwd=here).code == 0
    assert run_cfglint(*flags, "--require-checked", cwd=here).code == 1


def test_the_settings_of_the_whole_require_the_checks_of_inner_folders(here):
    (here / "inner").mkdir()
    (here / "inner" / "config.yaml").write_text(UNKNOWN_MODEL)
    (here / "inner" / "cfglint.toml").write_text('ignore = ["CHK"]')
    (here / "cfglint.toml").write_text("require-checked = true")
    assert run_cfglint(".", cwd=here).code == 1


@pytest.mark.parametrize("how", ["path", "comment"])
def test_single_files_are_left_out_of_what_must_be_checked(here, how):
    comment = "# cfglint: ignore[CHK001]\n" if how == "comment" else ""
    (here / "old").mkdir()
    (here / "old" / "config.yaml").write_text(UNKNOWN_MODEL.replace("\n", f"  {comment or chr(10)}", 1))
    ignores = 'per-file-ignores = { "old/**" = ["CHK"] }\n' if how == "path" else ""
    (here / "cfglint.toml").write_text(f"require-checked = true\n{ignores}")
    assert run_cfglint(cwd=here).code == 0


def test_what_a_finding_rests_on(here):
    (here / "config.yaml").write_text(LIMITED)
    outcome = run_cfglint("--explain", "MEM001:10", "config.yaml", cwd=here)
    assert outcome.code == 0
    assert outcome.lines[0].startswith("config.yaml:10: warning MEM001 ")
    rows = {line.split()[0]: line for line in outcome.lines if line.startswith("  ")}
    assert "certainty: assumed" in outcome.lines
    assert rows["batch.micro"].split()[1:] == ["16", "stated", "config.yaml:10", "(`per_device_train_batch_size`)"]
    assert rows["method.tuning"].split()[1:3] == ["lora", "stated"]
    assert "sequence.length = 128: the finding is less severe or gone" in outcome.out
    assert "set `cutoff_len` to the length of your longest sample" in outcome.out

    explained = ("--explain", "MEM001:10", "--output-format", "json", "config.yaml")
    [finding] = json.loads(run_cfglint(*explained, cwd=here).out)["findings"]
    facts = {fact["fact"]: fact for fact in finding["facts"]}
    assert (facts["sequence.length"]["value"], facts["sequence.length"]["grade"]) == (32768, "assumed")
    assert facts["gpu"]["grade"] == "assumed"
    assert facts["batch.accumulation"]["remedy"] == "state `gradient_accumulation_steps`"
    assert {"facts": {"sequence.length": 128}, "holds": False} in finding["corners"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("MEM001",), "expected CODE:LINE"),
        (("MEM001:x", "config.yaml"), "expected CODE:LINE"),
        (("MEM001:9", "config.yaml"), "no finding MEM001:9 in config.yaml; there is MEM001:10"),
        (("SYN003:1", "config.yaml"), "no finding SYN003:1 in config.yaml\n"),
        (("QQQ:1", "config.yaml"), "unknown rule QQQ"),
        (("MEM001:10", "config.yaml", "other.yaml"), "--explain needs exactly one PATH"),
        (("MEM001:10", "--output-format", "sarif", "config.yaml"), "--explain needs --output-format text or json"),
    ],
)
def test_what_cannot_be_explained(here, arguments, said):
    (here / "config.yaml").write_text(LIMITED)
    outcome = run_cfglint("--explain", *arguments, cwd=here)
    assert outcome.code == 2
    assert said in outcome.err


def test_a_finding_in_the_text_rests_on_the_text(here):
    (here / "config.yaml").write_text(TWICE)
    assert "rests only on the text of the file" in run_cfglint("--explain", "SYN003:10", "config.yaml", cwd=here).lines


def test_runs_that_were_not_checked_are_counted(here):
    for name, text in (("a.yaml", AXOLOTL), ("b.yaml", UNKNOWN_MODEL), ("c.yaml", UNKNOWN_MODEL)):
        (here / name).write_text(text)
    assert "Memory was not checked for 2 of 3 runs." in run_cfglint("--select", "CHK", cwd=here).lines
    assert "Memory was not checked for 1 run." in run_cfglint("--select", "CHK", "b.yaml", cwd=here).lines
    assert "not checked" not in run_cfglint("--select", "CHK", "a.yaml", cwd=here).out
    report = json.loads(run_cfglint("--select", "CHK", "--output-format", "json", cwd=here).out)
    assert [(gap["path"], gap["line"]) for gap in report["not_checked"]] == [("b.yaml", 1), ("c.yaml", 1)]
    assert "Nebula" in report["not_checked"][0]["message"]
    assert "--model-config" in report["not_checked"][0]["help"]


def test_an_explanation_prints_no_python(here):
    command = "python -m openrlhf.cli.train_ppo_ray --pretrain meta-llama/Llama-2-7b-hf --prompt_data d --bf16"
    (here / "ppo.sh").write_text(f"{command} --generate_max_len 65536 --micro_train_batch_size 64\n")
    lines = run_cfglint("--explain", "MEM001:1", "ppo.sh", cwd=here).lines
    [roles] = [line for line in lines if line.startswith("  model.roles ")]
    assert "actor on 1 x 8, reference on 1 x 8" in roles
    assert not [line for line in lines if "Role(" in line or "True" in line or line.endswith(" ")]
    assert max(map(len, lines[2:])) < 200


def test_options_may_stand_before_a_command(here):
    (here / "config.yaml").write_text(AXOLOTL)
    after = run_cfglint("estimate", "--no-cache", "--nodes", "2", "config.yaml", cwd=here)
    assert after.code == 0
    assert run_cfglint("--no-cache", "--nodes", "2", "estimate", "config.yaml", cwd=here) == after
    refused = run_cfglint("--fix", "estimate", "config.yaml", cwd=here)
    assert (refused.code, refused.err.splitlines()[0]) == (2, "cfglint estimate: unrecognized arguments: --fix")
    # An option's value or a file may be called like a command.
    assert run_cfglint("--cache-dir", "check", "config.yaml", cwd=here).code == 0
    (here / "fit").mkdir()
    assert "no training config found" in run_cfglint("--no-cache", "fit", cwd=here).out


def test_a_folder_without_configurations_is_0(here):
    outcome = run_cfglint(cwd=here)
    assert (outcome.code, outcome.err, len(outcome.lines)) == (0, "", 1)
    assert outcome.out.startswith("warning: no training config found: there are no YAML, JSON, shell or Python files")


def test_a_missing_path_is_2_and_does_not_stop_the_rest(here):
    (here / "config.yaml").write_text(TWICE)
    outcome = run_cfglint(*SMALL, "nowhere.yaml", "config.yaml", cwd=here)
    assert outcome.code == 2
    assert "nowhere.yaml:1:1: error SYN001 No such file or directory" in outcome.out
    assert "config.yaml:10:1: warning SYN003" in outcome.out


def test_undecodable_is_2(here):
    (here / "config.yaml").write_bytes(LATIN_1)
    outcome = run_cfglint("--output-format", "concise", "config.yaml", cwd=here)
    assert outcome.code == 2
    assert outcome.lines[0] == "config.yaml:2:18: error SYN001 not UTF-8: byte 0xe8"


def test_utf_16_is_2_for_a_configuration_and_nothing_for_other_files(here):
    (here / "config.yaml").write_bytes(AXOLOTL.encode("utf-16"))
    (here / "strings.yaml").write_bytes("hello: world\n".encode("utf-16"))
    outcome = run_cfglint("--output-format", "concise", cwd=here)
    assert outcome.code == 2
    assert outcome.lines[0] == "config.yaml:1:1: error SYN001 not UTF-8: the text is UTF-16 or UTF-32"
    assert "strings" not in outcome.out


def test_unparsable_is_2(here):
    (here / "config.yaml").write_text(BROKEN)
    outcome = run_cfglint("--output-format", "concise", "config.yaml", cwd=here)
    assert outcome.code == 2
    assert outcome.lines[0].startswith("config.yaml:2:11: error SYN002 ")
    assert outcome.lines[-1] == "Found 1 error in 1 file."
    assert run_cfglint("--exit-zero", "config.yaml", cwd=here).code == 2


def test_whoever_ignores_unreadable_files_is_not_told_of_them(here):
    (here / "template.yaml").write_text(BROKEN)
    (here / "cfglint.toml").write_text('per-file-ignores = {"template.yaml" = ["SYN002"]}')
    outcome = run_cfglint("template.yaml", "-v", cwd=here)
    assert outcome.code == 0
    assert "template.yaml" not in outcome.out
    assert "SYN002 is ignored here" in outcome.err
    # Selecting another rule does not select SYN002.
    assert run_cfglint("--isolated", "--select", "MEM", "template.yaml", cwd=here).code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--select", "MEN001"], "--select MEN001: unknown rule MEN001; did you mean MEM001?"),
        (["--ignore", "unparseable"], "--ignore unparseable: unknown rule unparseable; did you mean unparsable?"),
        (["--select", "SYN,Q9"], "--select Q9: unknown rule Q9; `cfglint rules` lists all"),
        (["--release", "torch=nightly"], "torch=nightly is not a release"),
        (["--release", "torch=2.8\x1b[31m"], "torch=2.8\\x1b[31m is not a release"),
        (
            ["--release", "tensorflow=2.0"],
            "--release tensorflow=2.0: unknown package; known names: accelerate",
        ),
        (["--release", "torch"], "--release torch: expected NAME=RELEASE"),
        (["--gpu", "A100-80GG"], "did you mean A100-80GB?"),
        (["--gpu", "abacus"], "unknown GPU 'abacus'"),
        (["--gpu-memory", "80"], "gpu-memory: 80 has no unit"),
        (["--host-memory", "plenty"], "host-memory: 'plenty' is not a size"),
        (["--disk=-3TB"], "disk: '-3TB' is not a size"),
        (["--nodes", "0"], "nodes must be a positive integer, not '0'"),
        (["--nodes", "two"], "nodes must be a positive integer, not 'two'"),
        (["--nodes", "9" * 5000], "nodes must be a positive integer"),
        (["--gpus-per-node", "1.5"], "gpus-per-node must be a positive integer, not '1.5'"),
        (["--set", "micro_batch_size"], "--set micro_batch_size: expected KEY=VALUE"),
        (["--set", "a..b=1"], "--set a..b=1: expected KEY=VALUE"),
        (["--set", "=1"], "--set =1: expected KEY=VALUE"),
        (["--set", "a=[1,"], "--set a=[1,: the value is not valid YAML"),
        (["--config", "nowhere.toml"], "nowhere.toml: No such file or directory"),
        (["--output-file", "no/such/folder/report"], "no/such/folder/report: No such file or directory"),
        (["--stdin-filename", "x.yaml", "other.yaml"], "--stdin-filename names standard input, but other files are"),
        (["-", "other.yaml"], "- means standard input and cannot be combined with other paths"),
    ],
)
def test_wrong_usage_is_2_and_one_line(here, arguments, said):
    (here / "config.yaml").write_text(TWICE)
    outcome = run_cfglint(*arguments, cwd=here)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("cfglint: ")
    assert said in outcome.err
    assert outcome.err.count("\n") == 1


def test_unknown_flags_are_2_and_cannot_forge_anything(here):
    outcome = run_cfglint("--fixx", "--x\n::error::forged\x1b[2J", cwd=here)
    assert outcome.code == 2
    assert outcome.err == (
        "cfglint: unrecognized arguments: --fixx --x\\x0a::error::forged\\x1b[2J; did you mean --fix?\n"
        "see cfglint --help\n"
    )
    assert run_cfglint("--color", "pink", cwd=here).code == 2


def test_abbreviated_flags_are_refused(here):
    assert run_cfglint("--exit-z", cwd=here).code == 2


def test_a_fact_in_a_pragma_that_makes_no_sense_is_2_at_its_place(here):
    (here / "config.yaml").write_text("# cfglint: nodes=many\n" + AXOLOTL)
    (here / "other.yaml").write_text(TWICE)
    outcome = run_cfglint(*SMALL, cwd=here)
    assert outcome.code == 2
    assert "error: config.yaml:1:12: nodes must be a positive integer, not 'many'" in outcome.out
    assert "other.yaml:10:1: warning SYN003" in outcome.out


def test_a_working_folder_that_is_gone_is_2(here):
    folder = here / "gone"
    folder.mkdir()
    script = (
        f"import os, sys; os.chdir({str(folder)!r}); os.rmdir({str(folder)!r})\n"
        "from cfglint_train.front.cli import main\nsys.exit(main(['.']))"
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert process.stderr.startswith("cfglint: ")
    assert "Traceback" not in process.stderr


def test_version_and_help(here):
    assert run_cfglint("--version", cwd=here).out == f"cfglint {VERSION}\n"
    shown = run_cfglint("--help-all", cwd=here)
    assert shown.code == 0
    for flag in ("--fix", "--unsafe-fixes", "--diff", "--select", "--gpu", "--set", "--output-format", "exit codes"):
        assert flag in shown.out


# --- streams ---------------------------------------------------------------------------------------------------------


def test_standard_input_is_linted_under_its_name(here):
    outcome = run_cfglint(*SMALL, "--stdin-filename", "./sub/../config.yaml", "-", cwd=here, stdin=TWICE.encode())
    assert outcome.code == 1
    assert outcome.lines[0].startswith("config.yaml:10:1: warning SYN003")
    # The name alone is enough, as in ruff.
    assert run_cfglint(*SMALL, "--stdin-filename", "config.yaml", cwd=here, stdin=TWICE.encode()).code == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TWICE, "-:10:1: warning SYN003"),
        (DEEPSPEED, "-:2:5: error BAT001"),
        ("\ufeff" + DEEPSPEED, "-:2:5: error BAT001"),
        ("#!/bin/bash\n# cfglint: ignore me\npython -m openrlhf.cli.train_sft --pretrain x\n", "-:2:1: warning SYN006"),
    ],
)
def test_standard_input_without_a_name_tells_its_syntax(here, text, expected):
    outcome = run_cfglint(*SMALL, "-", cwd=here, stdin=text.encode())
    assert outcome.lines[0].startswith(expected)


def test_fixed_standard_input_goes_to_standard_output_and_the_report_to_the_other(here):
    outcome = run_cfglint(*SMALL, "--fix", "--stdin-filename", "ds.json", "-", cwd=here, stdin=DEEPSPEED.encode())
    assert outcome.code == 0
    assert json.loads(outcome.out)["train_micro_batch_size_per_gpu"] == 8
    assert "train_batch_size" not in json.loads(outcome.out) or json.loads(outcome.out)["train_batch_size"] != 100
    assert "No findings in 1 file." in outcome.err
    assert "fixed: ds.json: BAT001" in outcome.err
    assert not (here / "ds.json").exists()


@pytest.mark.parametrize("arguments", [(), ("--force-exclude",)])
def test_standard_input_comes_out_as_it_was_where_there_is_nothing_to_fix(here, arguments):
    (here / "cfglint.toml").write_text('exclude = ["*.yaml"]')
    text = "\ufeff" + TWICE.replace("\n", "\r\n") + "#é"
    flags = (*SMALL, "--fix", *arguments)
    outcome = run_cfglint(*flags, "--stdin-filename", "config.yaml", "-", cwd=here, stdin=text.encode())
    assert outcome.out == text
    assert outcome.code == (0 if arguments else 1)


def test_standard_input_never_changes_another_file(here):
    (here / "ds.json").write_text(CONTRADICTED)
    text = AXOLOTL + "deepspeed: ds.json\n"
    outcome = run_cfglint(*SMALL, "--fix", "--stdin-filename", "config.yaml", "-", cwd=here, stdin=text.encode())
    assert outcome.code == 1
    assert outcome.out == text
    assert (here / "ds.json").read_text() == CONTRADICTED
    assert "not fixed: ds.json: XFL001: it changes another file, but only standard input is rewritten" in outcome.err


def test_output_file(here):
    (here / "config.yaml").write_text(TWICE)
    outcome = run_cfglint(*SMALL, "--output-file", "report.txt", "--color", "auto", "config.yaml", cwd=here)
    assert (outcome.code, outcome.out, outcome.err) == (1, "", "")
    assert (here / "report.txt").read_text().startswith("config.yaml:10:1: warning SYN003")
    run_cfglint(*SMALL, "--output-file", "report.json", "--output-format", "json", "config.yaml", cwd=here)
    assert json.loads((here / "report.json").read_text())["version"] == 1


def test_colours(here):
    (here / "config.yaml").write_text(TWICE)

    def is_colored(*arguments, terminal=True, **environment) -> bool:
        outcome = run_cfglint(*SMALL, *arguments, "config.yaml", cwd=here, terminal=terminal, environment=environment)
        return "\x1b[" in outcome.out

    assert is_colored()
    assert not is_colored(terminal=False)
    assert not is_colored(NO_COLOR="1")
    assert is_colored(NO_COLOR="")
    assert not is_colored(NO_COLOR="1", FORCE_COLOR="1")
    assert is_colored(terminal=False, FORCE_COLOR="1")
    assert not is_colored(TERM="dumb")
    assert not is_colored("--color", "never")
    assert is_colored("--color", "always", terminal=False)
    assert not is_colored("--output-format", "json")
    assert not is_colored("--output-format", "github")


def test_a_stream_without_unicode_gets_escapes(here):
    (here / "é.yaml").write_text(TWICE)
    outcome = run_cfglint(*SMALL, "é.yaml", cwd=here, encoding="ascii")
    assert outcome.code == 1
    assert outcome.lines[0].startswith("\\xe9.yaml:10:1: warning SYN003")
    assert run_cfglint("rule", "MEM001", cwd=here, encoding="ascii").code == 0


def test_a_reader_that_leaves_is_no_crash(here):
    for number in range(300):
        (here / f"config-{number}.yaml").write_text(TWICE)
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-m", "cfglint_train", *SMALL, "."],
        cwd=here,
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert process.stderr == b""
    assert process.returncode == 1


@pytest.mark.parametrize("command", [["rules"], ["models"], ["rule", "MEM001"]])
def test_other_commands_survive_a_reader_that_leaves(here, command):
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-m", "cfglint_train", *command], cwd=here, stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert process.stderr == b""


def test_an_interrupt_is_130_and_silent(here):
    # The process interrupts itself when it reads a file.
    script = "import os, signal, sys, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    script += "from cfglint_train.foundation import regular_files\nfrom cfglint_train.front import cli\n"
    script += "regular_files.read = lambda *_, **__: (os.kill(os.getpid(), signal.SIGINT), time.sleep(5))\n"
    script += "sys.exit(cli.main(['x.yaml']))"
    process = subprocess.run([sys.executable, "-c", script], cwd=here, capture_output=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (130, b"", b"")


def test_verbose_says_why_files_were_not_checked(here):
    (here / "compose.yaml").write_text("services: {}\n")
    outcome = run_cfglint("--verbose", cwd=here)
    assert outcome.err == "not checked: compose.yaml: it has no keys of a supported framework\n"
    assert run_cfglint("--verbose", "--fix", cwd=here).err == outcome.err
    assert run_cfglint("--verbose", "--diff", cwd=here).err == outcome.err
    assert run_cfglint(cwd=here).err == ""


def test_verbose_does_not_list_a_launch_whose_run_is_checked(here: Path) -> None:
    (here / "train.py").write_text(
        "from trl import SFTConfig, SFTTrainer\n"
        'trainer = SFTTrainer("Qwen/Qwen2.5-0.5B", args=SFTConfig(output_dir="out"), train_dataset=data)\n'
        "trainer.train()\n"
    )
    (here / "run.sh").write_text("torchrun --nproc_per_node 2 train.py\n")
    (here / "other.sh").write_text("echo nothing\n")
    outcome = run_cfglint("--verbose", cwd=here)
    assert "not checked: other.sh" in outcome.err
    assert "run.sh" not in outcome.err


# --- rules and releases ----------------------------------------------------------------------------------------------


def test_select_and_ignore(here):
    (here / "config.yaml").write_text(TWICE + "trust_remote_code: true\n")

    def list_found_codes(*arguments) -> list[str]:
        return list_codes(run_cfglint("--output-format", "json", *arguments, "config.yaml", cwd=here))

    assert list_found_codes("--select", "SYN,SEC") == ["SYN003", "SEC001"]
    assert list_found_codes("--select", "SYN", "--select", "SEC") == ["SYN003", "SEC001"]
    assert list_found_codes("--select", "duplicate-key") == ["SYN003"]
    assert list_found_codes("--select", "syn003") == ["SYN003"]
    assert list_found_codes("--select", "syn,sec", "--ignore", "trust-remote-code") == ["SYN003"]
    assert list_found_codes("--select", "SEC001", "--ignore", "SEC") == ["SEC001"]
    assert list_found_codes("--select", "SEC", "--ignore", "SEC001") == []
    assert list_found_codes("--select", "SEC", "--ignore", "SEC") == []
    assert list_found_codes("--ignore", "ALL") == []


def test_overrides_of_the_launch(here):
    (here / "config.yaml").write_text(AXOLOTL)
    (here / "ds.json").write_text(CONTRADICTED)
    flags = (*SMALL, "--output-format", "concise")
    assert run_cfglint(*flags, "config.yaml", cwd=here).code == 0
    named = run_cfglint(*flags, "--set", "deepspeed=ds.json", "config.yaml", cwd=here)
    assert named.code == 1
    assert named.lines[0].startswith("ds.json:2:5: error XFL001")
    agreeing = ("--set", "deepspeed=ds.json", "--set", "gradient_accumulation_steps=8")
    assert run_cfglint(*flags, *agreeing, "config.yaml", cwd=here).code == 0


# --- files -----------------------------------------------------------------------------------------------------------


def test_folders_are_walked_in_order_and_each_file_is_checked_once(here):
    for name in ("b/config.yaml", "a.yaml", "b/a/config.yml", "b/ds.json"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(DEEPSPEED if name.endswith("json") else TWICE)
    (here / "b" / "notes.txt").write_text(TWICE)
    outcome = run_cfglint(*SMALL, "--output-format", "concise", ".", "b", "./a.yaml", here / "a.yaml", cwd=here)
    starts = [line.split(":")[0] for line in outcome.lines[:-2]]
    assert starts == ["a.yaml", "b/a/config.yml", "b/config.yaml", "b/ds.json"]


def test_what_is_excluded(here):
    for folder in ("node_modules/x", "kept/build", "legacy/deep"):
        (here / folder).mkdir(parents=True)
        (here / folder / "config.yaml").write_text(TWICE)
    (here / "cfglint.toml").write_text('extend-exclude = ["legacy/", "*.skip.yaml"]')
    (here / "old.skip.yaml").write_text(TWICE)

    def list_found_paths(*arguments) -> list[str]:
        outcome = run_cfglint(*SMALL, "--output-format", "json", *arguments, cwd=here)
        return [file["path"] for file in json.loads(outcome.out)["files"]]

    assert list_found_paths() == []
    # Files and folders that are named are checked ...
    assert list_found_paths("old.skip.yaml", "legacy/deep/config.yaml") == ["legacy/deep/config.yaml", "old.skip.yaml"]
    assert list_found_paths("legacy", "kept/build", "node_modules") == [
        "kept/build/config.yaml",
        "legacy/deep/config.yaml",
        "node_modules/x/config.yaml",
    ]
    # ... but not under --force-exclude, which pre-commit needs.
    assert list_found_paths("--force-exclude", "old.skip.yaml", "legacy/deep/config.yaml", "kept/build") == []
    (here / "cfglint.toml").write_text('force-exclude = true\nexclude = ["legacy"]')
    assert list_found_paths("legacy/deep/config.yaml", "old.skip.yaml") == ["old.skip.yaml"]


def test_a_folder_above_with_an_excluded_name_does_not_matter(tmp_path):
    work = tmp_path / "build" / "venv"
    work.mkdir(parents=True)
    (work / "config.yaml").write_text(TWICE)
    assert run_cfglint(*SMALL, cwd=work).code == 1
    assert run_cfglint(*SMALL, work, cwd=tmp_path).code == 1
    assert run_cfglint(*SMALL, "--force-exclude", "config.yaml", cwd=work).code == 1


def test_files_without_an_extension(here):
    (here / "config").write_text(TWICE)
    (here / "run").write_text("#!/usr/bin/env bash\n# cfglint: huh\npython -m openrlhf.cli.train_sft --pretrain x\n")
    (here / "notes").write_text("nothing\n")
    outcome = run_cfglint("--select", "SYN", "--output-format", "concise", "config", "run", "notes", cwd=here)
    assert outcome.lines[0].startswith("config:10:1: warning SYN003")
    assert outcome.lines[1].startswith("run:2:1: warning SYN006")
    assert outcome.lines[2].startswith("notes: not recognised as a training configuration (neither YAML, JSON")
    assert len(outcome.lines) == 4


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf", b"# only a comment\n", b"---\n", b"null\n"])
@pytest.mark.parametrize("name", ["config.yaml", "ds.json", "run.sh", "train.py"])
def test_empty_files_are_silent(here, name, content):
    (here / name).write_bytes(content)
    outcome = run_cfglint(cwd=here)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("warning: no training config found in 1 file")
    assert run_cfglint("--fix", name, cwd=here).code == 0
    assert (here / name).read_bytes() == content


def test_huge_files_are_data(here):
    (here / "data.json").write_bytes(b'{"training": 1, "x": "' + b"a" * MAX_BYTES + b'"}')
    outcome = run_cfglint("--verbose", "data.json", cwd=here)
    assert outcome.code == 0
    assert outcome.err == "not checked: data.json: larger than 8 MiB: data, not a configuration\n"


def test_a_huge_file_with_a_frameworks_keys_is_an_error(here):
    (here / "ds.json").write_bytes(b'{"train_batch_size": 1, "x": "' + b"a" * MAX_BYTES + b'"}')
    outcome = run_cfglint("ds.json", cwd=here)
    assert outcome.code == 2
    assert outcome.lines[0].startswith("ds.json:1:1: error SYN008 larger than 8 MiB")


@pytest.mark.parametrize("name", ["config.yaml", "ds.json", "run.sh", "train.py"])
def test_binary_files_are_silent(here, name):
    (here / name).write_bytes(bytes(range(256)) * 64 + b"base_model train_batch_size torchrun olmo_core")
    outcome = run_cfglint("--verbose", name, cwd=here)
    assert outcome.code == 0
    assert outcome.err.startswith(f"not checked: {name}: ")


def test_pipes_and_devices_do_not_hang(here):
    os.mkfifo(here / "pipe.yaml")
    os.mkfifo(here / "run.sh")
    (here / "zero.yaml").symlink_to("/dev/zero")
    (here / "nothing.yaml").symlink_to("nowhere")
    (here / "config.yaml").write_text(TWICE)
    # A walk does not treat them as files; ...
    walked = run_cfglint(*SMALL, cwd=here)
    assert walked.code == 1
    assert "\nFound 1 warning in 1 file.\n" in walked.out
    # ... but they are unreadable when named.
    for name, reason in (
        ("pipe.yaml", "not a regular file (use - to read standard input)"),
        ("zero.yaml", "a link that points outside the repository"),
        ("nothing.yaml", "No such file or directory"),
    ):
        outcome = run_cfglint(name, cwd=here)
        assert outcome.code == 2
        assert f"{name}:1:1: error SYN001 {reason}" in outcome.out


def test_folders_that_are_linked_in_a_circle_are_walked_once(here):
    (here / "a").mkdir()
    (here / "a" / "config.yaml").write_text(TWICE)
    (here / "a" / "again").symlink_to(here, target_is_directory=True)
    assert "\nFound 1 warning in 1 file.\n" in run_cfglint(*SMALL, cwd=here).out


@pytest.mark.skipif(os.geteuid() == 0, reason="not applicable: root may read everything")
def test_a_file_without_permission_is_2(here):
    (here / "config.yaml").write_text(TWICE)
    (here / "config.yaml").chmod(0)
    assert run_cfglint("config.yaml", cwd=here).code == 2


def test_a_file_that_may_not_be_read_is_2_and_does_not_stop_the_rest(here, monkeypatch):
    from cfglint_train.foundation import regular_files

    (here / "secret.yaml").write_text(TWICE)
    (here / "config.yaml").write_text(TWICE)

    def deny_access(real):
        def read(path, *more):
            if os.path.basename(path) == "secret.yaml":
                raise PermissionError(13, "Permission denied", path)
            return real(path, *more)

        return read

    for name in ("read", "read_small"):
        monkeypatch.setattr(regular_files, name, deny_access(getattr(regular_files, name)))
    outcome = run_cfglint(*SMALL, "--output-format", "concise", cwd=here)
    assert outcome.code == 2
    assert outcome.lines[:2] == [
        outcome.lines[0],
        "secret.yaml:1:1: error SYN001 Permission denied",
    ]
    assert outcome.lines[0].startswith("config.yaml:10:1: warning SYN003")


# --- fixing ----------------------------------------------------------------------------------------------------------


def test_fix(here):
    (here / "ds.json").write_text(DEEPSPEED)
    (here / "config.yaml").write_text(TWICE)
    outcome = run_cfglint(*SMALL, "--fix", cwd=here)
    assert outcome.code == 1
    assert "SYN003" in outcome.out
    assert "BAT001" not in outcome.out
    assert outcome.err.startswith("fixed: ds.json: BAT001 ")
    assert (here / "ds.json").read_text() != DEEPSPEED
    assert (here / "config.yaml").read_text() == TWICE
    again = run_cfglint(*SMALL, "--fix", cwd=here)
    assert again.err == ""


def test_fix_that_leaves_nothing_is_0_unless_asked(here):
    (here / "ds.json").write_text(DEEPSPEED)
    assert run_cfglint(*SMALL, "--fix", "--exit-non-zero-on-fix", cwd=here).code == 1
    assert run_cfglint(*SMALL, "--fix", "--exit-non-zero-on-fix", cwd=here).code == 0
    (here / "ds.json").write_text(DEEPSPEED)
    assert run_cfglint(*SMALL, "--fix", cwd=here).code == 0


def test_fix_only_reports_nothing_else(here):
    (here / "ds.json").write_text(DEEPSPEED)
    (here / "config.yaml").write_text(TWICE)
    outcome = run_cfglint(*SMALL, "--fix-only", cwd=here)
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err.startswith("fixed: ds.json: BAT001 ")
    assert run_cfglint(*SMALL, "--fix-only", "--exit-non-zero-on-fix", cwd=here).code == 0
    (here / "broken.yaml").write_text(BROKEN)
    assert run_cfglint(*SMALL, "--fix-only", cwd=here).code == 2


def test_diff_writes_nothing_and_can_be_applied(here):
    (here / "ds.json").write_bytes(DEEPSPEED.replace("\n", "\r\n").rstrip("\r\n").encode())
    before = (here / "ds.json").read_bytes()
    outcome = run_cfglint(*SMALL, "--diff", cwd=here)
    assert (outcome.code, outcome.err) == (1, "--fix would change 1 file.\n")
    assert run_cfglint(*SMALL, "--diff", "--quiet", cwd=here).err == ""
    assert (here / "ds.json").read_bytes() == before
    assert outcome.out.startswith("--- ds.json\n+++ ds.json\n@@ ")
    patch = here / "fix.patch"
    run_cfglint(*SMALL, "--diff", "--output-file", patch, "ds.json", cwd=here)
    subprocess.run(["git", "apply", "-p0", "fix.patch"], cwd=here, check=True)
    patched = (here / "ds.json").read_bytes()
    (here / "ds.json").write_bytes(before)
    run_cfglint(*SMALL, "--fix", cwd=here)
    assert (here / "ds.json").read_bytes() == patched
    assert run_cfglint(*SMALL, "--diff", cwd=here).code == 0
    (here / "ds.json").write_bytes(before)
    assert run_cfglint(*SMALL, "--diff", "--exit-zero", cwd=here).code == 0
    (here / "broken.yaml").write_text(BROKEN)
    assert run_cfglint(*SMALL, "--diff", cwd=here).code == 2


def test_unsafe_fixes_only_where_asked(here):
    (here / "config.yaml").write_text(REMOTE_CODE)
    assert run_cfglint(*SMALL, "--fix", "--fail-on", "info", cwd=here).code == 1
    assert (here / "config.yaml").read_text() == REMOTE_CODE
    (here / "cfglint.toml").write_text('unsafe-fixes = true\nfail-on = "info"')
    assert run_cfglint(*SMALL, "--fix", "--no-unsafe-fixes", cwd=here).code == 1
    assert run_cfglint(*SMALL, "--fix", cwd=here).code == 0
    assert "trust_remote_code: false" in (here / "config.yaml").read_text()
    (here / "config.yaml").write_text(REMOTE_CODE)
    assert run_cfglint(*SMALL, "--isolated", "--fix", "--unsafe-fixes", cwd=here).code == 0


def test_the_fix_setting_alone_writes_nothing(here):
    (here / "cfglint.toml").write_text("fix = true")
    (here / "ds.json").write_text(DEEPSPEED)
    assert run_cfglint(*SMALL, "--diff", cwd=here).out.startswith("--- ds.json")
    assert (here / "ds.json").read_text() == DEEPSPEED
    outcome = run_cfglint(*SMALL, cwd=here)
    assert outcome.code == 1
    assert "`fix = true` in the settings has no effect" in outcome.err
    assert (here / "ds.json").read_text() == DEEPSPEED
    assert run_cfglint(*SMALL, "--fix", cwd=here).code == 0
    assert (here / "ds.json").read_text() != DEEPSPEED


def test_links_stay_links_and_permissions_stay(here):
    (here / "real").mkdir()
    target = here / "real" / "ds.json"
    target.write_text(DEEPSPEED)
    target.chmod(0o640)
    (here / "ds.json").symlink_to("real/ds.json")
    assert run_cfglint(*SMALL, "--fix", "ds.json", cwd=here).code == 0
    assert (here / "ds.json").is_symlink()
    assert os.readlink(here / "ds.json") == "real/ds.json"
    assert target.read_text() != DEEPSPEED
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(path.name for path in (here / "real").iterdir()) == ["ds.json"]


def test_one_file_under_two_names_is_fixed_once(here):
    (here / "ds.json").write_text(DEEPSPEED)
    (here / "link.json").symlink_to("ds.json")
    outcome = run_cfglint(*SMALL, "--fix", cwd=here)
    assert outcome.code == 0
    assert "not written" not in outcome.out + outcome.err
    assert (here / "link.json").is_symlink()


# --- the other commands ----------------------------------------------------------------------------------------------


def test_rule(here):
    for name in ("MEM001", "mem001", "step-exceeds-gpu"):
        outcome = run_cfglint("rule", name, cwd=here)
        assert outcome.code == 0
        assert outcome.out.startswith("MEM001 step-exceeds-gpu: ")
    unknown = run_cfglint("rule", "MEM0001\x1b", cwd=here)
    assert (unknown.code, unknown.out) == (2, "")
    assert unknown.err == "cfglint: unknown rule MEM0001\\x1b; did you mean MEM001?\n"
    assert run_cfglint("rule", cwd=here).code == 2


def test_rules(here):
    listed = run_cfglint("rules", cwd=here)
    assert listed.code == 0
    assert [line.split()[0] for line in listed.lines] == list(registry.RULES)
    described = json.loads(run_cfglint("rules", "--output-format", "json", cwd=here).out)
    assert [rule["code"] for rule in described] == list(registry.RULES)
    for rule in described:
        assert set(rule) == {"code", "name", "summary", "severity", "frameworks", "fix", "since", "documentation"}
        assert rule["documentation"].startswith(f"{rule['code']} {rule['name']}: {rule['summary']}.\n")
    spoken = {rule["code"]: rule["frameworks"] for rule in described}
    assert spoken["CKP001"] == ["olmo"]
    assert spoken["MEM001"] is None


def test_models(here):
    listed = run_cfglint("models", cwd=here)
    assert listed.code == 0
    assert len(listed.lines) > 50
    assert listed.lines == sorted(listed.lines, key=str.lower)
    shown = run_cfglint("models", listed.lines[0], cwd=here)
    assert shown.code == 0
    assert "hidden" in shown.out
    unknown = run_cfglint("models", "nobody/\x1b[31mnothing", cwd=here)
    assert (unknown.code, unknown.out) == (2, "")
    assert unknown.err.startswith("cfglint: nobody/\\x1b[31mnothing is not in the catalogue")


def test_estimate(here):
    (here / "config.yaml").write_text(AXOLOTL + "sequence_len: 2048\n")
    shown = run_cfglint("estimate", "config.yaml", "--gpu", "H100", "--nodes", "2", cwd=here)
    assert (shown.code, shown.err) == (0, "")
    assert shown.lines[0].startswith("fits: ")
    assert shown.lines[1].startswith("config.yaml  (axolotl ")
    assert "one GPU of " in shown.out
    assert "2 x 8 (assumed) GPUs" in shown.out
    report = json.loads(run_cfglint("estimate", "config.yaml", "--output-format", "json", cwd=here).out)
    assert report["version"] == 1
    [run] = report["runs"]
    assert run["path"] == "config.yaml"
    assert run["nodes"] == 1
    assert any(phase["gpu"]["expected"] > 0 for phase in run["phases"] if phase["gpu"])
    for phase in run["phases"]:
        for place in ("gpu", "host", "disk"):
            if phase[place] is not None:
                assert phase[place]["low"] <= phase[place]["expected"] <= phase[place]["high"]
                assert sum(part["bytes"] for part in phase[place]["components"]) == phase[place]["expected"]


def test_estimate_of_standard_input(here):
    outcome = run_cfglint("estimate", "-", cwd=here, stdin=AXOLOTL.encode())
    assert outcome.code == 0
    assert outcome.lines[1].startswith("-  (")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.yaml"], "error: nowhere.yaml:1:1: No such file or directory"),
        (["compose.yaml"], "no training config found in 1 file (--verbose says why)"),
        (["compose.yaml", "--verbose"], "not checked: compose.yaml: it has no keys of a supported framework"),
        (["compose.yaml", "--gpu", "abacus"], "cfglint: gpu: unknown GPU 'abacus'"),
        ([], "cfglint: estimate needs a configuration, --model NAME or --plan FILE.json"),
    ],
)
def test_estimate_without_a_run_is_2(here, arguments, said):
    (here / "compose.yaml").write_text("services: {}\n")
    outcome = run_cfglint("estimate", *arguments, cwd=here)
    assert outcome.code == 2
    assert said in outcome.err


def test_a_file_may_be_called_like_a_command(here):
    (here / "rules").mkdir()
    (here / "rules" / "config.yaml").write_text(TWICE)
    assert run_cfglint("check", *SMALL, "rules", cwd=here).code == 1
    assert run_cfglint(*SMALL, "./rules", cwd=here).code == 1


def test_as_a_module(here):
    (here / "config.yaml").write_text(TWICE)
    process = subprocess.run(
        [sys.executable, "-m", "cfglint_train", *SMALL, "--output-format", "concise"],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    assert process.stdout.startswith("config.yaml:10:1: warning SYN003")


def test_what_no_flag_says_is_what_the_parser_says():
    """Skip the parser for a call with files only."""
    options = vars(build_check_parser().parse_args(["a.yaml", "b"]))
    assert options == {**DEFAULTS, "paths": ["a.yaml", "b"]}


@pytest.mark.parametrize("name", [name for name, default in DEFAULTS.items() if default is False])
@pytest.mark.parametrize("paths", [[], ["a.yaml", "fix"]], ids=["no file", "files"])
def test_what_is_off_by_default_is_a_switch(name, paths):
    arguments = [f"--{name.replace('_', '-')}", "--force-exclude", *paths]
    assert vars(_parse_arguments(arguments)) == vars(build_check_parser().parse_args(arguments))


@pytest.mark.parametrize("argument", ["--", "-", "--fix_only", "--no_such", "-q", "--jobs", "--unsafe-fixes"])
def test_what_is_no_switch_is_left_to_the_parser(argument):
    assert _parse_switch(argument) == ""


def test_a_companion_that_no_run_names_is_no_run(here):
    config = "stage: sft\nmodel_name_or_path: nobody/model\ndataset: d\noutput_dir: o\nfinetuning_type: full\n"
    (here / "sft.yaml").write_text(config)
    for name in ("a.json", "b.json"):
        (here / name).write_text('{"zero_optimization": {"stage": 2}, "train_batch_size": "auto"}')
    paths = ("sft.yaml", "a.json", "b.json")
    assert "Memory was not checked for 1 run." in run_cfglint("--select", "CHK", *paths, cwd=here).lines


def test_what_a_run_says_of_its_companion_is_explained_by_the_path_that_is_printed(here):
    (here / ".git").mkdir(exist_ok=True)
    (here / "configs").mkdir()
    (here / "configs" / "sft.yaml").write_text(
        "stage: sft\nmodel_name_or_path: meta-llama/Llama-3.1-70B\ndataset: d\noutput_dir: o\nfinetuning_type: full\n"
        "cutoff_len: 4096\npacking: true\nbf16: true\ndeepspeed: ds.json\n"
    )
    (here / "ds.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}')
    outcome = run_cfglint("--gpu", "A100-40GB", "--nodes", "1", "--explain", "MEM001:1", "ds.json", cwd=here)
    assert outcome.lines[0].startswith("ds.json:1: ")
    assert any("configs/sft.yaml" in line for line in outcome.lines)

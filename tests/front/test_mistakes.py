"""Answers to mistakes: suggestions for mistyped words, and no pass for an input that was not checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train.version import VERSION
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL

CONFIG = """\
base_model: Qwen/Qwen2.5-0.5B
datasets: [{path: data/train.jsonl, type: alpaca}]
learning_rate: 0.0002
micro_batch_size: 2
"""


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


# --- commands and flags ----------------------------------------------------------------------------------------------


def test_help_and_version_are_commands(here):
    assert run_cfglint("help", cwd=here) == run_cfglint("--help", cwd=here)
    assert run_cfglint("help", "fit", cwd=here) == run_cfglint("fit", "--help", cwd=here)
    assert run_cfglint("version", cwd=here).out == run_cfglint("-V", cwd=here).out == f"cfglint {VERSION}\n"


@pytest.mark.parametrize("name", ["help", "version", "lint", "fix"])
def test_a_file_or_folder_of_that_name_is_linted(here, name):
    (here / name).mkdir()
    (here / name / "config.yaml").write_text(CONFIG + "learning_rate: 0.1\n")
    outcome = run_cfglint("--output-format", "concise", "--select", "SYN", name, cwd=here)
    assert outcome.lines[0].startswith(f"{name}/config.yaml:5:1: warning SYN003")
    assert run_cfglint(name, "--output-format", "concise", "--select", "SYN", cwd=here) == outcome


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("lint", "check"),
        ("fix", "cfglint --fix"),
        ("fiix", "cfglint --fix"),
        ("inti", "init"),
        ("list", "rules"),
        ("explain", "rule"),
        ("estimaet", "estimate"),
    ],
)
def test_commands_of_other_tools(here, word, meant):
    outcome = run_cfglint(word, "config.yaml", cwd=here)
    assert outcome == (2, "", f"cfglint: unknown command {word}; did you mean {meant}?\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--fixx", "."], "unrecognized arguments: --fixx; did you mean --fix?"),
        (["check", "--isolate", "."], "unrecognized arguments: --isolate; did you mean --isolated?"),
        (["--outputformat=json", "."], "unrecognized arguments: --outputformat=json; did you mean --output-format?"),
        (["estimate", "--gpus", "H100", "config.yaml"], "unrecognized arguments: --gpus; did you mean --gpu?"),
        (["--output-format", "jsno", "."], "argument --output-format: invalid choice 'jsno'; did you mean json?"),
        (["--output", "json", "."], "unrecognized arguments: --output; did you mean --output-format?"),
        (["estimate", "--json", "config.yaml"], "did you mean --output-format json?"),
        (["migrate", "--too", "axolotl", "."], "arguments are required: --to; did you mean --to?"),
        (["inti"], "unknown command inti; did you mean init?"),
        (["list"], "unknown command list; did you mean rules?"),
        (["help", "estimat"], "unknown command estimat; did you mean estimate?"),
        (["completion", "bsh"], "invalid choice 'bsh'; did you mean bash?"),
        (["completion", "qq"], "invalid choice 'qq'; choose from bash, zsh, fish"),
        (["calibrate", "rport"], "invalid choice 'rport'; did you mean report?"),
        (["schema", "axolotll"], "unknown framework axolotll; did you mean axolotl?"),
        (["schema", "llama-factoryy"], "did you mean llama-factory?"),
        (["schema", "axolotl", "--entry", "trian"], "axolotl 0.21.0 has no such entry; did you mean train?"),
        (
            ["migrate", "--to", "axolotll=0.21.0", "."],
            "--to axolotll=0.21.0: expected NAME=RELEASE; did you mean axolotl?",
        ),
        (["--gpu", "A100-80GG", "."], "did you mean A100-80GB?"),
        (["rule", "MEM001", "KEY01"], "unknown rule KEY01; did you mean KEY001?"),
        (["models", "meta-lama/Lama-3.1-8B-Instructt"], "is not in the catalogue; did you mean meta-llama/"),
    ],
)
def test_a_mistyped_word_gets_the_nearest_one(here, arguments, said):
    outcome = run_cfglint(*arguments, cwd=here)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err


def test_a_mistyped_setting_and_value(here):
    (here / "cfglint.toml").write_text('selct = ["MEM"]\n')
    assert "unknown setting selct; did you mean select?" in run_cfglint(cwd=here).err
    (here / "cfglint.toml").write_text('output-format = "jsno"\n')
    assert "not 'jsno'; did you mean json?" in run_cfglint(cwd=here).err


def test_a_mistyped_model_is_named_beside_its_estimate(here):
    (here / "config.yaml").write_text(CONFIG.replace("Qwen/Qwen2.5-0.5B", "Qwen/Qwem2.5-0.5B"))
    lines = run_cfglint("estimate", "config.yaml", cwd=here).lines
    assert "  model   Qwen/Qwem2.5-0.5B: not in the catalogue; did you mean Qwen/Qwen2.5-0.5B?" in lines


@pytest.mark.parametrize(
    "arguments",
    [
        ["--select", "SYN", "config.yaml"], ["estimate", "config.yaml"], ["fit", "config.yaml"], ["rules"],
        ["migrate", "--to", "axolotl", "config.yaml", "--check"],
    ],
)  # fmt: skip
def test_format_is_output_format(here, arguments):
    outcome = run_cfglint(*arguments, "--output-format", "json", cwd=here)
    assert outcome.out[:1] in "{["
    assert run_cfglint(*arguments, "--format", "json", cwd=here) == outcome


def test_several_rules_are_explained(here):
    alone = [run_cfglint("rule", code, cwd=here).out for code in ("MEM001", "KEY001")]
    for words in (["MEM001", "KEY001"], ["mem001,unknown-key"], ["MEM001", "step-exceeds-gpu", "KEY001"]):
        assert run_cfglint("rule", *words, cwd=here) == (0, "\n\n".join(alone), "")
    assert {line[:3] for line in run_cfglint("rule", "MEM", "KEY", cwd=here).lines} == {"MEM", "KEY"}


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_folder_without_configs_says_what_was_looked_at(here):
    (here / "docs").mkdir()
    (here / "docs" / "readme.md").write_text("text\n")
    empty = run_cfglint("docs", cwd=here)
    assert (empty.code, empty.err) == (0, "")
    assert empty.out.startswith("warning: no training config found: there are no YAML, JSON, shell or Python files")
    for number in range(12):
        (here / "docs" / f"{number}.yaml").write_text("title: x\n")
    looked = "warning: no training config found in 12 files (--verbose says why)\n"
    assert run_cfglint("docs", cwd=here) == (0, looked, "")
    assert looked in run_cfglint("--fix", "docs", cwd=here).out
    assert run_cfglint("--jobs", "2", "--quiet", "docs", cwd=here) == (0, "", "")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("x: [1, 2\ny: 3\n", 2, "the `[` is not closed: did not find expected ',' or ']' on line 3"),
        ("x:\n  - {a: 1,\n  - b\n", 3, "the `{` is not closed: did not find expected node content on line 4"),
        ('x: ["a"\n "b"]\n', 3, "did not find expected ',' or ']' after the `[` on line 2"),
        ('x: "abc\ny: 3\n', 2, "the quote is not closed: found unexpected end of stream on line 4"),
        ('x: "abc\ny: "z"\n', 2, "the quote is only closed on line 3: did not find expected key"),
        ("x: 1\n y: 3\n", 3, "mapping values are not allowed in this context"),
        ("x\ny: 3\n", 2, "could not find expected ':' after the key"),
        ('\u00a0z: 1\ny: "\\U00110000"\n', 3, "found invalid Unicode character escape code"),
    ],
)
def test_broken_yaml_says_what_is_open(here, text, line, said):
    (here / "config.yaml").write_text("base_model: Qwen/Qwen2.5-0.5B\n" + text)
    outcome = run_cfglint("--output-format", "concise", "config.yaml", cwd=here)
    assert outcome.code == 2
    assert outcome.lines[0].startswith(f"config.yaml:{line}:")
    assert said in outcome.lines[0]


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("x: [1, 2\ny: 3\n", "close it with `]`, or quote the value if it is text"),
        ("x: {a}/b\n", "quote the value: `{` starts a mapping"),
        ("x: [a] b\n", "quote the value: `[` starts a list"),
        ("x: *.json\n", "quote the value: `*` starts an alias"),
        ("x: *all\n", "quote the value: `*` starts an alias"),
        ("x: @all\n", "quote the value: it cannot start with `@`"),
        ("x: >=0.5\n", "quote the value: `>` starts a block of text"),
        ("x: a: b\n", "quote the value: `: ` starts a mapping"),
        ("x: 1\n y: 3\n", "indent the key like the keys above it"),
        ('x: "a" b\n', "quote the whole value: text follows the closing quote"),
        ('x: ["a"\n "b"]\n', "put a comma between the items"),
        ("x:\t1\n", "replace the tab by spaces"),
        ("x: !size 8\n", "quote the value: `!` starts a tag"),
    ],
)
def test_broken_yaml_has_a_remedy(here, text, remedy):
    (here / "config.yaml").write_text(AXOLOTL + text)
    assert f"help: {remedy}\n" in run_cfglint("config.yaml", cwd=here).out


def test_a_broken_file_without_known_keys_says_so_where_it_is_named(here):
    (here / "other.yaml").write_text("x: [1, 2\ny: 3\n")
    named = run_cfglint("other.yaml", cwd=here)
    assert named.code == 0
    assert (
        "and is not valid YAML at line 1: the `[` is not closed: did not find expected ',' or ']' on line 2"
        in named.out
    )
    for command in ("estimate", "fit"):
        assert "the `[` is not closed" in run_cfglint(command, "other.yaml", cwd=here).err
    assert "no YAML at" not in run_cfglint(cwd=here).out


@pytest.mark.parametrize("command", ["estimate", "fit"])
def test_what_was_not_estimated_is_no_success(here, command):
    (here / "config.yaml").write_text(CONFIG.replace("Qwen/Qwen2.5-0.5B", "Unknown/Model-9B"))
    (here / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    (here / "fits.yaml").write_text(CONFIG)
    assert run_cfglint(command, "config.yaml", cwd=here).code == 2
    assert run_cfglint(command, "ds.json", cwd=here).code == 2
    assert run_cfglint(command, "fits.yaml", "--gpu", "H200", cwd=here).code == 0
    assert "cannot be estimated" in run_cfglint(command, "--help", cwd=here).out


# --- reports ---------------------------------------------------------------------------------------------------------

EXPLAIN = "Run `cfglint rule CODE` for an explanation."


def test_a_report_ends_with_where_rules_are_explained(here):
    (here / "config.yaml").write_text(CONFIG + "learning_rate: 0.1\nmicro_batch_size: 4\n")
    outcome = run_cfglint(cwd=here)
    assert outcome.out.count(EXPLAIN) == 1
    assert outcome.lines[-1] == EXPLAIN
    for form in ("concise", "grouped", "json", "github"):
        assert EXPLAIN not in run_cfglint("--output-format", form, cwd=here).out
    assert EXPLAIN not in run_cfglint("--quiet", cwd=here).out
    assert EXPLAIN not in run_cfglint("--select", "HST", cwd=here).out


def test_a_part_of_a_code_is_no_selector(here):
    message = "unknown rule MEM01; did you mean MEM001?"
    for flag in ("--select", "--ignore"):
        outcome = run_cfglint(flag, "MEM01", ".", cwd=here)
        assert outcome.code == 2
        assert message in outcome.err
    (here / "cfglint.toml").write_text('[severity]\nMEM01 = "off"\n')
    assert message in run_cfglint(cwd=here).err
    (here / "cfglint.toml").write_text("")
    for word in ("MEM", "mem", "MEM001", "step-exceeds-gpu", "ALL"):
        assert run_cfglint("--select", word, cwd=here).code != 2


def test_a_path_that_does_not_exist_gets_the_nearest_one(here):
    for command in ([], ["estimate"], ["fit"]):
        outcome = run_cfglint(*command, "confg.yaml", cwd=here)
        assert outcome.code == 2
        assert "No such file or directory; did you mean config.yaml?" in outcome.out + outcome.err

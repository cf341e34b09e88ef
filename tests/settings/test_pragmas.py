"""Comments for cfglint: their syntax, their places, and the findings that they suppress."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfglint_rules import registry
from cfglint_train.documents.document import DocumentError, Position
from cfglint_train.settings import pragmas
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL, DEEPSPEED, TWICE
from tests.support.laws import parse_document

JOB = "torchrun --nnodes 2 -m openrlhf.cli.train_sft \\\n   --pretrain meta-llama/Meta-Llama-3-8B \\\n   --bf16"


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def lint_text(here: Path, text: str | bytes, *arguments: str, name: str = "config.yaml") -> list[str]:
    """Return the findings of one file as code:line."""
    (here / name).write_bytes(text.encode() if isinstance(text, str) else text)
    outcome = run_cfglint("--output-format", "json", "--select", "SYN,SEC,BAT", *arguments, name, cwd=here)
    assert outcome.code in (0, 1), outcome
    return [f"{finding['code']}:{finding['line']}" for finding in json.loads(outcome.out)["findings"]]


# --- facts -----------------------------------------------------------------------------------------------------------

SYNTAXES = {
    "yaml": "a: 1\n{} \nb: 2\n",
    "shell": "echo a\n{}\n",
    "python": "a = 1\n{}\nb = 2\n",
    "json": '{{"a": 1,\n{}\n"b": 2}}\n',
}


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_facts_in_every_syntax(syntax, ending, mark):
    text = (
        SYNTAXES[syntax]
        .format('# cfglint: nodes=64 gpu=A100-80GB, host-memory="480 GiB" torch=2.2')
        .replace("\n", ending)
    )
    document = parse_document((mark + text).encode(), syntax)
    parsed = pragmas.read_pragmas(document)
    assert [(fact.name, fact.value) for fact in parsed.facts] == [
        ("nodes", "64"),
        ("gpu", "A100-80GB"),
        ("host-memory", "480 GiB"),
        ("torch", "2.2"),
    ]
    assert [document.get_text(fact.span) for fact in parsed.facts] == [
        "nodes=64",
        "gpu=A100-80GB",
        'host-memory="480 GiB"',
        "torch=2.2",
    ]
    assert parsed.malformed == ()


@pytest.mark.parametrize(
    "comment", ["// cfglint: nodes=2", "/* cfglint: nodes=2 */", "/* cfglint: nodes=2*/", "#cfglint:nodes=2"]
)
def test_comments_of_json(comment):
    parsed = pragmas.read_pragmas(parse_document('{"a": 1,\n' + comment + '\n"b": 2}', "json"))
    assert [(fact.name, fact.value) for fact in parsed.facts] == [("nodes", "2")]


def test_behind_a_value_and_behind_another_comment():
    text = "é: 1  # cfglint: nodes=2\nb: 1  # yamllint disable-line # cfglint: gpu=H100\n"
    document = parse_document(text, "yaml")
    parsed = pragmas.read_pragmas(document)
    assert [document.get_text(fact.span) for fact in parsed.facts] == ["nodes=2", "gpu=H100"]


@pytest.mark.parametrize(
    ("syntax", "text"),
    [
        ("yaml", "a: '# cfglint: nodes=2'\n"),
        ("yaml", 'a: "x # cfglint: nodes=2"\n'),
        ("yaml", "a: |\n  # cfglint: nodes=2\n"),
        ("yaml", "a: >-\n  x\n  # cfglint: nodes=2\nb: 1\n"),
        ("yaml", "a: x#cfglint:nodes=2\n"),
        ("json", '{"a": "# cfglint: nodes=2"}'),
        ("json", '{"a": "// cfglint: nodes=2"}'),
        ("shell", "echo '# cfglint: nodes=2'\n"),
        ("shell", "cat <<EOF\n# cfglint: nodes=2\nEOF\n"),
        ("shell", "echo a#cfglint: nodes=2\n"),
        ("python", "a = '# cfglint: nodes=2'\n"),
        ("python", 'a = """\n# cfglint: nodes=2\n"""\n'),
        ("python", "a = f'# cfglint: nodes=2'\n"),
    ],
)
def test_strings_are_no_pragmas(syntax, text):
    assert pragmas.read_pragmas(parse_document(text, syntax)) == pragmas.NO_PRAGMAS


@pytest.mark.parametrize(
    "body",
    [
        "",
        "nodes",
        "nodes = 64",
        "nodes=",
        "nodes=64 and more",
        "gpu=RTX 4090",
        "ignore",
        "ignore MEM001",
        "ignore[]",
        "ignore[ , ]",
        "Nodes=64",
        "disable[MEM001]",
        "file-ignore",
    ],
)
def test_what_says_nothing_is_told(here, body):
    assert lint_text(here, f"# cfglint: {body}\n" + AXOLOTL) == ["SYN006:1"]


def test_unknown_facts_and_rules_are_told_at_their_place(here):
    (here / "config.yaml").write_text(
        AXOLOTL + "# cfglint: gpus=8 nodes=2\n# cfglint: ignore[MEM_001, SEC, QQQ1]\n# cfglint: file-ignore[Q]\n"
    )
    outcome = run_cfglint("--select", "SYN006", "--output-format", "concise", "config.yaml", cwd=here)
    assert [line.split(" ", 1)[0] for line in outcome.lines[:-1]] == [
        "config.yaml:10:12:",
        "config.yaml:11:19:",
        "config.yaml:11:33:",
        "config.yaml:12:24:",
    ]


def test_comments_that_only_look_like_pragmas(here):
    assert lint_text(here, "# cfglint is a linter\n# see cfglint: the docs\n# notcfglint: x\n" + AXOLOTL) == []


# --- suppressions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["SYN003", "syn003", "duplicate-key", "SYN", "ALL", "SEC001, SYN003", "SYN003 SEC"])
def test_on_the_line_above_it_and_for_the_file(here, code):
    duplicate = "micro_batch_size: 1"
    on_line = AXOLOTL + f"{duplicate}  # cfglint: ignore[{code}] because\n"
    above = AXOLOTL + f"# cfglint: ignore[{code}] because\n{duplicate}\n"
    whole = f"# cfglint: file-ignore[{code}] because\n" + AXOLOTL + f"{duplicate}\n"
    for text in (on_line, above, whole):
        assert lint_text(here, text, "--ignore", "SYN005") == []


@pytest.mark.parametrize(
    "text",
    [
        # Not the line below a comment that follows a value.
        AXOLOTL + "num_epochs: 1  # cfglint: ignore[SYN003]\nmicro_batch_size: 1\n",
        # Not two lines down.
        AXOLOTL + "# cfglint: ignore[SYN003]\n\nmicro_batch_size: 1\n",
        # Not the line above.
        AXOLOTL + "micro_batch_size: 1\n# cfglint: ignore[SYN003]\n",
        # Not another rule, and not an invalid code.
        AXOLOTL + "micro_batch_size: 1  # cfglint: ignore[SEC]\n",
        AXOLOTL + "micro_batch_size: 1  # cfglint: ignore[SYN0031]\n",
    ],
)
def test_nowhere_else(here, text):
    findings = lint_text(here, text.replace("num_epochs: 1\nlearning", "learning"), "--ignore", "SYN005,SYN006")
    assert len(findings) == 1
    assert findings[0].startswith("SYN003:")


def test_comments_may_be_stacked(here):
    text = AXOLOTL + "# cfglint: ignore[SYN003]\n# why: it is a test\n# cfglint: ignore[SEC001]\nmicro_batch_size: 1\n"
    assert lint_text(here, text) == ["SYN005:12"]


def test_a_comment_above_a_command_speaks_for_all_of_it(here):
    secret = "hf_" + "a1B2" * 9
    script = f"#!/bin/bash\n# cfglint: ignore[SEC002]\n{JOB} \\\n   --use_wandb {secret}\necho {secret}\n"
    assert [item for item in lint_text(here, script, name="run.sh") if item.startswith("SEC002")] == ["SEC002:7"]
    unsuppressed = script.replace("# cfglint: ignore[SEC002]\n", "")
    findings = [item for item in lint_text(here, unsuppressed, name="run.sh") if item.startswith("SEC002")]
    assert findings == ["SEC002:5", "SEC002:6"]


def test_in_json_with_comments(here):
    text = DEEPSPEED.replace('    "train_batch', '    // cfglint: ignore[BAT001]\n    "train_batch', 1)
    assert lint_text(here, text, name="ds.json") == []
    text = DEEPSPEED.replace("100,", "100, /* cfglint: ignore[BAT001] */")
    assert lint_text(here, text, name="ds.json") == []


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_endings_and_byte_order_marks(here, ending, mark):
    text = mark + "# cfglint: file-ignore[SYN003]\n" + TWICE + "# cfglint: ignore[SEC001]\ntrust_remote_code: true\n"
    assert lint_text(here, text.replace("\n", ending).encode()) == []
    alone = mark + "# cfglint: ignore[SEC001]\ntrust_remote_code: true\n" + AXOLOTL
    assert lint_text(here, alone.replace("\n", ending).encode()) == []


# --- unused suppressions ---------------------------------------------------------------------------------------------


def test_each_code_that_silences_nothing_is_told(here):
    text = AXOLOTL + "micro_batch_size: 1  # cfglint: ignore[SYN003, SEC001, SYN002]\n"
    (here / "config.yaml").write_text(text)
    outcome = run_cfglint("--select", "SYN,SEC", "--output-format", "concise", "config.yaml", cwd=here)
    assert [line.split(" ")[0] for line in outcome.lines[:2]] == ["config.yaml:10:48:", "config.yaml:10:56:"]
    assert all("SYN005" in line for line in outcome.lines[:2])


def test_rules_that_did_not_look_are_not_held_against_a_suppression(here):
    text = "# cfglint: file-ignore[SEC001]\n" + AXOLOTL
    assert lint_text(here, text) == ["SYN005:1"]
    assert lint_text(here, text, "--ignore", "SEC001") == []
    # Half of the family is off, so it is unknown whether the other half would have fired.
    assert lint_text(here, "# cfglint: file-ignore[SEC]\n" + AXOLOTL, "--ignore", "SEC001") == []
    assert lint_text(here, "# cfglint: file-ignore[SEC]\n" + AXOLOTL) == ["SYN005:1"]


def test_a_file_that_could_not_be_checked_is_not_held_against_it_either(here, monkeypatch):
    def fail_check(run):
        raise RuntimeError("boom")

    monkeypatch.setitem(registry._checkers, "KEY001", fail_check)
    (here / "config.yaml").write_text("# cfglint: file-ignore[KEY001]\n" + AXOLOTL)
    outcome = run_cfglint("--select", "KEY001,SYN005", "config.yaml", cwd=here)
    assert outcome.code == 2
    assert "SYN005" not in outcome.out


def test_the_complaint_itself_can_be_silenced(here):
    assert lint_text(here, "# cfglint: file-ignore[SEC001, SYN005]\n" + AXOLOTL) == []
    assert lint_text(here, "# cfglint: file-ignore[SYN005]\na: 1 # cfglint: ignore[SEC001]\n" + AXOLOTL) == []
    assert lint_text(here, "# cfglint: file-ignore[SYN006]\n# cfglint: nonsense\n" + AXOLOTL) == []


# --- the parser of comments ------------------------------------------------------------------------------------------


BODIES = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\n\x85\u2028\u2029\x0b\x0c\x1c\x1d\x1e\0"), max_size=40
)


@given(BODIES)
def test_every_comment_is_understood_or_told(body):
    try:
        document = parse_document(f"a: 1\n# cfglint:{body}\n", "yaml")
    except DocumentError:  # characters that YAML forbids in a comment
        return
    parsed = pragmas.read_pragmas(document)
    count = len(parsed.facts) + len(parsed.suppressions) + len(parsed.malformed)
    assert count > 0
    for fact in parsed.facts:
        assert document.get_text(fact.span).startswith(f"{fact.name}=")
    for suppression in parsed.suppressions:
        assert suppression.codes
        for code, span in suppression.codes:
            assert document.get_text(span) == code


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2))
def test_silencing_is_about_overlapping_lines(first, start, height):
    lines = [f"k{line}: 1" for line in range(1, 7)]
    lines[first - 1] += "  # cfglint: ignore[SYN]"
    document = parse_document("\n".join(lines) + "\n", "yaml")
    [suppression] = pragmas.read_pragmas(document).suppressions
    suppressing = pragmas.find_silencing_codes(
        suppression, "SYN003", "x", Position(start, 1), Position(start + height, 2)
    )
    assert bool(suppressing) == (start <= first <= start + height)


# --- the fix of unused suppressions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# cfglint: ignore[SEC001]\n{}", "{}"),
        ("\ufeff# cfglint: ignore[SEC001]\n{}", "\ufeff{}"),
        ("{}  # cfglint: ignore[SEC001] reviewed\n", "{}\n"),
        ("{}   # kept # cfglint: ignore[SEC001]\n", "{}   # kept\n"),
        ("{}  # cfglint: ignore[SEC001]", "{}"),
        ("# cfglint: ignore[SEC001, SYN003]\n{}", "{}"),
        ("# cfglint: file-ignore[ SEC001,SEC002 , SYN003 ] why\n{}  # cfglint: ignore[BAT001]\n", "{}\n"),
        ("# cfglint: file-ignore[SEC001, SEC002]\ntrust_remote_code: true\n{}", None),
    ],
)
def test_unused_suppressions_are_removed_and_nothing_else(here, before, after, ending):
    setting = AXOLOTL.rstrip("\n")
    written = before.format(setting).replace("\n", ending).encode()
    kept = before.replace("SEC001, SEC002", "SEC001") if after is None else after
    expected = kept.format(setting).replace("\n", ending).encode()
    (here / "config.yaml").write_bytes(written)
    outcome = run_cfglint("--select", "SYN,SEC,BAT", "--fix", "config.yaml", cwd=here)
    assert outcome.code == 0, outcome
    assert (here / "config.yaml").read_bytes() == expected
    again = run_cfglint("--select", "SYN,SEC,BAT", "--fix", "config.yaml", cwd=here)
    assert (again.code, (here / "config.yaml").read_bytes()) == (0, expected)


@pytest.mark.parametrize("name", ["run.sh", "config.json"])
def test_unused_suppressions_of_scripts_and_json(here, name):
    texts = {
        "run.sh": f"#!/bin/sh\n{{}}{JOB}{{}}\n",
        "config.json": '{{\n{}"train_micro_batch_size_per_gpu": 1,{}\n"zero_optimization": {{"stage": 2}}\n}}\n',
    }
    mark = "//" if name.endswith("json") else "#"
    comments = (f"{mark} cfglint: ignore[SEC001]\n", f"  {mark} cfglint: ignore[SEC002] gone")
    (here / name).write_text(texts[name].format(*comments))
    run_cfglint("--select", "SYN005,SEC", "--fix", name, cwd=here)
    assert (here / name).read_text() == texts[name].format("", "")


def test_many_unused_suppressions_go_in_one_go(here):
    lines = [f"key_{number}: 1  # cfglint: ignore[SEC001]" for number in range(150)]
    text = AXOLOTL + "\n".join(lines) + "\n"
    (here / "config.yaml").write_text(text)
    outcome = run_cfglint("--select", "SYN005,SEC", "--fix", "config.yaml", cwd=here)
    assert outcome.code == 0, outcome
    assert "cfglint" not in (here / "config.yaml").read_text()


def test_a_suppression_that_a_fix_makes_idle_goes_with_it(here):
    text = AXOLOTL + "trust_remote_code: true  # cfglint: ignore[SEC001]\n"
    (here / "config.yaml").write_text(text)
    assert run_cfglint("--select", "SYN005,SEC", "--fix", "config.yaml", cwd=here).code == 0
    assert (here / "config.yaml").read_text() == text


def test_an_unused_one_is_removed_from_a_script_that_only_starts_a_config(here):
    (here / "config.yaml").write_text(AXOLOTL)
    command = "#!/bin/bash\n{}accelerate launch -m axolotl.cli.train config.yaml\n"
    (here / "run.sh").write_text(command.format("# cfglint: ignore[PAR003]\n"))
    assert run_cfglint("--select", "SYN005,PAR003", "--fix", cwd=here).code == 0
    assert (here / "run.sh").read_text() == command.format("")

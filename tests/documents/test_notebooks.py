"""Notebooks: their cells are checked as one script, and the runs that they start are named."""

from __future__ import annotations

import json
from pathlib import Path
from time import process_time

import pytest

from cfglint_train.documents.notebooks import parse_notebook
from tests.support.linting import build_options, fix, lint

TRAINS = """\
from trl import SFTConfig, SFTTrainer
trainer = SFTTrainer("Qwen/Qwen2.5-7B", SFTConfig("out"))
trainer.train()
"""


def build_notebook(*cells: str, kind: str = "code", indent: int | None = 1) -> str:
    """Return a notebook with cells of one kind."""
    cell_list = [{"cell_type": kind, "source": cell.splitlines(keepends=True), "outputs": []} for cell in cells]
    return json.dumps({"cells": cell_list, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=indent)


def test_code_is_read_in_its_lines() -> None:
    text = build_notebook(
        "import os\nprint('\u00e4')", "!a {x} \\\\\n  b\n%cd c\nd()", "%%bash\ne\nf", "%%writefile g\nh: 1"
    )
    source = parse_notebook(text)
    assert source is not None
    lines = [line.strip() for line in text.split("\n")]
    where = {word: lines.index(json.dumps(word)) for word in ("d()",)}
    assert [line for line in source.python.split("\n") if line] == ["import os", "print('\u00e4')", "d()"]
    assert source.python.split("\n").index("d()") == where["d()"]
    assert [line for line in source.commands.split("\n") if line] == ["a ${x} \\\\", "  b", "e", "f", "cat > g"]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"cells": 1}', '{"cells": [1]}', "{"])
def test_what_is_no_notebook(text: str) -> None:
    assert parse_notebook(text) is None


@pytest.mark.parametrize(
    ("cell", "line", "message"),
    [
        (
            "from trl import SFTTrainer\nSFTTrainer(**options).train()",
            7,
            "the arguments of its trainer (line 7) cannot be determined without running it",
        ),
        ("!axolotl train cfg/a.yaml", 6, "axolotl is started with `cfg/a.yaml`, which was not found"),
        (
            "%%writefile a.yaml\nbase_model: x\n",
            None,
            "",
        ),
        (
            "%%bash\ndeepspeed own.py --model_name_or_path m --learning_rate 1e-5",
            7,
            "nothing that cfglint reads is in `own.py`",
        ),
        (
            "!llamafactory-cli train --model_name_or_path m --stage sft --do_train",
            6,
            "the options of `llamafactory-cli` are read in shell scripts only",
        ),
        ("from transformers import pipeline\npipeline('text-generation')('x')", None, ""),
        ("from transformers import AutoModelForCausalLM as A\nA.from_pretrained('x').generate()", None, ""),
        ("!axolotl inference a.yaml", None, ""),
    ],
)
def test_a_run_in_a_notebook_is_named(tmp_path: Path, cell: str, line: int | None, message: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "own.py").write_text("import mine\nmine.train()\n")
    (tmp_path / "a.ipynb").write_text(build_notebook(cell))
    findings = [(finding.start.line, finding.message) for finding in lint(tmp_path).findings]
    assert findings == ([] if line is None else [(line, f"run not checked: {message}")])


REFUSED = """\
from trl import SFTConfig, SFTTrainer
args = SFTConfig("out", bf16=True, max_seq_length=512, packing_strateg="bfd")
trainer = SFTTrainer("Qwen/Qwen2.5-0.5B", args)
trainer.train()
"""


def list_key_findings(folder: Path, *cells: str, requirements: str = "") -> list[tuple[int, str, str]]:
    (folder / ".git").mkdir()
    (folder / "a.ipynb").write_text(build_notebook(*cells))
    if requirements:
        (folder / "requirements.txt").write_text(requirements)
    findings = lint(folder, build_options(select=["KEY"])).findings
    return [(item.start.line, item.severity, item.message.partition("`")[2].partition("`")[0]) for item in findings]


def test_the_cells_are_checked_as_one_script(tmp_path: Path) -> None:
    first, second = REFUSED.split("trainer =")
    ipython = "gpu = !nvidia-smi\nSFTTrainer?"
    cells = ("!nvidia-smi", "this is no Python", f"%%time\nif True:\n    !ls\n{first}", f"{ipython}\ntrainer ={second}")
    text = build_notebook(*cells).split("\n")
    line = next(number for number, text_line in enumerate(text, 1) if "packing_strateg" in text_line)
    assert list_key_findings(tmp_path, *cells) == [(line, "error", "packing_strateg")]


@pytest.mark.parametrize(
    ("command", "requirements", "expected"),
    [
        ("!pip install -q trl==0.15.2", "trl==1.4.0", {"packing_strateg": "error"}),
        ("%pip install trl==1.4.0", "trl==0.15.2", {"max_seq_length": "error", "packing_strateg": "error"}),
        ("import os", "trl==1.4.0", {"max_seq_length": "warning", "packing_strateg": "warning"}),
        ("!pip install -r requirements.txt", "trl==1.4.0", {"max_seq_length": "error", "packing_strateg": "error"}),
    ],
    ids=["own pin", "own newer pin", "requirements may not be its kernel's", "installed requirements"],
)
def test_the_commands_of_a_notebook_decide_the_release(
    tmp_path: Path, command: str, requirements: str, expected: dict[str, str]
) -> None:
    findings = list_key_findings(tmp_path, command, REFUSED, requirements=requirements)
    assert {name: severity for _, severity, name in findings} == expected


def test_a_notebook_is_not_edited(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    text = build_notebook(REFUSED)
    (tmp_path / "a.ipynb").write_text(text)
    outcome = fix(tmp_path, unsafe=True)
    assert not outcome.sources
    assert (tmp_path / "a.ipynb").read_text() == text


def test_what_is_no_code_of_a_notebook_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text(build_notebook(TRAINS, "!axolotl train a.yaml", kind="markdown"))
    (tmp_path / "b.ipynb").write_text("TrainingArguments axolotl {")
    assert not lint(tmp_path).findings


def test_a_notebook_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text(build_notebook(TRAINS, indent=None))
    assert [finding.code for finding in lint(tmp_path).findings] == ["MEM001"]


def test_lines_that_are_spelled_in_another_way_follow_each_other() -> None:
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in "abcdefgh")
    lines = ", ".join(f'"{escaped}\\n"' for _ in range(20_000))
    text = f'{{"cells": [{{"cell_type": "code", "source": [{lines}]}}]}}'
    begun = process_time()
    source = parse_notebook(text)
    assert source is not None
    assert source.python == "abcdefgh\n" * 20_000
    assert process_time() - begun < 5

"""One cause or remedy in several files: one finding with its places, in the reports that people read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfglint_train.findings.finding import Finding, Remedy
from cfglint_train.reports.folding import MAX_LISTED_PLACES, fold_places
from tests.support.command import run_cfglint
from tests.support.linting import change_directory, lint

RECIPE = """\
base_model: example-lab/Nebula-{size}
datasets: [{{path: d, type: chat_template}}]
sequence_len: 2048
micro_batch_size: 1
gradient_accumulation_steps: 1
trust_remote_code: true
output_dir: out
"""


def write_recipes(folder: Path, *sizes: str) -> None:
    (folder / ".git").mkdir(parents=True)
    for number, size in enumerate(sizes):
        (folder / f"{number}.yaml").write_text(RECIPE.format(size=size), encoding="utf-8")


def test_infos_with_one_remedy_are_one_finding(tmp_path: Path) -> None:
    write_recipes(tmp_path, *["9B"] * 9, "3B")
    result = lint(tmp_path)
    folded = fold_places(result)
    remote = [finding for finding in folded.findings if finding.code == "SEC001"]
    assert [(finding.path, len(finding.others)) for finding in remote] == [("0.yaml", 9)]
    assert len(remote[0].related) == MAX_LISTED_PLACES
    assert remote[0].notes[-1] == "the same in 4 more places"
    # The models differ, but the remedy is the same.
    (unchecked,) = (finding for finding in folded.findings if finding.code == "CHK001")
    assert len(unchecked.others) == 9
    assert {place.message for place in unchecked.related} == {"the same here"}
    assert len(folded.not_checked) == len(result.not_checked) == 10


def test_a_digit_of_a_name_is_no_figure(tmp_path: Path) -> None:
    write_recipes(tmp_path, *["9B"] * 4)
    (first, *_) = (finding for finding in lint(tmp_path).findings if finding.code == "SEC001")

    def fold(*settings: str) -> list[Finding]:
        findings = (
            first._replace(severity="info", fix=Remedy("unsafe", setting, ())) for setting in (*settings, *settings)
        )
        return list(fold_places(lint(tmp_path)._replace(findings=tuple(findings))).findings)

    assert len(fold("remove load_in_4bit", "remove load_in_8bit")) == 4
    (folded,) = fold("micro_batch_size: 4", "micro_batch_size: 8")
    assert [place.message for place in folded.related] == [
        "micro_batch_size: 8",
        "the same here",
        "micro_batch_size: 8",
    ]


def test_findings_of_two_repositories_stay_apart(tmp_path: Path) -> None:
    write_recipes(tmp_path / "a", "9B", "9B", "9B")
    write_recipes(tmp_path / "b", "9B", "9B")
    with change_directory(tmp_path):
        folded = fold_places(lint(tmp_path))
    assert not any(finding.others for finding in folded.findings)


@pytest.mark.parametrize(("output_format", "count"), [("text", 1), ("concise", 4), ("json", 1), ("sarif", 4)])
def test_only_reports_for_people_fold(tmp_path: Path, output_format: str, count: int) -> None:
    write_recipes(tmp_path, "9B", "9B", "9B", "9B")
    outcome = run_cfglint("--select", "SEC001", "--output-format", output_format, ".", cwd=tmp_path)
    if output_format == "json":
        findings = json.loads(outcome.out)["findings"]
        assert [[place["path"] for place in finding["related"]] for finding in findings] == [
            ["1.yaml", "2.yaml", "3.yaml"]
        ]
    elif output_format == "sarif":
        assert len(json.loads(outcome.out)["runs"][0]["results"]) == count
    else:
        assert outcome.out.count(" SEC001 ") == count


PACKED = """\
# cfglint: gpu=H100 gpus-per-node=1 nodes=1 trl=0.24.0
trl sft --model_name_or_path Qwen/Qwen2.5-7B-Instruct --dataset_name d --max_length 16384 --packing \\
  --per_device_train_batch_size {micro} --use_peft --lora_r 16 --bf16 --dtype bfloat16 \\
  --gradient_checkpointing --output_dir out
"""


@pytest.mark.parametrize(
    ("output_format", "micro", "codes"),
    [
        ("text", 4, {"MEM001": "info"}),
        ("json", 4, {"MEM001": "info"}),
        ("text", 1, {"MEM003": "info"}),
    ],
)
def test_infos_that_the_same_edits_settle_are_one_finding(
    tmp_path: Path, output_format: str, micro: int, codes: dict[str, str]
) -> None:
    (tmp_path / "run.sh").write_text(PACKED.format(micro=micro), encoding="utf-8")
    (tmp_path / ".git").mkdir()
    outcome = run_cfglint("--select", "MEM", "--output-format", output_format, ".", cwd=tmp_path)
    if output_format == "json":
        found = {finding["code"]: finding["severity"] for finding in json.loads(outcome.out)["findings"]}
    else:
        heads = (line.split()[1:3] for line in outcome.out.splitlines() if line.startswith("run.sh"))
        found = {code: severity for severity, code in heads}
        assert ("(MEM003)" in outcome.out) is (micro == 4)
    assert found == codes

"""Defaults of several candidate releases: assumed if they differ, certain if shared or of a stated release."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cfglint_train.findings.finding import Finding
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import FieldValue
from cfglint_train.plan.reading import is_equal
from cfglint_train.releases.other_releases import RELEASE
from tests.support.corpus import REPOSITORY
from tests.support.linting import lint, list_runs

# FlashAttention 2 is the default since 0.8.10 (`--attn_implementation`); before, `--flash_attn` enabled it. `--bf16`
# was removed in 0.9.2. Source: cli/train_sft.py of these releases.
OPENRLHF = """\
# cfglint: gpu=V100-32GB{facts}
deepspeed --module openrlhf.cli.train_sft --pretrain meta-llama/Llama-3.1-8B --dataset d --bf16 \\
  --max_len 2048 --train_batch_size 256 --micro_train_batch_size 2 --zero_stage 2{flags}
"""

# `cutoff_len` is 2048 since 0.9.1 and was 1024 (hparams/data_args.py); packs are filled up to it.
LLAMAFACTORY = """\
# cfglint: gpu=H100-80GB nodes=1 gpus-per-node=8{facts}
model_name_or_path: meta-llama/Llama-3.1-8B
stage: sft
do_train: true
finetuning_type: lora
dataset: alpaca
template: llama3
packing: true
{length}output_dir: out
per_device_train_batch_size: 24
gradient_checkpointing: true
bf16: true
"""


def find_kernel_finding(folder: Path, facts: str = "", flags: str = "") -> Finding:
    """Return the finding about the attention kernel."""
    (folder / "run.sh").write_text(OPENRLHF.format(facts=facts, flags=flags))
    (finding,) = (candidate for candidate in lint(folder).findings if "FlashAttention" in candidate.message)
    return finding


def test_a_default_that_candidates_do_not_share_is_assumed(tmp_path: Path) -> None:
    finding = find_kernel_finding(tmp_path)
    assert (finding.severity, finding.certainty) == ("warning", "assumed")
    (ground,) = finding.rests_on
    assert (ground.fact, ground.value, ground.grade) == ("release:openrlhf", "0.9.1.post1", "assumed")
    assert finding.notes == (
        "assumes the default of `--attn_implementation` in openrlhf 0.9.1.post1; 0.8.9.post1 has a different one "
        "(state openrlhf=RELEASE)",
    )
    assert finding.intent is not None
    assert finding.intent.applicability == "unsafe"


@pytest.mark.parametrize(
    ("facts", "flags", "certainty"),
    [
        (" openrlhf=0.9.1.post1", "", "followed"),
        ("", " --attn_implementation flash_attention_2", "stated"),
        ("", " --flash_attn", "stated"),
    ],
)
def test_a_stated_release_or_flag_is_certain(tmp_path: Path, facts: str, flags: str, certainty: str) -> None:
    finding = find_kernel_finding(tmp_path, facts, flags)
    assert finding.severity == "error"
    grades = {ground.fact: ground.grade for ground in finding.rests_on}
    assert grades["activations.attention"] == certainty
    assert finding.intent is not None
    assert finding.intent.applicability == "safe"


def test_a_default_that_all_candidates_share_is_followed(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("openrlhf>=0.8.10\n")
    finding = find_kernel_finding(tmp_path)
    assert (finding.severity, finding.certainty) == ("error", "followed")
    (run,) = list_runs(tmp_path)
    assert len(run.releases.find_candidates("openrlhf").releases) > 1


def test_what_another_default_does_not_change_is_certain(tmp_path: Path) -> None:
    """Leave out the attention kernel: bf16 is stated, and its report does not rest on the kernel."""
    (tmp_path / "run.sh").write_text(OPENRLHF.format(facts="", flags=""))
    (finding,) = (candidate for candidate in lint(tmp_path).findings if "bf16 needs" in candidate.message)
    assert finding.certainty == "followed"
    assert "activations.attention" not in {ground.fact for ground in finding.rests_on}


@pytest.mark.parametrize(
    ("facts", "length", "severity"),
    [
        ("", "", "warning"),
        (" llamafactory=0.9.5", "", "error"),
        ("", "cutoff_len: 2048\n", "error"),
    ],
)
def test_an_estimate_is_asked_again_with_other_defaults(tmp_path: Path, facts: str, length: str, severity: str) -> None:
    (tmp_path / "train.yaml").write_text(LLAMAFACTORY.format(facts=facts, length=length))
    finding = {candidate.code: candidate for candidate in lint(tmp_path).findings}["MEM001"]
    assert finding.severity == severity
    assumed = {ground.fact for ground in finding.rests_on if ground.grade == "assumed"}
    assert assumed == ({"release:llamafactory"} if severity == "warning" else set())


STATED = object()


def get_default(values: Mapping[Field, FieldValue], field: Field) -> Any:
    """Return the default of a field, None if it has none, or STATED."""
    value = values.get(field)
    return None if value is None else value.value if value.origin.kind == "default" else STATED


@pytest.mark.parametrize("folder", ["llamafactory", "olmo", "openrlhf"])
def test_lenses_that_read_no_release_have_the_same_defaults_everywhere(folder: str) -> None:
    """Find the same defaults as by reading the whole config at every candidate release."""
    number = 0
    for run in list_runs(REPOSITORY / "fixtures" / folder):
        found = {(item.fact, item.release): item.defaults for item in run.alternative_defaults}
        for config in run.configs:
            values = frameworks.read_config(config).values
            manifest = frameworks.load(config.framework).manifest
            for package in {manifest.package, manifest.companion_package} & config.releases.by_package.keys():
                seen: list[dict[Field, Any]] = []
                for release in reversed(config.releases.find_candidates(package).releases):
                    other_values = frameworks.read_config(config.replace_release(package, release)).values
                    defaults = {
                        field: default
                        for field in {**values, **other_values}
                        if get_default(run.stated_plan.values, field) is not STATED
                        and is_equal(get_default(values, field), get_default(run.stated_plan.values, field))
                        and (default := get_default(other_values, field)) is not STATED
                        and not is_equal(get_default(values, field), default)
                    }
                    if defaults and defaults not in seen:
                        seen.append(defaults)
                        alternative = found.pop((f"{RELEASE}{package}", release))
                        assert {field: value and value.value for field, value in alternative.items()} == defaults
                        number += 1
        assert not found
    assert number

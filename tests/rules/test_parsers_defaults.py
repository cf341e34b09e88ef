"""Defaults of options that a script declares itself, which are not stated settings (KEY003, KEY005)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.linting import lint

ARGPARSE = """\
import argparse
from trl import GRPOConfig, GRPOTrainer
parser = argparse.ArgumentParser()
parser.add_argument("--ref_model_sync_steps", type=int, default=64)
given = parser.parse_args()
"""
DATACLASS = """\
from dataclasses import dataclass, field
from transformers import HfArgumentParser
from trl import GRPOConfig, GRPOTrainer
@dataclass
class Ours:
    ref_model_sync_steps: int = field(default=64)
(given,) = HfArgumentParser(Ours).parse_args_into_dataclasses()
"""
TRAINS = """\
arguments = GRPOConfig(output_dir="out", ref_model_sync_steps={steps})
GRPOTrainer(model="Qwen/Qwen2.5-0.5B", args=arguments, reward_funcs=[len]).train()
"""


def list_codes(folder: Path, script: str, launch: str = "") -> list[str]:
    (folder / ".git").mkdir()
    (folder / "requirements.txt").write_text("trl==0.19.1\ntransformers==4.53.0\n", encoding="utf-8")
    (folder / "train.py").write_text(script, encoding="utf-8")
    (folder / "run.sh").write_text(f"accelerate launch --num_processes 4 train.py {launch}\n", encoding="utf-8")
    return [finding.code for finding in lint(folder).findings if finding.code in ("KEY003", "KEY005")]


@pytest.mark.parametrize("parser", [ARGPARSE, DATACLASS])
def test_a_default_of_the_parser_is_not_stated(tmp_path: Path, parser: str) -> None:
    assert not list_codes(tmp_path, parser + TRAINS.format(steps="given.ref_model_sync_steps"))


def test_what_the_launch_gives_is_stated(tmp_path: Path) -> None:
    script = ARGPARSE + TRAINS.format(steps="given.ref_model_sync_steps")
    assert list_codes(tmp_path, script, "--ref_model_sync_steps 32") == ["KEY005"]


@pytest.mark.parametrize("parser", [ARGPARSE, DATACLASS])
def test_what_the_script_writes_is_stated(tmp_path: Path, parser: str) -> None:
    assert list_codes(tmp_path, parser + TRAINS.format(steps=64)) == ["KEY005"]

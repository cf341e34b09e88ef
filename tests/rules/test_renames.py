"""Renames by fixes, which never give a key the name of another setting, a used name or a removed name."""

from __future__ import annotations

from itertools import combinations

import pytest

from cfglint_rules.vocabulary.proposals import has_same_words
from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import load
from tests.support.linting import build_options, fix, lint

# Names of one framework that mean the same and exist in one release.
TWINS = {frozenset(("eval_strategy", "evaluation_strategy"))}


@pytest.mark.parametrize(
    ("framework", "entry"),
    [
        ("axolotl", None),
        ("llamafactory", None),
        ("olmo", None),
        ("deepspeed", None),
        ("accelerate", None),
        ("openrlhf", "train_ppo_ray"),
        ("openrlhf", "train_sft"),
    ],
)
def test_no_setting_is_a_slip_of_another(framework: str, entry: str | None) -> None:
    """Use a framework's own settings as the oracle: each differs in meaning from every other."""
    vocabulary = load(framework)
    names = vocabulary.list_names((), vocabulary.newest, Context(entry=entry))
    assert len(names) > 10
    mistaken = [pair for pair in combinations(names, 2) if has_same_words(*pair)]
    assert [pair for pair in mistaken if frozenset(pair) not in TWINS] == []


@pytest.mark.parametrize("framework", ["axolotl", "llamafactory", "olmo"])
def test_a_letter_more_or_less_is_a_slip(framework: str) -> None:
    """Drop, double or swap a letter in the middle of a long word: the words stay the same."""
    vocabulary = load(framework)
    for name in vocabulary.list_names((), vocabulary.newest, Context()):
        words = name.split("_")
        longest = max(words, key=len)
        if len(longest) < 8 or any(letter.isdigit() for letter in longest):
            continue
        middle = len(longest) // 2
        for slip in (
            longest[:middle] + longest[middle + 1 :],
            longest[:middle] + longest[middle] + longest[middle:],
            longest[: middle - 1] + longest[middle] + longest[middle - 1] + longest[middle + 1 :],
        ):
            assert has_same_words(name.replace(longest, slip), name), (name, slip)


@pytest.mark.parametrize(
    ("written", "near", "same"),
    [
        ("lr_warmup_steps", "lr_warmup_ratio", False),
        ("ref_pretrain", "reward_pretrain", False),
        ("batch_size", "eval_batch_size", None),
        ("per_device_train_batch_size", "per_device_eval_batch_size", False),
        ("aio_single_submit", "single_submit", None),
        ("stage2_max_live_parameters", "stage3_max_live_parameters", False),
        ("enable_liger", "disable_liger", False),
        ("gradient_check_pointing", "gradient_checkpointing", None),
        ("gradient_checkpoint_ing", "gradient_checkpointing", None),
        ("loging_steps", "logging_steps", True),
        ("sequence_length", "sequence_len", True),
    ],
)
def test_words(written: str, near: str, same: bool | None) -> None:
    assert has_same_words(written, near) is same


SCRIPT = """\
#!/bin/bash
# cfglint: openrlhf=0.6.0
python3 -m openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-0.5B --dataset data --train_batch_size 8 \\
   --zero_stge 2{more}
"""


@pytest.mark.parametrize(("more", "renamed"), [("", True), (" $EXTRA", False)])
def test_a_rename_is_made_only_where_every_flag_is_in_sight(tmp_path, more: str, renamed: bool) -> None:
    (tmp_path / "run.sh").write_text(SCRIPT.format(more=more))
    fix(tmp_path, build_options(select=["KEY001"]), unsafe=True)
    assert ("--zero_stage 2" in (tmp_path / "run.sh").read_text()) is renamed


AXOLOTL = "base_model: Qwen/Qwen2.5-7B\ndatasets:\n  - path: data\n    type: alpaca\nmicro_batch_size: 1\n"


def test_two_slips_of_one_key_become_it_once(tmp_path) -> None:
    (tmp_path / "run.yaml").write_text(AXOLOTL + "sequence_length: 4096\nmax_seq_length: 2048\n")
    fix(tmp_path, build_options(select=["KEY001"], axolotl="0.16.0"), unsafe=True)
    text = (tmp_path / "run.yaml").read_text()
    assert text.count("sequence_len:") == 1
    assert [finding.code for finding in lint(tmp_path, build_options(select=["SYN003"])).findings] == []

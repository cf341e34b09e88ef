"""GPU types named in paths."""

from __future__ import annotations

import pytest

from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.launches.named_cards import find_oldest_capability, read_path_gpus

NAMED = {
    "sft.axolotl.1xMI300.yaml": {"gpu": "MI300X", "gpus-per-node": 1},
    "119-sft.8x5090.yaml": {"gpu": "RTX 5090", "gpus-per-node": 8},
    "ablations/mi300x-llama3.1-70b.yaml": {"gpu": "MI300X"},
    "runs/h100/sft.yaml": {"gpu": "H100-80GB"},
    "runs/h100/sft-a100_40gb.yaml": {"gpu": "A100-40GB"},
    "finetune_rtx4090.sh": {"gpu": "RTX 4090"},
    "2xPRO6000.sh": {"gpu": "RTX PRO 6000", "gpus-per-node": 2},
    "4xl40s/c.yaml": {"gpu": "L40S", "gpus-per-node": 4},
}


@pytest.mark.parametrize("path", NAMED)
def test_the_nearest_name_counts(path):
    facts = read_path_gpus(path)
    assert {name: fact.value for name, fact in facts.items()} == NAMED[path]
    assert all("to be sure" in fact.origin.assumption for fact in facts.values())


@pytest.mark.parametrize(
    "path",
    [
        "llama3-8b.yaml",
        "lr-2e4.yaml",
        "seed_4090.yaml",  # four digits alone may be any number
        "t4.yaml",
        "v100.yaml",  # sold with 16 and with 32 GB
        "a100-to-h100.yaml",  # ambiguous
        "2xK520.sh",  # not in the table
        "bs128-len4096.yaml",
    ],
)
def test_what_names_no_one_card_says_nothing(path):
    assert read_path_gpus(path) == {}


def test_no_gpus_at_all_is_no_number_of_them():
    assert read_path_gpus("0xh200.yaml").keys() == {"gpu"}


@pytest.mark.parametrize(
    ("comment", "capability"),
    [
        ("disable for CPU", (0, 0)),
        ("runs on CPU only", (0, 0)),
        ("use CPU offload for the optimizer", None),
        ("fits on a V100", (7, 0)),
    ],
)
def test_comments_name_the_oldest_gpu(comment, capability):
    assert find_oldest_capability([YamlDocument("a.yaml", f"bf16: true  # {comment}\n".encode())]) == capability

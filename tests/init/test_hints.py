"""Hints about hardware in job descriptions."""

from __future__ import annotations

import pytest

from cfglint_train.front.init.hints import find_hints
from cfglint_train.plan.origin import FieldValue, Origin
from cfglint_train.settings.cluster_facts import check
from tests.support.cases import for_each

SLURM = "#!/bin/bash\n{}\nsrun python train.py\n"
SKY = "resources:\n  {}\nrun: |\n  llamafactory-cli train a.yaml\n"
POD = "apiVersion: v1\nkind: Pod\nspec:\n  nodeSelector:\n    {}\n"
MODAL = "import modal\n\n@app.function({}, timeout=10)\ndef train(): ...\n"


def list_hints(text: str, syntax: str) -> list[tuple[str, str]]:
    return [(hint.fact, hint.value) for hint in find_hints("x", text, syntax)]


@for_each(
    ("line", "expected"),
    [
        ("#SBATCH --gres=gpu:h100:8", [("gpu", "H100-80GB"), ("gpus-per-node", "8")]),
        ("#SBATCH --gres gpu:4", [("gpus-per-node", "4")]),
        ("#SBATCH --gpus-per-node=h200:8", [("gpu", "H200"), ("gpus-per-node", "8")]),
        ("#SBATCH -G h100:16", [("gpu", "H100-80GB")]),
        ("#SBATCH --gpus=16", []),
        ('#SBATCH --constraint="a100_80gb&ib"', [("gpu", "A100-80GB")]),
        ("#SBATCH -C highmem", []),
        ("#SBATCH --nodes=4", [("nodes", "4")]),
        ("#SBATCH -N 2", [("nodes", "2")]),
        ("#SBATCH --nodes=2-4", []),
        ("#SBATCH --mem=480G", [("host-memory", "480GiB")]),
        ("#SBATCH --mem=512000", [("host-memory", "512000MiB")]),
        ("#SBATCH --mem=0", []),
        ("#SBATCH --mem-per-cpu=4G", []),
        ("##SBATCH --nodes=4", []),
        ("# srun --nodes=4", []),
        ("#SBATCH --gres=gpu:voodoo2:8", [("gpus-per-node", "8")]),
        ("salloc --nodes=3 --mem=1T bash", [("nodes", "3"), ("host-memory", "1TiB")]),
    ],
)
def test_slurm(line, expected):
    assert list_hints(SLURM.format(line), "shell") == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("accelerators: H100:8", [("gpu", "H100-80GB"), ("gpus-per-node", "8")]),
        ("accelerators: {A100-80GB: 4}", [("gpu", "A100-80GB"), ("gpus-per-node", "4")]),
        ('accelerators: "L40S:1"  # cheap', [("gpu", "L40S"), ("gpus-per-node", "1")]),
        ("accelerators: T4", [("gpu", "T4")]),
        ("accelerators: [H100:8, H200:8]", []),
    ],
)
def test_skypilot(line, expected):
    assert list_hints(SKY.format(line), "yaml") == expected
    assert list_hints("num_nodes: 2\n" + SKY.format(line), "yaml") == [("nodes", "2"), *expected]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3", [("gpu", "H100-80GB")]),
        ('"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"', [("gpu", "A100-40GB")]),
        ("cloud.google.com/gke-accelerator: nvidia-h100-80gb", [("gpu", "H100-80GB")]),
        ("nvidia.com/gpu: 8", [("gpus-per-node", "8")]),
        ('amd.com/gpu: "8"', [("gpus-per-node", "8")]),
        ("nvidia.com/gpu: 0", []),
    ],
)
def test_kubernetes(line, expected):
    assert list_hints(POD.format(line), "yaml") == expected


def test_modal():
    assert list_hints(MODAL.format('gpu="H100:8"'), "python") == [("gpu", "H100-80GB"), ("gpus-per-node", "8")]
    assert list_hints(MODAL.format("gpu='H200!'"), "python") == [("gpu", "H200")]
    assert list_hints(MODAL.format('gpu="H100:8"').replace("import modal", "import other"), "python") == []


@pytest.mark.parametrize(
    ("words", "or_else"),
    [("a100", "A100-40GB"), ("A100", "A100-40GB"), ("a100_80gb", None), ("A100-SXM4-80GB", None), ("h100", None)],
)
def test_a_name_that_may_mean_a_smaller_card_says_so(words, or_else):
    (hint, _) = find_hints("x", SLURM.format(f"#SBATCH --gres=gpu:{words}:8"), "shell")
    assert hint.alternative == or_else


def test_every_hint_is_a_fact_that_settings_take():
    text = SLURM.format("#SBATCH --nodes=4\n#SBATCH --gres=gpu:h100:8\n#SBATCH --mem=480G\n#SBATCH --mem=7000")
    found_hints = list(find_hints("x", text, "shell"))
    assert len(found_hints) == 5
    for hint in found_hints:
        check(hint.fact, FieldValue(hint.value, Origin("user")))


def test_other_files_say_nothing():
    assert list_hints("accelerators: H100:8\nnvidia.com/gpu: 8\n", "yaml") == []
    assert list_hints("echo --nodes=4\n", "shell") == []
    assert list_hints(SLURM.format("#SBATCH --nodes=" + "9" * 5000), "shell") == []

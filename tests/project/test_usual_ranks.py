"""The GPUs per node of a run whose launch is out of sight: those of the repository's other launches, else eight."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.configs import AXOLOTL
from tests.support.linting import lint

LAUNCH = "torchrun --nproc_per_node {0} other.py\n"
# Scripts -> the processes per GPU that are assumed, and why.
SCRIPTS = {
    "they agree": ({"a.sh": LAUNCH.format(1), "b/c.sh": "accelerate launch --num_processes=1 x.py\n"}, None),
    "an evaluation": ({"a.sh": LAUNCH.format(1), "b.sh": LAUNCH.format(1), "run_eval.sh": LAUNCH.format(4)}, None),
    "a comment": (
        {"a.sh": LAUNCH.format(1), "c.sh": LAUNCH.format(1), "b.sh": f"# {LAUNCH.format(4)}python x.py\n"},
        None,
    ),
    "none": ({"a.sh": "python other.py\n"}, "8 GPUs per node; set `gpus-per-node`"),
    "they differ": ({"a.sh": LAUNCH.format(1), "b.sh": LAUNCH.format(4)}, "8 GPUs per node; set `gpus-per-node`"),
    "a variable": ({"a.sh": LAUNCH.format(1), "b.sh": LAUNCH.format("$N")}, "8 GPUs per node; set `gpus-per-node`"),
    "one script": ({"a.sh": LAUNCH.format(1)}, "8 GPUs per node; set `gpus-per-node`"),
    "of several nodes": (
        {
            "a.sbatch": "#SBATCH --nodes=2\naccelerate launch --num_processes 4 x.py\n",
            "b.sbatch": "#SBATCH -N 2\naccelerate launch --num_processes 4 x.py\n",
            "c.sh": "accelerate launch --config_file two.yaml --num_processes 4 x.py\n",
        },
        "8 GPUs per node; set `gpus-per-node`",
    ),
    "of one node": (
        {"a.sbatch": f"#SBATCH --nodes=1\n{LAUNCH.format(2)}", "b.sbatch": f"#SBATCH -N 1\n{LAUNCH.format(2)}"},
        "2 GPUs per node, as 2 launch scripts of the repository state; set `gpus-per-node`",
    ),
    "of two": (
        {"a.sh": LAUNCH.format(2), "b.sh": LAUNCH.format(2)},
        "2 GPUs per node, as 2 launch scripts of the repository state; set `gpus-per-node`",
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_number_that_all_scripts_state_is_assumed(tmp_path: Path, name: str) -> None:
    scripts, expected = SCRIPTS[name]
    (tmp_path / ".git").mkdir()
    (tmp_path / "config.yaml").write_text(AXOLOTL + "dataloader_num_workers: 200\n", encoding="utf-8")
    for path, text in scripts.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    found = [one for one in lint(tmp_path).findings if one.code == "HST002"]
    if expected is None:
        assert all("200 processes" in one.message for one in found)
    else:
        assert [one.certainty for one in found] == ["assumed"]
        assert any(expected in note for note in found[0].notes)

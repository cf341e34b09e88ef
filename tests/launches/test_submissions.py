"""Job scripts that other scripts submit: options of `sbatch` override the directives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.configs import AXOLOTL
from tests.support.linting import list_runs

JOB = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --mem=400G
srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 -m axolotl.cli.train configs/run.yaml
"""
COMMAND = """\
#!/bin/bash
#SBATCH -N 2
srun llamafactory-cli train --stage sft --do_train --model_name_or_path Qwen/Qwen2.5-0.5B --dataset x --output_dir out
"""


def read_cluster(root: Path, files: dict[str, str]) -> tuple[object, ...]:
    (root / ".git").mkdir(exist_ok=True)
    for name, text in {"configs/run.yaml": AXOLOTL, "jobs/train.sbatch": JOB, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    [run] = list_runs(root)
    origin = run.get_origin("launch.nodes")
    assert origin is not None
    return run.cluster, None if origin.kind == "assumed" else origin.note


@pytest.mark.parametrize(
    ("command", "cluster", "said_in"),
    [
        ("sbatch jobs/train.sbatch", (2, 8), "train.sbatch"),
        ("sbatch --nodes=4 jobs/train.sbatch", (4, 8), "submit.sh"),
        ("sbatch -N 4 jobs/train.sbatch", (4, 8), "submit.sh"),
        ("sbatch -N4 --wait ./jobs/train.sbatch more words", (4, 8), "submit.sh"),
        ("N=3\nsbatch --parsable -N $N jobs/train.sbatch", (3, 8), "submit.sh"),
        ("cd jobs && sbatch --nodes 4 train.sbatch", (4, 8), "submit.sh"),
        ("id=$(sbatch --nodes 4 jobs/train.sbatch)", (4, 8), "submit.sh"),
        ("sbatch -N $1 jobs/train.sbatch", (None, 8), "train.sbatch"),
        ("sbatch --nodes=4 jobs/other.sbatch", (2, 8), "train.sbatch"),
        ("squeue --nodes=4 jobs/train.sbatch", (2, 8), "train.sbatch"),
        ("echo sbatch --nodes=4 jobs/train.sbatch", (2, 8), "train.sbatch"),
    ],
)
def test_options_of_the_submission_override_the_directives(tmp_path, command, cluster, said_in):
    assert read_cluster(tmp_path, {"submit.sh": f"#!/bin/bash\n{command}\n"}) == (cluster, said_in)


INNER = "torchrun --nnodes=$SLURM_NNODES --nproc_per_node=4 -m axolotl.cli.train configs/run.yaml\n"
OUTER = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n"


@pytest.mark.parametrize(
    ("outer", "inner", "submit", "cluster", "said_in"),
    [
        (f"{OUTER}srun bash jobs/inner.sh\n", INNER, "", (2, 4), "outer.slurm"),
        (f"{OUTER}srun --nodes=1 bash jobs/inner.sh\n", INNER, "", (1, 4), "outer.slurm"),
        (
            f"{OUTER}bash jobs/inner.sh\n",
            INNER.replace("--nnodes=$SLURM_NNODES ", "--nnodes=3 "),
            "",
            (3, 4),
            "inner.sh",
        ),
        (f"{OUTER}srun bash jobs/inner.sh\n", INNER, "sbatch -N 6 jobs/outer.slurm\n", (6, 4), "submit.sh"),
        (f"{OUTER}srun bash jobs/middle.sh\n", INNER, "", (2, 4), "outer.slurm"),
        ("srun -N 5 --gpus-per-node=4 bash jobs/inner.sh\n", INNER, "", (5, 4), "outer.slurm"),
        (f"{OUTER}srun bash jobs/other.sh\n", INNER, "", (None, 4), "inner.sh"),
    ],
)
def test_a_script_that_a_job_starts_has_the_nodes_of_the_job(tmp_path, outer, inner, submit, cluster, said_in):
    files = {"jobs/outer.slurm": outer, "jobs/inner.sh": inner, "submit.sh": submit, "jobs/train.sbatch": ""}
    files["jobs/middle.sh"] = "bash jobs/inner.sh\n"
    assert read_cluster(tmp_path, files) == (cluster, said_in)


def test_what_the_submission_leaves_open_is_unknown_whatever_the_directive_says(tmp_path):
    job = JOB.replace(" --nnodes=$SLURM_NNODES", "").replace("srun torchrun", "srun python")
    cluster = read_cluster(tmp_path, {"submit.sh": "sbatch -N $1 jobs/train.sbatch\n", "jobs/train.sbatch": job})
    assert cluster == ((None, 8), "submit.sh")


def test_what_the_programs_of_the_job_say_counts_more(tmp_path):
    job = JOB.replace("$SLURM_NNODES", "1")
    assert read_cluster(tmp_path, {"submit.sh": "sbatch -N 4 jobs/train.sbatch\n", "jobs/train.sbatch": job})[0] == (
        1,
        8,
    )


def test_submissions_that_differ_leave_it_unknown(tmp_path):
    small, large = "sbatch -N 2 jobs/train.sbatch\n", "sbatch -N 8 jobs/train.sbatch\n"
    assert read_cluster(tmp_path, {"submit.sh": small + large})[0] == (None, 8)
    assert read_cluster(tmp_path, {"submit.sh": small, "big.sh": large})[0] == (None, 8)
    assert read_cluster(tmp_path, {"submit.sh": large, "big.sh": large})[0] == (8, 8)


def test_the_memory_of_the_submission(tmp_path):
    read_cluster(tmp_path, {"submit.sh": "sbatch --mem=1800G jobs/train.sbatch\n"})
    [run] = list_runs(tmp_path)
    assert run.hardware.get_capacity("host") == 1800 * 2**30


def test_a_submission_that_hands_the_file_on(tmp_path):
    job = JOB.replace("configs/run.yaml", '"$1"')
    files = {"submit.sh": "sbatch --nodes=4 jobs/train.sbatch configs/run.yaml\n", "jobs/train.sbatch": job}
    assert read_cluster(tmp_path, files)[0][0] == 4


def test_a_job_that_is_the_configuration_itself(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "job.sbatch").write_text(COMMAND)
    [run] = list_runs(tmp_path)
    assert run.plan.launch.nodes == 2
    (tmp_path / "submit.sh").write_text("sbatch --nodes=6 job.sbatch\n")
    [run] = list_runs(tmp_path)
    assert run.plan.launch.nodes == 6


HANDED = """\
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gres=gpu:8
#SBATCH --mem=400G
export NCCL_DEBUG=INFO
srun {} "$1"
"""


@pytest.mark.parametrize(
    ("command", "program", "cluster"),
    [
        ("sbatch jobs/train.sbatch configs/run.yaml", "axolotl train", (4, 8)),
        ("sbatch -N 2 jobs/train.sbatch configs/run.yaml", "axolotl train", (2, 8)),
        ("sbatch -N $N jobs/train.sbatch configs/run.yaml", "axolotl train", (None, 8)),
        ("sbatch jobs/other.sbatch configs/run.yaml", "axolotl train", (None, None)),
        ("bash jobs/train.sbatch configs/run.yaml", "axolotl train", (None, None)),
        ("sbatch jobs/train.sbatch configs/run.yaml", "torchrun --nnodes=2 --nproc_per_node=8 train.py", (None, 8)),
    ],
)
def test_directives_of_a_job_that_the_file_is_handed_to(tmp_path, command, program, cluster):
    files = {"submit.sh": f"#!/bin/bash\n{command}\n", "jobs/train.sbatch": HANDED.format(program)}
    assert read_cluster(tmp_path, files)[0] == cluster


FLAGS = "--pretrain Qwen/Qwen2.5-0.5B --dataset d --prompt_data d --bf16 --zero_stage 3 --micro_train_batch_size 1"


@pytest.mark.parametrize(("entry", "nodes"), [("train_sft", 6), ("train_ppo_ray", 1)])
def test_a_job_of_openrlhf(tmp_path, entry, nodes):
    """Read the nodes of each model from the flags, because Ray's jobs state them."""
    (tmp_path / ".git").mkdir()
    command = f"srun python -m openrlhf.cli.{entry} {FLAGS}"
    (tmp_path / "job.sbatch").write_text(f"#SBATCH -N 2\n#SBATCH --gres=gpu:8\n{command}\n")
    (tmp_path / "submit.sh").write_text("sbatch --nodes 6 job.sbatch\n")
    [run] = list_runs(tmp_path)
    assert run.plan.launch.nodes == nodes

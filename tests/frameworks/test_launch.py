"""Facts about a job in launcher commands, for scripts that start any framework."""

from __future__ import annotations

import pytest

from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.frameworks.launch_reading import LaunchFacts
from cfglint_train.frameworks.launchers import read_launch
from tests.support.cases import for_each
from tests.support.corpus import REPOSITORY


def read_facts(source: str | bytes, program: str = "train.py") -> LaunchFacts:
    document = ShellDocument("x.sh", source.encode() if isinstance(source, str) else source)
    return read_launch(
        document, next(invocation for invocation in document.invocations if invocation.program == program)
    )


def read_cluster(source: str, program: str = "train.py") -> tuple[object, ...]:
    facts = read_facts(source, program)
    return tuple(None if fact is None else fact.value for fact in (facts.launcher, facts.nodes, facts.gpus_per_node))


@for_each(
    ("source", "expected"),
    [
        ("torchrun --nnodes 4 --nproc_per_node 8 train.py cfg.yaml", ("torchrun", 4, 8)),
        ("torchrun --nnodes=2:2 --nproc-per-node=4 train.py", ("torchrun", 2, 4)),
        ("torchrun --nnodes=1:4 --nproc_per_node=gpu train.py", ("torchrun", None, None)),
        ("torchrun train.py", ("torchrun", 1, 1)),
        ("torchrun $ARGS --nproc_per_node 8 train.py", ("torchrun", None, 8)),
        ("G=8\ntorchrun --nproc_per_node $G train.py", ("torchrun", 1, 8)),
        ("torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 train.py", ("torchrun", None, 8)),
        ("#SBATCH -N 4\nsrun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 train.py", ("torchrun", 4, 8)),
        ("PET_NNODES=2 torchrun --nproc_per_node 8 train.py", ("torchrun", 2, 8)),
        ("python3 -m torch.distributed.run --standalone --nproc-per-node=2 train.py", ("torchrun", 1, 2)),
        ("accelerate launch --num_machines 2 --num_processes 16 train.py", ("accelerate", 2, 8)),
        ("accelerate launch --num_processes 4 train.py", ("accelerate", 1, 4)),
        ("accelerate launch --config_file a.yaml --num_processes 4 train.py", ("accelerate", None, None)),
        ("accelerate launch --num_machines 3 --num_processes 16 train.py", ("accelerate", 3, None)),
        ("deepspeed --num_nodes 2 --num_gpus 8 train.py --deepspeed ds.json", ("deepspeed", 2, 8)),
        ("deepspeed --include localhost:0,1,3 train.py", ("deepspeed", 1, 3)),
        ("deepspeed --include a:0,1@b:0,1 train.py", ("deepspeed", 2, 2)),
        ("deepspeed --include a@b:0,1 train.py", ("deepspeed", 2, None)),
        ("deepspeed --hostfile hosts train.py", ("deepspeed", None, None)),
        ("CUDA_VISIBLE_DEVICES=0,1 deepspeed train.py", ("deepspeed", None, 2)),
        ("export CUDA_VISIBLE_DEVICES=0,1\ntorchrun --nproc_per_node 4 train.py", ("torchrun", 1, 4)),
        ("mpirun -np 16 --npernode 8 python train.py", ("mpirun", 2, 8)),
        ("mpirun -np 16 python train.py", ("mpirun", None, None)),
        ("srun -N 2 --ntasks-per-node=8 python train.py", ("srun", 2, 8)),
        ("srun --nodes=2 --gres=gpu:a100:4 python train.py", ("srun", 2, 4)),
        ("#SBATCH --gpus=16\n#SBATCH --nodes=2\npython train.py", ("python", 2, 8)),
        ("#SBATCH --gres=gpu:8   # all of them\nsrun -N 1 python train.py", ("srun", 1, 8)),
        ("#SBATCH --gres=gpu:8\nCUDA_VISIBLE_DEVICES=0,1 deepspeed train.py", ("deepspeed", None, 2)),
        ("python train.py", ("python", None, None)),
        ("./train.py", (None, None, None)),
    ],
)  # fmt: skip
def test_launchers(source, expected):
    program = "train.py" if "./" not in source else "./train.py"
    assert read_cluster(source, program) == expected


@pytest.mark.parametrize(
    ("source", "program", "expected"),
    [
        ("NNODES=4 NPROC_PER_NODE=8 llamafactory-cli train a.yaml", "llamafactory-cli", ("llamafactory-cli", 4, 8)),
        ("export NNODES=4\nllamafactory-cli train a.yaml", "llamafactory-cli", ("llamafactory-cli", 4, None)),
        ("export NNODES=4\npython train.py", "train.py", ("python", None, None)),
        ("axolotl train a.yml --launcher torchrun -- --nproc_per_node=8 --nnodes 2", "axolotl", ("axolotl", 2, 8)),
        ("axolotl train a.yml -- --num-processes 16 --num_machines 2", "axolotl", ("axolotl", 2, 8)),
        ("axolotl train a.yml", "axolotl", ("axolotl", None, None)),
        ("srun -N 1 ray job submit -- python -m pkg.train", "pkg.train", ("ray", None, None)),
    ],
)  # fmt: skip
def test_frameworks_with_launchers_of_their_own(source, program, expected):
    assert read_cluster(source, program) == expected


@pytest.mark.parametrize(
    ("stated", "expected"),
    [("480G", "480GiB"), ("512000", "512000MiB"), ("1T", "1TiB"), ("64000M", "64000MiB"), ("0", None), ("$M", None)],
)
def test_host_memory_is_slurms(stated, expected):
    memory = read_facts(f"#SBATCH --mem={stated}\nsrun python train.py").host_memory
    assert (None if memory is None else memory.value) == expected


def test_facts_say_where_they_stand():
    source = "#SBATCH -N 4\nsrun torchrun --nnodes $N --nproc_per_node 8 train.py\n"
    facts = read_facts(source)
    nodes, gpus = facts.nodes, facts.gpus_per_node
    assert (nodes.origin.kind, nodes.origin.place.document.get_text(nodes.origin.place.span)) == ("explicit", "-N 4")
    assert gpus.origin.place.document.get_text(gpus.origin.place.span) == "--nproc_per_node 8"
    assert read_facts("torchrun train.py").nodes.origin.kind == "default"


def test_a_script_of_every_launcher():
    source = (REPOSITORY / "fixtures" / "openrlhf" / "launchers.sh").read_bytes()
    document = ShellDocument("launchers.sh", source)
    facts_by_program = {}
    for invocation in document.invocations:
        if invocation.program in ("scripts/train.py", "axolotl.cli.train", "axolotl", "llamafactory-cli"):
            facts = read_launch(document, invocation)
            facts_by_program[invocation.program] = (facts.launcher.value, facts.nodes.value, facts.gpus_per_node.value)
    assert facts_by_program == {
        "scripts/train.py": ("torchrun", 4, 8),
        "axolotl.cli.train": ("accelerate", 4, 4),  # CUDA_VISIBLE_DEVICES
        "axolotl": ("axolotl", 2, 8),
        "llamafactory-cli": ("llamafactory-cli", 4, 8),
    }
    assert facts.host_memory.value == "1TiB"
    assert facts.environment["NNODES"] == "4"


@pytest.mark.parametrize(
    ("options", "card"),
    [
        ("--gres=gpu:h200:8", "H200"),
        ("--gpus-per-node=h100:4", "H100-80GB"),
        ("--gpus=L40S:16", "L40S"),
        ("--gres=gpu:a100:8", "A100"),  # 40 GB or 80 GB
        ("--gres=gpu:a100_80gb:8", "A100-80GB"),
        ("--gres=gpu:8", None),
        ("--gres=gpu:volta:8", None),
        ("--gres=gpu:h200:4,gpu:l40s:4", None),
        ("--gres=gpu:$CARD:8", None),
    ],
)
def test_the_card_that_a_batch_job_asks_for(options: str, card: str | None) -> None:
    gpu = read_facts(f"#SBATCH {options}\npython train.py").gpu
    assert (None if gpu is None else gpu.value) == card

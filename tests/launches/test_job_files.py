"""GPUs requested in files of schedulers and clouds."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfglint_train.runs.assumptions import list_assumptions
from tests.support.configs import AXOLOTL
from tests.support.linting import list_runs

SKY = "resources:\n  accelerators: {}\nnum_nodes: 2\nrun: |\n  axolotl train configs/a.yaml\n"
DSTACK = "type: task\nnodes: 2\ncommands:\n  - axolotl train configs/a.yaml\nresources:\n  gpu: {}\n"
KUBERNETES = """\
spec:
  nodeSelector:
    nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3
  containers:
    - command: [axolotl, train, configs/a.yaml]
      resources:
        limits:
          nvidia.com/gpu: "4"
"""
BRACES = """\
spec:
  nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3, zone: a}
  containers:
    - command: [axolotl, train, configs/a.yaml]
      resources: {limits: {nvidia.com/gpu: 4, memory: 1Ti}}  # all
"""
MODAL = """\
import modal

GPU = "A100-40GB:2"


@app.function(gpu={})
def train():
    run("axolotl train configs/a.yaml")


@app.function(gpu="L4")
def serve():
    run("vllm")
"""
FILES = {
    "SkyPilot": ("sky.yaml", SKY.format("A100-80GB:4"), ("A100-80GB", 4, 2), "sky.yaml:2"),
    "SkyPilot, a mapping": ("sky.yaml", SKY.format("{H100: 8}  # big"), ("H100-80GB", 8, 2), "sky.yaml:2"),
    "SkyPilot, one": ("sky.yaml", SKY.format("L4"), ("L4", 1, 2), "sky.yaml:2"),
    "SkyPilot, of two sizes": ("sky.yaml", SKY.format("A100:8"), ("A100-80GB", 8, 2), "sky.yaml:2"),
    "dstack": ("deploy/.dstack.yml", DSTACK.format("H100:8"), ("H100-80GB", 8, 2), ".dstack.yml:6"),
    "dstack with a size": (".dstack.yml", DSTACK.format("A100:40GB:8"), ("A100-40GB", 8, 2), ".dstack.yml:6"),
    "Kubernetes": ("k8s/job.yaml", KUBERNETES, ("H100-80GB", 4, None), "job.yaml:3"),
    "Kubernetes, in braces": ("k8s/job.yaml", BRACES, ("H100-80GB", 4, None), "job.yaml:2"),
    "Modal": ("app.py", MODAL.format('"H100:8"'), ("H100-80GB", 8, None), "app.py:6"),
    "Modal's constant": ("app.py", MODAL.format("GPU"), ("A100-40GB", 2, None), "app.py:6"),
    "Modal's classes": (
        "app.py",
        MODAL.format('modal.gpu.A100(size="40GB", count=2)'),
        ("A100-40GB", 2, None),
        "app.py:6",
    ),
}


def write_repository(folder: Path, **files: str) -> Path:
    (folder / ".git").mkdir(parents=True)
    for name, text in {"configs/a.yaml": AXOLOTL, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def read_requested_cluster(folder: Path) -> tuple[str | None, int | None, int | None]:
    """Return the GPU type, the GPUs per node and the nodes that some file requests."""
    [run] = [run for run in list_runs(folder) if run.main.document.path == "configs/a.yaml"]
    is_requested = "requests" in run.hardware.gpu_origin.note
    counts = (("launch.gpus_per_node", run.plan.launch.gpus_per_node), ("launch.nodes", run.plan.launch.nodes))
    origins = {field: run.get_origin(field) for field, _ in counts}
    requested_counts = [
        value if (origin := origins[field]) and "requests" in origin.assumption else None for field, value in counts
    ]
    return run.hardware.gpu if is_requested else None, requested_counts[0], requested_counts[1]


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_names_the_configuration_says_on_what_it_runs(tmp_path: Path, name: str) -> None:
    path, text, expected, place = FILES[name]
    folder = write_repository(tmp_path / "x", **{path: text})
    assert read_requested_cluster(folder) == expected
    [run] = list_runs(folder)
    notes = [ground.note for ground in list_assumptions(run) if ground.fact == "gpu"]
    assert len(notes) == 1
    assert f"as {place} requests" in notes[0]


NOTHING = {
    "another configuration": {"sky.yaml": SKY.format("H100:8").replace("a.yaml", "b.yaml")},
    "part of a name": {"sky.yaml": SKY.format("H100:8").replace("a.yaml", "lora.yaml")},
    "two that differ": {"a/sky.yaml": SKY.format("H100:8"), "b/sky.yaml": SKY.format("A100:8")},
    "a choice": {"sky.yaml": SKY.format("[H100:8, A100:8]").replace("num_nodes: 2\n", "")},
    "a range": {".dstack.yml": DSTACK.format("1..8").replace("nodes: 2\n", "")},
    "no card": {"sky.yaml": SKY.format("tpu-v5e-8").replace("num_nodes: 2\n", "")},
    "a function that does not train": {"app.py": MODAL.format("None").replace("train", "infer")},
    "an argument": {"app.py": MODAL.format("gpu_of(x)")},
    "broken": {"app.py": MODAL.format('"H100:8"(')},
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_asks_for_nothing(tmp_path: Path, name: str) -> None:
    assert read_requested_cluster(write_repository(tmp_path / "x", **NOTHING[name])) == (None, None, None)


def test_the_nearest_file_counts_and_a_launch_above_it(tmp_path: Path) -> None:
    files = {"sky.yaml": SKY.format("A100:8"), "configs/sky.yaml": SKY.format("H100:4")}
    folder = write_repository(tmp_path / "x", **files)
    assert read_requested_cluster(folder) == ("H100-80GB", 4, 2)
    (folder / "run.sh").write_text(
        "axolotl train configs/a.yaml --launcher torchrun -- --nproc_per_node 2 --nnodes 1\n"
    )
    assert read_requested_cluster(folder) == ("H100-80GB", None, None)

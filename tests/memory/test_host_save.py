"""Host memory of saving and resuming, compared with real runs of two ranks on this machine: within 10 %.

Needs torch and deepspeed, in this Python or in the one that CFGLINT_ORACLE_PYTHON names; skipped otherwise.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cfglint_train.memory.resume import estimate_resume
from cfglint_train.memory.save import estimate_save
from cfglint_train.memory.setup_builder import read_setup
from cfglint_train.memory.states import compute_states
from tests.memory.jobs import make_plan, make_states_only, make_zero
from tests.memory.test_engine import PYTHON, is_available

PROGRAM = Path(__file__).parents[1] / "oracles" / "host_save.py"
PARAMETERS = 64 * 1536 * 1536

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(sys.platform != "linux", reason="the high-water mark is read from /proc"),
]


@functools.cache
def run_oracle(kind: str) -> dict[int, float]:
    """Run the oracle and return the bytes per parameter by which each rank's memory grew."""
    if not is_available():
        pytest.skip("needs torch and deepspeed")
    out = subprocess.run([PYTHON, str(PROGRAM), kind], capture_output=True, text=True, timeout=300, check=False)
    rows = [json.loads(line.removeprefix("RESULT ")) for line in out.stdout.splitlines() if line.startswith("RESULT ")]
    assert rows, out.stderr[-2000:]
    return {row["rank"]: row["per_parameter"] for row in rows}


def estimate_saving(fields: Any) -> dict[str, float]:
    """Estimate the bytes per parameter on the node of two ranks."""
    chosen = fields.replace({"checkpoint.strategy": "steps", "checkpoint.model_only": True})
    setup, reader = read_setup(chosen, make_states_only(PARAMETERS))
    assert setup is not None, reader.missing
    saved = estimate_save(setup, chosen)
    assert saved is not None
    return {name: size / PARAMETERS for name, size in saved.host.items() if size}


@pytest.mark.oracle
def test_stage_2_clones_on_every_rank() -> None:
    assert sum(estimate_saving(make_zero(2, 2)).values()) == pytest.approx(sum(run_oracle("zero2").values()), rel=0.1)


@pytest.mark.oracle
def test_stage_3_gathers_on_rank_0() -> None:
    assert sum(estimate_saving(make_zero(3, 2, checkpoint__gather=True)).values()) == pytest.approx(
        run_oracle("zero3")[0], rel=0.1
    )
    assert run_oracle("zero3")[1] < 0.1


@pytest.mark.oracle
def test_fsdp2_gathers_on_rank_0() -> None:
    formats = {f"precision__{name}": "fp32" for name in ("params", "grads", "compute")}
    fields = make_plan(
        parallel__strategy="fsdp2", launch__nodes=1, launch__gpus_per_node=2, checkpoint__state_dict="full", **formats
    )
    assert sum(estimate_saving(fields).values()) == pytest.approx(run_oracle("fsdp2")[0], rel=0.1)
    assert run_oracle("fsdp2")[1] < 0.2


def estimate_resuming(fields: Any) -> float:
    """Estimate the bytes per parameter on the node."""
    chosen = fields.replace({"checkpoint.resume_latest": True})
    setup, reader = read_setup(chosen, make_states_only(PARAMETERS))
    assert setup is not None, reader.missing
    loaded = estimate_resume(setup, chosen)
    assert loaded is not None
    return sum(loaded.host.values()) / PARAMETERS


@pytest.mark.oracle
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_every_rank_reads_its_shards_again(stage: int) -> None:
    assert estimate_resuming(make_zero(stage, 2)) == pytest.approx(sum(run_oracle(f"resume{stage}").values()), rel=0.1)


@pytest.mark.oracle
def test_the_states_of_one_gpu_come_over_the_host() -> None:
    formats = {f"precision__{name}": "fp32" for name in ("params", "grads", "compute")}
    assert estimate_resuming(make_plan(launch__nodes=1, launch__gpus_per_node=1, **formats)) == pytest.approx(
        run_oracle("states")[0], rel=0.1
    )


@pytest.mark.oracle
def test_a_file_of_host_tensors_needs_no_copy() -> None:
    """Write host tensors without a copy in Safetensors 0.8.

    Tensors on a GPU are first copied whole to the host (torch.py, _to_ndarray).
    """
    assert run_oracle("file")[0] < 0.05


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("kind", "strategy", "reduced"),
    [("deferred1", "fsdp1", "bf16"), ("deferred2", "fsdp2", "bf16"), ("deferred2-fp32", "fsdp2", "fp32")],
)
def test_deferred_reduction_keeps_whole_gradients(kind: str, strategy: str, reduced: str) -> None:
    """Follow torch 2.13's FSDP under `no_sync`; the run also holds a gathered layer, one of 64."""
    fields = make_plan(
        parallel__strategy=strategy, launch__nodes=1, launch__gpus_per_node=2, batch__accumulation=2,
        precision__params="fp32", precision__grads="fp32", parallel__communication=reduced,
        parallel__defers_reduction=True,
    )  # fmt: skip
    setup, reader = read_setup(fields, make_states_only(PARAMETERS))
    assert setup is not None, reader.missing
    for rank in (0, 1):
        assert compute_states(setup).accumulated / PARAMETERS == pytest.approx(run_oracle(kind)[rank], rel=0.1)

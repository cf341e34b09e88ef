"""DeepSpeed's own engine, on a CPU with a fake process group, compared with the model: bytes per parameter of one rank.

Needs torch and deepspeed, in this Python or in the one that CFGLINT_ORACLE_PYTHON names; skipped otherwise.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cfglint_train.memory import host, transients
from cfglint_train.memory.calibration import load_table
from cfglint_train.memory.job import list_lasting_parts
from cfglint_train.memory.setup_builder import read_setup
from cfglint_train.memory.states import compute_final_gradients, compute_states, has_whole_fp32_gradients
from tests.memory.jobs import make_llama, make_states_only, make_zero
from tests.memory.moments import list_moments

PYTHON = os.environ.get("CFGLINT_ORACLE_PYTHON", sys.executable)
ORACLES = Path(__file__).parents[1] / "oracles"
PARAMETERS = 400_000_000  # below DeepSpeed's flattening piece of 5e8 elements, as the engine's model is
LAYERS = 8

pytestmark = pytest.mark.oracle


@functools.cache
def is_available() -> bool:
    command = [
        PYTHON,
        "-c",
        "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ('torch', 'deepspeed'))))",
    ]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def run_engine(job: dict[str, Any], program: str = "zero_engine.py") -> dict[str, float]:
    return _run_engine(json.dumps(job, sort_keys=True), program)


@functools.cache
def _run_engine(job: str, program: str) -> dict[str, float]:
    if not is_available():
        pytest.skip("needs torch and deepspeed")
    command = [PYTHON, "-W", "ignore", str(ORACLES / program), job]
    out = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    results = [line for line in out.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, out.stderr[-2000:]
    sizes: dict[str, float] = json.loads(results[-1].removeprefix("RESULT "))
    return sizes


FP32 = {"precision__params": "fp32", "precision__compute": "fp32", "precision__grads": "fp32"}
ACCUMULATED = {"settings": {"data_types": {"grad_accum_dtype": "fp32"}}}

# Job, plan fields, and bytes per parameter that the engine holds in addition to the model's count: the gradient of the
# layer that runs (one of eight), or nothing if it is counted.
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("stage 0", {"stage": 0}, {}),
    ("stage 1", {"stage": 1}, {}),
    ("stage 1, accumulation", {"stage": 1, "accumulation": 4}, {"batch__accumulation": 4}),
    ("stage 1, fp32 gradients", {"stage": 1, **ACCUMULATED}, {"precision__accumulation": "fp32"}),
    ("stage 2", {"stage": 2}, {}),
    ("stage 2, accumulation", {"stage": 2, "accumulation": 4}, {"batch__accumulation": 4}),
    ("stage 2, fp32 gradients", {"stage": 2, **ACCUMULATED}, {"precision__accumulation": "fp32"}),
    ("stage 2 in fp32", {"stage": 2, "fp32": True}, FP32),
    ("stage 3", {"stage": 3}, {}),
    ("stage 3, foreach", {"stage": 3, "optimizer": "foreach"}, {"optimizer__implementation": "foreach"}),
    ("stage 3, single", {"stage": 3, "optimizer": "single"}, {"optimizer__implementation": "single"}),
    ("stage 3, fp32 gradients", {"stage": 3, **ACCUMULATED}, {"precision__accumulation": "fp32"}),
    ("stage 3 in fp32", {"stage": 3, "fp32": True}, FP32),
]


@pytest.mark.oracle
@pytest.mark.parametrize("world", [2, 8])
@pytest.mark.parametrize(("name", "job", "changes"), CASES, ids=[case[0] for case in CASES])
def test_held_bytes(name: str, job: dict[str, Any], changes: dict[str, Any], world: int) -> None:
    """Agree within 1 % between steps, after the backward pass, and in the step."""
    measured = run_engine({**job, "world": world})
    shape = make_states_only(PARAMETERS)._replace(largest_tensor=PARAMETERS // LAYERS)
    setup, reader = read_setup(make_zero(job["stage"], world, parallel__reduce_bucket=1000, **changes), shape)
    assert setup is not None, reader.missing
    state_sizes = compute_states(setup)
    events = {event.name: event.total for event in list_moments(setup, layers=False)}
    base = sum(list_lasting_parts(setup, state_sizes).values()) + transients.compute_lasting_bucket(setup)
    always = state_sizes.accumulated if job["stage"] == 3 or has_whole_fp32_gradients(setup) else 0.0
    step = max(events["the update"], events.get("the gradient norm", 0.0))
    expected = {"steady": base + always, "after backward": base + compute_final_gradients(setup), "step": step}
    for moment, size in expected.items():
        assert size / PARAMETERS == pytest.approx(measured[moment], rel=0.01, abs=0.002), moment


@pytest.mark.oracle
@pytest.mark.parametrize("world", [2, 8])
@pytest.mark.parametrize(("name", "job", "changes"), CASES[:8], ids=[case[0] for case in CASES[:8]])
def test_backward_peak(name: str, job: dict[str, Any], changes: dict[str, Any], world: int) -> None:
    """Agree for stages 0 to 2 up to the gradient of the running layer (one of eight), in the format of the model."""
    measured = run_engine({**job, "world": world})
    shape = make_states_only(PARAMETERS)._replace(largest_tensor=PARAMETERS // LAYERS)
    setup, _ = read_setup(make_zero(job["stage"], world, parallel__reduce_bucket=1000, **changes), shape)
    assert setup is not None
    events = {event.name: event.total for event in list_moments(setup, layers=False)}
    layer = setup.formats.gradient / LAYERS
    assert (
        -0.01 * measured["backward"] <= measured["backward"] - events["the last gradients"] / PARAMETERS <= 2.1 * layer
    )


OFFLOADED = {"zero": {"offload_optimizer": {"device": "cpu", "pin_memory": True}}}


@pytest.mark.oracle
@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("accumulation", [1, 4])
def test_offloaded_optimizer(stage: int, accumulation: int) -> None:
    """Add up GPU and host between steps, which share memory on a CPU; only CUDA rounds pinned blocks."""
    measured = run_engine({"stage": stage, "world": 2, "accumulation": accumulation, **OFFLOADED})
    shape = make_states_only(PARAMETERS)._replace(largest_tensor=PARAMETERS // LAYERS)
    changes = {"parallel__offload_optimizer": "cpu", "parallel__pin_memory": False, "batch__accumulation": accumulation}
    setup, _ = read_setup(make_zero(stage, 2, parallel__reduce_bucket=1000, **changes), shape)
    assert setup is not None
    state_sizes = compute_states(setup)
    expected = sum(list_lasting_parts(setup, state_sizes).values()) + sum(host.compute_offloaded(setup).values()) / 2
    # Below stage 3 two buffers of the size of the largest parameter hold gradients in transfer (stage_1_and_2.py).
    expected += 4.0 * PARAMETERS / LAYERS if stage < 3 else 0.0
    assert expected / PARAMETERS == pytest.approx(measured["steady"], rel=0.01)


@pytest.mark.oracle
@pytest.mark.parametrize(("live", "bucket", "over"), [(300_000_000, int(0.9 * 2048**2), 0.1), (0, 0, 0.01)])
def test_pools_of_gathers_and_reductions(live: int, bucket: int, over: float) -> None:
    """Bound what other streams allocate, and with `gathers` what torch reserves for them, whenever blocks are freed.

    Prefetching may stop before `live` elements, so the formula may be higher.
    """
    measured = run_engine({"live": live, "prefetch": bucket}, "zero_gathers.py")
    changes = {
        "parallel__offload_params": "cpu", "parallel__offload_optimizer": "cpu", "parallel__reduce_bucket": 2048**2,
        "parallel__max_live_parameters": live, "parallel__prefetch_bucket": bucket,
    }  # fmt: skip
    matrices = 2 * 128256 * 2048 + 4 * (3 * 2048 * 8192 + 2 * 2048 * 2048 + 2 * 2048 * 512)
    shape = make_llama(matrices, 4, 2048, 32, 8, 8192, 128256)
    setup, reader = read_setup(make_zero(3, 8, **changes), shape)
    assert setup is not None, reader.missing
    pools, gathers = transients.compute_zero_pools(setup), load_table().coefficients["gathers"]
    assert -0.01 <= pools / measured["allocated"] - 1 <= over
    assert measured["reserved"] <= pools * gathers.expected
    assert measured["reserved"] < measured["late"] * 1.01 <= pools * gathers.high

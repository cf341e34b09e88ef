"""DeepSpeed: bytes per parameter as counted in a real engine, and public out-of-memory messages.

Table: DeepSpeed 0.19.8 on a CPU with a fake process group, B per parameter of a model in bf16 with all weights trained.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from cfglint_train.memory import transients
from cfglint_train.memory.activations import compute_activations
from cfglint_train.memory.components import CLONED, GATHERED_WEIGHTS
from cfglint_train.memory.estimate import estimate
from cfglint_train.memory.job import list_lasting_parts
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.setup_builder import read_setup
from cfglint_train.memory.states import compute_final_gradients, compute_states, has_whole_fp32_gradients
from cfglint_train.models.architecture import Architecture
from tests.memory.jobs import GIB, LLAMA_8B, get_gpu, make_llama, make_states_only, make_zero, sum_parts
from tests.memory.moments import list_moments

# The engine's size: below DeepSpeed's flattening piece of 5e8 elements.
PARAMETERS = 400_000_000


class Expected(NamedTuple):
    steady: float | None
    after_backward: float | None
    backward: float | None
    step: float | None


def build_setup(stage: int, ranks: int, changes: dict[str, Any], architecture: Architecture) -> Setup:
    setup, reader = read_setup(make_zero(stage, ranks, **changes), architecture)
    assert setup is not None, reader.missing
    return setup


FP32 = {"precision__params": "fp32", "precision__compute": "fp32", "precision__grads": "fp32"}
MICRO = {"batch__accumulation": 4}
ACCUMULATED = {"precision__accumulation": "fp32"}
SMALL_STATES = {"precision__master": "bf16", "optimizer__state_bits": 16}

TABLE: list[tuple[str, int, dict[str, Any], Any]] = [
    ("stage 0", 0, {}, lambda n: Expected(14, 16, 18, 20)),
    ("stage 1", 1, {}, lambda n: Expected(2 + 12 / n, 2 + 14 / n, 4 + 14 / n, 2 + 20 / n)),
    ("stage 1, accumulation", 1, MICRO, lambda n: Expected(2 + 12 / n, None, 4 + 14 / n, 2 + 20 / n)),
    ("stage 1, fp32 gradients", 1, ACCUMULATED, lambda n: Expected(6 + 12 / n, 8 + 12 / n, 10 + 12 / n, 8 + 12 / n)),
    ("stage 2", 2, {}, lambda n: Expected(2 + 12 / n, 2 + 14 / n, 2 + 14 / n, 2 + 20 / n)),
    ("stage 2, accumulation", 2, MICRO, lambda n: Expected(2 + 12 / n, 2 + 14 / n, 2 + 16 / n, 2 + 20 / n)),
    ("stage 2, fp32 gradients", 2, ACCUMULATED, lambda n: Expected(2 + 12 / n, 2 + 16 / n, 2 + 18 / n, 2 + 16 / n)),
    ("stage 2 in fp32", 2, FP32, lambda n: Expected(4 + 12 / n, 4 + 16 / n, 4 + 16 / n, 4 + 20 / n)),
    ("stage 2, bf16 states", 2, SMALL_STATES, lambda n: Expected(2 + 6 / n, None, None, None)),
    ("stage 2, offload", 2, {"parallel__offload_optimizer": "cpu"}, lambda n: Expected(2, None, None, 2)),
    ("stage 3", 3, {}, lambda n: Expected(16 / n, 16 / n, None, 22 / n)),
    ("stage 3, foreach", 3, {"optimizer__implementation": "foreach"}, lambda n: Expected(16 / n, 16 / n, None, 24 / n)),
    ("stage 3, single", 3, {"optimizer__implementation": "single"}, lambda n: Expected(16 / n, 16 / n, None, 28 / n)),
    ("stage 3, fp32 gradients", 3, ACCUMULATED, lambda n: Expected(18 / n, 18 / n, None, 22 / n)),
    ("stage 3 in fp32", 3, FP32, lambda n: Expected(20 / n, 20 / n, None, 24 / n)),
    ("stage 3, bf16 states", 3, SMALL_STATES, lambda n: Expected(10 / n, None, None, None)),
    ("stage 3, offload", 3, {"parallel__offload_optimizer": "cpu"}, lambda n: Expected(2 / n, 2 / n, None, 2 / n)),
    (
        "stage 3, everything offloaded",
        3,
        {"parallel__offload_optimizer": "cpu", "parallel__offload_params": "cpu"},
        lambda n: Expected(0, 0, None, 0),
    ),
]  # fmt: skip


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize(("name", "stage", "changes", "expected"), TABLE, ids=[row[0] for row in TABLE])
def test_bytes_per_parameter(name: str, stage: int, changes: dict[str, Any], expected: Any, ranks: int) -> None:
    architecture = make_states_only(PARAMETERS)
    setup = build_setup(stage, ranks, {"parallel__reduce_bucket": 1000, **changes}, architecture)
    state_sizes = compute_states(setup)
    events = {event.name: event.total for event in list_moments(setup, layers=False)}
    base = sum(list_lasting_parts(setup, state_sizes).values()) + transients.compute_lasting_bucket(setup)
    always = state_sizes.accumulated if stage == 3 or has_whole_fp32_gradients(setup) else 0.0
    sizes = Expected(
        base + always, base + compute_final_gradients(setup), events["the last gradients"], events["the update"]
    )
    for measured, expected_bytes in zip(sizes, expected(ranks)):
        if expected_bytes is not None:
            assert measured / PARAMETERS == pytest.approx(expected_bytes, rel=0.01, abs=0.001)


def test_published_h100_figures() -> None:
    """Reproduce DeepSpeedExamples/training/bf16_master_weight: 6.858e9 parameters, 4 H100, 25.74 GiB, peak 31.38."""
    shape = make_llama(6_858_000_000, 32, 4096, 32, 32, 16384, 50257)._replace(model_type="gpt2")
    changes = {
        "parallel__reduce_bucket": 50_000_000, "parallel__prefetch_bucket": 50_000_000,
        "parallel__sub_group": 1_000_000_000, "sequence__length": 512, "activations__keeps_outputs": True,
    }  # fmt: skip
    setup = build_setup(3, 4, changes, shape)
    state_sizes = compute_states(setup)
    kept = (
        sum(list_lasting_parts(setup, state_sizes).values())
        + transients.compute_lasting_bucket(setup)
        + state_sizes.accumulated
    )
    assert kept / GIB == pytest.approx(25.74, rel=0.01)
    step = get_gpu(estimate(make_zero(3, 4, **changes), shape), "optimizer step")
    assert (step.allocated / GIB) == pytest.approx(31.38, rel=0.01)
    small = {**changes, "precision__master": "bf16", "optimizer__state_bits": 16}
    state_sizes = compute_states(build_setup(3, 4, small, shape))
    kept = (
        sum(list_lasting_parts(setup, state_sizes).values())
        + transients.compute_lasting_bucket(setup)
        + state_sizes.accumulated
    )
    assert kept / GIB == pytest.approx(16.17, rel=0.01)


def test_buckets() -> None:
    """Count 1 GB for 0.5e9 bf16 elements, a copy for reduce_scatter to send, and a second buffer with overlap."""
    architecture = make_states_only(6_000_000_000)
    size = {"parallel__reduce_bucket": 500_000_000}

    def measure_bucket(**changes: Any) -> float:
        return transients.compute_bucket(build_setup(2, 8, {**size, **changes}, architecture))

    assert measure_bucket() == 1e9
    assert measure_bucket(parallel__reduce_scatter=True) == 2e9
    assert measure_bucket(parallel__reduce_scatter=True, parallel__overlap_comm=True) == 3e9


class Vector(NamedTuple):
    """A public out-of-memory message: the allocated GiB, and the GiB that the failing allocation requested."""

    source: str
    parameters: float
    stage: int
    ranks: int
    allocated: float
    requested: float


VECTORS = [
    Vector("LLaMA-Factory 7532", 235.741e9, 3, 48, 73.28, 3.39),
    Vector("LLaMA-Factory 1158", 13.8967e9, 2, 4, 77.65, 12.94),
    Vector("LLaMA-Factory 1221", 6.7384e9, 2, 8, 28.28, 3.14),
]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.source)
def test_failed_optimizer_steps(vector: Vector) -> None:
    """Fail at the fp32 copy of the gradients or at one of Adam's two temporaries of that size.

    At stage 3 the gradients are those of the last sub-group. States, gradients and the flat copy exist by then.
    """
    total = int(vector.parameters)
    local = total / vector.ranks
    if vector.stage == 3:
        requested, allocated = (local % 1e9) * 4, 16 * local
    else:
        requested = 4 * local
        allocated = 2 * total + 16 * local
        if vector.source.endswith("1221"):  # in the second temporary: the first one is alive
            allocated += 4 * local
    assert requested / GIB == pytest.approx(vector.requested, rel=0.002)
    assert allocated / GIB == pytest.approx(vector.allocated, rel=0.003)
    # The estimate of the step covers both, and does not fit the card (79.3 and 31.7 GiB).
    plan = make_zero(
        vector.stage, vector.ranks, optimizer__implementation="single", parallel__sub_group=10**9,
        parallel__reduce_bucket=0, launch__gpus_per_node=vector.ranks,
    )  # fmt: skip
    step = get_gpu(estimate(plan, make_states_only(total)), "optimizer step")
    assert step.allocated >= (allocated + requested) * 0.995
    assert step.low > min(79.32, vector.allocated + vector.requested - 1) * GIB or vector.ranks == 48
    assert step.low <= step.expected <= step.high


def test_openrlhf_reports() -> None:
    """Reproduce OpenRLHF 698 and 392.

    698: Llama-3-8B, one A100-80, ZeRO-2: about 46 GB after preparing the model, 61 after the backward pass, out of
    memory in the step. 392: 16B on 4 GPUs under ZeRO-3 holds 65.8 GiB of states with fp32 gradients.
    """
    eight = make_states_only(8_030_261_248)
    setup = build_setup(2, 1, {}, eight)
    state_sizes = compute_states(setup)
    # Adam's two states are created in the first step: before it, weights and master copy exist.
    assert (state_sizes.parameters + state_sizes.master) / GIB == pytest.approx(44.9, rel=0.01)
    assert (state_sizes.parameters + state_sizes.master + compute_final_gradients(setup)) / GIB == pytest.approx(
        59.8, rel=0.01
    )
    step = get_gpu(estimate(make_zero(2, 1), eight), "optimizer step")
    assert step.low > 79.3 * GIB
    sixteen = make_states_only(15_706_484_224)
    setup = build_setup(3, 4, ACCUMULATED, sixteen)
    state_sizes = compute_states(setup)
    assert (
        state_sizes.parameters + state_sizes.master + state_sizes.optimizer + state_sizes.accumulated
    ) / GIB == pytest.approx(65.8, rel=0.01)


def test_offloaded_states_on_the_host() -> None:
    """Hold 18 B per parameter over the ranks, 20 with accumulation (OpenRLHF 171: 212 GB for 13.9e9)."""
    from cfglint_train.memory import host

    total = 13_896_668_160
    architecture = make_states_only(total)
    changes = {"parallel__offload_optimizer": "cpu", "parallel__pin_memory": False}
    plain = sum(host.compute_offloaded(build_setup(2, 8, changes, architecture)).values())
    assert plain / total == pytest.approx(18, rel=0.01)
    accumulated = sum(
        host.compute_offloaded(build_setup(2, 8, {**changes, "batch__accumulation": 4}, architecture)).values()
    )
    assert accumulated / total == pytest.approx(20, rel=0.01)
    three = sum(host.compute_offloaded(build_setup(3, 8, changes, architecture)).values())
    assert three / total == pytest.approx(18, rel=0.01)


def test_pinned_blocks_are_powers_of_two() -> None:
    from cfglint_train.memory.host import round_to_pinned_block

    assert [round_to_pinned_block(size) for size in (0, 1, 3, 4, 5, 3.5 * GIB, 4.4 * GIB)] == [
        0,
        1,
        4,
        4,
        8,
        4 * GIB,
        8 * GIB,
    ]


def test_saving() -> None:
    """Clone the 16-bit model on every rank at stages 0 to 2; hold it once on rank 0 at stage 3 with a gather."""
    from cfglint_train.memory.save import estimate_save

    total = 32_512_000_000
    architecture = make_states_only(total)
    two = estimate_save(build_setup(2, 4, {}, architecture), make_zero(2, 4, checkpoint__strategy="steps"))
    assert two is not None
    assert two.host[CLONED] == 4 * 2 * total
    assert sum(two.host.values()) == two.host[CLONED]  # four flat partitions of a quarter each are less
    alone = estimate_save(build_setup(2, 1, {}, architecture), make_zero(2, 1, checkpoint__strategy="steps"))
    assert alone is not None
    assert sum(alone.host.values()) == 4 * total  # one flat fp32 partition: measured, zero2-1b
    offloaded = {"parallel__offload_optimizer": "cpu"}
    on_host = estimate_save(
        build_setup(2, 1, offloaded, architecture), make_zero(2, 1, checkpoint__strategy="steps", **offloaded)
    )
    assert on_host is not None
    assert sum(on_host.host.values()) == 2 * total
    three = make_zero(3, 8, checkpoint__strategy="steps", checkpoint__gather=True)
    gathered = estimate_save(build_setup(3, 8, {}, architecture), three)
    assert gathered is not None
    assert gathered.host[GATHERED_WEIGHTS] == 2 * total  # 65.0 GB: LLaMA-Factory 3752
    assert sum(gathered.disk.values()) == pytest.approx(14 * total)
    only = estimate_save(build_setup(3, 8, {}, architecture), three.replace({"checkpoint.model_only": True}))
    assert only is not None
    assert sum(only.disk.values()) == pytest.approx(2 * total)
    assert only.host[GATHERED_WEIGHTS] == gathered.host[GATHERED_WEIGHTS]
    without = estimate_save(build_setup(3, 8, {}, architecture), three.replace({"checkpoint.gather": False}))
    assert without is not None
    assert "gathered weights" not in without.host


def test_activations_do_not_enter_the_table() -> None:
    """Keep almost no activations in the model of these tests, because the table is about states."""
    flow = compute_activations(build_setup(2, 8, {}, make_states_only(PARAMETERS)))
    assert flow is not None
    assert flow.kept < PARAMETERS * 0.002


def test_one_gpu_copies_offloaded_weights() -> None:
    """Gather as much on one GPU, where the weights are copied from the host, as on eight."""
    changes = {"parallel__offload_params": "cpu", "parallel__max_live_parameters": 10**9}
    gathered = [
        sum_parts(get_gpu(estimate(make_zero(3, ranks, **changes), LLAMA_8B), "backward"), "gathered parameters")
        for ranks in (1, 8)
    ]
    assert gathered[0] == gathered[1] >= 2 * 10**9

"""Properties of every estimate: order of bounds, intervals, unknown values, and the fields that it depends on."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_train.calibration import report
from cfglint_train.calibration.rows import EVIDENCE_KINDS, read_evidence, read_measured
from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.memory.budget import compute_verdict
from cfglint_train.memory.calibration import load_table
from cfglint_train.memory.estimate import estimate
from cfglint_train.memory.explanation import explain
from cfglint_train.memory.layers.families import FAMILIES
from cfglint_train.plan.fields import Plan, Role
from tests.memory.jobs import BASE, GIB, LLAMA_3B, LLAMA_8B, get_gpu, make_plan, make_zero, sum_parts

STEP = ("forward", "backward", "optimizer step")


def find_peak(**changes: Any) -> int:
    result = estimate(make_plan(**changes), LLAMA_3B)
    return max(get_gpu(result, phase).expected for phase in STEP)


# -- laws -------------------------------------------------------------------------------------------------------------

plans = st.fixed_dictionaries(
    {
        "batch__micro": st.integers(1, 8),
        "batch__accumulation": st.sampled_from([1, 4]),
        "sequence__length": st.sampled_from([256, 2048, 8192]),
        "sequence__packing": st.booleans(),
        "precision__params": st.sampled_from(["bf16", "fp32"]),
        "precision__autocast": st.booleans(),
        "optimizer__implementation": st.sampled_from(["fused", "foreach", "single"]),
        "optimizer__state_bits": st.sampled_from([None, 8, 32]),
        "activations__attention": st.sampled_from(["eager", "sdpa", "flash"]),
        "activations__checkpointing": st.sampled_from(["none", "full"]),
        "activations__reentrant": st.booleans(),
        "activations__fused_loss": st.sampled_from(["none", "liger", "cce", "chunked", "triton"]),
        "activations__liger_layers": st.booleans(),
        "activations__compile": st.booleans(),
        "parallel__strategy": st.sampled_from(["none", "ddp", "zero", "fsdp1", "fsdp2"]),
        "parallel__zero_stage": st.integers(0, 3),
        "parallel__offload_optimizer": st.sampled_from(["none", "cpu"]),
        "parallel__reduce_bucket": st.sampled_from([1, 10**7, 5 * 10**8]),
        "launch__nodes": st.sampled_from([1, 4]),
        "launch__gpus_per_node": st.sampled_from([1, 8]),
        "checkpoint__strategy": st.sampled_from(["no", "steps"]),
        "checkpoint__state_dict": st.sampled_from(["full", "sharded"]),
        "checkpoint__gather": st.booleans(),
        "batch__eval_micro": st.sampled_from([None, 1, 8]),
    }
)
families = st.sampled_from(sorted(name for name, family in FAMILIES.items() if not family.latent))


@settings(max_examples=150, deadline=None)
@given(plans, families)
def test_every_budget_is_in_order(changes: dict[str, Any], family: str) -> None:
    """Make components add up, non-negative, with a formula and inside the interval."""
    result = estimate(make_plan(**changes), LLAMA_3B._replace(model_type=family))
    assert not result.missing
    assert {phase.name for phase in result.phases} >= {"load", *STEP}
    for phase in result.phases:
        for budget in (phase.gpu, phase.host, phase.disk):
            if budget is None:
                continue
            parts = explain(budget)
            assert all(part.bytes >= 0 and part.formula for part in parts)
            assert budget.expected == sum(part.bytes for part in parts)
            assert budget.low <= budget.expected <= budget.high
            assert budget.allocated <= budget.reserved <= budget.expected
            assert budget.extra_fields <= result.fields


@settings(max_examples=60, deadline=None)
@given(plans, st.integers(1, 4))
def test_more_tokens_never_need_less(changes: dict[str, Any], factor: int) -> None:
    small = estimate(make_plan(**changes), LLAMA_3B)
    larger = {**changes, "batch__micro": changes["batch__micro"] * factor}
    large = estimate(make_plan(**larger), LLAMA_3B)
    # A second sequence may add a mask; nothing disappears.
    for phase in STEP:
        assert get_gpu(large, phase).allocated >= get_gpu(small, phase).allocated


@pytest.mark.parametrize("strategy", ["fsdp1", "fsdp2", "zero"])
def test_more_ranks_never_need_more(strategy: str) -> None:
    sizes = [
        max(
            get_gpu(
                estimate(make_zero(3, ranks, parallel__strategy=strategy, launch__nodes=nodes), LLAMA_8B), phase
            ).allocated
            for phase in STEP
        )
        for nodes, ranks in ((1, 2), (1, 8), (4, 8), (16, 8))
    ]
    assert sizes == sorted(sizes, reverse=True)


# -- what single settings do -------------------------------------------------------------------------------------------


def test_settings_that_help() -> None:
    base = {"batch__micro": 4, "sequence__length": 4096, "activations__checkpointing": "none"}
    assert find_peak(**base, activations__attention="eager") > find_peak(**base)
    assert find_peak(**base, activations__fused_loss="liger") < find_peak(**base)
    assert find_peak(**base, activations__liger_layers=True) < find_peak(**base)
    assert find_peak(**{**base, "activations__checkpointing": "full"}) < find_peak(**base)
    assert find_peak(**base, activations__keeps_outputs=True) > find_peak(**base)


def test_foreach_makes_one_more_tensor_of_the_weights() -> None:
    fused = get_gpu(estimate(make_plan(), LLAMA_8B), "optimizer step")
    foreach = get_gpu(estimate(make_plan(optimizer__implementation="foreach"), LLAMA_8B), "optimizer step")
    assert foreach.allocated - fused.allocated == 2 * LLAMA_8B.parameters


def test_states_of_optimizers() -> None:
    def compute_state(**changes: Any) -> float:
        return (
            sum_parts(get_gpu(estimate(make_plan(**changes), LLAMA_8B), "optimizer step"), "optimizer state")
            / LLAMA_8B.parameters
        )

    assert compute_state() == 4
    assert compute_state(precision__params="fp32") == 8
    assert compute_state(optimizer__state_bits=8) == pytest.approx(2, rel=0.02)
    assert compute_state(optimizer__name="lion") == 2
    assert compute_state(optimizer__name="sgd") == 0


def test_paged_states_are_not_counted_in_the_lower_bound() -> None:
    paged, plain = (
        get_gpu(estimate(make_plan(optimizer__paged=value), LLAMA_8B), "optimizer step") for value in (True, False)
    )
    assert paged.high == plain.high
    assert plain.low - paged.low == pytest.approx(4 * LLAMA_8B.parameters, rel=0.01)


def test_lora_counts_its_matrices() -> None:
    adapters = make_plan(
        method__tuning="lora", method__lora_rank=16, method__lora_targets=("all-linear",), precision__adapter="fp32"
    )
    budget = get_gpu(estimate(adapters, LLAMA_8B), "optimizer step")
    # 41,943,040 adapter elements for Llama-3.1-8B at rank 16: traced.
    assert sum_parts(budget, "parameters") == 41_943_040 * 4
    assert sum_parts(budget, "optimizer state") == 41_943_040 * 8
    assert sum_parts(budget, "frozen parameters") == 2 * LLAMA_8B.parameters


def test_quantised_base() -> None:
    """Count nf4 with double quantisation: 0.516 B per element of the decoder's matrices, 16 bits for the rest."""
    result = estimate(
        make_plan(
            method__tuning="lora", method__lora_rank=8, method__lora_targets=("q_proj",), precision__adapter="fp32",
            method__quantization="nf4", method__double_quantization=True,
        ),
        LLAMA_8B,
    )  # fmt: skip
    matrices = sum(linear.elements for linear in LLAMA_8B.linears if linear.part == "decoder")
    expected = matrices * 0.5158691 + (LLAMA_8B.parameters - matrices) * 2
    assert sum_parts(get_gpu(result, "optimizer step"), "frozen parameters") == pytest.approx(expected, rel=1e-6)


def test_reference_model() -> None:
    """Add a second whole model: sharded under ZeRO-3, whole on every GPU below it."""
    for stage, ranks in ((2, 1), (3, 8)):
        result = estimate(make_zero(stage, 8, method__reference_model="full"), LLAMA_8B)
        assert sum_parts(get_gpu(result, "backward"), "reference model") == 2 * LLAMA_8B.parameters // ranks


def test_models_that_share_the_actors_gpus() -> None:
    roles = (
        Role("actor", None, True, 1, 8, "all"),
        Role("critic", None, True, 1, 8, "all"),
        Role("reference", None, False, 1, 8, "all"),
        Role("reward", None, False, 1, 8, "elsewhere"),
    )
    budget = get_gpu(estimate(make_zero(3, 8, model__roles=roles), LLAMA_8B), "backward")
    assert sum_parts(budget, "other models") == pytest.approx((16 + 2) * LLAMA_8B.parameters / 8, rel=1e-6)


def test_rollout_engine() -> None:
    card = Hardware(gpu_bytes=80 * GIB)
    colocated = {"rollout__engine": "vllm", "rollout__mode": "colocate", "rollout__utilization": 0.5}
    awake = estimate(make_zero(3, 8, **colocated), LLAMA_8B, card)
    assert sum_parts(get_gpu(awake, "rollout"), "rollout engine") == 40 * GIB
    assert sum_parts(get_gpu(awake, "backward"), "rollout engine") == 40 * GIB
    asleep = estimate(make_zero(3, 8, **colocated, rollout__sleep=True), LLAMA_8B, card)
    assert sum_parts(get_gpu(asleep, "backward"), "rollout engine") < 20 * GIB
    assert estimate(make_zero(3, 8, **colocated), LLAMA_8B).missing == ("rollout.utilization",)


def test_a_model_that_is_saved_when_the_run_has_ended_is_one_copy_of_its_weights() -> None:
    last: dict[str, Any] = {"checkpoint__strategy": "no", "checkpoint__final": True}
    final, periodic = (
        estimate(make_plan(checkpoint__keep=4, **saved), LLAMA_8B).find_phase("save")
        for saved in (last, {"checkpoint__strategy": "steps"})
    )
    assert final is not None
    assert periodic is not None
    assert final.disk is not None
    assert periodic.disk is not None
    assert final.disk.expected == 2 * LLAMA_8B.parameters
    assert periodic.disk.expected > 5 * final.disk.expected


def test_saving_single_gpus_and_fsdp() -> None:
    """Write the memory of one GPU; under FSDP gather weights, then states, on rank 0 (or neither if sharded)."""
    alone = estimate(make_plan(checkpoint__strategy="steps", checkpoint__keep=2), LLAMA_8B).find_phase("save")
    assert alone is not None
    assert alone.disk is not None
    assert alone.disk.expected == pytest.approx(3 * 6 * LLAMA_8B.parameters)
    for kind, state, whole in (("fsdp1", "full", 8), ("fsdp2", "full", 8), ("fsdp2", "sharded", 4)):
        fields = {"precision__params": "fp32", "checkpoint__strategy": "steps", "checkpoint__state_dict": state}
        fields |= {"parallel__strategy": kind, "launch__nodes": 1, "launch__gpus_per_node": 8}
        phase = estimate(make_plan(**fields), LLAMA_8B).find_phase("save")
        assert phase is not None
        assert phase.host is not None
        assert phase.host.expected == pytest.approx(whole * LLAMA_8B.parameters, rel=0.01)
        only = estimate(make_plan(**fields, checkpoint__model_only=True), LLAMA_8B).find_phase("save")
        assert only is not None
        assert only.host is not None
        assert only.host.expected == pytest.approx(4 * LLAMA_8B.parameters, rel=0.01)


def test_evaluation_holds_whole_logits() -> None:
    budget = get_gpu(estimate(make_plan(batch__eval_micro=8, activations__fused_loss="liger"), LLAMA_8B), "eval")
    assert sum_parts(budget, "logits and loss") == 8 * 2048 * 128256 * 10
    assert not [
        phase
        for phase in estimate(make_plan(eval__strategy="no", batch__eval_micro=8), LLAMA_8B).phases
        if phase.name == "eval"
    ]


def test_experts_on_the_host() -> None:
    lora = {"method__tuning": "lora", "method__lora_rank": 8, "method__lora_targets": ("q_proj",)}
    shape = LLAMA_8B._replace(expert_parameters=5_000_000_000)
    result = estimate(make_plan(**lora, precision__adapter="fp32", model__host_experts=True), shape)
    assert sum_parts(get_gpu(result, "backward"), "frozen parameters") == 2 * (LLAMA_8B.parameters - 5_000_000_000)
    step = result.find_phase("optimizer step")
    assert step is not None
    assert step.host is not None
    assert sum_parts(step.host, "experts on the host") == 10_000_000_000


# -- unknowns ---------------------------------------------------------------------------------------------------------


def test_unknown_model() -> None:
    result = estimate(make_plan(), None)
    assert result.phases == ()
    assert result.missing == ("model",)


@pytest.mark.parametrize("field", ["batch.micro", "sequence.length"])
def test_host_and_disk_need_no_batch(field: str) -> None:
    result, whole = (estimate(Plan().replace({**BASE, field: value}), LLAMA_8B) for value in (None, BASE[field]))
    assert [phase.name for phase in result.phases] == ["load", "save"]
    assert all(phase.gpu is None for phase in result.phases)
    for phase in result.phases:
        same_phase = whole.find_phase(phase.name)
        assert same_phase is not None
        assert (phase.host, phase.disk) == (same_phase.host, same_phase.disk)
    assert field in result.missing


@pytest.mark.parametrize("field", ["method.tuning", "precision.params"])
def test_essential_fields(field: str) -> None:
    result = estimate(Plan().replace({**BASE, field: None}), LLAMA_8B)
    assert result.phases == ()
    assert field in result.missing


def test_unknown_optimizer_keeps_its_phases_silent() -> None:
    result = estimate(make_plan(optimizer__name="something_new"), LLAMA_8B)
    assert result.missing == ("optimizer.name",)
    assert {phase.name for phase in result.phases} == {"load"}


@pytest.mark.parametrize(
    "shape", [LLAMA_8B._replace(model_type="mamba"), LLAMA_8B._replace(recurrent_layers=4)], ids=["family", "hybrid"]
)
def test_family_without_a_formula(shape: Any) -> None:
    """Keep the states exact, and report what needs activations as missing instead of guessing."""
    result = estimate(make_plan(), shape)
    assert result.missing == ("model",)
    assert {phase.name for phase in result.phases} == {"load", "optimizer step", "save"}
    step = get_gpu(result, "optimizer step")
    assert step.allocated == pytest.approx(8 * LLAMA_8B.parameters, rel=0.01)


def test_usual_values_are_named() -> None:
    result = estimate(Plan().replace({**BASE, "activations.fused_loss": None, "batch.accumulation": None}), LLAMA_8B)
    assert set(result.assumed) == {"activations.fused_loss", "batch.accumulation"}


def test_fields_say_what_the_numbers_rest_on() -> None:
    alone = estimate(make_plan(launch__nodes=4, launch__gpus_per_node=8), LLAMA_8B)
    assert not {"launch.nodes", "launch.gpus_per_node", "parallel.zero_stage"} & alone.fields
    assert {"batch.micro", "sequence.length", "activations.checkpointing"} <= alone.fields
    assert "checkpoint.strategy" in alone.fields
    assert {"batch.steps", "batch.epochs", "checkpoint.per_epoch", "checkpoint.load_best_at_end"} <= alone.fields
    backward = get_gpu(alone, "backward")
    assert not [field for field in backward.extra_fields if field.startswith("checkpoint.")]
    sharded = estimate(make_zero(3, 8), LLAMA_8B)
    assert {"launch.nodes", "launch.gpus_per_node", "parallel.zero_stage"} <= sharded.fields


def test_verdicts() -> None:
    budget = get_gpu(estimate(make_plan(), LLAMA_8B), "optimizer step")
    assert compute_verdict(budget, budget.high) == "fits"
    assert compute_verdict(budget, budget.high - 1) == "tight"
    assert compute_verdict(budget, budget.expected) == "tight"
    assert compute_verdict(budget, budget.expected - 1) == "probably does not fit"
    assert compute_verdict(budget, budget.low) == "probably does not fit"
    assert compute_verdict(budget, budget.low - 1) == "does not fit"


def test_other_code_has_a_wider_interval() -> None:
    """Widen the interval for OLMo's own modules: the family's shape with other names, which the rows do not cover."""
    renamed_linears = tuple(linear._replace(name=f"own_{linear.name}") for linear in LLAMA_8B.linears)
    traced, other = (
        get_gpu(estimate(make_plan(batch__micro=8), shape), "backward")
        for shape in (LLAMA_8B, LLAMA_8B._replace(linears=renamed_linears))
    )
    assert traced.expected == other.expected
    assert other.low < traced.low
    assert other.high > traced.high


# -- evidence ---------------------------------------------------------------------------------------------------------


def test_evidence_exists() -> None:
    """Find each id of a coefficient, residual or component in a file of evidence or among the coefficients."""
    ids = {row["id"] for kind in EVIDENCE_KINDS for row in read_evidence(kind)} | set(EVIDENCE_KINDS)
    coefficients, residuals = load_table()
    for row in (*coefficients.values(), *residuals.values()):
        assert row.evidence
        assert set(row.evidence) <= ids, row.id
        assert row.low <= row.high
    evidence_names = ids | set(coefficients)
    result = estimate(make_zero(2, 8, checkpoint__strategy="steps", batch__eval_micro=1), LLAMA_8B)
    for phase in result.phases:
        for budget in (phase.gpu, phase.host, phase.disk):
            for component, _ in budget.sizes if budget else ():
                assert set(component.evidence) <= evidence_names, component.name


def test_verified_coefficients_name_measured_rows() -> None:
    """Verify coefficients on a GPU only by rows that the harness wrote."""
    rows = {row.id for row in read_measured() if row.get_text("outcome") == "ok"}
    coefficients = load_table().coefficients
    for row in coefficients.values():
        assert set(row.verified) <= rows, row.id
    verified = {name for name, row in coefficients.items() if row.verified}
    assert {"context", "apart", "apart-checkpointed"} <= verified
    assert not verified & {"nccl", "records", "offloaded", "worker"}


def test_the_upper_bound_covers_what_was_reserved() -> None:
    """Keep each row that verifies the allocator's coefficients below the upper bound of the verdict.

    The median width of the interval is at most a third of the estimate.
    """
    coefficients = load_table().coefficients
    widths = []
    for row in report.compare_measured():
        name = row.id.removesuffix(" (reserved)")
        if row.counter != "reserved" or name not in {
            *coefficients["apart"].verified,
            *coefficients["apart-checkpointed"].verified,
        }:
            continue
        assert row.is_inside, row.id
        assert row.error is not None
        assert abs(row.error) < 0.16, row.id
        widths.append(row.width or 0.0)
    assert len(widths) > 60
    assert report.compute_median(widths) < 0.22


def test_kinds_are_never_mixed() -> None:
    """Keep each id in one file, and name the GPU of every measurement."""
    ids = [row["id"] for kind in EVIDENCE_KINDS for row in read_evidence(kind)]
    assert len(ids) == len(set(ids))
    assert all(row["device"]["driver"] for row in read_evidence("measured"))
    with pytest.raises(ValueError, match="not a kind"):
        read_evidence("guessed")


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, cfglint_train.memory.estimate;"
        "print([name for name in ('torch', 'numpy', 'dataclasses', 'inspect', 'pathlib') if name in sys.modules])"
    )
    process = subprocess.run(
        [sys.executable, "-S", "-c", f"import site; {code}"], capture_output=True, text=True, check=False
    )
    if process.returncode:  # -S hides an editable install
        process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "torch" not in process.stdout
        return
    assert process.stdout.strip() == "[]"


def test_offloaded_checkpoints_are_on_the_host() -> None:
    """Offload all but the five checkpoints that OffloadActivations lets wait."""
    on_gpu, offloaded = (
        sum_parts(
            get_gpu(
                estimate(make_plan(activations__checkpointing="full", activations__offload=where), LLAMA_8B), "forward"
            ),
            "activations",
        )
        for where in ("none", "cpu")
    )
    checkpoint = 2048 * LLAMA_8B.hidden * 2
    assert on_gpu - offloaded == (LLAMA_8B.layers - 5) * checkpoint

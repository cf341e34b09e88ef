"""verl's hybrid engine: log-probabilities and entropies, phases of one GPU, and what each of them leaves on it.

The rows of `verl_losses.jsonl` were measured on a CPU with the functions of verl's wheels (`oracles/verl_losses.py`).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfglint_train.foundation.typed import Any
from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.memory import logits
from cfglint_train.memory.estimate import estimate
from cfglint_train.memory.setup_builder import read_setup
from cfglint_train.plan.fields import Plan, Role
from tests.memory.generated import list_budgets
from tests.memory.jobs import GIB, LLAMA_8B, get_gpu, make_plan, sum_parts
from tests.memory.test_components import check_budget

ROWS = [json.loads(line) for line in (Path(__file__).parent / "verl_losses.jsonl").read_text().splitlines()]
_KINDS = {
    "none": "policy", "compiled": "policy_entropy", "eager": "policy_entropy_eager",
    "compiled_chunks": "policy_entropy_chunks", "fused": "policy_fused", "fused_entropy": "policy_fused_entropy",
}  # fmt: skip


def get_kind(row: dict[str, Any]) -> str:
    kind: str = _KINDS[row["entropy"]]
    if kind != "policy":
        return kind
    return "policy_scaled" if row["release"] < "0.9" else "policy_copied" if row["temperature"] != 1 else kind


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row["entropy"] in _KINDS and "width" not in row],
    ids=lambda row: f"{row['release']}-{row['entropy']}-{row['temperature']}",
)
def test_whole_logits_as_the_wheels_functions_hold_them(row: dict[str, Any]) -> None:
    """Allow for the second copy of divided logits that a release with an entropy holds before the peak."""
    setup, _ = read_setup(make_plan(method__stage="grpo", activations__fused_loss=get_kind(row)), LLAMA_8B)
    assert setup is not None
    loss = logits.find_loss(setup)
    copied = 2 if row["temperature"] != 1 and row["entropy"] != "none" else 0
    assert loss.saved == row["saved"]
    assert 0 <= loss.forward + copied - row["forward"] <= copied
    assert -0.05 <= loss.backward - row["backward"] <= {"eager": 2, "compiled_chunks": 3}.get(row["entropy"], 0.05)
    assert 0 <= loss.scored + copied - row["scored"] <= copied + 2


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if "width" in row],
    ids=lambda row: f"{row['release']}-{row['entropy']}-{row['width']}-{row['trained']}",
)
def test_fused_log_probabilities_as_the_wheels_functions_hold_them(row: dict[str, Any]) -> None:
    shape = LLAMA_8B._replace(vocab=row["words"], hidden=row["width"])
    setup, _ = read_setup(
        make_plan(
            method__stage="grpo", activations__fused_loss=get_kind(row), batch__micro=1, sequence__length=row["tokens"]
        ),
        shape,
    )
    assert setup is not None
    setup = setup._replace(weights=setup.weights._replace(head_trained=row["trained"]))
    head = logits.build_head(setup)
    scored = logits.compute_scored_logits(setup, row["tokens"]) / 512 / row["words"]
    assert scored - 6 <= row["forward"] / 512 / row["words"] <= scored + 0.01  # 16 bytes before 0.9, then 10 to 12
    states = 4 * 512 * row["width"]  # gradients of a chunk's states, of this and the last chunk
    assert head.backward - head.saved + head.fixed_backward + states == pytest.approx(row["backward"], rel=0.06)


def test_an_evaluation_scores() -> None:
    """The engine's trainer of supervised fine-tuning computes the same log-probabilities."""
    setup, _ = read_setup(make_plan(batch__eval_micro=4, activations__fused_loss="policy"), LLAMA_8B)
    assert setup is not None
    assert logits.compute_evaluation_bytes(setup) == 2


# --- phases of one GPU -----------------------------------------------------------------------------------------------

NAME = "meta-llama/Llama-3.1-8B"
CARD = Hardware(gpu_bytes=80 * GIB)
WEIGHTS, STATES = 4 * LLAMA_8B.parameters // 8, 8 * LLAMA_8B.parameters // 8
UNITS = 32 * LLAMA_8B.layer_parameters
ROOT, HEAD = LLAMA_8B.parameters - UNITS, LLAMA_8B.vocab * LLAMA_8B.hidden


def make_job(*roles: Role, **changes: Any) -> Plan:
    """Build a job of verl on eight GPUs: fp32 shards under FSDP1, with an engine that sleeps between rollouts."""
    fields: dict[str, Any] = {
        "model__id": NAME, "model__roles": (Role("actor", NAME, True, 1, 8, "global"), *roles),
        "method__stage": "grpo", "precision__params": "fp32", "precision__grads": "fp32", "precision__master": "none",
        "precision__frozen": "fp32", "precision__autocast": True, "parallel__strategy": "fsdp1",
        "parallel__communication": "fp32", "launch__nodes": 1, "launch__gpus_per_node": 8,
        "activations__fused_loss": "policy", "activations__checkpointing": "full", "sequence__packing": True,
        "rollout__engine": "vllm", "rollout__mode": "colocate", "rollout__utilization": 0.5, "rollout__tensor": 2,
        "rollout__sleep": True, "rollout__sleep_discards": True, "rollout__sync_bucket": 2 * GIB, "rollout__micro": 4,
        "rollout__wakes_first": True,
        "checkpoint__strategy": "steps", "checkpoint__state_dict": "sharded", **changes,
    }  # fmt: skip
    return make_plan(**fields)


def sum_in(job: Plan, phase: str, *names: str) -> int:
    return sum_parts(get_gpu(estimate(job, LLAMA_8B, CARD), phase), *names)


def sum_on_host(job: Plan, name: str) -> int:
    step = estimate(job, LLAMA_8B, CARD).find_phase("optimizer step")
    assert step is not None
    assert step.host is not None
    return sum_parts(step.host, name)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("states", [False, True])
def test_generation_begins_beside_the_states_that_stay(weights: bool, states: bool) -> None:
    """Count both in the update in any case, and on the host those that sleep."""
    job = make_job(rollout__weights_sleep=weights, rollout__train_sleep=states, rollout__utilization=0.9)
    rollout = estimate(job, LLAMA_8B, CARD).find_phase("rollout")
    assert rollout is not None
    assert rollout.event == "generation"
    assert sum_in(job, "rollout", "parameters") == (0 if weights else WEIGHTS)
    assert sum_in(job, "rollout", "optimizer state") == (0 if states else STATES)
    assert sum_in(job, "optimizer step", "parameters", "optimizer state") == WEIGHTS + STATES
    asleep = 8 * (WEIGHTS * weights + STATES * states)
    assert asleep <= sum_on_host(job, "sleeping training states") <= 1.3 * asleep


@pytest.mark.parametrize("asleep", [False, True])
def test_the_share_of_an_older_vllm_includes_what_training_holds_when_it_starts(asleep: bool) -> None:
    job = make_job(rollout__utilization=0.8, rollout__weights_sleep=asleep, rollout__includes_training=True)
    context = sum_in(job, "rollout", "GPU context")
    pool = 0.8 * CARD.gpu_bytes - context - (0 if asleep else WEIGHTS)
    budget = get_gpu(estimate(job, LLAMA_8B, CARD), "rollout")
    assert sum_parts(budget, "rollout engine") == pytest.approx(pool, abs=8)
    check_budget(budget)


@pytest.mark.parametrize("asleep", [False, True])
def test_sglang_takes_a_share_of_what_is_free_when_it_starts(asleep: bool) -> None:
    job = make_job(rollout__engine="sglang", rollout__utilization=0.8, rollout__weights_sleep=asleep)
    budget = get_gpu(estimate(job, LLAMA_8B, CARD), "rollout")
    free = 80 * GIB - sum_parts(budget, "GPU context") - (0 if asleep else WEIGHTS)
    assert sum_parts(budget, "rollout engine") == pytest.approx(0.8 * free, abs=2)
    check_budget(budget)


def test_an_engine_that_discards_its_weights_keeps_none_on_the_host() -> None:
    assert sum_on_host(make_job(), "sleeping engines") == 0
    kept = make_job(rollout__sleep_discards=False)
    assert sum_on_host(kept, "sleeping engines") == 4 * 2 * LLAMA_8B.parameters


@pytest.mark.parametrize(
    ("strategy", "wakes_first", "gathered"),
    [("fsdp1", True, 4 * (ROOT + HEAD)), ("fsdp1", False, 0), ("fsdp2", True, 0)],
)
def test_new_weights_reach_the_engine_before_its_cache_does(strategy: str, wakes_first: bool, gathered: int) -> None:
    """FSDP1 copies its shards and gathers the root, of which it copies tensors; a buffer takes one at a time."""
    job = make_job(rollout__utilization=0.1, rollout__sync_bucket=GIB, parallel__strategy=strategy, rollout__micro=1)
    job = job.replace({"rollout.wakes_first": wakes_first})
    phase = estimate(job, LLAMA_8B, CARD).find_phase("rollout")
    assert phase is not None
    assert phase.event == "new weights for the engine"
    copied = WEIGHTS if strategy == "fsdp1" else 0
    sent = copied + max(gathered, GIB + 4 * HEAD)
    assert sum_in(job, "rollout", "weights on their way to the engine") == pytest.approx(sent, abs=8)
    assert sum_in(job, "rollout", "rollout engine") == 1.5 * GIB + LLAMA_8B.parameters
    assert "weights on their way" not in str(estimate(job.replace({"rollout.sync_bucket": None}), LLAMA_8B, CARD))


def test_the_whole_base_is_gathered_to_collect_an_adapter_unless_it_goes_layer_by_layer() -> None:
    lora = make_job(
        method__tuning="lora", method__lora_rank=32, method__lora_targets=("all-linear",), precision__adapter="fp32",
        rollout__utilization=0.2, rollout__gathers=True,
    )  # fmt: skip
    assert sum_in(lora, "rollout", "weights on their way to the engine") >= 4 * LLAMA_8B.parameters
    layered = estimate(lora.replace({"rollout.gathers": False}), LLAMA_8B, CARD).find_phase("rollout")
    assert layered is not None
    assert layered.event != "new weights for the engine"


@pytest.mark.parametrize(("offload", "states", "each"), [(False, False, 12), (True, False, 8), (True, True, 0)])
def test_a_critic_waits_beside_the_actor(offload: bool, states: bool, each: int) -> None:
    critic = Role("critic", NAME, True, 1, 8, "global", offload=offload, states_offload=states, micro=2)
    job = make_job(critic, method__stage="ppo")
    for phase in ("backward", "rollout"):
        assert sum_in(job, phase, "other models") == each * LLAMA_8B.parameters // 8


def test_a_critic_with_a_batch_of_its_own_has_an_update_of_its_own() -> None:
    """The actor waits beside it as far as it does not sleep; a score per token makes no logits."""
    critic = Role("critic", NAME, True, 1, 8, "global", micro=8)
    job = make_job(critic, method__stage="ppo", rollout__train_sleep=True)
    body = LLAMA_8B.parameters - HEAD + LLAMA_8B.hidden
    assert sum_in(job, "critic", "optimizer state") == 8 * body // 8
    assert sum_in(job, "critic", "other models") == 4 * body // 8
    assert sum_in(job, "critic", "logits and loss") == 0
    assert sum_in(job, "critic", "rollout engine") == 1.5 * GIB
    small = job.replace({"model.roles": (*(job.model.roles or ())[:1], critic._replace(micro=1))})
    assert sum_in(job, "critic", "activations") > 4 * sum_in(small, "critic", "activations")
    shared = job.replace({"model.roles": (*(job.model.roles or ())[:1], critic._replace(micro=None))})
    assert estimate(shared, LLAMA_8B, CARD).find_phase("critic") is None


def test_a_reference_waits_on_the_host() -> None:
    reference = Role("reference", NAME, False, 1, 8, "global", offload=True)
    assert sum_in(make_job(reference), "backward", "other models") == 0
    on_host = sum_on_host(make_job(reference), "offloaded models")
    assert 4 * LLAMA_8B.parameters <= on_host <= 1.3 * 4 * LLAMA_8B.parameters


@pytest.mark.parametrize(("strategy", "shards", "kept"), [("fsdp1", 8, 1), ("fsdp1", 1, 0), ("fsdp2", 8, 0)])
def test_a_reference_leaves_its_root_gathered(strategy: str, shards: int, kept: int) -> None:
    """Keep embedding, output matrix and final norm in 16 bits on every GPU, if several share the rest."""
    reference = Role("reference", NAME, False, 1, 8, "global", offload=True, keeps_root=True)
    job = make_job(reference, parallel__strategy=strategy, parallel__shard_size=shards)
    assert sum_in(job, "backward", "other models") == kept * 2 * ROOT


@pytest.mark.parametrize(("kind", "each"), [("policy", 2), ("policy_entropy_eager", 14), ("none", 6)])
def test_scoring_holds_the_logits_of_the_loss(kind: str, each: int) -> None:
    job = make_job(activations__fused_loss=kind, rollout__micro=16, rollout__sync_bucket=None, rollout__utilization=0.1)
    assert sum_in(job, "rollout", "logits and loss") == each * 16 * 2048 * LLAMA_8B.vocab


def sum_on_disk(job: Plan, *names: str) -> int:
    save = estimate(job, LLAMA_8B, CARD).find_phase("save")
    assert save is not None
    assert save.disk is not None
    return sum_parts(save.disk, *names)


def test_a_checkpoint_holds_the_shards_of_every_trained_model() -> None:
    """Write 12 bytes per parameter, and 4 more for Hugging Face's weights, which rank 0 gathers."""
    critic = Role("critic", NAME, True, 1, 8, "global", micro=2)
    whole = 4 * LLAMA_8B.parameters
    assert sum_on_disk(make_job(), "weights", "optimizer state") == 3 * whole
    assert sum_on_disk(make_job(critic), "other models' states") == 3 * whole
    exported = make_job(checkpoint__hf_export=True)
    assert sum_on_disk(exported, "weights", "optimizer state") == 4 * whole
    save = estimate(exported, LLAMA_8B, CARD).find_phase("save")
    assert save is not None
    assert save.host is not None
    assert sum_parts(save.host, "gathered weights") == whole


def test_the_checkpoints_of_an_adapter_may_hold_the_base_too() -> None:
    lora = make_job(
        method__tuning="lora", method__lora_rank=32, method__lora_targets=("all-linear",), precision__adapter="fp32",
        checkpoint__frozen=True,
    )  # fmt: skip
    adapter = sum_on_disk(lora.replace({"checkpoint.frozen": None}), "weights")
    assert sum_on_disk(lora, "weights") == pytest.approx(4 * LLAMA_8B.parameters + adapter, abs=8)


def test_ranks_that_share_a_sequence_score_a_part_of_it() -> None:
    whole, shared = (
        make_job(rollout__micro=32, rollout__utilization=0.1, rollout__sync_bucket=None, parallel__context=degree)
        for degree in (1, 4)
    )
    assert sum_in(whole, "rollout", "logits and loss") == 4 * sum_in(shared, "rollout", "logits and loss")


@pytest.mark.parametrize("strategy", ["fsdp1", "fsdp2"])
def test_the_arithmetic_of_every_phase_is_shown(strategy: str) -> None:
    critic = Role("critic", NAME, True, 1, 8, "global", offload=True, micro=2)
    reference = Role("reference", NAME, False, 1, 8, "global", offload=True, keeps_root=True)
    job = make_job(
        critic, reference, method__stage="ppo", parallel__strategy=strategy, rollout__train_sleep=True,
        rollout__weights_sleep=True, rollout__utilization=0.1, rollout__sleep_discards=None,
    )  # fmt: skip
    result = estimate(job, LLAMA_8B, CARD)
    assert {"rollout", "critic", "save"} <= {phase.name for phase in result.phases}
    for budget in list_budgets(result):
        check_budget(budget)

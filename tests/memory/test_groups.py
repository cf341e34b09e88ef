"""Models of a reinforcement-learning job on separate GPUs, and the passes that only score."""

from __future__ import annotations

from typing import Any

import pytest

from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.memory.estimate import estimate
from cfglint_train.plan.fields import Role
from tests.memory.jobs import GIB, LLAMA_8B, get_gpu, make_zero, sum_parts

HEAD = LLAMA_8B.vocab * LLAMA_8B.hidden
BODY = LLAMA_8B.parameters - HEAD + LLAMA_8B.hidden


def make_job(stage: int = 3, critic: str = "critic", reward: str = "reward", **changes: Any) -> Any:
    """Build a job with an actor on 8 GPUs, a critic on 2, a reference on 4, and a reward model on 1."""
    roles = (
        Role("actor", "m", True, 1, 8, "actor"),
        Role("reference", "m", False, 1, 4, "reference"),
        Role("critic", "m", True, 1, 2, critic),
        Role("reward", "m", False, 1, 1, reward),
    )
    fields = {"model__id": "m", "method__stage": "ppo", "rollout__micro": 4, "rollout__engine": "none", **changes}
    return make_zero(stage, 8, model__roles=roles, **fields)


def test_a_critic_is_estimated_on_its_own_gpus() -> None:
    budget = get_gpu(estimate(make_job(), LLAMA_8B), "critic")
    assert sum_parts(budget, "master weights", "optimizer state") == BODY * 12 // 2
    assert sum_parts(budget, "parameters") == BODY * 2 // 2
    assert sum_parts(budget, "logits and loss") == 0


def test_models_that_share_the_actors_gpus_have_none_of_their_own() -> None:
    shared = estimate(make_job(critic="actor", reward="actor"), LLAMA_8B)
    assert {phase.name for phase in shared.phases}.isdisjoint(("critic", "reward"))
    assert "reference" in {phase.name for phase in shared.phases}


@pytest.mark.parametrize(("stage", "ranks"), [(3, 4), (2, 1)])
def test_a_reference_scores_on_its_own_gpus(stage: int, ranks: int) -> None:
    budget = get_gpu(estimate(make_job(stage), LLAMA_8B), "reference")
    assert sum_parts(budget, "frozen parameters") == LLAMA_8B.parameters * 2 // ranks
    assert sum_parts(budget, "logits and loss") == 4 * 2048 * LLAMA_8B.vocab * 6


def test_a_reward_model_makes_no_logits() -> None:
    budget = get_gpu(estimate(make_job(), LLAMA_8B), "reward")
    assert sum_parts(budget, "frozen parameters") == BODY * 2
    assert sum_parts(budget, "logits and loss") == 0


def test_a_reward_model_beside_the_critic_counts_there() -> None:
    result = estimate(make_job(reward="critic"), LLAMA_8B)
    assert result.find_phase("reward") is None
    assert sum_parts(get_gpu(result, "critic"), "other models") == BODY * 2 // 2


def test_tensor_parallelism_splits_every_model_on_the_actors_gpus() -> None:
    """The weights of a reward model with a name of its own are split like those of the actor."""

    def count_bytes(model: str, tensor: int) -> float:
        roles = (Role("actor", "m", True, 1, 8, "actor"), Role("reward", model, False, 1, 8, "actor"))
        job = make_zero(2, 8, model__id="m", method__stage="ppo", model__roles=roles, parallel__tensor=tensor)
        return sum_parts(get_gpu(estimate(job, LLAMA_8B), "backward"), "other models")

    assert count_bytes("meta-llama/Llama-3.1-8B", 2) == count_bytes("m", 2)
    assert count_bytes("meta-llama/Llama-3.1-8B", 2) < 0.6 * count_bytes("meta-llama/Llama-3.1-8B", 1)


def test_scoring_counts_on_the_actors_gpus() -> None:
    phase = estimate(make_job(), LLAMA_8B).find_phase("rollout")
    assert phase is not None
    assert phase.event == "scoring a micro batch"
    assert phase.gpu is not None
    assert sum_parts(phase.gpu, "logits and loss") == 4 * 2048 * LLAMA_8B.vocab * 6
    assert estimate(make_job(rollout__micro=None), LLAMA_8B).find_phase("rollout") is None


def test_an_engine_that_sleeps_keeps_no_weights_while_the_job_trains() -> None:
    colocated = {
        "rollout__engine": "vllm", "rollout__mode": "colocate", "rollout__sleep": True, "rollout__utilization": 0.5,
        "checkpoint__strategy": "steps", "checkpoint__gather": True,
    }  # fmt: skip
    result = estimate(make_job(**colocated), LLAMA_8B, Hardware(gpu_bytes=80 * GIB))
    assert sum_parts(get_gpu(result, "backward"), "rollout engine") == 1.5 * GIB
    assert sum_parts(get_gpu(result, "save"), "rollout engine") == 1.5 * GIB
    awake = estimate(make_job(**colocated, rollout__awake_at_save=True), LLAMA_8B, Hardware(gpu_bytes=80 * GIB))
    assert sum_parts(get_gpu(awake, "save"), "rollout engine") == 1.5 * GIB + 2 * LLAMA_8B.parameters


def test_states_that_sleep_lie_on_the_host() -> None:
    """Hold master weights and both states of one sub-group, and the gradients, in blocks of powers of two per rank."""
    asleep = estimate(make_job(critic="actor", rollout__train_sleep=True), LLAMA_8B).find_phase("optimizer step")
    assert asleep is not None
    assert asleep.host is not None
    share = LLAMA_8B.parameters // 8

    def round_to_block(size: int) -> int:
        return 1 << (size - 1).bit_length()

    assert sum_parts(asleep.host, "sleeping training states") == 8 * 2 * (
        3 * round_to_block(4 * share) + round_to_block(2 * share)
    )

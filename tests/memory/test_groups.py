"""Models of a reinforcement-learning job on GPUs of their own, and the passes that only score."""

from __future__ import annotations

from typing import Any

import pytest

from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.memory.estimate import estimate
from cfglint_train.plan.fields import Role
from tests.memory.jobs import GIB, LLAMA_8B, gpu, part, zero

HEAD = LLAMA_8B.vocab * LLAMA_8B.hidden
BODY = LLAMA_8B.parameters - HEAD + LLAMA_8B.hidden


def job(stage: int = 3, critic: str = "critic", reward: str = "reward", **changes: Any) -> Any:
    """An actor on 8 GPUs, a critic on 2, a reference on 4, a reward model on 1."""
    roles = (
        Role("actor", "m", True, 1, 8, "actor"),
        Role("reference", "m", False, 1, 4, "reference"),
        Role("critic", "m", True, 1, 2, critic),
        Role("reward", "m", False, 1, 1, reward),
    )
    fields = {"model__id": "m", "method__stage": "ppo", "rollout__micro": 4, "rollout__engine": "none", **changes}
    return zero(stage, 8, model__roles=roles, **fields)


def test_a_critic_is_estimated_on_its_own_gpus() -> None:
    found = gpu(estimate(job(), LLAMA_8B), "critic")
    assert part(found, "master weights", "optimizer state") == BODY * 12 // 2
    assert part(found, "parameters") == BODY * 2 // 2
    assert part(found, "logits and loss") == 0


def test_models_that_share_the_actors_gpus_have_none_of_their_own() -> None:
    shared = estimate(job(critic="actor", reward="actor"), LLAMA_8B)
    assert {phase.name for phase in shared.phases}.isdisjoint(("critic", "reward"))
    assert "reference" in {phase.name for phase in shared.phases}


@pytest.mark.parametrize(("stage", "ranks"), [(3, 4), (2, 1)])
def test_a_reference_scores_on_its_own_gpus(stage: int, ranks: int) -> None:
    found = gpu(estimate(job(stage), LLAMA_8B), "reference")
    assert part(found, "frozen parameters") == LLAMA_8B.parameters * 2 // ranks
    assert part(found, "logits and loss") == 4 * 2048 * LLAMA_8B.vocab * 6


def test_a_reward_model_makes_no_logits() -> None:
    found = gpu(estimate(job(), LLAMA_8B), "reward")
    assert part(found, "frozen parameters") == BODY * 2
    assert part(found, "logits and loss") == 0


def test_a_reward_model_beside_the_critic_counts_there() -> None:
    beside = estimate(job(reward="critic"), LLAMA_8B)
    assert beside.phase("reward") is None
    assert part(gpu(beside, "critic"), "other models") == BODY * 2 // 2


def test_scoring_counts_on_the_actors_gpus() -> None:
    found = estimate(job(), LLAMA_8B).phase("rollout")
    assert found is not None
    assert found.event == "a micro batch is scored"
    assert found.gpu is not None
    assert part(found.gpu, "logits and loss") == 4 * 2048 * LLAMA_8B.vocab * 6
    assert estimate(job(rollout__micro=None), LLAMA_8B).phase("rollout") is None


def test_an_engine_that_sleeps_keeps_no_weights_while_the_job_trains() -> None:
    colocated = {
        "rollout__engine": "vllm", "rollout__mode": "colocate", "rollout__sleep": True, "rollout__utilization": 0.5,
        "checkpoint__strategy": "steps", "checkpoint__gather": True,
    }  # fmt: skip
    found = estimate(job(**colocated), LLAMA_8B, Hardware(gpu_bytes=80 * GIB))
    assert part(gpu(found, "backward"), "rollout engine") == 1.5 * GIB
    assert part(gpu(found, "save"), "rollout engine") == 1.5 * GIB
    awake = estimate(job(**colocated, rollout__awake_at_save=True), LLAMA_8B, Hardware(gpu_bytes=80 * GIB))
    assert part(gpu(awake, "save"), "rollout engine") == 1.5 * GIB + 2 * LLAMA_8B.parameters


def test_states_that_sleep_lie_on_the_host() -> None:
    """Master weights and both states of one sub-group, and the gradients, in blocks of powers of two per rank."""
    asleep = estimate(job(critic="actor", rollout__train_sleep=True), LLAMA_8B).phase("optimizer step")
    assert asleep is not None
    assert asleep.host is not None
    share = LLAMA_8B.parameters // 8

    def block(size: int) -> int:
        return 1 << (size - 1).bit_length()

    assert part(asleep.host, "sleeping training states") == 8 * 2 * (3 * block(4 * share) + block(2 * share))

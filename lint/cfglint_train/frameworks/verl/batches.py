"""Batches that verl divides evenly among the GPUs.

Sources: verl 0.9.1 `utils/config.py` (validate_config), `workers/engine_workers.py` (train_mini_batch); 0.3.0.post1 to
0.7.1 `trainer/ppo/ray_trainer.py` (_validate_config), `workers/fsdp_workers.py` (ppo_mini_batch_size // ranks).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import format_count
from cfglint_train.frameworks.framework import EvenBatch
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.verl import names as key
from cfglint_train.frameworks.verl.lenses import COUNT, is_dynamic
from cfglint_train.frameworks.verl.settings import has_known_tree, is_complete, is_easyr1, is_ppo, read
from cfglint_train.plan.fields import Plan

_DYNAMIC_UNCHECKED: Final = "0.6.0"
"""First release that does not check the rollouts of dynamic batches (`utils/config.py`)."""


def list_even_batches(config: Config, plan: Plan) -> Iterator[EvenBatch]:
    """Yield the answers of a step and those of an update, which must divide evenly."""
    ranks, samples = plan.world_size, plan.rollout.samples_per_prompt
    if not is_ppo(config) or not is_complete(config) or not samples:
        return
    prompts, mini = plan.rollout.batch, (plan.batch.global_ or 0) // samples
    times = f" x `rollout.n` {samples}"
    if is_easyr1(config):
        # verl/trainer/ray_trainer.py, RayPPOTrainer.__init__
        scoring = read(config, COUNT, *key.SCORE_MICRO)
        whole = f"`{key.PROMPTS[-1]}`"
        if prompts and mini:
            unit = f"`{key.MINI[-1]}` {mini:,}"
            yield EvenBatch(f"{whole} {prompts:,}", prompts, mini, unit, "EasyR1 refuses to start", "rollout.batch")
        if prompts and scoring:
            text, unit = f"{whole} {prompts:,}{times}", f"`{key.SCORE_MICRO[-1]}` {scoring:,}"
            answers = prompts * samples
            yield EvenBatch(text, answers, scoring, unit, "EasyR1 refuses to start", "rollout.batch", samples)
        return
    if not ranks or plan.parallel.strategy is None or not has_known_tree(config):
        return
    dynamic = is_dynamic(config)
    if prompts and dynamic is not None:
        yield EvenBatch(
            f"`{key.PROMPTS[0]}` {prompts:,}{times}",
            prompts * samples,
            ranks,
            f"the {format_count(ranks, 'GPU')}",
            "verl refuses to start",
            "rollout.batch",
            samples,
            before=_DYNAMIC_UNCHECKED if dynamic else "",
            checked="real_train_batch_size",
        )
    context = plan.parallel.context or 1
    if mini and ranks % context == 0:
        yield EvenBatch(
            f"`{key.MINI[0]}` {mini:,}{times}",
            mini * samples,
            ranks // context,
            f"the {format_count(ranks // context, 'data-parallel rank')}",
            "the first update fails",
            "batch.global_",
            samples,
            samples,
            # Before, each rank rounds its share down, and only a share of nothing is refused.
            since="" if mini * samples < ranks // context else "0.8.0",
        )

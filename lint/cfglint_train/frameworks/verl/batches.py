"""Batches that verl divides evenly among the GPUs.

Sources: verl 0.9.1 `utils/config.py` (validate_config), `workers/engine_workers.py` (train_mini_batch),
`workers/engine/utils.py` (prepare_micro_batches); 0.3.0.post1 to 0.7.1 `trainer/ppo/ray_trainer.py` (_validate_config),
`workers/fsdp_workers.py` (ppo_mini_batch_size // ranks; the micro batch since 0.4.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import format_count
from cfglint_train.frameworks.framework import EvenBatch
from cfglint_train.frameworks.lens import Config, is_before
from cfglint_train.frameworks.verl import names as key
from cfglint_train.frameworks.verl.lenses import COUNT, is_dynamic
from cfglint_train.frameworks.verl.settings import find_origin, has_own_trainer, is_complete, is_ppo, read
from cfglint_train.plan.fields import Plan

_EXACT_SHARES: Final = "0.8.0"
"""First release whose only workers refuse an update that the ranks do not divide evenly (train_mini_batch)."""
_DYNAMIC_UNCHECKED: Final = "0.6.0"
"""First release that does not check the rollouts of dynamic batches (`utils/config.py`)."""


def list_even_batches(config: Config, plan: Plan) -> Iterator[EvenBatch]:
    """Yield the answers of a step, of an update, and of a rank's share of an update, which must divide evenly."""
    ranks, samples = plan.world_size, plan.rollout.samples_per_prompt
    if not is_ppo(config) or not is_complete(config) or not samples:
        return
    prompts, mini = plan.rollout.batch, (plan.batch.global_ or 0) // samples
    times = f" x `rollout.n` {samples}"
    if not ranks or plan.parallel.strategy is None or not has_own_trainer(config):
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
            assumption="" if is_before(config, _DYNAMIC_UNCHECKED) else find_origin(config, *key.DYNAMIC).assumption,
        )
    context = plan.parallel.context or 1
    if not mini or ranks % context:
        return
    groups = ranks // context
    yield EvenBatch(
        f"`{key.MINI[0]}` {mini:,}{times}",
        mini * samples,
        groups,
        f"the {format_count(groups, 'data-parallel rank')}",
        "the first update fails",
        "batch.global_",
        samples,
        samples,
        # Before, each rank rounds its share down, and only a share of nothing is refused.
        since="" if mini * samples < groups else _EXACT_SHARES,
    )
    share, micro = mini * samples // groups, read(config, COUNT, *key.MICRO)
    is_old, name = is_before(config, _EXACT_SHARES), key.MICRO[0].rpartition(".")[2]
    if share and micro and dynamic is False and (is_old or mini * samples % groups == 0):
        yield EvenBatch(
            f"a rank's share, {mini:,} x {samples} / {groups:,} = {share:,} answers,",
            share,
            micro,
            f"`{name}` {micro:,}",
            "verl refuses to start" if is_old else "the first update fails",
            "batch.micro",
            is_unit=True,
            since="0.4.0",
            checked=f"actor.{name}" if is_old else name.removeprefix("ppo_"),
            assumption=find_origin(config, *key.DYNAMIC).assumption,
        )

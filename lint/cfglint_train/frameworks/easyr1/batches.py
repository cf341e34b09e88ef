"""Batches that EasyR1 divides evenly.

Sources: hiyouga/EasyR1 v0.3.0 to v0.3.2 and b44b311 (0.3.3.dev0), `verl/trainer/ray_trainer.py` (__init__),
`verl/workers/fsdp_workers.py` (_init_config, _init_dist_mesh), `verl/protocol.py` (DataProto.chunk).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import format_count
from cfglint_train.frameworks.easyr1.infer import needs_critic
from cfglint_train.frameworks.framework import EvenBatch
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.verl import names as key
from cfglint_train.frameworks.verl.lenses import COUNT
from cfglint_train.frameworks.verl.settings import read
from cfglint_train.plan.fields import Plan

_REFUSED = "EasyR1 refuses to start"
_CRITIC_ULYSSES: Final = ("worker.critic.ulysses_size", "worker.critic.ulysses_sequence_parallel_size")


def list_even_batches(config: Config, plan: Plan) -> Iterator[EvenBatch]:
    """Yield the prompts and answers of a step, and a rank's share of an update, which must divide evenly.

    A file that no command starts may be completed by its command.
    """
    ranks, samples, prompts = plan.world_size, plan.rollout.samples_per_prompt, plan.rollout.batch
    if not config.launches or not samples:
        return
    whole, times = f"`{key.PROMPTS[-1]}` {prompts or 0:,}", f" x `rollout.n` {samples}"
    settings = [(key.MINI[-1], key.SCORE_MICRO[-1])]
    if needs_critic(config):
        settings.append((key.CRITIC_MINI[-1], key.CRITIC_SCORE_MICRO[-1]))
    for mini_name, score_name in settings:
        mini, scoring = read(config, COUNT, mini_name), read(config, COUNT, score_name)
        if prompts and mini:
            yield EvenBatch(whole, prompts, mini, f"`{mini_name}` {mini:,}", _REFUSED, "rollout.batch")
        if prompts and scoring:
            text, unit = f"{whole}{times}", f"`{score_name}` {scoring:,}"
            yield EvenBatch(text, prompts * samples, scoring, unit, _REFUSED, "rollout.batch", samples)
    if not ranks:
        return
    if prompts and read(config, COUNT, *key.GENERATED) is None:
        unit = f"the {format_count(ranks, 'GPU')}"
        yield EvenBatch(whole, prompts, ranks, unit, "the first generation fails", "rollout.batch")
    yield from _list_shares(config, plan.parallel.context or 1, ranks, samples, key.MINI[-1], key.MICRO[-1])
    if needs_critic(config):
        context = read(config, COUNT, *_CRITIC_ULYSSES) or 1
        yield from _list_shares(config, context, ranks, samples, key.CRITIC_MINI[-1], key.CRITIC_MICRO[-1])


def _list_shares(
    config: Config, context: int, ranks: int, samples: int, mini_name: str, micro_name: str
) -> Iterator[EvenBatch]:
    """Yield a rank's share of an update of the actor or the critic; a share of nothing is refused, too."""
    mini, micro = read(config, COUNT, mini_name), read(config, COUNT, micro_name)
    if not mini or not micro or ranks % context:
        return
    groups, is_critic = ranks // context, mini_name != key.MINI[-1]
    share = mini * samples // groups
    if share:
        name = f"{'the critic' if is_critic else 'a rank'}'s share"
        text = f"{name}, {mini:,} x {samples} / {groups:,} = {share:,} answers,"
        unit, setting = f"`{micro_name}` {micro:,}", micro_name if is_critic else ""
        yield EvenBatch(text, share, micro, unit, _REFUSED, "batch.micro", is_unit=True, setting=setting)
        return
    text, unit = f"`{mini_name}` {mini:,} x `rollout.n` {samples}", f"the {groups:,} data-parallel ranks"
    setting = mini_name if is_critic else ""
    yield EvenBatch(text, mini * samples, groups, unit, _REFUSED, "batch.global_", samples, samples, setting=setting)

"""BAT002 batch-not-divisible: the global batch cannot be divided evenly among the ranks.

## What it does
Checks the batch arithmetic that each framework asserts at startup or silently rounds:

- OpenRLHF: `train.batch_size` must be a multiple of micro batch x ranks in *every* group of models (actor, critic,
  reference, reward).
- OLMo: `global_train_batch_size` must be a multiple of the ranks.
- OLMo-core: the global batch must be a multiple of `rank_microbatch_size` x ranks, and the global batch and
  `rank_microbatch_size` must be multiples of `max_sequence_length`.
- verl: `data.train_batch_size` x `rollout.n` must be a multiple of the GPUs, and `ppo_mini_batch_size` x `rollout.n` of
  the data-parallel ranks. The share of each rank must be a multiple of the micro batch.
- GRPO in axolotl and TRL: the number of completions must be a multiple of `num_generations`. In TRL,
  `generation_batch_size` must also be a multiple of micro batch x ranks.

For OpenRLHF with dynamic batches, the rule also reports rollouts with fewer samples than a training batch. It also
reports training batches that cannot be divided evenly among the data-parallel ranks.

## Why is this bad?
OpenRLHF stops with DeepSpeed's AssertionError after it has loaded every model. An untrained group can fail as well,
because the reference model's DeepSpeed engine has the same batch size. OLMo stops in its data loader. GRPO rejects a
number of completions that is not a multiple of the group size.

With dynamic batches, OpenRLHF makes `samples // batch_size` optimizer steps per rollout. If that is 0, nothing is
trained, without a warning. Each rank gets `batch_size // ranks` samples of a batch. If that is 0, the first training
step crashes. Otherwise each step drops the remainder.

## Example
    --train.batch_size 128 --train.micro_batch_size 4 --ref.num_gpus_per_node 6

## Use instead
    --ref.num_gpus_per_node 8

## Fix safety
Unsafe: the fix changes the batch or the group. GRPO and verl have a fix, which is the smallest change. For verl it sets
the nearest batch, or the largest smaller micro batch. For GRPO it sets more accumulation, another number of completions
per prompt, or a larger micro batch. If TRL's `generation_batch_size` is stated and does not fit the ranks, the fix sets
it to the nearest valid value.

## When it does not apply
With dynamic batches (`--train.dynamic_batch_enable`), the micro batch is not checked for trained groups. If the
number of ranks is not stated, the rule uses only OpenRLHF's own flags for each role.

## References
OpenRLHF 0.11.2 `utils/deepspeed/deepspeed.py` (setup_distributed), `trainer/ppo_utils/replay_buffer.py`
(setup_dynamic_batch), deepspeed 0.19.8 `runtime/config.py`; ai2-olmo
0.6.0 `data/iterable_dataset.py`; ai2-olmo-core 3.0.0 `train/train_module/transformer/train_module.py`, 2.0.0
`train/train_module/transformer.py`; axolotl 0.18.0 `utils/schemas/validation.py` (check_grpo_batch_size_divisibility);
verl 0.9.1 `utils/config.py` (validate_config), `workers/engine_workers.py` (train_mini_batch),
`workers/engine/utils.py` (prepare_micro_batches);
trl 0.15.2 `trainer/grpo_trainer.py`, 1.16.0 `trainer/grpo_config.py` (`__post_init__`); huggingface/trl#3061, #2858,
#2876, huggingface/open-r1#249, allenai/olmocr#394.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd, lcm

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.foundation.wording import format_count
from cfglint_train.frameworks.framework import EvenBatch
from cfglint_train.plan.certainty import Ground
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Place
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "BAT002",
    "batch-not-divisible",
    "error",
    particular=True,
    fix="unsafe",
    writes=(
        "batch.accumulation",
        "batch.global_",
        "batch.micro",
        "rollout.batch",
        "rollout.completions",
        "rollout.samples_per_prompt",
    ),
    depends_on_unseen_flags=True,
)


def check(run: Run) -> Iterator[Report]:
    """Yield a report for every batch, group or number of completions that cannot be divided evenly."""
    if run.framework.traits.batch_divisor == "groups":
        yield from _check_groups(run)
        yield from _check_rollouts(run)
        yield from _check_dynamic_batches(run)
    elif run.framework.traits.batch_divisor is not None:
        yield from _check_global_batch(run)
    yield from _check_even_batches(run)
    yield from _check_completions(run)
    yield from _check_tokens(run)


def _check_even_batches(run: Run) -> Iterator[Report]:
    """Yield a report for every batch that the framework cannot divide among its GPUs, with the nearest valid value."""
    for batch in run.framework.traits.list_even_batches(run.main, run.plan):
        copy = run.main.evidence.vocabulary
        is_unchecked = batch.checked and copy is not None and not copy.code.has_condition((batch.checked,), stops=True)
        is_uncertain = batch.since and run.main.evidence.fork is not None  # the fork may be older
        if batch.sequences % batch.unit == 0 or is_unchecked or is_uncertain:
            continue
        candidates = run.main.releases.find_candidates(run.framework.manifest.package)
        covered = [_is_covered(batch, release) for release in candidates.releases]
        if not any(covered) or (batch.before and not _is_covered(batch, candidates.chosen)):
            continue
        if batch.is_unit:
            nearest = next(size for size in range(batch.unit, 0, -1) if batch.sequences % size == 0)
        else:
            step = batch.unit // gcd(batch.unit, batch.factor)
            nearest = _find_nearest_multiple(batch.sequences // batch.factor, step)
        key, total = batch.setting or run.spell_key(batch.field), f" = {batch.sequences:,}" if batch.factor > 1 else ""
        yield Report(
            f"{batch.text}{total} is not a multiple of {batch.divisor}: "
            f"{batch.outcome}{'' if all(covered) else f' ({_format_bound(batch, run.framework.title)})'}",
            _find_setting(run, batch.setting) or run.find_place(batch.field),
            None if all(covered) else "warning",
            fix=None if batch.setting else Fix("unsafe", f"{key}: {nearest}", {batch.field: nearest * batch.scale}),
            help=f"set `{key}` to {nearest}" if batch.setting else None,
            grounds=(Ground("batch", None, "assumed", batch.assumption),) if batch.assumption else (),
            claim=_UNEVEN_BATCH,
        )


def _find_setting(run: Run, name: str) -> Place | None:
    """Return the place of a dotted setting, or None if it is not stated."""
    route = tuple(name.split("."))
    return run.main.get_origin(*route).place if name and run.main.has(*route) else None


def _is_covered(batch: EvenBatch, release: str) -> bool:
    """Return whether a release divides a batch evenly."""
    version = parse_release(release)
    is_since = version >= parse_release(batch.since or release)
    return is_since and (not batch.before or version < parse_release(batch.before))


def _format_bound(batch: EvenBatch, title: str) -> str:
    """Return the releases that divide a batch evenly, in words."""
    return f"since {title} {batch.since}" if batch.since else f"before {title} {batch.before}"


def _check_completions(run: Run) -> Iterator[Report]:
    """Yield a report if GRPO completions are not divisible by the group size or the micro batches of all ranks."""
    plan = run.plan
    completions, group_size = plan.rollout.completions, plan.rollout.samples_per_prompt
    if not completions or not group_size or group_size < 2 or _is_derived_from_ranks(run, completions):
        return
    key, name = run.spell_key("rollout.samples_per_prompt"), run.framework.title
    ranks = plan.data_parallel if run.is_stated("launch.gpus_per_node") else 1  # a single rank if no file states more
    unit = (plan.batch.micro or 0) * (ranks or 0)
    if run.is_stated("rollout.completions") and unit and completions % unit:
        batch = run.spell_key("rollout.completions")
        nearest = _find_nearest_multiple(completions, lcm(unit, group_size))
        yield Report(
            f"`{batch}` is {completions}, not a multiple of the {unit} sequences in a micro batch across all ranks: "
            f"{name} refuses to start",
            run.find_place("rollout.completions"),
            fix=Fix("unsafe", f"{batch}: {nearest}", {"rollout.completions": nearest}),
            claim=_UNEVEN,
        )
    elif completions % group_size:
        stated_fields: tuple[Field, ...] = ("rollout.completions",) if run.is_stated("rollout.completions") else ()
        yield Report(
            f"`{key}` is {group_size}, which does not divide the {format_count(completions, 'completion')} of a step: "
            f"{name} refuses to start",
            run.find_place(*stated_fields, "rollout.samples_per_prompt", "batch.accumulation"),
            fix=_build_smallest_fix(run, group_size),
            claim=_UNEVEN if stated_fields else None,
        )


_UNEVEN: Final = "the completions do not come out even"
"""Claim about stated completions: no number of GPUs makes them divisible by the group size."""
_UNEVEN_BATCH: Final = "the batch does not come out even over the ranks"
"""Claim about a batch that cannot be divided evenly, which stays true for any multiple of the number of nodes."""


def _is_derived_from_ranks(run: Run, completions: int) -> bool:
    """Return whether the number of completions follows from a number of GPUs that no file states or implies."""
    gpus, origin = run.plan.launch.gpus_per_node, run.resolved_plan.get_origin("launch.gpus_per_node")
    if gpus is None or run.is_stated("launch.gpus_per_node") or (origin is not None and origin.kind == "inferred"):
        return False
    return run.replace_fields({"launch.gpus_per_node": gpus + 1}).plan.rollout.completions != completions


def _build_smallest_fix(run: Run, group_size: int) -> Fix | None:
    """Return the smallest change that makes the completions divisible, or None if no file can express it.

    The message of the fix lists the alternatives as well.
    """
    options: list[tuple[float, str, Field, int]] = []
    candidates = sorted(range(2, 2 * group_size), key=lambda number: (abs(number - group_size), number))
    for field in _ADJUSTABLE_FIELDS:
        present_value = run.plan.get(field)
        larger_values = range(present_value + 1, present_value + group_size + 1) if present_value else range(0)
        values: Sequence[int] = candidates if field == "rollout.samples_per_prompt" else larger_values
        number = next((candidate for candidate in values if _is_divisible(run, field, candidate)), None)
        if number is not None and not (field == "batch.micro" and options):
            options.append(
                (
                    max(number / present_value, present_value / number),
                    f"{run.spell_key(field)}: {number}",
                    field,
                    number,
                )
            )
    options.sort(key=lambda candidate: (run.framework.explain_unwritable(candidate[2]) is not None, candidate[0]))
    if not options or run.framework.explain_unwritable(options[0][2]) is not None:
        return None
    _, _, field, number = options[0]
    return Fix("unsafe", ", or ".join(words for _, words, _, _ in options), {field: number})


_ADJUSTABLE_FIELDS: Final[tuple[Field, ...]] = ("batch.accumulation", "rollout.samples_per_prompt", "batch.micro")
"""Fields that can make the completions divisible. A larger micro batch needs memory, so it comes last."""


def _is_divisible(run: Run, field: Field, number: int) -> bool:
    """Return whether the group size divides the completions after a field is changed."""
    rollout = run.replace_fields({field: number}).plan.rollout
    return bool(rollout.completions and rollout.samples_per_prompt) and (
        rollout.completions % rollout.samples_per_prompt == 0  # type: ignore[operator]
    )


def _check_tokens(run: Run) -> Iterator[Report]:
    """Yield a report for every batch in tokens (OLMo-core) that is not a whole number of sequences.

    The number of ranks does not matter: the global batch must be a multiple of the micro batch, which must itself be a
    whole number of sequences.
    """
    plan, length = run.plan, run.plan.sequence.length
    ranks = plan.data_parallel if run.is_stated("launch.gpus_per_node") else 1
    sequences_per_step = (plan.batch.micro or 1) * (ranks or 1)
    batches: tuple[tuple[Field, int | None, int], ...] = (
        ("batch.micro_tokens", plan.batch.micro_tokens, 1),
        ("batch.global_tokens", plan.batch.global_tokens, sequences_per_step),
    )
    for field, tokens, sequences in batches:
        if not tokens or not length or tokens % length == 0:
            continue
        key, unit = run.spell_key(field), run.spell_key("sequence.length")
        nearest = (
            _find_nearest_multiple(tokens, length * sequences) if sequences > 1 else max(1, tokens // length) * length
        )
        yield Report(
            f"`{key}` is {tokens:,} tokens, not a multiple of `{unit}` ({length:,}): {run.framework.title} "
            "refuses to start",
            run.find_place(field, "sequence.length"),
            help=f"set `{key}` to {nearest:,}",
        )


def _check_groups(run: Run) -> Iterator[Report]:
    plan = run.plan
    global_batch, micro = plan.batch.global_, plan.batch.micro
    if global_batch is None or micro is None or micro < 1:
        return
    groups = {f"the trained model{_format_node_note(run)}": plan.world_size} if not plan.model.roles else {}
    for role in plan.model.roles or ():
        if (
            role.nodes
            and role.gpus_per_node
            and role.name != "ema"
            and not (role.trained and plan.batch.tokens_per_gpu)
        ):
            groups[f"the {role.name}'s group"] = role.nodes * role.gpus_per_node
    if not plan.model.roles and plan.batch.tokens_per_gpu:
        return
    # OpenRLHF multiplies the batch by the ring and tensor sizes, and DeepSpeed divides it by all ranks.
    model_parallel_size = (plan.parallel.context or 1) * (plan.parallel.tensor or 1)
    batch, micro_key = run.spell_key("batch.global_"), run.spell_key("batch.micro")
    scaled_batch = f"`{batch}` is {global_batch}{f' x {model_parallel_size}' if model_parallel_size > 1 else ''}"
    place = run.find_place("batch.global_", "batch.micro")
    units = [micro * ranks // gcd(micro * ranks, model_parallel_size) for ranks in groups.values() if ranks]
    if not units:
        return
    advice = f"set `{batch}` to {_find_nearest_multiple(global_batch, lcm(*units))}, the nearest valid value"
    if (global_batch * model_parallel_size) % micro:
        yield Report(
            f"{scaled_batch}, not a multiple of `{micro_key}: {micro}` on any number of ranks",
            place,
            min_certainty="followed",
            help=advice,
        )
        return
    for ranks in dict.fromkeys(filter(None, groups.values())):
        if (global_batch * model_parallel_size) % (micro * ranks):
            names = " and ".join(name for name, count in groups.items() if count == ranks)
            yield Report(
                f"{scaled_batch}, not a multiple of `{micro_key}: {micro}` x the {ranks} ranks of {names}",
                place,
                min_certainty="followed",
                help=advice,
                claim=_UNEVEN_BATCH,
            )


def _format_node_note(run: Run) -> str:
    """Return a note that the ranks are those of one node if the number of nodes is assumed, else an empty string."""
    origin = run.get_origin("launch.nodes")
    return " on one node, or on any number of such nodes" if origin is None or origin.kind == "assumed" else ""


def _check_rollouts(run: Run) -> Iterator[Report]:
    """Yield a report if a rollout with dynamic batches is smaller than a training batch, so no step is taken."""
    plan = run.plan
    prompts, samples_per_prompt, global_batch = plan.rollout.batch, plan.rollout.samples_per_prompt, plan.batch.global_
    if (
        not plan.batch.tokens_per_gpu
        or not prompts
        or not samples_per_prompt
        or not global_batch
        or prompts * samples_per_prompt >= global_batch
    ):
        return
    batch, rollout = run.spell_key("batch.global_"), run.spell_key("rollout.batch")
    yield Report(
        f"a rollout of `{rollout}` {prompts:,} x {samples_per_prompt} = {prompts * samples_per_prompt:,} samples is "
        f"smaller than `{batch}` {global_batch:,}: with dynamic batches, nothing is trained",
        run.find_place("rollout.batch", "batch.global_"),
        help=f"set `{batch}` to {prompts * samples_per_prompt}, or use more prompts per rollout",
    )


def _check_dynamic_batches(run: Run) -> Iterator[Report]:
    """Yield a report for every trained group that cannot divide a dynamic batch evenly among its ranks."""
    plan = run.plan
    global_batch, model_parallel_size = plan.batch.global_, (plan.parallel.context or 1) * (plan.parallel.tensor or 1)
    if not plan.batch.tokens_per_gpu or not global_batch:
        return
    key = run.spell_key("batch.global_")
    groups = [role for role in plan.model.roles or () if role.trained and role.nodes and role.gpus_per_node]
    for role in groups:
        ranks = (role.nodes or 0) * (role.gpus_per_node or 0) // model_parallel_size
        if not ranks or global_batch % ranks == 0:
            continue
        is_too_small = global_batch < ranks
        consequence = (
            "the first training step crashes"
            if is_too_small
            else f"each step drops {format_count(global_batch % ranks, 'sample')}"
        )
        yield Report(
            f"`{key}` is {global_batch:,}, {'less than' if is_too_small else 'not a multiple of'} the {ranks:,} "
            f"data-parallel ranks of the {role.name}'s group: with dynamic batches, {consequence}",
            run.find_place("batch.global_"),
            "error" if is_too_small else "warning",
            min_certainty="followed",
            help=f"set `{key}` to {_find_nearest_multiple(global_batch, ranks)}, the nearest valid value",
        )


def _find_nearest_multiple(number: int, unit: int) -> int:
    """Return the positive multiple of `unit` that is nearest to `number`."""
    lower_multiple = number // unit * unit
    return lower_multiple if lower_multiple and number - lower_multiple <= unit // 2 else lower_multiple + unit


def _check_global_batch(run: Run) -> Iterator[Report]:
    plan, ranks = run.plan, run.plan.data_parallel
    global_batch = plan.batch.global_
    if global_batch is None or not ranks or not run.is_stated("batch.global_"):
        return
    unit = ranks
    divisor = f"the {ranks} data-parallel ranks{_format_node_note(run)}"
    if run.framework.traits.batch_divisor == "micro batches" and plan.batch.micro and plan.batch.micro > 0:
        unit, divisor = ranks * plan.batch.micro, f"{format_count(plan.batch.micro, 'sequence')} x {divisor}"
    if global_batch % unit:
        yield Report(
            f"the global batch of {global_batch} sequences is not a multiple of {divisor}",
            run.find_place("batch.global_"),
            min_certainty="followed",
            help=f"set `{run.spell_key('batch.global_')}` to {_find_nearest_multiple(global_batch, unit)}, the "
            "nearest valid value",
            claim=_UNEVEN_BATCH,
        )

"""BAT002 batch-not-divisible: the global batch does not come out even over the ranks.

## What it does
Checks the arithmetic that each framework asserts at start or silently rounds: OpenRLHF's `train.batch_size` over
the micro batch and the ranks of *every* group of models (actor, critic, reference, reward), OLMo's
`global_train_batch_size` over the ranks, OLMo-core's global batch over `rank_microbatch_size` x ranks and
both over `max_sequence_length`, and GRPO's completions over groups of `num_generations` (axolotl,
TRL), with TRL's `generation_batch_size` over the micro batches of all ranks.
In OpenRLHF it also reports dynamic batches whose rollout holds fewer samples than one training batch, and training
batches that do not come out even over the ranks that see different samples.

## Why is this bad?
OpenRLHF's engines stop with DeepSpeed's AssertionError after every model was loaded, and the group that fails need
not be the one that trains: the reference model's engine carries the same batch. OLMo stops in its data loader. GRPO
refuses a number of completions that its groups do not divide.
With dynamic batches a rollout makes `samples // batch_size` optimizer steps: where that is 0, nothing is trained,
without a message. Each rank takes `batch_size // ranks` samples of a batch: with fewer
samples than ranks that is 0, and the first training step crashes; else the rest is left out of each step.

## Example
    --train.batch_size 128 --train.micro_batch_size 4 --ref.num_gpus_per_node 6

## Use instead
    --ref.num_gpus_per_node 8

## Fix safety
Unsafe: for GRPO the smallest change is offered: more accumulation, which makes the batch larger, or another number of
completions per prompt.

## When it does not apply
Dynamic batches (`--train.dynamic_batch_enable`) exempt the groups that train from the micro batch. Where the number of
ranks is not stated, only OpenRLHF's own role flags are counted.

## References
OpenRLHF 0.11.2 `utils/deepspeed/deepspeed.py` (setup_distributed), `trainer/ppo_utils/replay_buffer.py`
(setup_dynamic_batch), deepspeed 0.19.8 `runtime/config.py`; ai2-olmo
0.6.0 `data/iterable_dataset.py`; ai2-olmo-core 3.0.0 `train/train_module/transformer/train_module.py`, 2.0.0
`train/train_module/transformer.py`; axolotl 0.18.0 `utils/schemas/validation.py` (check_grpo_batch_size_divisibility);
trl 0.15.2 `trainer/grpo_trainer.py`, 1.16.0 `trainer/grpo_config.py` (`__post_init__`); huggingface/trl#3061, #2858,
#2876, huggingface/open-r1#249, allenai/olmocr#394.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd, lcm

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.wording import counted
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "BAT002",
    "batch-not-divisible",
    "error",
    particular=True,
    fix="unsafe",
    writes=("batch.accumulation", "batch.micro", "rollout.completions", "rollout.samples_per_prompt"),
    depends_on_unseen_flags=True,
)


def check(run: Run) -> Iterator[Report]:
    """One report per group whose batch does not come out even."""
    if run.framework.traits.batch_divides == "groups":
        yield from _groups(run)
        yield from _rollouts(run)
        yield from _dynamic(run)
    elif run.framework.traits.batch_divides is not None:
        yield from _whole(run)
    yield from _completions(run)
    yield from _tokens(run)


def _completions(run: Run) -> Iterator[Report]:
    """GRPO: the completions come out even over groups of one prompt, and over the micro batches of all ranks."""
    plan = run.plan
    completions, group = plan.rollout.completions, plan.rollout.samples_per_prompt
    if not completions or not group or group < 2 or _rests_on_ranks(run, completions):
        return
    key, name = run.spell("rollout.samples_per_prompt"), run.framework.title
    ranks = plan.data_parallel if run.stated("launch.gpus_per_node") else 1  # of one, where nothing states more
    unit = (plan.batch.micro or 0) * (ranks or 0)
    if run.stated("rollout.completions") and unit and completions % unit:
        batch = run.spell("rollout.completions")
        wanted = _nearest(completions, lcm(unit, group))
        yield Report(
            f"`{batch}` is {completions}, not a multiple of the {unit} sequences of a micro batch on all ranks: {name} "
            "refuses to start",
            run.place("rollout.completions"),
            fix=Fix("unsafe", f"{batch}: {wanted}", {"rollout.completions": wanted}),
            claim=_UNEVEN,
        )
    elif completions % group:
        stated: tuple[Field, ...] = ("rollout.completions",) if run.stated("rollout.completions") else ()
        yield Report(
            f"`{key}` is {group}, which does not divide the {counted(completions, 'completion')} of a step: {name} "
            "refuses to start",
            run.place(*stated, "rollout.samples_per_prompt", "batch.accumulation"),
            fix=_divided(run, group),
            claim=_UNEVEN if stated else None,
        )


_UNEVEN: Final = "the completions do not come out even"
"""What is refused of completions that are stated: no number of GPUs makes them come out even over the groups."""
_UNEVEN_BATCH: Final = "the batch does not come out even over the ranks"
"""What is refused of a batch, on some nodes as on any multiple of them."""


def _rests_on_ranks(run: Run, completions: int) -> bool:
    """Whether the completions are those of a number of GPUs that is not stated."""
    gpus = run.plan.launch.gpus_per_node
    if gpus is None or run.stated("launch.gpus_per_node"):
        return False
    return run.changed({"launch.gpus_per_node": gpus + 1}).plan.rollout.completions != completions


def _divided(run: Run, group: int) -> Fix | None:
    """The smallest change with which the completions come out even, of those that the framework's files can say."""
    found: list[tuple[float, str, Field, int]] = []
    near = sorted(range(2, 2 * group), key=lambda number: (abs(number - group), number))
    for field in _COUNTED:
        present = run.plan.get(field)
        more = range(present + 1, present + group + 1) if present else range(0)
        values: Sequence[int] = near if field == "rollout.samples_per_prompt" else more
        number = next((one for one in values if _is_even(run, field, one)), None)
        if number is not None and not (field == "batch.micro" and found):
            found.append((max(number / present, present / number), f"{run.spell(field)}: {number}", field, number))
    found.sort(key=lambda one: (run.framework.unwritten(one[2]) is not None, one[0]))
    if not found or run.framework.unwritten(found[0][2]) is not None:
        return None
    _, _, field, number = found[0]
    return Fix("unsafe", ", or ".join(words for _, words, _, _ in found), {field: number})


_COUNTED: Final[tuple[Field, ...]] = ("batch.accumulation", "rollout.samples_per_prompt", "batch.micro")
"""What the completions come out even with; a larger micro batch needs memory, and is for where nothing else does."""


def _is_even(run: Run, field: Field, number: int) -> bool:
    """Whether the completions come out even over the groups once a field has another value."""
    rollout = run.changed({field: number}).plan.rollout
    return bool(rollout.completions and rollout.samples_per_prompt) and (
        rollout.completions % rollout.samples_per_prompt == 0  # type: ignore[operator]
    )


def _tokens(run: Run) -> Iterator[Report]:
    """OLMo-core: a batch in tokens is a whole number of sequences. The global one is a multiple of the micro batch,
    which is one: it is refused on any number of ranks.
    """
    plan, length = run.plan, run.plan.sequence.length
    ranks = plan.data_parallel if run.stated("launch.gpus_per_node") else 1
    step = (plan.batch.micro or 1) * (ranks or 1)
    batches: tuple[tuple[Field, int | None, int], ...] = (
        ("batch.micro_tokens", plan.batch.micro_tokens, 1),
        ("batch.global_tokens", plan.batch.global_tokens, step),
    )
    for field, tokens, sequences in batches:
        if not tokens or not length or tokens % length == 0:
            continue
        key, unit = run.spell(field), run.spell("sequence.length")
        wanted = _nearest(tokens, length * sequences) if sequences > 1 else max(1, tokens // length) * length
        yield Report(
            f"`{key}` is {tokens:,} tokens, which is not a multiple of `{unit}` ({length:,}): the run is refused",
            run.place(field, "sequence.length"),
            help=f"{key}: {wanted:,}",
        )


def _groups(run: Run) -> Iterator[Report]:
    plan = run.plan
    whole, micro = plan.batch.global_, plan.batch.micro
    if whole is None or micro is None or micro < 1:
        return
    groups = {f"the trained model{_on_one_node(run)}": plan.world} if not plan.model.roles else {}
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
    # OpenRLHF multiplies the batch by ring and tensor size, and DeepSpeed divides by all ranks.
    others = (plan.parallel.context or 1) * (plan.parallel.tensor or 1)
    batch, each = run.spell("batch.global_"), run.spell("batch.micro")
    scaled = f"`{batch}` is {whole}{f' x {others}' if others > 1 else ''}"
    place = run.place("batch.global_", "batch.micro")
    units = [micro * ranks // gcd(micro * ranks, others) for ranks in groups.values() if ranks]
    if not units:
        return
    wanted = f"the nearest value that divides is `{batch}: {_nearest(whole, lcm(*units))}`"
    if (whole * others) % micro:
        yield Report(
            f"{scaled}, not a multiple of `{each}: {micro}` on any number of ranks",
            place,
            minimum="followed",
            help=wanted,
        )
        return
    for ranks in dict.fromkeys(filter(None, groups.values())):
        if (whole * others) % (micro * ranks):
            names = " and ".join(name for name, count in groups.items() if count == ranks)
            yield Report(
                f"{scaled}, not a multiple of `{each}: {micro}` x the {ranks} ranks of {names}",
                place,
                minimum="followed",
                help=wanted,
                claim=_UNEVEN_BATCH,
            )


def _on_one_node(run: Run) -> str:
    """How ranks are named that are those of one node, where the number of nodes is not stated."""
    origin = run.origin("launch.nodes")
    return " on one node, and on any number of such nodes" if origin is None or origin.kind == "assumed" else ""


def _rollouts(run: Run) -> Iterator[Report]:
    """Dynamic batches: a rollout holds one training batch at least, else no step is made of it."""
    plan = run.plan
    prompts, each, whole = plan.rollout.batch, plan.rollout.samples_per_prompt, plan.batch.global_
    if not plan.batch.tokens_per_gpu or not prompts or not each or not whole or prompts * each >= whole:
        return
    batch, rollout = run.spell("batch.global_"), run.spell("rollout.batch")
    yield Report(
        f"a rollout is {rollout} {prompts:,} x {each} = {prompts * each:,} samples, fewer than {batch} {whole:,}: with "
        "dynamic batches no optimizer step is made, and nothing is trained",
        run.place("rollout.batch", "batch.global_"),
        help=f"{batch}: {prompts * each}, or more prompts per rollout",
    )


def _dynamic(run: Run) -> Iterator[Report]:
    """Dynamic batches: each rank of a group that trains takes the same whole number of samples."""
    plan = run.plan
    whole, others = plan.batch.global_, (plan.parallel.context or 1) * (plan.parallel.tensor or 1)
    if not plan.batch.tokens_per_gpu or not whole:
        return
    key = run.spell("batch.global_")
    groups = [role for role in plan.model.roles or () if role.trained and role.nodes and role.gpus_per_node]
    for role in groups:
        ranks = (role.nodes or 0) * (role.gpus_per_node or 0) // others
        if not ranks or whole % ranks == 0:
            continue
        fewer = whole < ranks
        left = "the first training step crashes" if fewer else f"{whole % ranks} are left out of each step"
        yield Report(
            f"`{key}` is {whole:,}, {'less than' if fewer else 'not a multiple of'} the {ranks:,} data-parallel ranks "
            f"of the {role.name}'s group: with dynamic batches {left}",
            run.place("batch.global_"),
            "error" if fewer else "warning",
            minimum="followed",
            help=f"the nearest value that divides is `{key}: {_nearest(whole, ranks)}`",
        )


def _nearest(whole: int, unit: int) -> int:
    """The multiple of a unit, one at least, that is nearest to a number: the smallest change that divides."""
    below = whole // unit * unit
    return below if below and whole - below <= unit // 2 else below + unit


def _whole(run: Run) -> Iterator[Report]:
    plan, ranks = run.plan, run.plan.data_parallel
    whole = plan.batch.global_
    if whole is None or not ranks or not run.stated("batch.global_"):
        return
    unit = ranks
    divisor = f"the {ranks} data-parallel ranks{_on_one_node(run)}"
    if run.framework.traits.batch_divides == "micro batches" and plan.batch.micro and plan.batch.micro > 0:
        unit, divisor = ranks * plan.batch.micro, f"{plan.batch.micro} sequences x {divisor}"
    if whole % unit:
        yield Report(
            f"the global batch of {whole} sequences is not a multiple of {divisor}",
            run.place("batch.global_"),
            minimum="followed",
            help=f"the nearest value that divides is `{run.spell('batch.global_')}: {_nearest(whole, unit)}`",
            claim=_UNEVEN_BATCH,
        )

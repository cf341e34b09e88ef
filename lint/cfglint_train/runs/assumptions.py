"""Assumptions: the unstated facts of a run, each with the bounds of its possible values.

There is one row for each kind of fact (design.md, section 7). A verdict that is the same at both bounds does not depend
on the fact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice

from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.wording import join_names
from cfglint_train.hardware.gpus import find_largest, find_roomiest
from cfglint_train.memory.plan_reader import MODEL
from cfglint_train.plan.certainty import RELEASE, Assumption
from cfglint_train.plan.fields import get_field
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import FieldValue
from cfglint_train.plan.reading import is_equal
from cfglint_train.runs.run import GPU, Run, compute_min_gpus

if TYPE_CHECKING:
    from cfglint_train.releases.other_releases import AlternativeDefaults

MAX_NODES: Final = 64
"""Upper bound of the number of nodes, which few jobs exceed; with so many nodes, the shard on each GPU is small."""

MAX_GPUS_PER_NODE: Final = 16
"""Number of GPUs in the largest nodes on sale (NVIDIA DGX-2, HGX A100 16-GPU, Google a2-megagpu-16g)."""

SHORT_SAMPLE: Final = 128
"""Number of tokens of a short sample: the lower bound of the length if the stated length is only a maximum."""

COMPANION_PREFIX: Final = "companion:"
"""Prefix of the fact that a framework's file affects the run; the framework's name follows."""

FORK: Final = "fork"
"""Name of the fact that a fork has the same defaults and infers the same values as upstream."""


def list_assumptions(run: Run) -> tuple[Assumption, ...]:
    """Return the assumptions about a run: facts that it depends on but no file states."""
    return run.compute_once(_compute_assumptions)


def _compute_assumptions(run: Run) -> tuple[Assumption, ...]:
    return tuple(_iterate_assumptions(run))


def _iterate_assumptions(run: Run) -> Iterator[Assumption]:
    if run.hardware.gpu_origin.kind == "assumed":
        gpus = run.hardware.gpu_others or (find_largest().name,)
        yield Assumption(GPU, run.hardware.gpu, run.hardware.gpu_origin.note, gpus)
    ranks = [(field, value) for field, value in run.resolved_plan if field in _RANK_FIELDS]
    for field, value in sorted(ranks, key=lambda item: _RANK_FIELDS.index(item[0])):
        note = value.origin.note if value.origin.kind == "assumed" else _describe_example_ranks(run, field, value)
        if note:
            bounds = tuple(
                bound for bound in _list_other_bounds(field, value.value) if _has_enough_gpus(run, field, bound)
            )
            yield Assumption(field, value.value, note, bounds)
    yield from _assume_length(run)
    yield from _assume_evaluation_length(run)
    yield from _find_file_assumptions(run)
    fork = run.main.evidence.fork
    if fork is not None:
        note = f"the installed {run.framework.title} behaves like its releases, but {fork}"
        yield Assumption(FORK, str(fork), note, source=fork.source)
    for field, value in run.resolved_plan:
        if value.origin.kind == "assumed" and field not in _RANK_FIELDS:
            yield Assumption(field, value.value, value.origin.note, _ALTERNATIVES.get(field, ()))
        elif value.origin.assumption:
            yield Assumption(field, value.value, value.origin.assumption, _list_other_bounds(field, value.value))


_RANK_FIELDS: Final[tuple[Field, ...]] = ("launch.nodes", "launch.gpus_per_node")
_ALTERNATIVES: Final[Mapping[Field, tuple[Any, ...]]] = {
    "parallel.strategy": ("zero", "fsdp2"),
    "method.quantized_experts": (True,),
    "sequence.image_tokens": (0,),
}
"""Values that a run may have although no file states them.

A launch can add DeepSpeed or FSDP, an older release quantizes the experts as well, and samples may have no image.
"""

_BOUNDS: Final[Mapping[Field, tuple[int, ...]]] = {
    "launch.nodes": (1, MAX_NODES),
    "launch.gpus_per_node": (1, MAX_GPUS_PER_NODE),
    "sequence.length": (SHORT_SAMPLE,),
    "batch.micro": (1,),
}
"""Bounds of numbers that no file states, or that a script states only as a default (`${GPUS:-8}`)."""


def _describe_example_ranks(run: Run, field: Field, value: FieldValue) -> str:
    """Return a note if the value comes from a launcher file that is only assumed to apply, else an empty string."""
    owner = run.inputs.companions.get(value.origin.framework)
    if owner is None or not owner.assumption or value.origin.kind != "explicit":
        return ""
    quoted = f"`{value.origin.key}` as in `{owner.document.path}`"
    return f"{quoted}; another launch may give more GPUs (set `{_SETTING_NAMES[field]}`)"


_SETTING_NAMES: Final[Mapping[Field, str]] = {"launch.nodes": "nodes", "launch.gpus_per_node": "gpus-per-node"}
"""Names of the facts that state the number of nodes and GPUs."""


def _list_other_bounds(field: Field, value: Any) -> tuple[int, ...]:
    """Return the bounds of a field that lie beyond its value, or an empty tuple if the value is not a number."""
    return tuple(
        bound for bound in _BOUNDS.get(field, ()) if isinstance(value, int) and _is_farther(bound, value, field)
    )


def _is_farther(bound: int, value: int, field: Field) -> bool:
    """Return whether a bound is farther out than a value: below it for the first bound, above it for the second."""
    return bound < value if bound == _BOUNDS[field][0] else bound > value


def _has_enough_gpus(run: Run, field: Field, bound: int) -> bool:
    """Return whether a job with this number of nodes or GPUs per node has room for the stated parallelism."""
    launch = run.plan.launch
    other_count = launch.gpus_per_node if field == "launch.nodes" else launch.nodes
    return other_count is None or bound * other_count >= compute_min_gpus(run.stated_plan)


def _find_file_assumptions(run: Run) -> Iterator[Assumption]:
    """Yield the assumptions that a model or companion found by a partial path is the right one."""
    model = run.architecture
    if model is not None and model.folder:
        note = f"the model in `{model.folder}` is {model.id}; pass `--model-config` to be sure"
        yield Assumption(MODEL, model.id, note)
    for name, config in run.inputs.companions.items():
        if config.assumption:
            yield Assumption(f"{COMPANION_PREFIX}{name}", config.document.path, config.assumption)


def _assume_length(run: Run) -> Iterator[Assumption]:
    """Yield an assumption if the sequence length is only a maximum, because samples are neither packed nor padded."""
    plan = run.plan
    length, field = plan.sequence.length, get_field("sequence.length")
    is_padded = plan.sequence.padding in ("max_length", "none")
    is_filled = is_padded or (plan.sequence.packing and run.framework.traits.fills_packs(run.main))
    if length is None or length <= 1 or is_filled:
        return
    if plan.sequence.dataset_length:
        return
    key = run.spell_key(field)
    generated, noun = plan.rollout.new_tokens, "sample"
    longest = f"the full `{key}` of {length:,} tokens"
    if generated and generated < length and key == run.spell_key("rollout.new_tokens"):  # the prompt has no key
        longest, noun = f"a prompt of {length - generated:,} tokens and the full `{key}` of {generated:,}", "completion"
    note = f"every sequence has {longest}; set `{key}` to the length of your longest {noun}"
    yield Assumption(field, length, note, (_compute_shortest(length),))


def _assume_evaluation_length(run: Run) -> Iterator[Assumption]:
    """Yield an assumption about the length of evaluation samples if only the training samples are packed.

    Stated padding fills samples up to the training length, so a longer evaluation length is still an assumption.
    Padding that is inferred from packing does not apply to evaluation samples.
    """
    plan = run.plan
    length = plan.sequence.eval_length or plan.sequence.length
    if not length or length <= 1 or not plan.sequence.packing or plan.sequence.eval_packing is not False:
        return
    is_padded = run.is_stated("sequence.padding") and plan.sequence.padding == "max_length"
    if is_padded and length <= (plan.sequence.length or 0):
        return
    note = (
        f"a sample of the evaluation has the full {length:,} tokens (`{run.spell_key('sequence.eval_packing')}` is off)"
    )
    yield Assumption("sequence.eval_length", length, note, (_compute_shortest(length),))


def _compute_shortest(length: int) -> int:
    """Return the smallest length that all samples may have if `length` is only the maximum."""
    return SHORT_SAMPLE if length > SHORT_SAMPLE else 1


def find_assumptions(run: Run, fields: Set[str], *facts: str) -> tuple[Assumption, ...]:
    """Return the assumptions on which some plan fields and further facts (`gpu`, `model`, `fork`) rest."""
    return (*find_fact_assumptions(run, fields, *facts), *find_release_assumptions(run, fields))


def find_fact_assumptions(run: Run, fields: Set[str], *facts: str) -> tuple[Assumption, ...]:
    """Return the assumptions on which some plan fields and facts rest, except assumptions about releases."""
    needed = {*fields, *facts}
    origins = [origin for field in fields if (origin := run.get_origin(get_field(field))) is not None]
    needed.update(f"{COMPANION_PREFIX}{origin.framework}" for origin in origins)
    if any(origin.kind in ("default", "inferred") for origin in origins):
        needed.add(FORK)
    return tuple(item for item in list_assumptions(run) if item.fact in needed)


def find_varying_fields(run: Run) -> frozenset[Field]:
    """Return the fields whose values differ between candidate releases, directly or by inference."""
    return run.compute_once(_compute_varying_fields)


def _compute_varying_fields(run: Run) -> frozenset[Field]:
    return frozenset(field for release in run.alternative_defaults for field in _compare_release(run, release))


def _compare_release(run: Run, candidate: AlternativeDefaults) -> dict[Field, Any]:
    """Return the fields whose values differ at a candidate release, with the values there."""
    other = run.build_scenario({candidate.fact: candidate.release}).resolved_plan
    fields = {*run.resolved_plan.values, *other.values}
    return {field: other.get(field) for field in fields if not is_equal(run.resolved_plan.get(field), other.get(field))}


def find_release_assumptions(run: Run, fields: Set[str]) -> Iterator[Assumption]:
    """Yield an assumption for each package whose defaults for some fields differ between candidate releases."""
    if not fields or fields.isdisjoint(
        find_varying_fields(run)
    ):  # Computing the varying fields builds every candidate.
        return
    differences: dict[str, list[tuple[AlternativeDefaults, Mapping[Field, Any]]]] = {}
    for candidate in run.alternative_defaults:
        changed = {field: value for field, value in _compare_release(run, candidate).items() if field in fields}
        seen = differences.setdefault(candidate.fact, [])
        if changed and not any(changed == other for _, other in seen):
            seen.append((candidate, changed))
    for fact, rows in differences.items():
        if rows:
            first, package = rows[0][0], fact.removeprefix(RELEASE)
            settings = _format_settings(run, {field for _, changed in rows for field in changed})
            note = f"the default of {settings} in {package} {first.chosen}; {first.release} has a different one"
            yield Assumption(
                fact,
                first.chosen,
                f"{note} (state {package}=RELEASE)",
                tuple(candidate.release for candidate, _ in rows),
            )


def _format_settings(run: Run, fields: Iterable[Field]) -> str:
    """Return the keys of some fields for a note, or the names of the fields if none of them has a key."""
    fields = sorted(fields)
    keys = sorted({f"`{key}`" for field in fields if (key := run.spell_key(field)) != field}) or fields
    return join_names(keys)


MILDEST_FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "gpu": (
        GPU,
        "launch.nodes",
        "launch.gpus_per_node",
        "sequence.length",
        "sequence.eval_length",
        "sequence.image_tokens",
        "batch.micro",
        "parallel.strategy",
        "method.quantized_experts",
    ),
    "host": (
        "launch.nodes",
        "launch.gpus_per_node",
        "sequence.length",
        "batch.micro",
        "parallel.strategy",
        "method.quantized_experts",
    ),
    "disk": ("sequence.length", "batch.micro", "parallel.strategy"),
}
"""Facts by resource; at another bound of these facts, the run may need less of the resource."""

_MILDEST_BOUND: Final[Mapping[tuple[str, str], Callable[[Iterable[Any]], Any]]] = {
    ("gpu", GPU): find_roomiest,
    ("gpu", "launch.nodes"): max,
    ("gpu", "launch.gpus_per_node"): max,
    ("host", "launch.nodes"): max,
    ("host", "launch.gpus_per_node"): min,
}
"""Functions that choose the bound at which a run needs least of a resource, by resource and fact.

Other facts use their first alternative. Shards are small on many GPUs, and a host with few GPUs serves few ranks.
"""


def find_mildest_facts(assumptions: Iterable[Assumption], resources: Iterable[str]) -> dict[str, Any]:
    """Return the facts that may lower the need for the resources, each with the bound at which the run needs least."""
    facts = {}
    for assumption in assumptions:
        for resource in resources:
            if assumption.others and assumption.fact in MILDEST_FACTS[resource]:
                choose = _MILDEST_BOUND.get((resource, assumption.fact))
                value = assumption.others[0] if choose is None else choose((assumption.value, *assumption.others))
                if value != assumption.value:
                    facts[assumption.fact] = value
    return facts


def find_refuting(
    assumptions: Sequence[Assumption],
    mildest_facts: Mapping[str, Any],
    holds: Callable[[Mapping[str, Any]], bool],
    enough: int | None = None,
) -> tuple[Assumption, ...]:
    """Return the assumptions with whose other values a verdict no longer holds, each alone or else all together.

    `holds` judges the run with other values of some facts. The search for single ones stops at `enough` of them.
    """
    # Try both ends of a range: either can be milder (a single GPU that offloads its shards exchanges nothing).
    alone = (
        assumption
        for assumption in assumptions
        if any(not holds({assumption.fact: other}) for other in assumption.others)
    )
    refuting = tuple(islice(alone, enough))
    if mildest_facts and not refuting and not holds(mildest_facts):
        return tuple(assumption for assumption in assumptions if assumption.fact in mildest_facts)
    return refuting

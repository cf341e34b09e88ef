"""The unstated facts of a run, and the ends between which each may lie.

One row for each kind of fact (design.md, section 7). A verdict that is the same at both ends does not rest on the fact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.wording import some
from cfglint_train.hardware.gpus import largest, roomiest
from cfglint_train.memory.plan_reader import MODEL
from cfglint_train.plan.certainty import Assumption
from cfglint_train.plan.fields import named
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Value
from cfglint_train.plan.reading import same
from cfglint_train.releases.other_releases import RELEASE, Elsewhere
from cfglint_train.runs.run import GPU, Run, fewest_gpus

MOST_NODES: Final = 64
"""More nodes than nearly every job has; whatever is sharded is then small on each GPU."""

MOST_GPUS: Final = 16
"""GPUs of the largest nodes that are sold (NVIDIA DGX-2, HGX A100 16-GPU, Google a2-megagpu-16g)."""

SHORT: Final = 128
"""Tokens of a short training sample: what a batch needs for certain, where the stated length is only the most."""

COMPANION: Final = "companion:"
"""Prefix of the framework whose file is assumed to shape the run."""

FORK: Final = "fork"
"""What a fork of the framework leaves open: upstream's defaults, and what follows from upstream's code."""


def assumptions(run: Run) -> tuple[Assumption, ...]:
    """The facts about a run that no file states."""
    return run.once(_assumptions)


def _assumptions(run: Run) -> tuple[Assumption, ...]:
    return tuple(_each(run))


def _each(run: Run) -> Iterator[Assumption]:
    if run.hardware.gpu_origin.kind == "assumed":
        cards = run.hardware.gpu_others or (largest().name,)
        yield Assumption(GPU, run.hardware.gpu, run.hardware.gpu_origin.note, cards)
    ranks = [(field, value) for field, value in run.reading if field in _RANKS]
    for field, value in sorted(ranks, key=lambda one: _RANKS.index(one[0])):
        note = value.origin.note if value.origin.kind == "assumed" else _shown(run, field, value)
        if note:
            others = tuple(end for end in _others(field, value.value) if _is_enough(run, field, end))
            yield Assumption(field, value.value, note, others)
    yield from _length(run)
    yield from _evaluation_length(run)
    yield from _files(run)
    fork = run.main.evidence.fork
    if fork is not None:
        note = f"the installed {run.framework.title} behaves like its releases, but {fork}"
        yield Assumption(FORK, str(fork), note, source=fork.source)
    for field, value in run.reading:
        if value.origin.kind == "assumed" and field not in _RANKS:
            yield Assumption(field, value.value, value.origin.note, _OTHERS.get(field, ()))
        elif value.origin.assumed:
            yield Assumption(field, value.value, value.origin.assumed, _others(field, value.value))


_RANKS: Final[tuple[Field, ...]] = ("launch.nodes", "launch.gpus_per_node")
_OTHERS: Final[Mapping[Field, tuple[Any, ...]]] = {
    "parallel.strategy": ("zero", "fsdp2"),
    "method.quantized_experts": (True,),
}
"""A launch can bring DeepSpeed or FSDP along without a key in the file that it starts; an older release reaches the
experts.
"""

_ENDS: Final[Mapping[Field, tuple[int, ...]]] = {
    "launch.nodes": (1, MOST_NODES),
    "launch.gpus_per_node": (1, MOST_GPUS),
    "sequence.length": (SHORT,),
    "batch.micro": (1,),
}
"""The ends of numbers, whether they are not stated or a script has a default for them (`${GPUS:-8}`)."""


def _shown(run: Run, field: Field, value: Value) -> str:
    """How the number of GPUs is known where it is in a file that only an example gives to a launcher; else empty."""
    owner = run.parts.companions.get(value.origin.framework)
    if owner is None or not owner.assumed or value.origin.kind != "explicit":
        return ""
    read = f"`{value.origin.key}` as in `{owner.document.path}`"
    return f"{read}; another launch may give more GPUs (set `{_SET[field]}`)"


_SET: Final[Mapping[Field, str]] = {"launch.nodes": "nodes", "launch.gpus_per_node": "gpus-per-node"}
"""The settings that state the number of GPUs."""


def _others(field: Field, value: Any) -> tuple[int, ...]:
    """The ends between which an assumed number lies, but for those that it has or is beyond."""
    return tuple(end for end in _ENDS.get(field, ()) if isinstance(value, int) and _is_beyond(end, value, field))


def _is_beyond(end: int, value: int, field: Field) -> bool:
    """Whether an end is farther out than a value."""
    return end < value if end == _ENDS[field][0] else end > value


def _is_enough(run: Run, field: Field, end: int) -> bool:
    """Whether the stated degrees of parallelism fit in a job with this number of nodes or of GPUs per node."""
    launch = run.plan.launch
    others = launch.gpus_per_node if field == "launch.nodes" else launch.nodes
    return others is None or end * others >= fewest_gpus(run.base)


def _files(run: Run) -> Iterator[Assumption]:
    """Files and models that were found by less than their paths."""
    model = run.architecture
    if model is not None and model.folder:
        note = f"the model in `{model.folder}` is {model.id}; pass `--model-config` to be sure"
        yield Assumption(MODEL, model.id, note)
    for name, config in run.parts.companions.items():
        if config.assumed:
            yield Assumption(f"{COMPANION}{name}", config.document.path, config.assumed)


def _length(run: Run) -> Iterator[Assumption]:
    """A length that no sample need have: without packing and padding to the maximum it is only the most."""
    plan = run.plan
    length, field = plan.sequence.length, named("sequence.length")
    padded = plan.sequence.padding in ("max_length", "none")
    filled = padded or (plan.sequence.packing and run.framework.traits.fills_packs(run.main))
    if length is None or length <= 1 or filled:
        return
    if plan.sequence.dataset_length:
        return
    key = run.spell(field)
    generated, what = plan.rollout.new_tokens, "sample"
    longest = f"the full `{key}` of {length:,} tokens"
    if generated and generated < length and key == run.spell("rollout.new_tokens"):  # the prompt has no key
        longest, what = f"a prompt of {length - generated:,} tokens and the full `{key}` of {generated:,}", "completion"
    note = f"every sequence has {longest}; set `{key}` to the length of your longest {what}"
    yield Assumption(field, length, note, (_shortest(length),))


def _evaluation_length(run: Run) -> Iterator[Assumption]:
    """The same of an evaluation whose samples are not packed, where those of the training are. Stated padding
    reaches the length of the training, and no longer one; what is inferred of packs is not true without them.
    """
    plan = run.plan
    length = plan.sequence.eval_length or plan.sequence.length
    if not length or length <= 1 or not plan.sequence.packing or plan.sequence.eval_packing is not False:
        return
    padded = run.stated("sequence.padding") and plan.sequence.padding == "max_length"
    if padded and length <= (plan.sequence.length or 0):
        return
    note = f"a sample of the evaluation has the full {length:,} tokens (`{run.spell('sequence.eval_packing')}` is off)"
    yield Assumption("sequence.eval_length", length, note, (_shortest(length),))


def _shortest(length: int) -> int:
    """What the samples of a job may all have where a length is the most: of a short limit, nothing is certain."""
    return SHORT if length > SHORT else 1


def behind(run: Run, fields: Set[str], *facts: str) -> tuple[Assumption, ...]:
    """The assumptions behind some plan fields, and about further facts (`gpu`, `model`, `fork`)."""
    return (*facts_behind(run, fields, *facts), *releases_behind(run, fields))


def facts_behind(run: Run, fields: Set[str], *facts: str) -> tuple[Assumption, ...]:
    """Those of them that are no releases."""
    read = {*fields, *facts}
    origins = [origin for field in fields if (origin := run.origin(named(field))) is not None]
    read.update(f"{COMPANION}{origin.framework}" for origin in origins)
    if any(origin.kind in ("default", "inferred") for origin in origins):
        read.add(FORK)
    return tuple(one for one in assumptions(run) if one.fact in read)


def varying(run: Run) -> frozenset[Field]:
    """The fields that have another value at some candidate, by default or by what follows from defaults."""
    return run.once(_varying)


def _varying(run: Run) -> frozenset[Field]:
    return frozenset(field for one in run.elsewhere for field in _differing(run, one))


def _differing(run: Run, one: Elsewhere) -> dict[Field, Any]:
    """The fields that have another value at a candidate, with it."""
    there = run.under({one.fact: one.release}).reading
    fields = {*run.reading.values, *there.values}
    return {field: there.get(field) for field in fields if not same(run.reading.get(field), there.get(field))}


def releases_behind(run: Run, fields: Set[str]) -> Iterator[Assumption]:
    """The releases whose defaults decide about some fields, each with the candidates at which these differ."""
    if not fields or fields.isdisjoint(varying(run)):  # what varies is asked of every candidate
        return
    others: dict[str, list[tuple[Elsewhere, Mapping[Field, Any]]]] = {}
    for one in run.elsewhere:
        moved = {field: value for field, value in _differing(run, one).items() if field in fields}
        known = others.setdefault(one.fact, [])
        if moved and not any(moved == other for _, other in known):
            known.append((one, moved))
    for fact, found in others.items():
        if found:
            first, package = found[0][0], fact.removeprefix(RELEASE)
            settings = _settings(run, {field for _, moved in found for field in moved})
            note = f"the default of {settings} in {package} {first.chosen}, and {first.release} has another"
            yield Assumption(
                fact, first.chosen, f"{note} (state {package}=RELEASE)", tuple(one.release for one, _ in found)
            )


def _settings(run: Run, fields: Iterable[Field]) -> str:
    """Some fields by their keys, for a note; those that have no key only where none has one."""
    fields = sorted(fields)
    keys = sorted({f"`{key}`" for field in fields if (key := run.spell(field)) != field}) or fields
    return some(keys)


KINDEST: Final[Mapping[str, tuple[str, ...]]] = {
    "gpu": (
        GPU,
        "launch.nodes",
        "launch.gpus_per_node",
        "sequence.length",
        "sequence.eval_length",
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
"""Resource -> the facts whose other end needs less of it."""

_LEAST: Final[Mapping[tuple[str, str], Callable[[Iterable[Any]], Any]]] = {
    ("gpu", GPU): roomiest,
    ("gpu", "launch.nodes"): max,
    ("gpu", "launch.gpus_per_node"): max,
    ("host", "launch.nodes"): max,
    ("host", "launch.gpus_per_node"): min,
}
"""Which end needs least of a resource: what is sharded is small on each of many; a host serves few."""


def kindest(found: Iterable[Assumption], resources: Iterable[str]) -> dict[str, Any]:
    """The facts at the end where least of the resources is needed, but for those that are at that end already."""
    corner = {}
    for one in found:
        for resource in resources:
            if one.others and one.fact in KINDEST[resource]:
                end = _LEAST.get((resource, one.fact))
                kind = one.others[0] if end is None else end((one.value, *one.others))
                if kind != one.value:
                    corner[one.fact] = kind
    return corner

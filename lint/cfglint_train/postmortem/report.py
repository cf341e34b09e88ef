"""Report of a run that ran out of memory, as text or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from cfglint_train.fitting.alternatives import Alternatives
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import GIB, MIB, format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.budget import Resource
from cfglint_train.postmortem.diagnosis import Comparison, Explanation, compare_estimate, explain
from cfglint_train.postmortem.messages import Failure, Kind, Message
from cfglint_train.reports import fit
from cfglint_train.reports.answer import find_gap
from cfglint_train.reports.escape import escape_data, escape_text
from cfglint_train.reports.json import convert_record, encode
from cfglint_train.runs.run import Run

VERSION: Final = 1

_MIN_IDLE: Final = GIB // 4
"""Unused bytes of torch's allocator from which fragmentation is mentioned."""


class Diagnosis(Frozen):
    """A failure with its explanation and its estimate."""

    failure: Failure
    explanation: Explanation
    comparison: Comparison | None

    @property
    def message(self) -> Message:
        """Message of the failure."""
        return self.failure.message

    @property
    def is_fragmented(self) -> bool:
        """True if the request failed although torch's allocator held enough unused bytes for it."""
        idle, tried = self.message.idle or 0.0, self.message.tried or 0.0
        free = self.message.free or 0.0
        return idle >= _MIN_IDLE and free < tried <= idle + free

    @property
    def capacity(self) -> int | None:
        """Bytes of the GPU that the run can use, without other processes; None if the log does not state the GPU's."""
        total, limit = self.message.total, self.message.limit
        if total is None:
            return None
        rest = total - (self.message.others or 0.0)
        return int(rest if limit is None else min(rest, limit))


class PostMortem(Frozen):
    """A log's failures, and the smallest change of the run that makes it fit."""

    path: str
    config: str | None
    run: Run | None
    diagnoses: tuple[Diagnosis, ...]
    alternatives: Alternatives | None = None
    """Changes of the run for a GPU with that room."""
    room: int | None = None
    """Bytes per GPU that the run can use, less what the estimate lacks."""

    @property
    def is_explained(self) -> bool:
        """True if the cause of the first failure is known: a component, or the place for anything but a GPU."""
        first = self.diagnoses[0]
        return first.message.kind not in ("gpu", "driver") or first.explanation.component is not None


def explain_failures(failures: Iterable[Failure], run: Run | None) -> tuple[Diagnosis, ...]:
    """Explain each failure of a log with the estimate of a run, or from the log alone."""
    diagnoses = []
    for failure in failures:
        explanation = explain(failure.message, run)
        compared = None if run is None else compare_estimate(failure.message, explanation, run)
        diagnoses.append(Diagnosis(failure, explanation, compared))
    return tuple(diagnoses)


def find_first_gpu(diagnoses: Sequence[Diagnosis]) -> Diagnosis | None:
    """Return the first failure of torch's allocator that states its sizes, or None."""
    return next((item for item in diagnoses if item.message.kind == "gpu" and item.message.total is not None), None)


def format_size(size: float) -> str:
    """Format bytes as GiB, or as MiB below 1 GiB."""
    return format_gib(size) if size >= GIB else f"{size / MIB:,.0f} MiB"


def _format_exact(size: float) -> str:
    """Format bytes with two decimals of GiB or MiB, as torch prints them."""
    return f"{size / GIB:,.2f} GiB" if size >= GIB else f"{size / MIB:,.2f} MiB"


def render_text(report: PostMortem) -> Iterator[str]:
    """Yield the lines of a report."""
    for diagnosis in report.diagnoses:
        yield escape_text(_render_headline(diagnosis))
        yield from map(escape_text, _render_details(diagnosis, report))
        yield ""
    yield from map(escape_text, _render_fit(report))


_TITLES: Final[Mapping[Kind, str]] = {
    "gpu": "out of GPU memory",
    "driver": "out of GPU memory outside of torch's allocator",
    "engine": "no GPU memory for the cache of the rollout engine",
    "host": "out of host memory",
    "killed": "a process was killed by signal 9",
    "shared memory": "out of shared memory",
    "disk": "no space left on disk",
}


def _render_headline(diagnosis: Diagnosis) -> str:
    message, ranks = diagnosis.message, diagnosis.failure.ranks
    headline = _TITLES[message.kind]
    if message.kind == "gpu" and message.tried is not None:
        headline += f": {format_size(message.tried)} could not be allocated"
    if len(ranks) > 1:
        headline += f", on {len(ranks)} ranks: {_format_ranks(ranks)}"
    elif ranks:
        headline += f", on {'GPU' if ranks[0] == message.device else 'rank'} {ranks[0]}"
    return headline


def _format_ranks(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")


def _render_details(diagnosis: Diagnosis, report: PostMortem) -> Iterator[str]:
    yield from _render_log(diagnosis.message)
    yield f"  where: {_describe_place(diagnosis)}"
    yield from _render_component(diagnosis, report)
    yield from _render_comparison(diagnosis)
    if diagnosis.is_fragmented:
        backend = next((name for name in ("HIP", "NPU") if diagnosis.message.text.startswith(name)), "CUDA")
        yield (
            f"  fragmentation: {format_size(diagnosis.message.idle or 0)} are unused in pieces that are too small; "
            f"set PYTORCH_{backend}_ALLOC_CONF=expandable_segments:True"
        )
    yield from _render_others(diagnosis, report)


def _render_log(message: Message) -> Iterator[str]:
    if message.kind == "gpu":
        sizes = (
            (message.total, "GPU memory"),
            (message.limit, "allowed to the job"),
            (message.allocated, "allocated"),
            (message.idle, "reserved but unused"),
            (message.free, "free"),
            (message.others, f"held by {_name_others(message)}"),
        )
        parts = [f"{format_size(size)} {name}" for size, name in sizes if size is not None and (size or name == "free")]
        if parts:
            yield f"  log: {', '.join(parts)}"
        return
    if message.tried is not None:
        yield f"  log: {format_size(message.tried)} could not be allocated"
    elif message.allocated is None:
        yield f"  log: {message.text}"
    elif message.total is None:
        yield f"  log: the killed process held {format_size(message.allocated)}"
    else:
        yield f"  log: {format_size(message.allocated)} of {format_size(message.total)} were in use"


def _name_others(message: Message) -> str:
    """Return what holds the memory outside of torch's pool; without a list of processes, it may be NCCL."""
    return "other processes" if "rocess " in message.text else "other processes or libraries"


def _describe_place(diagnosis: Diagnosis) -> str:
    explanation, message = diagnosis.explanation, diagnosis.message
    if explanation.phase is None:
        where = "not known"
        if message.kind == "gpu" and not message.frames:
            where += ": the log has no traceback"
    else:
        where = explanation.phase
        if explanation.place.function and explanation.place.phase == explanation.phase:
            file = explanation.place.path.rpartition("/")[2]
            where += f" ({explanation.place.function[:60]}{file and f' in {file}'})"
    if message.step is not None:
        done, total = message.step
        where += f", after {done:,} of {total:,} steps"
    return where


def _render_component(diagnosis: Diagnosis, report: PostMortem) -> Iterator[str]:
    explanation, message = diagnosis.explanation, diagnosis.message
    if explanation.component is not None:
        basis = {"size": ", by its size", "traceback and size": ", by traceback and size"}.get(explanation.basis, "")
        yield f"  what: {explanation.component.name}{basis}"
        if explanation.text:
            yield f"  size: {_format_exact(message.tried or 0)} = {explanation.text}"
        return
    if message.kind in ("gpu", "driver"):
        yield "  what: not known"
        for candidate in explanation.candidates:
            yield f"    candidate in {candidate.phase}: {candidate.component.name}; {candidate.text}"
    elif report.run is not None:
        yield from _render_resource(diagnosis, report.run)


_RESOURCES: Final[Mapping[Kind, Resource]] = {"host": "host", "killed": "host", "disk": "disk"}

_CAPACITY_FLAGS: Final[Mapping[Resource, str]] = {"host": "--host-memory", "disk": "--disk"}


def _render_resource(diagnosis: Diagnosis, run: Run) -> Iterator[str]:
    """Yield the estimate of the host or the disk in the phase of a failure, or in the highest phase."""
    place = _RESOURCES.get(diagnosis.message.kind)
    if place is None:
        return
    phase = None if diagnosis.explanation.phase is None else run.estimate.find_phase(diagnosis.explanation.phase)
    if phase is None or getattr(phase, place) is None:
        phase = run.estimate.find_peak(place)
    if phase is None:
        return
    budget = getattr(phase, place)
    capacity = run.hardware.get_capacity(place)
    of = "" if capacity is None else f" of {format_gib(capacity)}"
    name = "per node" if place == "host" else "for all checkpoints"
    yield f"  estimate: {format_gib(budget.expected)}{of} {name} in {phase.title}"
    for component, size in sorted(budget.sizes, key=lambda pair: -pair[1])[:4]:
        yield f"    {component.name}: {format_gib(size)}"


def _render_comparison(diagnosis: Diagnosis) -> Iterator[str]:
    compared = diagnosis.comparison
    if compared is None:
        return
    low, high = compared.low / GIB, compared.high / GIB
    yield f"  estimate: {format_gib(compared.expected)} allocated in {compared.phase.title} ({low:.1f} to {high:.1f})"
    line = f"  needed: at least {format_gib(compared.needed)}"
    if compared.shortage:
        share = compared.shortage / compared.needed
        line += f", so the estimate is {format_gib(compared.shortage)} ({share:.0%}) too low"
    yield line
    if compared.is_contradicted:
        yield "  that exceeds the upper bound: check whether the job ran this configuration on as many GPUs"


_ENGINE_ADVICE: Final = (
    ("on startup", "free the GPU before the engine starts, or lower the engine's share of GPU memory"),
    (
        "larger than",
        "one sequence of the longest length needs more than the cache: lower that length, or raise the share",
    ),
    (
        "",
        "the engine's share of GPU memory leaves no room for its cache: raise the share, or shard its weights further",
    ),
)
"""Texts in messages of rollout engines, the most decisive first, with a remedy."""


def _render_others(diagnosis: Diagnosis, report: PostMortem) -> Iterator[str]:
    message = diagnosis.message
    others = message.others or 0.0
    if others > GIB / 2:
        holders = _name_others(message)
        yield f"  {holders} hold {format_size(others)} of this GPU: end other processes, or use another GPU"
    if message.kind == "killed":
        yield "  the kernel's OOM killer sends signal 9, but so do schedulers and users: check `dmesg -T` on the node"
    elif message.kind == "shared memory":
        yield "  data loader workers pass batches through /dev/shm: enlarge it (`--shm-size`), or use fewer workers"
    elif message.kind == "driver" and diagnosis.explanation.component is not None:
        yield "  the buffers of NCCL and cuBLAS lie outside of torch's pool, which left them no room"
    elif message.kind == "engine":
        yield next(f"  {advice}" for text, advice in _ENGINE_ADVICE if text in message.text)
    elif diagnosis.explanation.phase == "save" and message.kind == "disk" and report.run is None:
        yield "  a checkpoint did not fit; pass the configuration to see the size of all checkpoints"


def _render_fit(report: PostMortem) -> Iterator[str]:
    if report.run is None:
        yield "pass the configuration to compare with the estimate: cfglint why-oom LOG CONFIG"
        return
    alternatives = report.alternatives
    if alternatives is None:
        return
    gap, message = find_gap(alternatives.run), report.diagnoses[0].message
    resource = _RESOURCES.get(message.kind, "gpu")
    judgements = (alternatives.judgement, *alternatives.host_and_disk)
    judgement = next((item for item in judgements if item is not None and item.resource == resource), None)
    if gap is not None:
        yield f"memory not checked: {gap.message}; {gap.help}"
    elif resource != "gpu" and judgement is None:
        size = "" if message.total is None else f" {message.total / GIB:.0f}GiB"
        yield f"state {_CAPACITY_FLAGS[resource]}{size} to find the smallest change that fits"
    elif judgement is not None and message.kind not in ("engine", "shared memory"):
        yield (
            "for the stated hardware:" if report.room is None else f"for a GPU with room for {format_gib(report.room)}:"
        )
        if judgement.verdict == "fits":
            yield "  the estimate fits: check whether the job ran this configuration"
        else:
            yield from fit.render_change(alternatives)


def render_json(report: PostMortem) -> Iterator[str]:
    """Yield the report as indented JSON; sizes are in bytes."""
    yield encode(
        {
            "version": VERSION,
            "log": escape_data(report.path),
            "config": None if report.config is None else escape_data(report.config),
            "explained": report.is_explained,
            "failures": [_build_failure(diagnosis) for diagnosis in report.diagnoses],
            "room": report.room,
            "fit": None if report.alternatives is None else convert_record(fit.build_fit(report.alternatives)),
        }
    )


def _build_failure(diagnosis: Diagnosis) -> dict[str, object]:
    message, explanation, compared = diagnosis.message, diagnosis.explanation, diagnosis.comparison
    sizes = {
        name: None if (size := getattr(message, name)) is None else int(size)
        for name in ("tried", "total", "limit", "allocated", "idle", "free", "others")
    }
    return {
        "kind": message.kind,
        "message": escape_data(message.text),
        "ranks": list(diagnosis.failure.ranks),
        "count": diagnosis.failure.repeats,
        "step": None if message.step is None else {"done": message.step[0], "total": message.step[1]},
        **sizes,
        "phase": explanation.phase,
        "function": escape_data(explanation.place.function) or None,
        "file": escape_data(explanation.place.path) or None,
        "component": None if explanation.component is None else explanation.component.name,
        "basis": explanation.basis or None,
        "formula": explanation.text or None,
        "candidates": [
            {"phase": item.phase, "component": item.component.name, "formula": item.text}
            for item in explanation.candidates
        ],
        "fragmented": diagnosis.is_fragmented,
        "estimate": None
        if compared is None
        else {
            "phase": compared.phase.name,
            "expected": compared.expected,
            "low": int(compared.low),
            "high": int(compared.high),
            "needed": int(compared.needed),
            "contradicted": compared.is_contradicted,
        },
    }

"""Record a measured run as a row of the user's own measurements, without names and paths."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence

from cfglint_train.calibration.logs import OUT_OF_MEMORY, Figure
from cfglint_train.findings.verdicts import describe_own_runs
from cfglint_train.foundation import atomic, regular_files
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import GIB, format_gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.memory.budget import STEP_PHASES, Budget, Estimate, compute_figure, compute_interval
from cfglint_train.memory.comparable import MIN_OWN_SETUPS, PREFIX
from cfglint_train.memory.estimate import estimate
from cfglint_train.memory.own_runs import apply_own_runs, classify_own, compute_residual
from cfglint_train.models.lookup import find_entry
from cfglint_train.models.stated import format_architecture
from cfglint_train.plan.enumerations import list_choices
from cfglint_train.plan.fields import FIELDS, Plan
from cfglint_train.plan.names import Field
from cfglint_train.plan.typed_values import get_field_type
from cfglint_train.reports.answer import describe_missing
from cfglint_train.reports.estimate import collect_notes, list_assumptions
from cfglint_train.runs.run import Run
from cfglint_train.runs.statements import SET_FLAG
from cfglint_train.settings.error import format_path
from cfglint_train.settings.files import DISK
from cfglint_train.settings.own_runs import LOWER_BOUND, load_own_runs, parse_row
from cfglint_train.version import VERSION

_TEXTS: Final[frozenset[Field]] = frozenset((
    "activations.attention", "checkpoint.checkpointer", "data.token_dtype", "method.lora_kernel_parts",
    "method.lora_modules_to_save", "method.lora_target_parameters", "method.lora_target_pattern", "method.lora_targets",
    "method.quantization", "method.stage", "method.unfrozen", "model.init_device", "optimizer.name",
    "optimizer.targets", "parallel.communication", "parallel.wrapped_classes",
))  # fmt: skip
"""Fields of free text that a row may hold: formats, and names of modules and classes. All other text is left out."""

_SPARE: Final = 1.02
"""Share of a GPU's memory that a figure may reach; GPUs of one name differ a little in what their driver reports."""


class Recorded(Frozen):
    """Rows that were written, and what they mean."""

    path: str
    added: int
    lines: tuple[str, ...]


def build_rows(run: Run, figures: Sequence[Figure]) -> list[dict[str, Any]]:
    """Return a row per figure. Raise UsageError if the run or a figure cannot be used as evidence."""
    _check_run(run)
    for figure in figures:
        _check_figure(run, figure)
    common = _describe_job(run)
    rows = [_build_row(common, figure) for figure in figures]
    for row in rows:
        measurement = parse_row(row).measurement
        again = estimate(measurement.plan, measurement.architecture, measurement.hardware)
        if _list_sizes(again) != _list_sizes(run.estimate):
            raise UsageError(f"{run.main.document.path}: the run depends on names or paths that a row may not hold")
    return rows


def _check_run(run: Run) -> None:
    path = run.main.document.path
    if run.plan.model.roles:
        raise UsageError(f"{path}: a run that trains with several models cannot be recorded")
    if run.estimate.missing or run.architecture is None:
        raise UsageError(f"{path}: the run cannot be estimated; not known: {', '.join(describe_missing(run))}")
    origin = run.get_origin("sequence.length")
    is_length_stated = origin is not None and origin.kind == "user" and origin.note == SET_FLAG
    # A row is about one run: a length on its command line is that of its longest sample, not only a limit.
    assumed = [item for item in list_assumptions(run) if not (is_length_stated and item.fact == "sequence.length")]
    if assumed:
        how = " (the length with `--set`)" if any(item.fact == "sequence.length" for item in assumed) else ""
        raise UsageError(f"{path}: state what is assumed about the run{how}: {'; '.join(collect_notes(assumed))}")


def _check_figure(run: Run, figure: Figure) -> None:
    capacity = run.hardware.gpu_bytes
    if figure.framework and figure.framework != run.main.framework:
        title = list_frameworks()[figure.framework].title
        raise UsageError(f"{figure.kind} is a line of {title}, but the run is one of {run.framework.title}")
    if capacity is not None and not figure.is_bound and figure.size > capacity * _SPARE:
        raise UsageError(f"{format_gib(figure.size)} {figure.counter} do not fit on one GPU of {format_gib(capacity)}")


def _describe_job(run: Run) -> dict[str, Any]:
    """Return the fields that all rows of a run share."""
    assert run.architecture is not None
    model = run.architecture
    is_public = find_entry(model.id) == model
    shape = {} if is_public else {"shape": format_architecture(model)}
    job = {
        "framework": run.main.framework,
        "model": model.id if is_public else "",
        **shape,
        "plan": _select_fields(run),
    }
    return {
        **job,
        "group": _digest(job),
        "quality": "good",
        "release": _format_release(run.releases.get(run.framework.name)),
        "cfglint": VERSION,
        "gpu": run.hardware.gpu,
        "capacity": run.hardware.gpu_bytes,
    }


def _select_fields(run: Run) -> dict[Field, Any]:
    """Return the plan fields that the GPU's memory depends on, without names and paths."""
    plan = {
        field: value
        for field in FIELDS
        if (value := run.plan.get(field)) is not None and _is_plain(field) and not _has_path(value)
    }
    sizes = _list_sizes(run.estimate)
    for field in [field for field in plan if field not in run.estimate.fields]:
        rest = {name: value for name, value in plan.items() if name != field}
        if _list_sizes(estimate(Plan().replace(rest), run.architecture, run.hardware)) == sizes:
            plan = rest
    return plan


def _is_plain(field: Field) -> bool:
    """Return whether the values of a field are numbers, choices or one of `_TEXTS`."""
    kind = get_field_type(field)
    return field in _TEXTS or list_choices(field) is not None or not ("str" in kind or "Role" in kind)


def _has_path(value: Any) -> bool:
    """Return whether a value may name a file, a user or a host."""
    if isinstance(value, (tuple, list)):
        return any(map(_has_path, value))
    return isinstance(value, str) and any(mark in value for mark in ("/", "~", "@", ":\\"))


def _format_release(release: str | None) -> str | None:
    """Return a release if it is a version, and None for a branch or a commit."""
    try:
        parse_release(release or "")
    except ValueError:
        return None
    return release


def _build_row(common: Mapping[str, Any], figure: Figure) -> dict[str, Any]:
    row = {
        **common,
        "counter": figure.counter,
        "measured_gib": round(figure.size / GIB, 4),
        "log": figure.kind,
        "outcome": "OOM" if figure.is_bound else "fits",
        **({"value_kind": LOWER_BOUND} if figure.is_bound else {}),
    }
    plain: dict[str, Any] = json.loads(json.dumps({"id": _digest(row), **row}, allow_nan=False))
    return plain


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _list_sizes(result: Estimate) -> list[tuple[str, Any, Any]]:
    """Return the sizes of the phases on the GPU; that of resuming depends on the path of a checkpoint."""
    phases = result.drop_gpu("resume").phases
    return [(phase.name, phase.gpu.sizes, phase.gpu.spans) for phase in phases if phase.gpu is not None]


def record(run: Run, figures: Sequence[Figure], path: str) -> Recorded:
    """Append the rows of a run to a file, which is created if it does not exist.

    Raise UsageError if the run is no evidence or the file is malformed, and OSError if it cannot be written. The file
    is then unchanged.
    """
    rows = build_rows(run, figures)
    peak = run.estimate.find_peak("gpu")
    for row in rows:
        if peak is None or peak.name not in STEP_PHASES or compute_residual(parse_row(row).measurement) is None:
            raise UsageError(f"{run.main.document.path}: {_explain_unusable(run, row)}")
    original = regular_files.read(path) if os.path.lexists(path) else None
    if original is not None:
        load_own_runs(path, DISK)
    present = set((original or b"").split(b"\n"))
    lines = [line for row in rows if (line := json.dumps(row, allow_nan=False).encode()) not in present]
    if lines:
        _write(path, original, lines)
    described = [*_describe_rows(run, figures), *_describe_effect(run, path)]
    return Recorded(path, len(lines), tuple(described))


def _explain_unusable(run: Run, row: Mapping[str, Any]) -> str:
    peak = run.estimate.find_peak("gpu")
    if peak is not None and peak.name not in STEP_PHASES:
        return f"memory is expected to peak in {peak.title}, so the figure is no evidence about a training step"
    return f"{row['counter']} memory nearly fills the GPU with cached blocks; record the allocated memory"


def _write(path: str, original: bytes | None, lines: Sequence[bytes]) -> None:
    content = original or b""
    if content and not content.endswith(b"\n"):
        content += b"\n"
    content += b"".join(line + b"\n" for line in lines)
    if original is not None:
        atomic.commit(atomic.stage(path, content, original))
        return
    folder = os.path.dirname(path)
    is_new = bool(folder) and not os.path.isdir(folder)
    if folder:
        os.makedirs(folder, exist_ok=True)
    try:
        atomic.commit(atomic.stage_new(path, content))
    except BaseException:
        if is_new:
            os.rmdir(folder)
        raise


def _describe_rows(run: Run, figures: Sequence[Figure]) -> Iterator[str]:
    """Yield a line per figure: the measurement beside its estimate."""
    budgets = [phase.gpu for phase in run.estimate.phases if phase.gpu is not None]
    for figure in figures:
        capacity = None if figure.is_bound else run.hardware.gpu_bytes
        expected = max(compute_figure(budget, figure.counter, capacity) for budget in budgets)
        low, high = (max(edge) for edge in zip(*[compute_interval(item, figure.counter, capacity) for item in budgets]))
        said = f"{figure.counter}, from {figure.kind}"
        if figure.is_bound:
            said = f"{figure.counter} and asked for when it ran out of memory" if figure.kind == OUT_OF_MEMORY else said
        yield (
            f"  measured {format_gib(figure.size)} {said}; expected {format_gib(int(expected))} "
            f"({low / GIB:.1f} to {high / GIB:.1f})"
        )


def _describe_effect(run: Run, path: str) -> Iterator[str]:
    """Yield the effect of all rows on the interval of the run."""
    peak = run.estimate.find_peak("gpu")
    assert peak is not None
    result = estimate(run.plan, run.architecture, run.hardware)
    published = _get_gpu(result, peak.name)
    kind = classify_own(published.setup)
    evidence = load_own_runs(path, DISK).get(run.main.framework, {})
    own_runs = evidence.get(kind)
    if own_runs is None:
        return
    moved = _get_gpu(apply_own_runs(result, evidence), peak.name)
    name = f"{run.framework.title}, {kind.removeprefix(PREFIX)} layers"
    setups = own_runs.setups
    if setups < MIN_OWN_SETUPS:
        yield f"  {name}: {setups} of {MIN_OWN_SETUPS} different set-ups; from then on, intervals are narrowed"
    else:
        yield f"  {name}: the interval is {describe_own_runs(moved) or f'not moved by {setups} of your runs'}"
    for count, edge, side, is_widened in (
        (own_runs.below, "lower", "below", moved.low < published.low),
        (own_runs.above, "upper", "above", moved.high > published.high),
    ):
        if count:
            effect = "widened" if is_widened else "not narrowed"
            yield f"  the {edge} edge is {effect}: {count} of your runs lie {side} their own intervals"


def _get_gpu(result: Estimate, name: str) -> Budget:
    phase = result.find_phase(name)
    assert phase is not None
    assert phase.gpu is not None
    return phase.gpu


def format_recorded(recorded: Recorded) -> Iterator[str]:
    """Yield the lines that report a recording."""
    where = format_path(recorded.path)
    yield f"{where}: {recorded.added} added" if recorded.added else f"{where}: already recorded"
    yield from recorded.lines

"""Relative speed of two versions of a run, from the table of moves."""

from __future__ import annotations

from collections.abc import Mapping
from math import log2

from cfglint_train.fitting.moves import load_table
from cfglint_train.fitting.smallest import is_length_assumed
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.plan.fields import FIELDS, get_field, validate_fields
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

_IDLE: Final = (
    *("optimizer.learning_rate", "optimizer.scheduler", "optimizer.warmup_steps", "optimizer.stated_name"),
    *(
        "method.lora_alpha",
        "model.revision",
        "model.architecture",
        "launch.launcher",
        "launch.meets",
        "launch.working_copy",
    ),
    *("batch.accumulation", "batch.global_", "batch.steps", "batch.epochs", "batch.samples", "batch.tokens"),
    *("batch.eval_micro", "sequence.eval_", "activations.fused_evaluation", "data.template", "data.held_out"),
    *("checkpoint.", "eval.", "logging.", "data.preprocessing_workers"),
)
"""Fields, and beginnings of the names of fields, that do not change the duration of a step of the same model."""
_BATCH: Final[tuple[Field, ...]] = ("batch.micro", "batch.tokens_per_gpu")
_LENGTH: Final[Field] = "sequence.length"
RELEASES: Final = "releases"


class SpeedChange(Frozen):
    """Relative speed of two runs."""

    slowdown: float
    """Factor on the time per token."""
    uncounted: tuple[str, ...]
    """Changed fields whose effect is unknown, and `releases` if these differ."""


def compare_speed(before: Run, after: Run) -> SpeedChange | None:
    """Return the relative speed of two runs, or None if no effect on it is known, or if model or hardware differ.

    The table of moves has the changes that lower a peak; the way back divides by the same factor. Under the same
    releases, fields that no file states only follow from those that one does.
    """
    if _describe_machine(before) != _describe_machine(after):
        return None
    changed = {field for field in FIELDS if before.plan.get(field) != after.plan.get(field)}
    factor, covered = _compare_batches(before, after, changed)
    length_factor = _compare_lengths(before, after) if _LENGTH in changed else None
    if length_factor is not None:
        factor *= length_factor
        covered.add(_LENGTH)
    for source, target in ((before, after), (after, before)):  # a way forth counts before a way back
        for row in load_table()["moves"]:
            field = get_field(row["field"])
            ways = _list_ways(row) if field in changed and field not in covered else []
            way = next((way for way in ways if _is_move(source, target, row, way[1])), None)
            if way is not None:
                slowdown, changes = way
                factor *= slowdown if source is before else 1 / slowdown
                covered |= changes.keys()
    if not changed & covered:
        return None
    if "method.tuning" in covered:
        covered |= {field for field in changed if field.startswith("method.lora_")}
    uncounted: list[str] = sorted(
        field
        for field in changed - covered
        if not field.startswith(_IDLE) and (before.is_stated(field) or after.is_stated(field))
    )
    if _list_releases(before) != _list_releases(after):
        uncounted.append(RELEASES)
    return None if factor == 1 and uncounted else SpeedChange(factor, tuple(uncounted))


def _list_releases(run: Run) -> dict[str, str]:
    return {package: release.version for package, release in run.releases.by_package.items()}


def _compare_lengths(before: Run, after: Run) -> float | None:
    """Return the factor of the sequence length on the time per token, or None if it is unknown.

    Shorter sequences are not slower, as in the table of moves. In longer ones, attention reads more keys per token,
    unless they hold more samples that do not attend to each other: nothing is known about packed samples.
    """
    old, new = (run.plan.sequence.length for run in (before, after))
    if old and new and new < old:
        return float(next(row["slowdown"] for row in load_table()["lengths"] if row["field"] == _LENGTH))
    if not old or not new or not all(_has_full_sequences(run) for run in (before, after)):
        return None
    works = [_compute_work(run, length) for run, length in ((before, old), (after, new))]
    return None if works[0] is None or works[1] is None else works[1] / works[0]


def _has_full_sequences(run: Run) -> bool:
    """Return whether every sequence is one sample or text of the full length."""
    is_packed = run.plan.sequence.packing is not False
    return run.plan.method.stage == "pretrain" if is_packed else not is_length_assumed(run)


def _compute_work(run: Run, length: int) -> float | None:
    """Return the FLOPs of a token in a step, or None if some layers do not attend to all earlier tokens of a window.

    PaLM (arXiv 2204.02311, appendix B): 6 per parameter, of which frozen ones need no weight gradient (2), and 12 per
    layer, head, element of a head and key; a causal mask halves the keys.
    """
    model = run.architecture
    if model is None or model.recurrent_layers or (model.attention is not None and model.attention.index_heads):
        return None
    full = model.layers if model.full_attention_layers is None else model.full_attention_layers
    window = min(model.window or length, length)
    keys = full * length / 2 + (model.layers - full) * window * (1 - window / (2 * length))
    per_parameter = 4 if run.plan.trains_adapter else 6
    return per_parameter * (model.active_parameters or model.parameters) + 12 * model.heads * model.head_dim * keys


def _describe_machine(run: Run) -> tuple[object, ...]:
    model = None if run.architecture is None else run.architecture._replace(context=None)
    return run.framework.name, model, run.hardware.gpu, run.hardware.gpu_bytes, run.plan.world_size


def _compare_batches(before: Run, after: Run, changed: set[Field]) -> tuple[float, set[Field]]:
    """Return the factor of the batch of one pass, and the fields that it covers."""
    factor, per_halving = 1.0, load_table()["micro_batch"]["slowdown_per_halving"]
    for field in _BATCH:
        old, new = before.plan.get(field), after.plan.get(field)
        if field in changed and old and new and not (new > old and after.plan.parallel.defers_reduction):
            factor *= per_halving ** log2(old / new)
    return factor, set(_BATCH)


def _list_ways(row: Mapping[str, Any]) -> list[tuple[float, dict[Field, Any]]]:
    """Return the changes of a row, each with its slowdown; those of most fields come first."""
    slowdowns = row["slowdown"] if isinstance(row["slowdown"], list) else [row["slowdown"]] * len(row["to"])
    ways = [
        (slowdown, validate_fields(way)) for alternatives, slowdown in zip(row["to"], slowdowns) for way in alternatives
    ]
    return sorted(ways, key=lambda item: -len(item[1]))


def _is_move(before: Run, after: Run, row: Mapping[str, Any], changes: Mapping[Field, Any]) -> bool:
    """Return whether a change of a row leads from one run to the other."""
    field = get_field(row["field"])
    value = before.plan.get(field)
    if row["from"] == "above":
        starts = isinstance(value, (int, float)) and value > changes[field]
    else:
        starts = value is not None and value in row["from"]
    needs = all(before.plan.get(get_field(name)) in values for name, values in row.get("needs", {}).items())
    return starts and needs and all(after.plan.get(field) == target for field, target in changes.items())

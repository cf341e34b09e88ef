"""Relative speed of two versions of a run, from the table of moves."""

from __future__ import annotations

from collections.abc import Mapping
from math import log2

from cfglint_train.fitting.moves import load_table
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.plan.fields import FIELDS, get_field, validate_fields
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

_IDLE: Final = frozenset((
    *("optimizer.learning_rate", "optimizer.scheduler", "optimizer.warmup_steps", "optimizer.stated_name"),
    *("method.lora_alpha", "model.revision", "launch.launcher", "launch.meets", "launch.working_copy"),
    *("batch.accumulation", "batch.global_", "batch.steps", "batch.epochs", "batch.samples", "batch.tokens"),
    *("checkpoint.path", "checkpoint.load_path", "checkpoint.final_path", "data.template"),
))  # fmt: skip
"""Fields that do not change the duration of a step. The table shows that of the others, or nothing does."""
_BATCH: Final[tuple[Field, ...]] = ("batch.micro", "batch.tokens_per_gpu")


def compare_speed(before: Run, after: Run) -> float | None:
    """Return the factor on the time per token, or None if the table of moves covers no change, or not all of them.

    The table has the changes that lower a peak; the way back divides by the same factor. Under the same releases,
    fields that no file states only follow from those that one does.
    """
    if _describe_machine(before) != _describe_machine(after):
        return None
    changed = {field for field in FIELDS if before.plan.get(field) != after.plan.get(field)}
    factor, covered = _compare_batches(before, after, changed)
    for source, target in ((before, after), (after, before)):  # a way forth counts before a way back
        for row in load_table()["moves"]:
            field = get_field(row["field"])
            ways = _list_ways(row) if field in changed and field not in covered else []
            way = next((way for way in ways if _is_move(source, target, row, way[1])), None)
            if way is not None:
                slowdown, changes = way
                factor *= slowdown if source is before else 1 / slowdown
                covered |= changes.keys()
    for row in load_table()["lengths"]:
        field = get_field(row["field"])
        if field in changed and (after.plan.get(field) or 0) < (before.plan.get(field) or 0):
            factor *= row["slowdown"]
            covered.add(field)
    has_same_releases = _list_releases(before) == _list_releases(after)
    uncovered = {
        field
        for field in changed - covered - _IDLE
        if not has_same_releases or before.is_stated(field) or after.is_stated(field)
    }
    return None if uncovered or not changed & covered else factor


def _list_releases(run: Run) -> dict[str, str]:
    return {package: release.version for package, release in run.releases.by_package.items()}


def _describe_machine(run: Run) -> tuple[object, ...]:
    return run.architecture, run.hardware.gpu, run.hardware.gpu_bytes, run.plan.world_size


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

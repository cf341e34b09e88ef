"""The user's own measurements: read the file that `cfglint calibrate record` writes.

Each line is a row in the format of published rows (`calibration/data/row.schema.json`): `plan`, `shape` or `model`,
`gpu` or `capacity`, `counter` and `measured_gib`. A line that cannot be read is an error, because it would move
intervals silently.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import inf

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import GIB
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.hardware.gpus import find_gpu
from cfglint_train.memory.comparable import OwnRuns
from cfglint_train.memory.own_runs import Measurement, OwnResidual, compute_residual, summarise
from cfglint_train.models.architecture import Architecture
from cfglint_train.models.lookup import find_entry
from cfglint_train.models.stated import parse_architecture
from cfglint_train.plan.fields import Plan
from cfglint_train.plan.origin import Origin
from cfglint_train.plan.typed_values import convert_value, parse_field
from cfglint_train.settings.error import SettingsError, format_path
from cfglint_train.settings.files import Files

COUNTERS: Final = ("allocated", "reserved", "driver")
LOWER_BOUND: Final = "lower_bound"
"""`value_kind` of the row of a run that ran out of memory."""
_MAX_BYTES: Final = 2**20
"""Maximum size of the file, because every row is estimated."""
_DIMENSIONS: Final = (
    "layers", "hidden", "vocab", "heads", "kv_heads", "head_dim", "intermediate", "parameters", "tensors",
    "largest_tensor", "layer_parameters",
)  # fmt: skip
_ROW_ERRORS: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that dimensions of a wrong type or size cause."""


class OwnRow(Frozen):
    """A row: the measurement, and the framework that ran."""

    framework: str
    measurement: Measurement


def load_own_runs(path: str, files: Files) -> dict[str, dict[str, OwnRuns]]:
    """Return the runs of a file by framework and class of jobs.

    Raise SettingsError, with the line, if the file or a row cannot be read.
    """
    try:
        source = files.read(path)
    except OSError as error:
        raise SettingsError(f"{format_path(path)}: {error.strerror or error}") from None
    if len(source) > _MAX_BYTES:
        raise SettingsError(f"{format_path(path)}: larger than {_MAX_BYTES >> 20} MiB; remove the oldest rows")
    compared: dict[str, list[tuple[Measurement, OwnResidual]]] = {}
    for number, line in enumerate(source.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = parse_row(parse_line(line))
            residual = compute_residual(row.measurement)
        except UsageError as error:
            problem = f"{error}; remove the line, or record the run again"
            raise SettingsError(f"{format_path(path)}:{number}: {problem}") from None
        except _ROW_ERRORS as error:
            problem = f"the row cannot be estimated ({error}); remove the line, or record the run again"
            raise SettingsError(f"{format_path(path)}:{number}: {problem}") from None
        if residual is not None:
            compared.setdefault(row.framework, []).append((row.measurement, residual))
    return {framework: summarise(rows) for framework, rows in compared.items()}


def parse_line(line: bytes) -> Any:
    """Parse a line of JSON. Raise UsageError if it is not valid."""
    try:
        return json.loads(line)
    except UnicodeDecodeError:
        raise UsageError("not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not valid JSON: {error}") from None


def parse_row(content: Any) -> OwnRow:
    """Parse a row. Raise UsageError with the reason if it is malformed."""
    if not isinstance(content, dict):
        raise UsageError("not a JSON object")
    framework, counter, kind = (content.get(name) for name in ("framework", "counter", "value_kind"))
    if not isinstance(framework, str) or framework not in list_frameworks():
        raise UsageError(f"`framework` must be one of {', '.join(list_frameworks())}, not {framework!r}")
    if counter not in COUNTERS:
        raise UsageError(f"`counter` must be one of {', '.join(COUNTERS)}, not {counter!r}")
    if kind not in (None, LOWER_BOUND):
        raise UsageError(f"`value_kind` must be {LOWER_BOUND} or absent, not {kind!r}")
    size = content.get("measured_gib")
    if isinstance(size, bool) or not isinstance(size, (int, float)) or not 0 < size < inf:
        raise UsageError(f"`measured_gib` must be a positive number, not {size!r}")
    plan = content.get("plan")
    if not isinstance(plan, dict) or not plan:
        raise UsageError("`plan` must be an object of plan fields")
    fields = {parse_field(name): value for name, value in plan.items()}
    measurement = Measurement(
        Plan().replace({field: convert_value(field, value) for field, value in fields.items()}),
        _parse_model(content),
        _parse_hardware(content),
        counter,
        size * GIB,
        kind == LOWER_BOUND,
    )
    return OwnRow(framework, measurement)


def _parse_model(content: Mapping[str, Any]) -> Architecture:
    shape, model = content.get("shape"), content.get("model")
    if shape is None:
        architecture = find_entry(model) if isinstance(model, str) else None
        if architecture is None:
            raise UsageError(f"`model` must be a model that cfglint knows if there is no `shape`, not {model!r}")
        return architecture
    if not isinstance(shape, dict):
        raise UsageError("`shape` must be an object with the dimensions of the model")
    try:
        wrong = [name for name in _DIMENSIONS if type(shape[name]) is not int or shape[name] < 0]
        if wrong:
            raise UsageError(f"`shape` is not a model: {wrong[0]} must be a whole number")
        return parse_architecture(shape)
    except _ROW_ERRORS as error:
        raise UsageError(f"`shape` is not a model: {error}") from None


def _parse_hardware(content: Mapping[str, Any]) -> Hardware:
    gpu, capacity = content.get("gpu"), content.get("capacity")
    if gpu is not None and (not isinstance(gpu, str) or find_gpu(gpu) is None):
        raise UsageError(f"`gpu` must be a GPU that cfglint knows, not {gpu!r}")
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity <= 0:
        raise UsageError(f"`capacity` must be the bytes of one GPU, not {capacity!r}")
    return Hardware(gpu=gpu, gpu_bytes=capacity, gpu_origin=Origin("user", note="measurements"))

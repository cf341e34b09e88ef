"""Plan files: read a plan from a JSON file instead of a configuration (`cfglint estimate --plan FILE.json`).

The JSON object contains plan fields, either by group (`{"batch": {"micro": 4}}`) or by dotted name
(`{"batch.micro": 4}`). It may also contain `hardware` (gpu, gpu-memory, host-memory, disk, nodes, gpus-per-node) and,
for a model that is not in the catalogue, `model_config` (the object in its config.json). `docs/plan-file.md`, which is
generated from `plan/fields.py`, lists the fields.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.roots import Roots
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.hardware.catalogue import Hardware, UnknownHardware, build_hardware
from cfglint_train.hardware.gpus import parse_capacity
from cfglint_train.memory.budget import Estimate
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.certainty import Assumption
from cfglint_train.plan.fields import FIELDS, Plan
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import FieldValue, Origin
from cfglint_train.plan.typed_values import convert_value, parse_field
from cfglint_train.settings.cluster_facts import CLUSTER_FACTS, HARDWARE_FACTS
from cfglint_train.whatif import words

MODEL_CONFIG: Final = "model_config"
HARDWARE: Final = "hardware"


class StatedPlan(Frozen):
    """A plan from a JSON file, with its estimate. Reports treat it like a run."""

    path: str
    plan: Plan
    architecture: Architecture | None
    hardware: Hardware
    estimate: Estimate

    @property
    def title(self) -> str:
        """Title that follows the path in a report."""
        return "a stated plan"

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Assumption about the GPU if the plan does not name it. Nothing else is assumed for a plan."""
        origin = self.hardware.gpu_origin
        return (Assumption("gpu", self.hardware.gpu, origin.note),) if origin.kind == "assumed" else ()

    @property
    def verdicts(self) -> dict[Any, Any]:
        """Empty cache of verdicts: a stated plan keeps none."""
        return {}

    def is_stated(self, field: Field) -> bool:
        """Return whether the plan has a value for a field."""
        return self.plan.get(field) is not None

    def spell_key(self, field: Field) -> str:
        """Return the name of a field in the file, for messages."""
        return f'"{field}" in the plan'

    def replace_gpu(self, gpu: str) -> StatedPlan:
        """Return a copy with another GPU, given by its name or the size of its memory."""
        name, size = parse_capacity(gpu)
        hardware = self.hardware._replace(gpu=name, gpu_bytes=size)
        return self._replace(hardware=hardware, estimate=_estimate_plan(self.plan, self.architecture, hardware))

    def replace_fields(self, changes: Mapping[Field, Any]) -> StatedPlan:
        """Return a copy with other values of some fields."""
        plan = self.plan.replace(dict(changes))
        return self._replace(plan=plan, estimate=_estimate_plan(plan, self.architecture, self.hardware))


def read_plan_file(
    path: str,
    facts: Mapping[str, str] | None = None,
    model_config: Mapping[str, Any] | None = None,
    online: bool = False,
) -> StatedPlan:
    """Read a plan from a JSON file. Raise UsageError if it is invalid, or OSError if it cannot be read.

    `facts` and `model_config` come from flags and override the file. `online` allows a lookup of unknown models on the
    Hub.
    """
    source = regular_files.read_anywhere(path)
    if len(source) > regular_files.MAX_BYTES:
        raise UsageError(f"{path}: a plan file can have at most {regular_files.MAX_BYTES >> 20} MiB")
    try:
        content = json.loads(source.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path}: a plan must be a JSON object")
    if model_config is not None:
        content = {**content, MODEL_CONFIG: model_config}
    return parse_plan(content, path, facts or {}, online)


def parse_plan(
    content: Mapping[str, Any], path: str = "plan", facts: Mapping[str, str] | None = None, online: bool = False
) -> StatedPlan:
    """Parse a plan from a JSON object. Raise UsageError if it is invalid; `path` is for messages and model paths."""
    try:
        fields, rest = _split_content(content)
        hardware_facts = {**rest.get(HARDWARE, {}), **(facts or {})}
        for name, field in CLUSTER_FACTS.items():
            if name in hardware_facts:
                fields[field] = _parse_count(name, hardware_facts.pop(name))
        plan = Plan().replace({field: convert_value(field, value) for field, value in fields.items()})
        for field in fields:
            words.check_values(field, (plan.get(field),))
        hardware = _build_hardware(hardware_facts)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    architecture = _find_architecture(plan, rest.get(MODEL_CONFIG), path, online)
    return StatedPlan(path, plan, architecture, hardware, _estimate_plan(plan, architecture, hardware))


def _estimate_plan(plan: Plan, architecture: Architecture | None, hardware: Hardware) -> Estimate:
    from cfglint_train.memory.estimate import estimate

    return estimate(plan, architecture, hardware)


def _split_content(content: Mapping[str, Any]) -> tuple[dict[Field, Any], dict[str, dict[str, Any]]]:
    groups = {field.partition(".")[0] for field in FIELDS}
    fields: dict[Field, Any] = {}
    rest: dict[str, dict[str, Any]] = {}
    for key, value in content.items():
        plain = key.replace("_", "-")
        if key in (HARDWARE, MODEL_CONFIG):
            if not isinstance(value, dict):
                raise UsageError(f"{key} must be an object")
            entries = {name.replace("_", "-"): item for name, item in value.items()} if key == HARDWARE else value
            rest[key] = {**rest.get(key, {}), **entries}
        elif plain in HARDWARE_FACTS:
            rest.setdefault(HARDWARE, {})[plain] = value
        elif key in groups:
            if not isinstance(value, dict):
                raise UsageError(f"{key} must be an object of fields")
            for name, item in value.items():
                fields[parse_field(f"{key}.{name}")] = item
        else:
            fields[parse_field(key)] = value
    return fields, rest


def _parse_count(name: str, value: Any) -> int:
    text = str(value)
    if not text.isdigit() or int(text) < 1 or int(text) > 10**6:
        raise UsageError(f"{name} must be a positive integer, not {value!r}")
    return int(text)


def _build_hardware(stated_facts: Mapping[str, Any]) -> Hardware:
    unknown = [name for name in stated_facts if name not in HARDWARE_FACTS]
    if unknown:
        raise UsageError(f"hardware has no field {unknown[0]}; known: {', '.join(HARDWARE_FACTS)}")
    facts = {name: FieldValue(str(value), Origin("user", note="the plan")) for name, value in stated_facts.items()}
    try:
        return build_hardware(facts)
    except UnknownHardware as error:
        raise UsageError(str(error)) from None


def _find_architecture(
    plan: Plan, config: Mapping[str, Any] | None, path: str, online: bool = False
) -> Architecture | None:
    """Return the architecture of the model, or None if it is unknown or cannot be derived from `config`.

    Raise UsageError if the config of a model on the disk cannot be read.
    """
    from cfglint_train.models.find import find_plan_model
    from cfglint_train.models.local import UnreadableModelError

    try:
        return find_plan_model(plan.get, os.path.dirname(path), Roots().list_allowed_folders(path), config, online)
    except UnreadableModelError as error:
        raise UsageError(str(error)) from None
    except (TypeError, ValueError, ArithmeticError, LookupError):
        if config is None:
            raise
        return None

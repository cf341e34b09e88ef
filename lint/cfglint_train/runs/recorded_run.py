"""Recorded runs: record the plan fields that a rule reads, so that rules need not declare them."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType, MethodType

from cfglint_train.foundation.typed import Any
from cfglint_train.memory.budget import Estimate
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin
from cfglint_train.runs.run import Run


class RecordedRun(Run):
    """A run that records which plan fields a rule reads, except reads by computations that all rules share."""

    def __init__(self, run: Run, seen: dict[Field, None]) -> None:
        """Wrap `run`, and record in `seen` the fields that are read."""
        self.__dict__.update(run.__dict__)
        self._run, self._seen = run, seen
        recorder: Any = _Recorder(run.plan, seen)
        self.plan = recorder

    @property
    def is_estimated(self) -> bool:
        """True if the estimate has been computed."""
        return self._run.is_estimated

    @property
    def estimate(self) -> Estimate:
        """Peak memory of every phase."""
        return self._run.estimate

    def compute_once(self, compute: Any) -> Any:
        """Return the cached result of a computation, which all rules share."""
        return self._run.compute_once(compute)

    def find_refusals(self, texts: Mapping[str, bytes]) -> frozenset[str]:
        """Return the reasons against writing `texts`, which are computed once for all rules."""
        return self._run.find_refusals(texts)

    def get_origin(self, field: Field) -> Origin | None:
        """Return the origin of a field's value, or None."""
        self._seen[field] = None
        return self._run.get_origin(field)

    def is_stated(self, field: Field) -> bool:
        """Return whether the config or its launch sets a field, rather than a default."""
        self._seen[field] = None
        return self._run.is_stated(field)


class _Recorder:
    """A plan, or a group of plan fields, that records which fields are read."""

    __slots__ = ("_group", "_record", "_seen")

    def __init__(self, record: Any, seen: dict[Field, None], group: str = "") -> None:
        """Wrap a plan, or one group of its fields if `group` is its name."""
        self._record, self._seen, self._group = record, seen, group

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped plan or group, and record the read if the attribute is a plan field."""
        kind = type(self._record)
        if name not in kind._fields:  # derived from fields
            member = None if name.startswith("_") else getattr(kind, name, None)
            if isinstance(member, property) and member.fget is not None:
                return member.fget(self)
            return MethodType(member, self) if isinstance(member, FunctionType) else getattr(self._record, name)
        value = getattr(self._record, name)
        if not self._group:
            return _Recorder(value, self._seen, name)
        field: Any = f"{self._group}.{name}"
        self._seen[field] = None
        return value

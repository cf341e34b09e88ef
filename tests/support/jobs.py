"""Jobs built from configurations alone: lenses, companions, stated cluster, inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.lens import Config
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.fields import Plan
from cfglint_train.plan.origin import Origin
from cfglint_train.plan.reading import ResolvedPlan


def build_job(
    main: Config,
    companions: Mapping[str, Config] | None = None,
    nodes: int | None = 1,
    gpus: int | None = 8,
    architecture: Architecture | None = None,
) -> Job:
    """Return the job of a main configuration; the user states `nodes` and `gpus` of the cluster."""
    framework = frameworks.load(main.framework)
    job = Job(main, companions or {}, main.releases)
    job.architecture = architecture
    job.plan = ResolvedPlan(frameworks.read_config(main).values)
    for name, companion in job.companions.items():
        frameworks.adopt_companion(job, frameworks.read_config(companion), frameworks.load(name), framework)
    for field, value in (("launch.nodes", nodes), ("launch.gpus_per_node", gpus)):
        if value is not None:
            job.plan.put(field, value, Origin("user", note="test"))
    framework.infer(job)
    return job


def build_job_plan(*args: Any, **kwargs: Any) -> Plan:
    """Return the plan of the job that `build_job` returns."""
    return build_job(*args, **kwargs).plan.build_plan()


_TEXT_FIELDS = frozenset(("id", "model_type"))


def build_architecture(model_type: str = "llama", **dimensions: Any) -> Architecture:
    """Return an architecture with the stated dimensions; every other required dimension is 1."""
    required = [name for name in Architecture._fields if name not in Architecture._field_defaults]
    defaults = {name: "test" if name in _TEXT_FIELDS else 1 for name in required}
    return Architecture(**{**defaults, "model_type": model_type, **dimensions})

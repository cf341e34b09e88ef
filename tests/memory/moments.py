"""The moments of a training step, with everything that exists at each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cfglint_train.memory.activations import compute_activations
from cfglint_train.memory.component import Component
from cfglint_train.memory.events import generate_step_events
from cfglint_train.memory.job import Job
from cfglint_train.memory.logits import build_head
from cfglint_train.memory.setup import Setup
from cfglint_train.plan.fields import Plan


class Moment(NamedTuple):
    """One event in bytes."""

    phase: str
    name: str
    parts: dict[Component, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def list_moments(setup: Setup, layers: bool = True) -> Iterator[Moment]:
    """The events of a setup's step. `layers`: those that need the formula of the model's layers, too."""
    job = Job(setup, Plan())
    for phase, name, transient in generate_step_events(
        job, setup, compute_activations(setup) if layers else None, build_head(setup)
    ):
        yield Moment(phase, name, {**job.lasting, **transient})

"""Moments of a training step, each with everything that exists then."""

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
    """An event with the bytes of each component."""

    phase: str
    name: str
    parts: dict[Component, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def list_moments(setup: Setup, layers: bool = True) -> Iterator[Moment]:
    """Yield the events of a setup's step.

    `layers`: include those that need the formula of the model's layers.
    """
    job = Job(setup, Plan())
    for phase, name, transient in generate_step_events(
        job, setup, compute_activations(setup) if layers else None, build_head(setup)
    ):
        yield Moment(phase, name, {**job.lasting, **transient})

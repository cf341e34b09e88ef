"""The settings of one configuration by the names that clauses call them, and what its run adds.

A name with `@` is a field of the run's plan (`@parallel.zero_stage`), or one of: `@ranks`, the number of GPUs;
`@eval_batch`, the sequences of an evaluation step on all of them; `@capability`, the compute capability of the stated
GPU; `@cuda`, whether that has one; `@host`, the framework of the run's main configuration; `@trainer`, whether that
runs the Trainer of transformers; `@client_optimizer` and `@client_scheduler`, whether a program of the repository hands
DeepSpeed one of its own; `@trained`, whether a program that is given the file may train, or none is known; `@names`,
the frameworks of the companions that it names itself; `@release`, the release that counts for this configuration;
`@syntax`, that of its file; `@overridden`, the settings that its launch gives.
"""

from __future__ import annotations

import re
from collections.abc import Set

from cfglint_rules.vocabulary.survey import context, target
from cfglint_schemas.status import PRESENT
from cfglint_train.documents.document import MISSING, Route, Unknown
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config, spelled
from cfglint_train.mutations.mutations import mutations_of
from cfglint_train.plan.fields import named
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Place
from cfglint_train.runs.run import Run

_CLIENTS: Final = {"@client_optimizer": "optimizer", "@client_scheduler": "scheduler"}
"""Names to the section of DeepSpeed's file that makes the same."""
_DERIVED: Final = frozenset(
    (
        "@ranks",
        "@eval_batch",
        "@capability",
        "@cuda",
        "@host",
        "@trainer",
        *_CLIENTS,
        "@trained",
        "@release",
        "@syntax",
        "@overridden",
        "@names",
    )
)
"""Names that are neither keys nor fields of the plan."""


class Settings:
    """Names are dotted from the root (OpenRLHF: the flag of the newest release); `@` marks what is no key."""

    __slots__ = ("_given", "_keys", "_values", "config", "run")

    def __init__(self, config: Config, run: Run | None = None) -> None:
        self.config = config
        self.run = run
        self._values: dict[str, Any] = {}
        self._keys = frameworks.load(config.framework).spellings
        self._given = self._keys.given(config)

    def value(self, name: str) -> Any:
        """The plain value; MISSING where it is not given, Unknown where it cannot be determined."""
        if name not in self._values:
            self._values[name] = self._value(name)
        return self._values[name]

    def names(self) -> Set[str] | None:
        """What is given at the top level, sections included; None where more may be given out of sight."""
        return self._given

    def _value(self, name: str) -> Any:
        if name == "@release":
            return target(self.config).release
        if name == "@syntax":
            return self.config.document.syntax
        if name == "@overridden":
            return [spelled(route) for route in self.config.overrides]
        if name == "@trained":
            return _may_train(self.config.evidence.commands)
        if name in _CLIENTS:
            is_main = self.run is None or self.run.main is self.config
            return is_main and mutations_of(self.config).makes(_CLIENTS[name])
        if name.startswith("@"):
            return Unknown("the run") if self.run is None else _told(self.run, name)
        if self._given is not None and not name.startswith("-") and name.partition(".")[0] not in self._given:
            return MISSING
        route = self.route(name)
        if route is None:
            return Unknown("flags out of sight") if self._given is None and name.startswith("-") else MISSING
        value = self.config.value(*route)
        if isinstance(value, str) and ("${" in value or value.startswith("{{")):
            return Unknown(value)  # something else fills it in
        return _number(value) if isinstance(value, str) and name.startswith("-") else value

    def route(self, name: str) -> Route | None:
        """Where a setting is given, in one of its spellings."""
        return self._keys.find(self.config, name)

    def home(self, name: str) -> Route:
        """Where a setting is given, else where it would be."""
        return self.route(name) or self._keys.home(self.config, name)

    def lacks(self, name: str) -> bool:
        """Whether a setting is not given, or nothing but a default settles a field of the plan."""
        if not name.startswith("@"):
            return self.value(name) is MISSING
        return name not in _DERIVED and self.place(name) is None

    def unheard_of(self, name: str) -> bool:
        """Whether the copy of the framework that is in use has no setting of that name."""
        known = self.config.evidence.vocabulary
        if known is None or name.startswith("@"):
            return False
        fact = known.fact(self.home(name), target(self.config).release, context(self.config))
        return fact is None or fact.status().kind != PRESENT

    def shown(self, name: str) -> str:
        """A setting as it is spelled here."""
        return spelled(self.home(name))

    def place(self, name: str) -> Place | None:
        """The key of a setting that the file gives, the words of a launch that override it, or the place that settles a
        field of the plan.
        """
        if name in _DERIVED:
            return None
        if name.startswith("@"):
            origin = None if self.run is None else self.run.origin(named(name[1:]))
            return None if origin is None else origin.place
        route = self.route(name)
        given = None if route is None else self.config.override(route)
        if given is not None and (place := self.config.overrides[given].origin.place) is not None:
            return place
        entry = None if route is None else self.config.entry(*route)
        return None if entry is None else Place(self.config.document, entry.key.span)


def _may_train(commands: tuple[str, ...]) -> bool:
    """Whether one of some commands may train; where none is known, something may."""
    if not commands:
        return True
    from cfglint_train.frameworks.registry import listed
    from cfglint_train.launches.entries import Program, trains  # reads bash

    own = re.compile("|".join(rf"(?:{of.trains})(?!\S)" for of in listed().values() if of.trains))
    return any(own.match(one) or trains(Program(one.split()[0], ".py" in one)) for one in commands)


def _number(word: str) -> Any:
    """A word of a command line as the number that it is, if it is one."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    return word


# --- what the run knows ----------------------------------------------------------------------------------------------


def _ranks(run: Run) -> Any:
    fields: tuple[Field, ...] = ("launch.nodes", "launch.gpus_per_node")
    origins = [run.origin(field) for field in fields]
    if any(origin is None or origin.kind == "assumed" for origin in origins):
        return Unknown("the number of GPUs")
    counts = [run.plan.get(field) for field in fields]
    return counts[0] * counts[1] if all(isinstance(count, int) for count in counts) else Unknown("the number of GPUs")


def _eval_batch(run: Run) -> Any:
    ranks, each = _ranks(run), run.plan.batch.eval_micro
    return Unknown("the evaluation's batch") if isinstance(ranks, Unknown) or each is None else ranks * each


def _capability(run: Run) -> Any:
    has = None if run.hardware.gpu_origin.kind == "assumed" else run.hardware.compute_capability
    return Unknown("the GPU") if has is None else has


def _cuda(run: Run) -> Any:
    known = run.hardware.gpu is not None and run.hardware.gpu_origin.kind != "assumed"
    return run.hardware.compute_capability is not None if known else Unknown("the GPU")


def _told(run: Run, name: str) -> Any:
    if name == "@ranks":
        return _ranks(run)
    if name == "@eval_batch":
        return _eval_batch(run)
    if name == "@capability":
        return _capability(run)
    if name == "@cuda":
        return _cuda(run)
    if name == "@host":
        return run.main.framework
    if name == "@names":
        return [one.framework for one in run.framework.references(run.main)]
    if name == "@trainer":
        return run.framework.traits.runs_trainer
    value = run.plan.get(named(name[1:]))
    return Unknown(name[1:]) if value is None else value

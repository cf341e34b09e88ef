"""Facts about how a program of a script is started, and how they are gathered from its launchers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cfglint_train.documents.document import Node, Scalar, Unknown
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any
from cfglint_train.plan.origin import FieldValue, Origin, Place


class LaunchFacts(Frozen):
    """How a program of a script is started. None where the script does not say; the value is None where it says what
    cannot be determined (`--nnodes=$1`).
    """

    launcher: FieldValue | None = None
    """torchrun, accelerate, deepspeed, llamafactory-cli, axolotl, ray, mpirun, srun, python."""
    nodes: FieldValue | None = None
    gpus_per_node: FieldValue | None = None
    gpu: FieldValue | None = None
    """The card that the batch system is asked for, by its name in the table of GPUs."""
    host_memory: FieldValue | None = None
    """Memory of one node that the batch system gives, as text with a unit (`480GiB`)."""
    environment: Mapping[str, str] = {}
    """What is set for it, but for variables that its command line is made of."""
    sharding: FieldValue | None = None
    """Options of `accelerate launch` shard the model, in a way that is not read: the value is None."""
    rendezvous: FieldValue | None = None
    """Whether the processes of several nodes are given an address at which they meet."""
    working_copy: FieldValue | None = None
    """Ray runs the job in a temporary copy of its working directory."""
    is_sharding_known: bool = False
    """All that could shard the model is in sight: a launcher that brings nothing of its own, with known options."""


class LaunchReading:
    """Facts while they are gathered; the innermost launcher wins."""

    def __init__(self, document: ShellDocument) -> None:
        self.document = document
        self.facts: dict[str, FieldValue] = {}
        self.environment: dict[str, str] = {}
        self.assumptions: dict[str, str] = {}
        """What variables of the environment rest on, where their values are defaults."""
        self.undetermined: set[str] = set()
        """The variables of the environment whose values cannot be determined."""

    def put_option(
        self,
        name: str,
        value: Any,
        invocation: Invocation,
        flag: str | None = None,
        kind: str = "explicit",
        assumption: str = "",
    ) -> None:
        """Keep what an option of a launcher states, or the launcher's default; None is what cannot be read."""
        if kind == "explicit" and flag is not None:
            entry = invocation.get(flag)
            if value is None and (entry is None or not is_undetermined(entry.value)):
                return
            place = Place(self.document, invocation.span if entry is None else entry.span)
            if entry is not None and value is not None:
                assumption = self.document.get_assumption((invocation.number, flag)) or assumption
            self.keep_fact(name, FieldValue(value, Origin("explicit", place, key=flag, assumption=assumption)))
        elif value is None:
            return
        else:
            self.keep_fact(
                name, FieldValue(value, Origin("default", note=f"the default of {invocation.program}", key=flag or ""))
            )

    def keep_fact(self, name: str, value: FieldValue) -> None:
        """Keep a fact. What the script states counts more than a default that it has for a variable, and anything that
        can be determined more than what cannot.
        """
        present = self.facts.get(name)
        if present is None or present.value is None:
            self.facts[name] = value if present is None or value.value is not None else present
        elif value.value is not None and value.origin.kind == "explicit" and not value.origin.assumption:
            self.facts[name] = value if present.origin.assumption else present

    def find_option(self, invocation: Invocation, names: Iterable[str]) -> tuple[str | None, str | None]:
        """The first of some options that is given with one known word: its name and the word."""
        for name in names:
            entry = invocation.get(name)
            if entry is not None:
                value = entry.value.value if isinstance(entry.value, Scalar) else None
                return name, value if isinstance(value, str) else None
        return None, None

    def is_set(self, variable: str) -> bool:
        """Whether the script sets a variable of the environment, to whatever."""
        return variable in self.environment or variable in self.undetermined

    def has_option(self, invocation: Invocation, names: Iterable[str]) -> bool:
        """Whether one of some options is given."""
        return any(invocation.get(name) is not None for name in names)


def is_undetermined(node: Node) -> bool:
    """Whether the value of an option depends on what only the start decides (`$1`, `$NODES`)."""
    return isinstance(node, Scalar) and isinstance(node.value, Unknown)

"""Facts about a launch, and the collector that gathers them from the launchers around a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cfglint_train.documents.document import Node, Scalar, Unknown
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import FieldValue, Origin, Place


class LaunchFacts(Frozen):
    """Facts that a script states about the launch of its program.

    A fact is None if the script does not state it. Its value is None if the script states a value that cannot be
    determined (`--nnodes=$1`).
    """

    launcher: FieldValue | None = None
    """Launcher: torchrun, accelerate, deepspeed, llamafactory-cli, axolotl, ray, mpirun, srun or python."""
    nodes: FieldValue | None = None
    gpus_per_node: FieldValue | None = None
    gpu: FieldValue | None = None
    """GPU model requested from the batch system, by its name in the table of GPUs."""
    host_memory: FieldValue | None = None
    """Host memory per node requested from the batch system, as a string with a unit (`480GiB`)."""
    environment: Mapping[str, str] = {}
    """Environment variables of the program, except those that its command line expands."""
    sharding: FieldValue | None = None
    """Option of `accelerate launch` that may shard the model in a way that cfglint does not read; its value is None."""
    rendezvous: FieldValue | None = None
    """True if the processes of several nodes have a rendezvous address, False if they have none."""
    working_copy: FieldValue | None = None
    """Set if Ray runs the job in a temporary copy of its working directory."""
    is_sharding_known: bool = False
    """True if everything that could shard the model is visible: the launcher adds nothing and its options are known."""
    visible_gpus: FieldValue | None = None
    """GPUs per node that the batch system grants or `CUDA_VISIBLE_DEVICES` lists."""

    def list_common_fields(self, environment_origin: Origin) -> Iterator[tuple[Field, Any, Origin]]:
        """Yield the plan fields that a command states about its launch, except the number of nodes and GPUs."""
        if self.launcher is not None:
            yield "launch.launcher", *self.launcher
        if self.working_copy is not None:
            yield "launch.working_copy", *self.working_copy
        if self.environment:
            yield "launch.environment", tuple(sorted(self.environment.items())), environment_origin


class LaunchReading:
    """Collector of launch facts; the innermost launcher wins."""

    def __init__(self, document: ShellDocument) -> None:
        """Start without facts."""
        self.document = document
        self.facts: dict[str, FieldValue] = {}
        self.environment: dict[str, str] = {}
        self.assumptions: dict[str, str] = {}
        """Assumptions behind environment variables whose values are defaults."""
        self.undetermined: set[str] = set()
        """Environment variables whose values cannot be determined."""

    def put_option(
        self,
        name: str,
        value: Any,
        invocation: Invocation,
        flag: str | None = None,
        kind: str = "explicit",
        assumption: str = "",
    ) -> None:
        """Record the value of a launcher's option, or the launcher's default if `kind` is "default".

        A value of None is recorded only if the option is stated and depends on the launch (`--nnodes=$1`). It is
        ignored if the option is absent or its text cannot be parsed.
        """
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
        """Record a fact unless a better fact is present.

        A determined value wins over an undetermined value, and a stated value over an assumed value. Otherwise the
        first fact stays.
        """
        present = self.facts.get(name)
        if present is None or present.value is None:
            self.facts[name] = value if present is None or value.value is not None else present
        elif value.value is not None and value.origin.kind == "explicit" and not value.origin.assumption:
            self.facts[name] = value if present.origin.assumption else present

    def find_option(self, invocation: Invocation, names: Iterable[str]) -> tuple[str | None, str | None]:
        """Return the name and the value of the first option that is present, or (None, None).

        The value is None if it is not a single word that is known before the launch.
        """
        for name in names:
            entry = invocation.get(name)
            if entry is not None:
                value = entry.value.value if isinstance(entry.value, Scalar) else None
                return name, value if isinstance(value, str) else None
        return None, None

    def is_set(self, variable: str) -> bool:
        """Return whether the script sets an environment variable, to any value."""
        return variable in self.environment or variable in self.undetermined

    def has_option(self, invocation: Invocation, names: Iterable[str]) -> bool:
        """Return whether any of the options is present."""
        return any(invocation.get(name) is not None for name in names)


def is_undetermined(node: Node) -> bool:
    """Return whether the value of an option is only determined at launch (`$1`, `$NODES`)."""
    return isinstance(node, Scalar) and isinstance(node.value, Unknown)

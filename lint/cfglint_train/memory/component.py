"""The properties of a component of an estimate."""

from __future__ import annotations

from cfglint_train.foundation.typed import Literal

Kind = Literal["state", "gradient", "activation", "logits", "transient", "engine", "runtime", "host", "disk"]
"""On one GPU: state (kept from step to step), gradient, activation, logits, transient (copies, buffers, temporaries),
engine (of a rollout), runtime (torch's allocator and the driver). On one node: host. For the whole job: disk.
"""

Counter = Literal["allocated", "reserved", "driver"]
"""The narrowest counter of a GPU that includes a component: torch's allocated or reserved bytes, or the driver's."""


class Component:
    """A component of an estimate, compared by identity because estimates look components up all the time."""

    __slots__ = (
        "coefficient", "counter", "evidence", "flows", "kind", "name", "passes", "spread", "state", "weights", "words",
    )  # fmt: skip

    name: str
    """Name, unique among the components of a place (GPU, host or disk)."""
    kind: Kind
    words: str
    """Remark on how the bytes are computed; if they are a coefficient, the only description."""
    evidence: tuple[str, ...]
    """Ids of coefficients and kinds of evidence rows."""
    flows: bool
    """True if the bytes are proportional to the tokens. The interval is then that of traced activations, otherwise that
    of states.
    """
    passes: bool
    """True if the bytes are freed within a step, which leaves gaps in the allocator's pool; other components last."""
    counter: Counter
    state: bool
    """True if messages count it among the `states`, which are sharded and offloaded together."""
    weights: bool
    """True for weights that a forward pass reads; messages show their sum."""
    spread: bool
    """True if the size depends on how states are sharded over ranks rather than on the batch."""
    coefficient: str
    """For a host component: id of the coefficient that scales its interval."""

    def __init__(
        self,
        name: str,
        kind: Kind,
        words: str = "",
        *,
        evidence: tuple[str, ...] = ("derived-states",),
        flows: bool = False,
        passes: bool = False,
        counter: Counter = "allocated",
        state: bool = False,
        weights: bool = False,
        spread: bool = False,
        coefficient: str = "staged",
    ) -> None:
        """Create a component; see the attributes for the meaning of the arguments."""
        self.name, self.kind, self.words, self.evidence = name, kind, words, evidence
        self.flows, self.passes, self.counter = flows, passes, counter
        self.state, self.weights, self.spread, self.coefficient = state, weights, spread, coefficient

    def __repr__(self) -> str:
        """Return the kind and the name."""
        return f"<{self.kind}: {self.name}>"

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
    """A component of an estimate. Compared by identity, because every part of an estimate looks one up."""

    __slots__ = (
        "coefficient", "counter", "evidence", "flows", "kind", "name", "passes", "spread", "state", "weights", "words",
    )  # fmt: skip

    name: str
    """Unique at its place (GPU, host or disk)."""
    kind: Kind
    words: str
    """Remark on the computation of the bytes; the only description of bytes that are a coefficient."""
    evidence: tuple[str, ...]
    """Ids of coefficients and kinds of evidence rows."""
    flows: bool
    """Proportional to the tokens: its interval is that of traced activations. The others have the interval of
    states.
    """
    passes: bool
    """Allocated and freed within a step, which leaves gaps in the allocator's pool. The others last."""
    counter: Counter
    state: bool
    """Counted as `states` in messages: sharded and offloaded together."""
    weights: bool
    """Weights that a forward pass reads; messages add them up."""
    spread: bool
    """Determined by the sharding of states over ranks rather than by the batch."""
    coefficient: str
    """For a host component: coefficient that scales its interval."""

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

"""What is stated of each component of an estimate."""

from __future__ import annotations

from cfglint_train.foundation.typed import Literal

Kind = Literal["state", "gradient", "activation", "logits", "transient", "engine", "runtime", "host", "disk"]
"""Of one GPU: state (kept from step to step), gradient, activation, logits, transient (copies, buffers, temporaries),
engine (of a rollout), runtime (torch's allocator and the driver). Of one node: host. Of the whole job: disk."""

Counter = Literal["allocated", "reserved", "driver"]
"""The narrowest counter of a GPU that includes a component: torch's allocated or reserved bytes, or the driver's."""


class Component:
    """One row. Rows are compared by identity, because every part of an estimate looks one up."""

    __slots__ = (
        "coefficient", "counter", "evidence", "flows", "kind", "name", "passes", "spread", "state", "weights", "words",
    )  # fmt: skip

    name: str
    """Unique at its place (GPU, host or disk)."""
    kind: Kind
    words: str
    """What the computation of the bytes does not say; all that is shown of bytes that are a coefficient."""
    evidence: tuple[str, ...]
    """Ids of coefficients and kinds of evidence rows."""
    flows: bool
    """Follows the tokens: its interval is that of what was traced. The others' is that of states."""
    passes: bool
    """Made and given back within a step, which leaves gaps in the allocator's pool. The others last."""
    counter: Counter
    state: bool
    """A message counts it as `states`: sharded and offloaded together."""
    weights: bool
    """Weights that a forward pass reads; a message counts them together."""
    spread: bool
    """Settled by how states are spread over ranks rather than by the batch."""
    coefficient: str
    """Of a host component: the coefficient that its interval is scaled with."""

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
        self.name, self.kind, self.words, self.evidence = name, kind, words, evidence
        self.flows, self.passes, self.counter = flows, passes, counter
        self.state, self.weights, self.spread, self.coefficient = state, weights, spread, coefficient

    def __repr__(self) -> str:
        return f"<{self.kind}: {self.name}>"

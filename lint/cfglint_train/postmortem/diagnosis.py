"""Explanation of a failure: the phase, the component of the estimate, and how certain both are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.memory import components
from cfglint_train.memory.budget import STEP_PHASES, Budget, Phase
from cfglint_train.memory.component import Component
from cfglint_train.memory.setup import Setup
from cfglint_train.postmortem.messages import Message
from cfglint_train.postmortem.tensors import Tensor, count_tokens, has_size, is_meaningful, list_tensors
from cfglint_train.postmortem.tracebacks import Part, Place, locate_allocation
from cfglint_train.runs.run import Run

_ALL_PHASES: Final = ("load", *STEP_PHASES, "eval", "save", "rollout")

_COMPONENTS: Final[dict[Part, Component]] = {
    "logits": components.LOGITS,
    "gathered": components.GATHERED,
    "buckets": components.BUCKETS,
    "gradients": components.GRADIENTS,
    "reduction": components.BACKWARD,
    "master": components.MASTER,
    "optimizer": components.OPTIMIZER,
    "update": components.UPDATE,
    "engine": components.ENGINE,
    "sent": components.SYNCED,
}

_CHECKPOINT: Final = compile_on_use(r"PytorchStreamWriter|SafetensorError|\.(?:safetensors|pt|pth|bin|distcp)\b")
"""Writers and files of checkpoints; a disk that is full stops caches and downloads as well."""
_LIBRARY: Final = compile_on_use(r"[a-zA-Z]+ failure|_STATUS_ALLOC_FAILED")
"""Messages of NCCL and cuBLAS. Other allocations outside of torch's pool may be those of pinned host memory."""

_MAX_CANDIDATES: Final = 6
_MAX_TEXTS: Final = 3


class Candidate(Frozen):
    """A tensor that the failed allocation may be."""

    phase: str
    component: Component
    text: str
    """Computation of its bytes, perhaps with a shorter batch."""


class Explanation(Frozen):
    """The phase and the component of a failed allocation."""

    place: Place
    """Place that the traceback shows."""
    phase: str | None = None
    component: Component | None = None
    """None if not known."""
    basis: str = ""
    """Evidence for the component: `traceback`, `size`, `traceback and size`, or `message`."""
    text: str = ""
    """Computation of the request's size, or empty."""
    candidates: tuple[Candidate, ...] = ()
    """Tensors that the allocation may be, if the component is not known."""


def explain(message: Message, run: Run | None) -> Explanation:
    """Explain a message with the estimate of a run, or from the log alone."""
    place = locate_allocation(message.frames)
    if place.phase is None and message.is_loading:
        place = place._replace(phase="load", function="the progress bar of loading", path="")
    if message.kind == "engine":
        return Explanation(place, "rollout", components.ENGINE, "message")
    if message.kind == "disk":
        return Explanation(place, place.phase or ("save" if _CHECKPOINT.search(message.text) is not None else None))
    if message.kind == "driver" and _LIBRARY.search(message.text) is not None:
        return Explanation(place, place.phase, components.CONTEXT, "message")
    if message.kind != "gpu" or message.tried is None:
        return Explanation(place, place.phase)
    setup = None if run is None else _find_setup(run, place.phase)
    tensors = [] if setup is None or not is_meaningful(message.tried) else list_tensors(setup)
    if place.part is not None:
        return _explain_part(message, place, place.part, setup, tensors)
    return _explain_size(message, place, setup, tensors)


def _find_setup(run: Run, phase: str | None) -> Setup | None:
    """Return the setup of a phase of a run, or else of the backward pass, or None if no step is estimated."""
    phases = [run.estimate.find_phase(name) for name in (phase or "", "backward", *STEP_PHASES)]
    budgets = [item.gpu for item in phases if item is not None and item.gpu is not None]
    steps = [budget for budget in budgets if budget.basis is not None and budget.setup.batch.tokens > 1]
    return steps[0].setup if steps else None


def _find_component(part: Part, phase: str | None, setup: Setup | None) -> Component:
    """Return the component of an estimate to which a kind of tensor belongs in a phase."""
    if part == "weights":
        has_adapters = setup is not None and setup.weights.adapters > 0
        return components.FROZEN if has_adapters else components.PARAMETERS
    if part == "layer":
        if phase == "backward":
            return components.BACKWARD
        is_kept = phase in (None, "forward") and (setup is None or setup.checkpointing.method == "none")
        return components.ACTIVATIONS if is_kept else components.FORWARD
    return _COMPONENTS[part]


def _explain_part(
    message: Message, place: Place, part: Part, setup: Setup | None, tensors: Sequence[Tensor]
) -> Explanation:
    """Explain a message whose traceback names the kind of tensor; the size adds which one."""
    component = _find_component(part, place.phase, setup)
    explained = Explanation(place, place.phase, component, "traceback")
    assert message.tried is not None
    same = [tensor for tensor in tensors if tensor.part == part and (place.phase or "") in (*tensor.phases, "")]
    exact = [tensor for tensor in same if has_size(tensor, message.tried, message.resolution)]
    if exact:
        names = {tensor.name: tensor.text for tensor in reversed(exact)}  # the first of each name
        text = " or ".join([*reversed(names.values())][:_MAX_TEXTS])
        return explained._replace(basis="traceback and size", text=text)
    if part != "logits":
        return explained
    shorter = [tensor for tensor in same if count_tokens(tensor, message.tried, message.resolution)]
    texts = {tensor.token_bytes: _format_shorter(tensor, message) for tensor in reversed(shorter)}
    return explained._replace(text=" or ".join(reversed(texts.values())))


def _format_shorter(tensor: Tensor, message: Message) -> str:
    tokens = count_tokens(tensor, message.tried or 0, message.resolution) or 0
    return f"{tensor.name}: about {tokens:,} of {tensor.factors[0]} x {' x '.join(tensor.factors[1:])}"


def _explain_size(message: Message, place: Place, setup: Setup | None, tensors: Sequence[Tensor]) -> Explanation:
    """Explain a message by the size of its request, in the phase that the traceback shows or in any phase."""
    assert message.tried is not None
    unexplained, phases = Explanation(place, place.phase), _list_possible_phases(message, place)
    same = [tensor for tensor in tensors if has_size(tensor, message.tried, message.resolution)]
    candidates = [item for tensor in same for item in _list_candidates(tensor, tensor.text, phases, setup)]
    has_matrix = any(tensor.is_matrix for tensor in same)
    if not has_matrix and len({candidate.component for candidate in candidates}) == 1:
        return unexplained._replace(component=candidates[0].component, basis="size", text=candidates[0].text)
    if not candidates:
        shorter = [tensor for tensor in tensors if count_tokens(tensor, message.tried, message.resolution)]
        texts = [_format_shorter(tensor, message) for tensor in shorter]
        candidates = [
            item for tensor, text in zip(shorter, texts) for item in _list_candidates(tensor, text, phases, setup)
        ]
    return unexplained._replace(candidates=_shorten(candidates))


def _list_possible_phases(message: Message, place: Place) -> tuple[str, ...]:
    if place.phase is not None:
        return (place.phase,)
    if message.step is not None:
        return tuple(phase for phase in _ALL_PHASES if phase != "load")
    return _ALL_PHASES


def _list_candidates(tensor: Tensor, text: str, phases: Sequence[str], setup: Setup | None) -> Iterator[Candidate]:
    """Yield a candidate for each phase in which a job allocates a tensor."""
    for phase in phases:
        if phase in tensor.phases:
            yield Candidate(phase, _find_component(tensor.part, phase, setup), text)


def _shorten(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the first candidate of each component and phase."""
    first = {(candidate.component, candidate.phase): candidate for candidate in reversed(candidates)}
    return tuple(reversed(first.values()))[:_MAX_CANDIDATES]


class Comparison(Frozen):
    """The estimate of a phase beside the bytes that the log shows; sizes in bytes, as torch's allocator counts."""

    phase: Phase
    expected: int
    low: float
    high: float
    needed: float
    """Bytes that the message states as a lower bound of the peak."""

    @property
    def shortage(self) -> float:
        """Bytes by which the estimate is too low for what the log shows."""
        return max(0.0, self.needed - self.expected)

    @property
    def is_contradicted(self) -> bool:
        """True if the run needed more than the upper bound for the whole GPU: the run was probably another one."""
        return self.needed > self.limit

    @property
    def limit(self) -> int:
        """Upper bound of the phase for the whole GPU, in bytes."""
        return _get_budget(self.phase).high


def compare_estimate(message: Message, explanation: Explanation, run: Run) -> Comparison | None:
    """Compare the estimate with the bytes in a message, or return None if either is missing.

    Without a known phase, the highest phase of a training step counts.
    """
    if message.kind != "gpu" or message.tried is None or message.allocated is None:
        return None
    phase = None if explanation.phase is None else run.estimate.find_phase(explanation.phase)
    if phase is None or phase.gpu is None:
        steps = [item for item in run.estimate.phases if item.name in STEP_PHASES and item.gpu is not None]
        phase = max(steps, key=lambda item: _get_budget(item).allocated, default=None)
    if phase is None:
        return None
    budget = _get_budget(phase)
    low, high = budget.get_bounds("allocated")
    return Comparison(phase, budget.allocated, low, high, message.needed)


def _get_budget(phase: Phase) -> Budget:
    assert phase.gpu is not None
    return phase.gpu

"""Explanation of an estimate: rerun its functions with `Size` objects to show how the bytes are computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.memory.activations import compute_kept_inputs
from cfglint_train.memory.budget import Budget, Phase
from cfglint_train.memory.component import Component
from cfglint_train.memory.components import (
    ACTIVATIONS,
    ENGINE,
    LOGITS,
    OFFLOADED_GRADIENTS,
    OFFLOADED_MASTER,
    OFFLOADED_PARAMETERS,
)
from cfglint_train.memory.estimate import build_phases
from cfglint_train.memory.host import PINNED
from cfglint_train.memory.job import Job
from cfglint_train.memory.logits import EVALUATION_LOSSES
from cfglint_train.memory.phase_budget import PhaseBudget, Sized, Step, Uncertainty
from cfglint_train.memory.plan_reader import Reader
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.size import BYTES, Size, format_number
from cfglint_train.plan.fields import Plan

_UNITS: Final = {
    # bytes of one element
    **dict.fromkeys(
        (
            "accumulated", "communication", "each", "gathered", "gradient", "held", "host_experts", "largest", "loaded",
            "master", "passing_logits", "plain_bytes", "quantized_bytes", "quantized_gather",
            "reference", "residual", "unsharded_bytes", "state", "unit_bytes", "weight",
        ),
        BYTES,
    ),
    "besides": "B of the projection of the largest matrix",
    # elements
    "adapters": "elements of adapters",
    "expert_parameters": "elements of routed experts",
    "fp32": "elements in fp32",
    "frozen": "frozen elements",
    "largest_tensor": "elements of the largest tensor",
    "layer_parameters": "elements of a layer",
    "parameters": "elements",
    "plain": "frozen elements",
    "prefetch_bucket": "elements",
    "live": "elements",
    "quantized": "quantised elements",
    "reduce_bucket": "elements of a bucket",
    "sub_group": "elements of a sub-group",
    "trained": "trained elements",
    # flow of tokens and layers
    "active": "of them at a time",
    "evaluation_tokens": "tokens",
    "head_dim": "width * of a head",
    "heads": "heads",
    "hidden": "width *",
    "in_flight": "micro batches",
    "kv_heads": "key heads",
    "layers": "layers",
    "length": "tokens per sequence",
    "sequence": "keys",
    "share": "of them trained",
    "tensors": "tensors",
    "tokens": "tokens",
    "vocab": "vocabulary *",
    # ranks
    "gradient_shards": "ranks",
    "head_split": "ranks",
    "local": "ranks",
    "nodes": "nodes",
    "optimizer_shards": "ranks",
    "parameter_shards": "ranks",
    "secondary": "ranks",
    "sequence_split": "ranks per sequence",
    "shards": "ranks",
}  # fmt: skip
"""Units of the fields of `Setup` and its records; other fields are not factors of a size."""

_PLAN_UNITS: Final = {
    "data": {"prefetch": "batches", "workers": "workers"},
    "rollout": {"sync_bucket": "B of the buffer", "tensor": "ranks per engine"},
}

_CHECKPOINTING: Final = {
    "none": "no activation checkpointing",
    "full": "full activation checkpointing",
    "selective": "attention outputs kept",
    "selective_ops": "every second matrix product kept",
    "fine_grained": "parts of layers recomputed",
    "every_n": "some layers recomputed",
    "budget": "a share of the activations kept",
}

_LOSSES: Final = {
    "none": "loss not fused",
    "liger": "fused loss (Liger)",
    "cce": "fused loss (Cut Cross-Entropy)",
    "chunked": "loss upcast in chunks",
    "liger_pairs": "Liger's loss, one pair at a time",
    "liger_unpaired": "Liger's loss, one answer at a time",
    "liger_policy": "Liger's loss, one completion at a time",
    "liger_distilled": "Liger's loss, 1,024 tokens at a time",
    "chunked_logits": "output matrix and loss in chunks",
    "triton": "loss from flash-attn's kernel",
    "log_softmax": "log-probabilities of all sequences at once",
    "rows": "log-probabilities of one sequence at a time",
    "rows_in_place": "log-probabilities of one sequence at a time",
    "row_kernel": "log-probabilities from a kernel",
    "odds": "log-probabilities and cross-entropy of the chosen answers",
    "odds_rows": "log-probabilities and cross-entropy of the chosen answers",
    "odds_kernel": "log-probabilities from a kernel, and cross-entropy of the chosen answers",
    "checkpointed": "output matrix in fp32 and loss in chunks of 256 tokens, recomputed",
    "checkpointed_half": "output matrix and loss in chunks of 256 tokens, recomputed",
    "compiled": "compiled loss",
    "compiled_shifted": "compiled loss on a shifted copy",
    "policy": "log-probabilities from a kernel, in place",
    "policy_scaled": "log-probabilities from a kernel, of logits divided in place",
    "policy_copied": "log-probabilities from a kernel, of a divided copy",
    "policy_padded": "log-probabilities from a kernel, cut out of padded sequences",
    "policy_cut": "log-probabilities from a kernel, cut out of padded sequences",
    "policy_entropy": "log-probabilities from a kernel, and compiled entropy",
    "policy_entropy_eager": "log-probabilities from a kernel, and entropy without compilation",
    "policy_entropy_chunks": "log-probabilities from a kernel, and entropy in chunks",
    "policy_fused": "output matrix and log-probabilities in chunks of 512 tokens",
    "policy_fused_entropy": "output matrix, log-probabilities and entropy in chunks of 512 tokens",
    "tiles": "log-probabilities from tiles of the output matrix, without logits",
}


class ExplainedComponent(Frozen):
    """A component of a budget with its bytes and their formula."""

    component: Component
    bytes: int
    formula: str
    """Computation of the bytes, with values; only a description if the bytes are a coefficient."""

    @property
    def name(self) -> str:
        """Name of the component."""
        return self.component.name


def explain(budget: Budget) -> tuple[ExplainedComponent, ...]:
    """Return the components of a budget, each with its bytes and their formula."""
    sizes = compute_sizes(budget)
    return tuple(
        ExplainedComponent(part, size, _format_formula(budget, part, sizes.get(part))) for part, size in budget.sizes
    )


def _format_formula(budget: Budget, component: Component, size: Size | float | None) -> str:
    if size is None:
        return component.words
    computed = size.text if isinstance(size, Size) else f"{format_number(size)} B"
    if component in (OFFLOADED_PARAMETERS, OFFLOADED_MASTER, OFFLOADED_GRADIENTS):
        remark = "pinned: rounded up to powers of two" if PINNED in computed else "not pinned"
    else:
        remark = _format_remark(budget, component)
    return f"{computed}; {remark}" if remark else computed


def _format_remark(budget: Budget, component: Component) -> str:
    setup = budget.setup
    if component is ACTIVATIONS:
        method = setup.checkpointing.method
        inputs = ", inputs of frozen matrices kept" if compute_kept_inputs(setup) else ""
        return f"{_CHECKPOINTING.get(method, method)}, {setup.mode.attention} attention{inputs}"
    if component is LOGITS and budget.phase == "optimizer step":
        return "outputs that the caller keeps"
    if component is LOGITS:
        if budget.phase == "eval" and setup.loss.kind not in EVALUATION_LOSSES:
            return _LOSSES["none"]
        if setup.loss.policy and setup.loss.kind == "none":
            return "log-probabilities, loss not fused"
        return _LOSSES.get(setup.loss.kind, setup.loss.kind)
    return component.words


def compute_sizes(budget: Budget) -> Mapping[Component, Size | float]:
    """Return, for each component whose bytes follow from the setup, its traced size."""
    assert budget.basis is not None
    computed = _compute_budgets(budget.phase, *budget.basis)
    return dict(
        next(
            budget_with_sizes.sizes
            for budget_with_sizes in computed
            if (budget_with_sizes.phase, budget_with_sizes.place) == (budget.phase, budget.place)
        )
    )


@lru_cache(maxsize=16)
def _compute_budgets(phase: str, setup: Setup, plan: Plan, capacity: int | None) -> list[Budget]:
    """Return the budgets of a phase, and of phases computed with it, with `Size` objects in place of numbers.

    Plain numbers are computed first to fill the caches of layer costs. A `Size` hashes like its number, so it would
    otherwise end up in these caches.
    """
    _build_budgets(phase, setup, plan, capacity)
    capacity_size = None if capacity is None else Size.create(capacity, "B of the GPU")
    return _build_budgets(phase, trace(setup), _trace_plan(plan), capacity_size)


def _build_budgets(phase: str, setup: Setup, plan: Plan, capacity: Any) -> list[Budget]:
    uncertainty = Uncertainty(Job(setup, plan), None, None)
    uncertainty.capacity = capacity
    phases: Iterable[Phase | None] = build_phases(_UnboundedBudget(setup, Reader(plan), uncertainty), phase)
    budgets = [
        budget
        for phase_budgets in phases
        if phase_budgets is not None
        for budget in (phase_budgets.gpu, phase_budgets.host, phase_budgets.disk)
    ]
    return [budget for budget in budgets if budget is not None]


def trace(record: Any) -> Any:
    """Return a record with a `Size` in place of each number that has a unit, including those in nested records."""
    changes: dict[str, Any] = {}
    for name, value in record._asdict().items():
        if name == "neighbours":
            changes[name] = tuple(_trace_model(model) for model in value)
        elif name == "tower":
            continue  # its blocks are computed for one patch, like layers
        elif hasattr(value, "_asdict"):
            changes[name] = trace(value)
        elif name in _UNITS and isinstance(value, (int, float)) and not isinstance(value, bool):
            changes[name] = Size.create(value, _UNITS[name])
    return record._replace(**changes)


def _trace_model(model: Any) -> Any:
    suffix = f"of the {model.role} model"
    return model._replace(
        bytes=Size.create(model.bytes, f"B {suffix}"), elements=Size.create(model.elements, f"elements {suffix}")
    )


def _trace_plan(plan: Plan) -> Plan:
    changes: dict[str, Any] = {}
    for part, units in _PLAN_UNITS.items():
        record = getattr(plan, part)
        values = {name: getattr(record, name) for name in units}
        sizes = {name: Size.create(value, units[name]) for name, value in values.items() if value is not None}
        changes[part] = record._replace(**sizes)
    return plan._replace(**changes)


class _UnboundedBudget(PhaseBudget):
    """Budgets with only the computed components, without bounds and allocator overhead."""

    def build_gpu_budget(
        self, phase: str, parts: dict[Component, float], fields: Any = None, steady: bool = True, fragments: bool = True
    ) -> Budget:
        return self._build_budget(phase, "gpu", {**self.job.lasting, **parts} if steady else parts)

    def build_step_budget(self, phase: str, step: Step, moments: list[Sized], highest_moment: Sized) -> Budget:
        engine = {ENGINE: step.engine} if step.engine else {}
        return self._build_budget(phase, "gpu", {**self.job.lasting, **highest_moment[2], **engine})

    def build_host_budget(self, phase: str, parts: dict[Component, float], fields: Any = None) -> Budget:
        return self._build_budget(phase, "host", parts)

    def build_disk_budget(self, phase: str, parts: dict[Component, float]) -> Budget:
        return self._build_budget(phase, "disk", parts)

    def _build_budget(self, phase: str, place: Any, parts: dict[Component, Any]) -> Budget:
        return Budget(place, tuple((part, size) for part, size in parts.items() if size), 0, 0, phase=phase)

"""Optimizer memory: the states of trained tensors, and the temporaries of one update.

Most optimizers keep tensors of the parameter's shape, so one number per element describes them. Others depend on the
shape: projected optimizers (GaLore, APOLLO) keep a projector per weight and states in its low-rank space, factored
optimizers (Adafactor, CAME, AdaLomo) keep a row and a column, Adam-mini keeps one number per row or head, and Muon uses
AdamW for embeddings, heads and vectors. If states are cut into flat pieces (ZeRO, FSDP1), the optimizer sees no shapes,
and factored states have the full size.

Sources: the packages' code (galore_torch 1.0, apollo_torch 1.0.3, adam_mini 1.1.1, schedulefree 1.4.1, came_pytorch
0.1.3, lomo_optim 0.1.1, torch_optimi 0.3.3, prodigyopt 1.1.2, badam 1.4, bitsandbytes 0.50.2, torchao 0.18.0, torch
2.13.0, transformers 5.23.0, llamafactory 0.9.5); `tests/oracles/optimizer_states.py` runs them. Further, EasyR1's
AnyPrecisionAdamW (hiyouga/EasyR1 b44b311, verl/utils/torch_functional.py), whose third state is the Kahan compensation.
"""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.models.architecture import Architecture, Linear, ModelPart


class StateRule(Frozen):
    """The memory of an optimizer relative to the tensors that it updates."""

    tensors: float = 0
    """Number of state tensors with the parameter's shape."""
    kind: str = ""
    """Dependence on shapes: factored, mini, muon, projected or projected_factored; empty if there is none."""
    pairs: int = 0
    """Number of pairs of a row and a column in a factored state."""
    fp32: bool = False
    """True if states have 32 bits regardless of the weights' format."""
    low_precision: float = 0
    """Further tensors with the parameter's shape if the weights have 16 bits (Kahan compensation)."""
    foreach: float = 0
    """Temporaries of one call over all tensors (torch's `foreach` and similar), in multiples of all weights."""
    single: float = 0
    """Temporaries of a call that updates one tensor at a time, in multiples of the largest tensor."""
    single_fp32: tuple[float, float] = (0, 0)
    """Same as `single` but in bytes per element, for 32-bit and 16-bit weights, if the call computes in fp32."""
    in_backward: bool = False
    """True if weights are updated during the backward pass and each gradient is freed immediately."""


RULES: Final[dict[str, StateRule]] = {
    "adam": StateRule(2, foreach=1, single=2),
    "adamw": StateRule(2, foreach=1, single=2),
    "adopt": StateRule(2, foreach=1, single=2),
    "ademamix": StateRule(3),
    "adagrad": StateRule(1, foreach=2, single=1),
    "adafactor": StateRule(0, "factored", 1, fp32=True, single_fp32=(8, 16)),
    "came": StateRule(1, "factored", 2, fp32=True, single_fp32=(12, 16)),
    "kahan_adamw": StateRule(3, single_fp32=(6, 4)),
    "lamb": StateRule(2, single=2),
    "lion": StateRule(1, single=1),
    "lars": StateRule(1),
    "lomo": StateRule(0, single_fp32=(4, 8), in_backward=True),
    "adalomo": StateRule(0, "factored", 1, fp32=True, single_fp32=(12, 12), in_backward=True),
    "muon": StateRule(1, "muon", single=2),
    "adam_mini": StateRule(1, "mini", single=2),
    "prodigy": StateRule(4, single=1),
    "rmsprop": StateRule(1, foreach=1, single=1),
    "schedule_free_adamw": StateRule(2, foreach=1),
    "schedule_free_radam": StateRule(2),
    "schedule_free_sgd": StateRule(1),
    "sgd": StateRule(0),
    "stable_adamw": StateRule(2, low_precision=1, single=2),
    "optimi_adamw": StateRule(2, low_precision=1, single=1),
    "galore_adamw": StateRule(2, "projected", single=2),
    "galore_adafactor": StateRule(0, "projected_factored", 1, fp32=True, single_fp32=(8, 16)),
    "apollo_adamw": StateRule(2, "projected", single=2),
    "badam": StateRule(2, foreach=1, single=2),
}
_LAYERWISE: Final = "_layerwise"
_ALL: Final = ("all", "all-linear", "all_linear")

# bitsandbytes and torchao keep one fp32 scale per block of 256 (8-bit) or 128 (4-bit) elements.
STATE_BYTES: Final = {32: 4.0, 16: 2.0, 8: 1 + 4 / 256, 4: 0.5 + 4 / 128}

# Tensors of fewer elements keep 32-bit states (min_8bit_size of both packages).
_SMALL: Final = 4096


class Tensors(Frozen):
    """Trained matrices of one shape."""

    rows: int
    columns: int
    count: int  # type: ignore[assignment]
    part: ModelPart
    leaf: str
    stack: int = 1
    """Number of matrices in one 3-D parameter; 1 for an ordinary matrix."""

    @property
    def elements(self) -> int:
        """Number of elements in one parameter."""
        return self.rows * self.columns * self.stack


def list_matrices(architecture: Architecture, tuning: str, layers: int) -> list[Tensors]:
    """Return the matrices that full tuning trains, or that `freeze` tuning trains in `layers` decoder layers."""
    if not architecture.linears:
        width, vocab = architecture.hidden, architecture.vocab
        embeddings = [Tensors(vocab, width, 1 if architecture.tied else 2, "embedding", "embed_tokens")]
        return embeddings if tuning == "full" else []
    matrices = []
    for item in architecture.linears:
        count = item.count
        if tuning == "freeze":
            if item.part != "decoder":
                continue
            count = count * layers // architecture.layers
        elif item.part == "head" and architecture.tied:
            continue
        matrices.append(_build_tensors(item, count))
    return matrices


def list_adapter_matrices(linears: tuple[Linear, ...], rank: int, saved: tuple[Linear, ...]) -> list[Tensors]:
    """Return both matrices of every LoRA adapter, and the matrices that are trained beside them (`saved`)."""
    matrices = [_build_tensors(item, item.count) for item in saved]
    for item in linears:
        matrices += build_adapter_pair(item, rank)
    return matrices


def build_adapter_pair(item: Linear, rank: int) -> list[Tensors]:
    """Return both matrices of an adapter; for a fused experts parameter, `rank` is the total over all experts."""
    return [
        Tensors(rank, item.inputs, item.count, "decoder", "lora_A"),
        Tensors(item.outputs, rank, item.count, "decoder", "lora_B"),
    ]


def _build_tensors(item: Linear, count: int) -> Tensors:
    rows, columns = (item.inputs, item.outputs) if item.part == "embedding" or item.experts else (
        item.outputs, item.inputs
    )  # fmt: skip
    return Tensors(rows, columns, count, item.part, item.name, max(1, item.experts))


class OptimizerChoice(Frozen):
    """The optimizer that a plan names."""

    name: str
    bits: int | None
    """Bits per element of the state; None if the state has the weights' format."""
    updated: float
    """Bytes per element of the weights that it updates."""
    scratch: str
    """Kind of update, which determines temporaries: fused, foreach, single or custom."""
    flat: bool
    """True if the optimizer updates flat pieces of many parameters."""
    rank: int | None = None
    targets: tuple[str, ...] = ()
    """Substrings of the projected modules' full names, or regular expressions for them. Empty or all-linear stands for
    every linear layer but the head.
    """
    projection: str = "std"
    embedding_bits: int | None = None
    """Bits per state element of embeddings, if different; else None."""
    fused_experts: bool = False
    """True if Muon also updates parameters with more than two dimensions."""

    @property
    def rule(self) -> StateRule | None:
        """The optimizer's rule, or None if cfglint has no formula for it."""
        return RULES.get(self.name.removesuffix(_LAYERWISE))

    @property
    def is_in_backward(self) -> bool:
        """True if weights are updated during the backward pass."""
        rule = self.rule
        return self.name.endswith(_LAYERWISE) or (rule is not None and rule.in_backward)

    @property
    def is_blockwise(self) -> bool:
        """True if only one decoder layer is trained at a time, on an fp32 copy (BAdam)."""
        return self.name == "badam"


def compute_uniform_state(choice: OptimizerChoice) -> float | None:
    """Return the bytes of state per element, or None if they depend on shapes or the optimizer has no formula."""
    rule = choice.rule
    if rule is None or (rule.kind and not (choice.flat and rule.kind == "factored")):
        return None
    if choice.embedding_bits and choice.embedding_bits != choice.bits and not choice.flat:
        return None
    tensors = rule.tensors + (1 if rule.kind else 0) + (rule.low_precision if choice.updated < 4 else 0)
    return tensors * _compute_element_bytes(choice, rule)


def _compute_element_bytes(choice: OptimizerChoice, rule: StateRule) -> float:
    if rule.fp32:
        return 4.0
    return STATE_BYTES.get(choice.bits, choice.bits / 8) if choice.bits else choice.updated


def compute_state_bytes(
    choice: OptimizerChoice, shapes: list[Tensors], vectors: int, architecture: Architecture
) -> float | None:
    """Return the bytes of optimizer state of all trained parameters, or None if they are unknown.

    These are the matrices `shapes`, and `vectors` elements of norms and biases. The bytes are unknown for an optimizer
    without a formula and for a projected optimizer of unknown rank.
    """
    rule = choice.rule
    if rule is None or (rule.kind.startswith("projected") and choice.rank is None):
        return None
    element_bytes = _compute_element_bytes(choice, rule)
    kahan = rule.low_precision if choice.updated < 4 else 0
    of_vectors = rule.tensors + kahan
    if rule.kind in ("factored", "muon", "projected_factored"):
        of_vectors += 1
    small = element_bytes if choice.bits in (None, 16, 32) or architecture.hidden >= _SMALL else 4.0
    total = of_vectors * vectors * small
    for shape in shapes:
        total += shape.count * _compute_matrix_state(choice, rule, shape, element_bytes, kahan, architecture)
    return total


def _compute_matrix_state(
    choice: OptimizerChoice,
    rule: StateRule,
    shape: Tensors,
    element_bytes: float,
    kahan: float,
    architecture: Architecture,
) -> float:
    """Return the bytes of optimizer state of one parameter."""
    rows, columns, stack, elements = shape.rows, shape.columns, shape.stack, shape.elements
    if shape.part == "embedding" and choice.embedding_bits:
        element_bytes = choice.embedding_bits / 8
    elif elements < _SMALL and choice.bits in (4, 8):
        element_bytes = 4.0
    full_size = (rule.tensors + kahan) * elements * element_bytes
    kind = rule.kind
    if kind == "factored":
        return full_size + rule.pairs * stack * (rows + columns) * element_bytes
    if kind == "mini":
        if shape.leaf in ("q_proj", "k_proj"):
            numbers = elements * architecture.heads // architecture.hidden**2
        else:
            numbers = rows if stack == 1 else stack * columns
        return full_size + numbers * element_bytes
    if kind == "muon":
        plain_matrix = stack == 1 or choice.fused_experts
        return (
            full_size
            if plain_matrix and shape.part not in ("embedding", "head")
            else full_size + elements * element_bytes
        )
    if kind.startswith("projected"):
        share, rest = _compute_projected_share(choice, shape, architecture), full_size
        if kind == "projected_factored":
            rest = stack * (rows + columns) * element_bytes
        return (
            rest + share * (_compute_low_rank_bytes(choice, rule, rows, columns, element_bytes) - rest)
            if share
            else rest
        )
    return full_size


def _compute_projected_share(choice: OptimizerChoice, shape: Tensors, architecture: Architecture) -> float:
    """Return the share of the matrices of a shape that GaLore and APOLLO project.

    They project linear layers, but the head only if a target matches it.
    """
    from cfglint_train.memory.module_names import compute_match_share  # few runs name their matrices

    if shape.stack > 1 or shape.part == "embedding":
        return 0.0
    names = tuple([target for target in choice.targets if target not in _ALL])
    if shape.part != "head" and (not names or len(names) < len(choice.targets)):
        return 1.0
    return compute_match_share(architecture, shape.leaf, shape.part, shape.count, names) if names else 0.0


def _compute_low_rank_bytes(
    choice: OptimizerChoice, rule: StateRule, rows: int, columns: int, element_bytes: float
) -> float:
    """Return the bytes of the projector and of the states in its low-rank space.

    GaLore's projector is part of a factor of an SVD: for fp32 gradients it is a view that keeps the whole factor alive,
    otherwise a copy. APOLLO's projector is random.
    """
    low, high = min(rows, columns), max(rows, columns)
    stated_rank = choice.rank or 0
    random = choice.name.startswith("apollo")
    rank = stated_rank if random else min(stated_rank, low)
    narrow = {"reverse_std": high, "right": columns, "left": rows}.get(choice.projection, low)
    wide = rows + columns - narrow
    element = 4.0 if rule.fp32 else choice.updated
    projector_elements = narrow * (rank if random or element < 4 else low)
    if choice.projection == "full":
        projector_elements, narrow, wide = (rows + columns) * (low if element == 4 else rank), rank, rank
    projector = projector_elements * element
    if rule.kind == "projected_factored":
        return projector + (rank + wide) * element_bytes
    return projector + rule.tensors * rank * wide * element_bytes


def compute_projection_bytes(choice: OptimizerChoice, shapes: list[Tensors], architecture: Architecture) -> float:
    """Return the bytes that GaLore's SVD of the largest projected gradient allocates; 0 for other optimizers.

    These are the gradient's fp32 copy, the solver's copy, and both factors. The solver's workspace is not included.
    """
    if not choice.name.startswith("galore"):
        return 0.0
    sizes = [
        4.0 * (3 * shape.elements + min(shape.rows, shape.columns) ** 2)
        for shape in shapes
        if _compute_projected_share(choice, shape, architecture)
    ]
    return max(sizes, default=0.0)


class Scratch(Frozen):
    """Temporary bytes of one update."""

    each: float = 0.0
    """Bytes per element of all updated tensors."""
    largest: float = 0.0
    """Bytes per element of the largest tensor."""
    besides: float = 0.0
    """Bytes of projecting the largest matrix (GaLore's SVD)."""


def compute_temporaries(choice: OptimizerChoice) -> tuple[float, float]:
    """Return the temporary bytes of an update per updated element, and per element of the largest tensor."""
    rule = choice.rule
    if rule is None:
        return 0.0, 0.0
    if choice.scratch == "foreach":
        return rule.foreach * choice.updated, 0.0
    if any(rule.single_fp32):
        return 0.0, rule.single_fp32[0 if choice.updated == 4 else 1]
    return 0.0, rule.single * choice.updated if choice.scratch in ("single", "custom") else 0.0

"""Component rows: the output matrix with its loss, a loss on existing logits, or an MLP.

The row's `component` states the loss implementation and its sizes. The figure includes tensors that the benchmark holds
in addition to the loss (weights, inputs and their gradients).
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.calibration.rows import Row
from cfglint_train.calibration.subject import UnmappedError, read_counter
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any
from cfglint_train.memory.calibration import load_table
from cfglint_train.memory.logits import count_liger_chunk_tokens


class Sizes(Frozen):
    """Number of tokens, vocabulary size and hidden width; the width is 0 if the benchmark has no output matrix."""

    tokens: int
    vocab: int
    hidden: int


def read_sizes(stated: Mapping[str, Any]) -> Sizes:
    """Return the sizes of a loss. Raise `UnmappedError` if one is missing."""
    values = [size for name in Sizes._fields if isinstance(size := stated.get(name), int) and size >= 0]
    if len(values) < len(Sizes._fields):
        raise UnmappedError("the sizes of the component are not stated")
    return Sizes(*values)


def _compute_loss_bytes(kind: str, size: Sizes) -> float:
    """Return the bytes that a benchmark of the loss measures.

    Raise `UnmappedError` for a loss without a formula.
    """
    logits, matrix, inputs = size.tokens * size.vocab, size.vocab * size.hidden, size.tokens * size.hidden
    if not size.hidden:
        # fp32 logits with a separate gradient; Liger overwrites the logits with the gradient.
        bytes_by_kind = {"huggingface": 20.0 * logits, "torch": 20.0 * logits, "liger": 4.0 * logits}
    else:
        shared = 2.0 * matrix + 2.0 * inputs
        chunk = 8.0 * count_liger_chunk_tokens(size.tokens, size.hidden, size.vocab) * size.vocab
        bytes_by_kind = {
            # 16-bit logits, log-softmax and gradient; the matrix, its gradient, and the sum with an earlier gradient.
            "huggingface": 6.0 * logits + 6.0 * matrix + 4.0 * inputs,
            # The same in fp32: log-softmax and two gradients.
            "bf16 gemm reference": 12.0 * logits + 4.0 * matrix + 4.0 * inputs,
            # Gradients of the matrix: accumulated, of one chunk, and of the previous step. Gradients of the input: of
            # this step and of the previous step.
            "liger": shared + 3 * 2.0 * matrix + 2 * 2.0 * inputs + chunk,
            # Liger 0.6 and 0.7: a chunk's gradient of the matrix also in fp32, and its logits only in 16 bits.
            "liger 0.6": shared + (3 * 2.0 + 4.0) * matrix + 2 * 2.0 * inputs + chunk / 4,
            # xtuner's compiled loss: fp32 logits that are overwritten with their gradient.
            "eager": 8.0 * logits + shared,
            # xtuner's loss with 1,024 tokens per chunk (7855e18b7, loss/chunk_loss.py, torch.func.grad_and_value;
            # traced): the matrix, its gradient, one chunk's gradient and the previous chunk's. Per chunk: the logits of
            # two chunks in fp32, log-softmax, its gradient, and the gradient in 16 bits.
            "chunk1024": 8.0 * matrix + 18.0 * 1024 * size.vocab + 4.0 * inputs,
            "cce": shared + 2 * 2.0 * matrix + 2 * 2.0 * inputs + 8.0 * size.tokens,
        }
    if kind not in bytes_by_kind:
        raise UnmappedError(f"no formula for the component {kind or '(unnamed)'}")
    return bytes_by_kind[kind]


def _compute_mlp_bytes(stated: Mapping[str, Any]) -> float:
    """Return the bytes of Liger's gated MLP in a benchmark that keeps its graph.

    Raise `UnmappedError` if the row states no Liger MLP with its sizes. All values are 16-bit. The fixed part is
    the weights, their gradients, and one more gradient of one matrix. The part per token is gate, up and their product,
    and seven tensors of the hidden width: the input, the output, their gradients, and the two products of the backward
    pass with their sum.
    """
    sizes = [size for name in ("tokens", "hidden", "intermediate") if isinstance(size := stated.get(name), int)]
    if stated.get("mlp") != "liger" or len(sizes) < 3:
        raise UnmappedError("the component is neither a loss nor a Liger MLP")
    tokens, hidden, inner = sizes
    return 2.0 * (7 * hidden * inner + tokens * (3 * inner + 7 * hidden))


def estimate_component(row: Row) -> tuple[str, float, float, float]:
    """Return the counter and the low, expected and high bytes of a component row.

    Raise `UnmappedError` if the row cannot be estimated.
    """
    reason = row.get_text("unmapped")
    if reason:
        raise UnmappedError(reason)
    stated = row.get_table("component")
    if "mlp" in stated:
        expected, matrices = _compute_mlp_bytes(stated), 1.0
    else:
        size = read_sizes(stated)
        expected, matrices = _compute_loss_bytes(str(stated.get("loss") or ""), size), 1.0 if size.hidden else 0.0
    workspace = load_table().coefficients[str(stated.get("workspace"))]
    residual = load_table().residuals["traced"]
    total = expected + matrices * workspace.expected
    low, high = expected * (1 + residual.low), expected * (1 + residual.high) + workspace.high
    return read_counter(row), low, total, high

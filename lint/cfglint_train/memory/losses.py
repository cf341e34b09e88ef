"""Memory of losses in bytes per logit (token and vocabulary entry), derived from their code."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final


class Loss(Frozen):
    """Memory of a loss, in bytes per logit (token and vocabulary entry)."""

    forward: float
    """Bytes at the peak of the forward pass, including the logits."""
    saved: float
    """Bytes held from the end of the forward pass until the loss's backward pass."""
    backward: float
    """Bytes at the peak of the loss's backward pass."""
    chunk: int = 0
    """Tokens per sequence whose loss is computed at once; 0 stands for all."""
    chunk_forward: float = 0
    """Further bytes per logit of one chunk."""
    chunk_backward: float = 0
    """Same as `chunk_forward`, in the backward pass. The output matrix then also runs chunk by chunk."""
    head_backward: float = 0
    """Bytes per logit while the output matrix runs backward chunk by chunk, beside the gradients of all chunks."""
    pieces: int = 1
    """Number of pieces in which the output matrix runs. Each computes a whole gradient; the gradients are summed."""
    capped: bool = True
    """True if logits pass through the model's soft cap, if it has one."""
    scored: float = 6
    """Bytes at the peak of a pass without gradients that computes log-probabilities: the 16-bit logits and their fp32
    copy (OpenRLHF 0.11.2, models/actor.py forward).
    """


# The logits in 16 bits, their fp32 copy and the log-softmax; then the log-softmax and two gradients in fp32.
WHOLE: Final = Loss(10, 4, 12)
# An fp32 model has no 16-bit logits and no copy.
WHOLE_FP32: Final = Loss(8, 4, 12)
# Log-probabilities of reinforcement learning: logits in 16 bits and fp32; then their gradient in fp32.
POLICY: Final = Loss(6, 6, 10)
# verl's log-probabilities, entropies and their kernels, measured on a CPU with the functions of its wheels (0.5.0 to
# 0.9.1; `tests/memory/verl_losses.jsonl`). Without entropy, the gradient of flash-attn's kernel replaces the logits.
# Before 0.9 they were divided by the temperature in place, whose gradient is a further tensor; 0.9 divides a copy. The
# pass that scores computes the entropy in any case. Of several chunks, the row with eight is used. With padding, the
# answers are cut out, which copies them, and the entropy is not compiled (derived from the same functions). EasyR1's
# passes never compute it: `policy_cut` (hiyouga/EasyR1 b44b311, verl/workers/actor/dp_actor.py).
POLICIES: Final[dict[str, Loss]] = {
    "policy": Loss(2, 2, 2, scored=2),
    "policy_scaled": Loss(2, 2, 4, scored=2),
    "policy_copied": Loss(4, 2, 4, scored=4),
    "policy_padded": Loss(4, 2, 6, scored=14),
    "policy_cut": Loss(4, 2, 6, scored=4),
    "policy_entropy": Loss(2, 2, 6, scored=2),
    "policy_entropy_eager": Loss(14, 6, 20, scored=14),
    "policy_entropy_chunks": Loss(2, 2, 10.5, scored=3.5),
}
# flash-attn's kernel: 16-bit logits and their shifted copy; then the gradients of both.
TRITON: Final = Loss(4, 4, 8)
# torch.compile of a model with its loss: only two numbers per token are in fp32. The model also returns its logits, for
# which autograd makes a gradient of zeros beside the loss's (`tests/memory/compiled_losses.jsonl`; compiled-1b).
COMPILED: Final = Loss(2, 2, 6)
COMPILED_FP32: Final = Loss(4, 4, 12)
# The Trainer's autocast makes the model return fp32 logits (accelerate 1.15, utils/operations.py).
COMPILED_AUTOCAST: Final = Loss(6, 2, 8)
# A compiled loss that returns no logits: it saves them and computes their gradient from them, in their format
# (`tests/memory/compiled_heads.jsonl`; OLMo-core 2.0.0 nn/lm_head.py). OLMo-core 1.8.0 train/trainer.py passes the
# loss a copy without the last logits, and keeps both. The unit is elements per logit, not bytes.
COMPILED_HEADS: Final[dict[str, Loss]] = {"compiled": Loss(1, 1, 2), "compiled_shifted": Loss(2, 2, 4)}
NOTHING: Final = Loss(0, 0, 0)
OTHER_LOSSES: Final[dict[str, Loss]] = {}
"""Losses of frameworks that cfglint does not lint, by name in plans; `calibration/foreign.py` adds them."""

UPCAST_CHUNKS: Final = 8

# Log-probabilities of answers, for fp32 and for 16-bit logits, measured on a CPU with the functions of trl's wheels
# (`tests/memory/trl_losses.jsonl`): fp32 logits, the logits cut to the answers or divided by the temperature, and their
# gradients; also the log-softmax, unless it is computed row by row.
ANSWERS: Final[dict[str, tuple[Loss, Loss]]] = {
    "log_softmax": (Loss(10, 4, 12), Loss(7, 2, 8)),
    "rows": (Loss(6, 4, 12), Loss(4, 2, 4)),
    "rows_in_place": (Loss(8, 4, 16), Loss(6, 2, 8)),
    "row_kernel": (Loss(6, 4, 8), Loss(2, 2, 4)),
    "odds": (Loss(14, 6, 14), Loss(7, 3, 9)),
    "odds_rows": (Loss(8, 6, 14), Loss(7, 3, 5)),
    "odds_kernel": (Loss(8, 6, 10), Loss(5, 3, 5)),
}

# trl 1.16.0 kernels/chunked_logprob.py: logits of one tile at a time, in the compute format, in the forward and the
# backward pass; eight values per token; gradients are summed in fp32 and cast at the end.
TILE: Final = (4096, 32768)
TILE_STATISTICS: Final = 32


Moments = tuple[tuple[int, int], ...]


class Recomputed(Frozen):
    """A loss with recomputed chunks: bytes per logit of a chunk and per element of the output matrix at each moment.

    Only the highest moment matters; the model's width decides which one is highest.
    """

    forward: Moments
    trained: Moments
    """Moments of the backward pass if the output matrix is trained and its gradients are summed over chunks."""
    frozen: Moments
    tokens: int = 256
    """Tokens per chunk; in TRL's SFT loss `_CHUNKED_LM_HEAD_CHUNK_SIZE`."""


# trl trainer/sft_trainer.py, _chunk. Keys: 32-bit weights and autocast (profiler of torch 2.13
# on a CPU, widths 128 to 3,072, each moment within 6 %). 1.4.0 to 1.12.0 copy the matrix to fp32 for each chunk; 1.13
# and 1.14 use the format of the hidden states.
_FULL: Final = {
    (True, True): Recomputed(((8, 0), (4, 2)), ((12, 6), (12, 10)), ((12, 2),)),
    (True, False): Recomputed(((16, 0),), ((16, 4), (12, 10)), ((16, 0),)),
}
_HALF: Final = Recomputed(((16, 0),), ((16, 4), (10, 5)), ((16, 0),))
# verl 0.5.0 to 0.9.1, utils/experimental/torch_functional.py FusedLinearForPPOFunction (`tests/memory/
# verl_losses.jsonl`). The gradient of the matrix is computed even if it is frozen, and that of the last chunk is kept.
_FUSED: Final = Recomputed(((16, 0),), ((20, 4), (14, 6)), ((20, 2), (14, 4)), 512)
_FUSED_ENTROPY: Final = Recomputed(((16, 0),), ((28, 4), (18, 6)), ((28, 2), (18, 4)), 512)
_ANY_FORMAT: Final = ((True, True), (True, False), (False, True), (False, False))
RECOMPUTED_LOSSES: Final[dict[str, dict[tuple[bool, bool], Recomputed]]] = {
    "checkpointed": {
        **_FULL,
        (False, True): Recomputed(((8, 0), (8, 6)), ((12, 4), (8, 8)), ((12, 2), (8, 6))),
        (False, False): Recomputed(((16, 0), (8, 4)), ((16, 6), (12, 10)), ((16, 4),)),
    },
    "checkpointed_half": {
        **_FULL,
        (True, True): _FULL[True, True]._replace(frozen=((16, 2),)),
        (False, True): _HALF,
        (False, False): _HALF,
    },
    "policy_fused": dict.fromkeys(_ANY_FORMAT, _FUSED),
    "policy_fused_entropy": dict.fromkeys(_ANY_FORMAT, _FUSED_ENTROPY),
}


class Chunked(Frozen):
    """A loss that computes the logits, log-probabilities and gradients of one chunk at a time."""

    each: float
    """Bytes per logit of a chunk while its logits are replaced by their gradient."""
    sequences: int = 0
    """Sequences per chunk; 0 if chunks are counted in `tokens`."""
    tokens: int = 0
    matrices: int = 1
    """Number of gradients of the output matrix at the moment of `each`, in the matrix's format."""


# liger-kernel 0.8.5, chunked_loss/*.py, compiled by torch 2.13 (`tests/memory/losses.jsonl`). A chunk is one chosen and
# one rejected answer (DPO, ORPO, SimPO, CPO), one answer (KTO), one completion (GRPO), or 1,024 tokens of student and
# teacher (JSD).
CHUNKED_LOSSES: Final[dict[str, Chunked]] = {
    "liger_pairs": Chunked(8, 2),
    "liger_unpaired": Chunked(8, 1),
    "liger_policy": Chunked(8, 1, matrices=4),
    "liger_distilled": Chunked(10, tokens=1024),
}

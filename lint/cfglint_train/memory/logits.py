"""The loss head: final norm, output matrix, logits and loss.

Where the logits exist as a whole they decide the peak of many runs: for each token and each word of the vocabulary the
usual head holds 10 bytes at the end of the forward pass and 12 in the backward pass of the loss.
"""

from __future__ import annotations

from functools import lru_cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.layers.families import FAMILIES
from cfglint_train.memory.layers.layer import Layer, compute_residual_bytes
from cfglint_train.memory.layers.matrices import Mode
from cfglint_train.memory.losses import (
    ANSWERS,
    CHUNKED_LOSSES,
    COMPILED,
    COMPILED_AUTOCAST,
    COMPILED_FP32,
    COMPILED_HEADS,
    NOTHING,
    OTHER_LOSSES,
    POLICY,
    RECOMPUTED_LOSSES,
    RECOMPUTED_TOKENS,
    TILE,
    TILE_STATISTICS,
    TRITON,
    UPCAST_CHUNKS,
    WHOLE,
    WHOLE_FP32,
    Chunked,
    Loss,
    Moments,
)
from cfglint_train.memory.setup import Setup
from cfglint_train.memory.size import label_count, merge_terms
from cfglint_train.memory.tape import Cost
from cfglint_train.models.architecture import Architecture


class Head(Frozen):
    """The end of the model for one micro batch, in bytes."""

    cost: Cost
    """Final norm and output matrix."""
    loss: Loss
    forward: float
    """Loss tensors at the peak of the forward pass."""
    saved: float
    backward: float
    fixed_forward: float
    """Bytes whatever the tokens at the peak of the forward pass: a fused loss makes its weight gradient there."""
    fixed_backward: float
    """The same at the loss's backward pass."""
    added: float = 0
    """Bytes of a second gradient of the output matrix while that runs backward in pieces."""
    logits: float = 0
    """Bytes of whole logits as the model makes them: a block that serves none of the loss's other tensors."""
    waiting: float = 0
    """Bytes of the loss that stay until the backward pass ends."""


@lru_cache(maxsize=1024)
def compute_head_cost(architecture: Architecture, mode: Mode, trained: bool, weight: int) -> Cost:
    """Final norm and output matrix, whose elements have `weight` bytes, on a tape. The output is as wide as the
    vocabulary.
    """
    family = FAMILIES.get(architecture.formula, FAMILIES["llama"])
    layer = Layer(architecture, family, mode)
    source = layer.tape.add_tensor(architecture.hidden, compute_residual_bytes(family, mode))
    inner = layer.apply_norm(source)
    plain = not (family.quantized_head and mode.quantized)
    keeps = mode.keeps_inputs and not plain
    layer.mode = mode._replace(weight=weight, trained=trained, quantized=not plain, keeps_inputs=keeps)
    out = layer.apply_linear(inner, architecture.vocab, "lm_head")
    return layer.tape.compute_cost(source, out, mode.accumulates)


def compute_head_element_bytes(setup: Setup) -> int:
    """Bytes of an element of the output matrix as the forward pass reads it. Where it is frozen it may have 16 bits
    beside trained layers in fp32, and autocast copies nothing.
    """
    frozen, weight = setup.frozen_weights, setup.mode.weight
    return 2 if not setup.weights.head_trained and frozen.plain and frozen.plain_bytes == 2 else weight


def find_loss(setup: Setup) -> Loss:
    """The loss's own tensors, per token and word."""
    loss, mode = setup.loss, setup.mode
    if loss.kind == "chunked":
        return _build_chunked_loss(setup)
    if loss.kind == "triton":
        return TRITON
    if loss.kind in COMPILED_HEADS:
        numbers = COMPILED_HEADS[loss.kind]
        width = 4 if mode.weight == 4 and not mode.autocast else 2
        return Loss(width * numbers.forward, width * numbers.saved, width * numbers.backward)
    if loss.kind in ANSWERS:
        return ANSWERS[loss.kind][0 if mode.autocast or mode.weight == 4 else 1]
    if loss.kind in OTHER_LOSSES:
        return OTHER_LOSSES[loss.kind]
    if loss.policy:
        return POLICY
    return _find_whole_loss(setup)


def _build_chunked_loss(setup: Setup) -> Loss:
    """The compiled loss of 8 chunks of axolotl (0.16.1 monkeypatch/loss/chunked.py).

    As a CPU runs it (`tests/memory/chunked_losses.jsonl`), it makes nothing in fp32, but copies the chunks of several
    sequences, of which each has a piece. Logits that leave autocast become fp32 beside that. Backward, the gradients of
    the chunks are put together.
    """
    each = _compute_logit_bytes(setup)
    copies = each if setup.batch.sequences > 1 else 0.0
    return Loss(each + copies + _compute_returned_bytes(setup), each, 2 * each)


def _compute_logit_bytes(setup: Setup) -> float:
    """Bytes of an element of the logits as the model makes them."""
    return 4.0 if setup.mode.weight == 4 and not setup.mode.autocast else 2.0


def _compute_returned_bytes(setup: Setup) -> float:
    """Bytes of an element of the fp32 logits that the Trainer's autocast has the model return (accelerate 1.15,
    utils/operations.py); DeepSpeed's engine has no autocast of accelerate's.
    """
    return 4.0 if setup.mode.autocast and setup.ranks.strategy != "zero" else 0.0


def _find_whole_loss(setup: Setup) -> Loss:
    """The model's own loss, of whole logits."""
    mode = setup.mode
    if setup.compiled.loss:
        if mode.autocast:
            return COMPILED_AUTOCAST
        return COMPILED_FP32 if mode.weight == 4 else COMPILED
    return WHOLE_FP32 if mode.weight == 4 and not mode.autocast else WHOLE


def has_compiled_model(setup: Setup) -> bool:
    """Whether the model is one compiled graph, which returns all gradients when its backward pass ends.

    DDP cuts it by buckets (torch, _dynamo/backends/distributed.py); hooks of FSDP and ZeRO-3 and the calls of quantised
    layers break it.
    """
    if not setup.compiled.model:
        return False
    return setup.ranks.strategy in ("none", "zero") and setup.ranks.zero_stage < 3 and not setup.mode.quantized


def has_compiled_model_and_loss(setup: Setup) -> bool:
    """Whether model and loss are one compiled graph, whose inputs live until its backward pass ends, too."""
    return setup.compiled.loss and setup.loss.kind == "none" and has_compiled_model(setup)


def has_fused_tied_gradient(setup: Setup) -> bool:
    """Whether a tied matrix's gradient is one product that is added to the embedding's at the end of the graph, as
    inductor fuses them where both have a format: the gradient of the logits waits for it.
    """
    cast = setup.mode.autocast and setup.mode.weight == 4
    return has_compiled_model_and_loss(setup) and setup.architecture.tied and setup.weights.head_trained and not cast


def _compute_waiting_bytes(setup: Setup) -> float:
    """Bytes per token and word of a compiled loss that stay until the backward pass ends: zeros for the logits that the
    model returned, and the gradient of the logits.
    """
    mode = setup.mode
    if not has_compiled_model_and_loss(setup):
        return 0.0
    logits = 2 if mode.weight == 2 or mode.autocast else 4
    zeros = 4 if mode.autocast else logits
    return float(zeros + (logits if has_fused_tied_gradient(setup) else 0))


_CHUNK: Final = "tokens of a chunk"

EVALUATION_LOSSES: Final = frozenset(("chunked", *COMPILED_HEADS))
"""Losses that an evaluation has, too, and that make whole logits."""
_WITHOUT_LOGITS: Final = frozenset(("cce", "tiles", *RECOMPUTED_LOSSES, *CHUNKED_LOSSES))
"""Losses that make no whole logits in evaluation."""


def compute_evaluation_bytes(setup: Setup) -> float:
    """Bytes per token and word of an evaluation's loss; 0 where it makes no whole logits.

    Cut Cross-Entropy makes none in evaluation either (ml-cross-entropy, PatchOptions.use_lce: `train_only` is off by
    default), nor do Liger's chunked losses, which trl and axolotl call in evaluation, too (trl 0.24.0,
    dpo_trainer.py get_batch_loss_metrics). Liger's fused cross-entropy does, unless the trainer asks for less: it skips
    logits while the model trains (liger-kernel 0.8.5, model/llama.py).
    """
    if setup.loss.kind in _WITHOUT_LOGITS or _has_fused_evaluation(setup):
        return 0.0
    regular, unused = _compute_evaluated_bytes(setup), setup.loss.passing_logits
    return unused if unused > regular else regular


def _compute_evaluated_bytes(setup: Setup) -> float:
    """Bytes per token and word of whole logits and their loss, without gradients."""
    if setup.loss.kind in COMPILED_HEADS:
        return find_loss(setup).forward
    if setup.loss.kind != "chunked":
        return _find_whole_loss(setup).forward
    logit_bytes = _compute_logit_bytes(setup)  # copies of chunks are gone when the model returns
    copies = logit_bytes if (setup.batch.evaluation_tokens or 0) > setup.batch.length else 0.0
    return logit_bytes + max(copies, _compute_returned_bytes(setup))


def _has_fused_evaluation(setup: Setup) -> bool:
    return setup.loss.kind == "liger" and setup.loss.fused_evaluation


def compute_evaluation_chunk(setup: Setup) -> float:
    """Bytes of one chunk of an evaluation's loss that goes from chunk to chunk: it makes gradients there, too, Liger's
    fused one that of the input only.
    """
    chunked = CHUNKED_LOSSES.get(setup.loss.kind)
    if _has_fused_evaluation(setup):
        chunk_bytes, cast = _compute_liger_chunk(setup, setup.batch.evaluation_tokens or 0)
        return chunk_bytes + 2 * cast
    if chunked is None:
        return 0.0
    shape = setup.architecture
    matrix = shape.vocab * shape.hidden * setup.mode.weight if setup.weights.head_trained else 0.0
    each, matrices = find_chunk_peak(setup, chunked)
    return each * count_chunk_tokens(setup, chunked) * shape.vocab + matrices * matrix


def count_scored_tokens(setup: Setup) -> float:
    """Return the tokens of a micro batch that have logits."""
    batch = setup.batch
    return batch.tokens if batch.scored == 1 else merge_terms(batch.tokens * batch.scored, "tokens")


def _compute_dequantized_head(setup: Setup) -> float:
    """Bytes of the output matrix that a chunked head dequantises beside the gradients of all chunks."""
    family = FAMILIES.get(setup.architecture.formula)
    if family is None or not family.quantized_head or not setup.mode.quantized:
        return 0.0
    return setup.mode.dequantized * setup.architecture.vocab * setup.architecture.hidden


def count_liger_chunk_tokens(tokens: int, hidden: int, vocab: int) -> int:
    """Return the tokens of Liger's chunk: the power of two at or above tokens / ceil(vocab / hidden)."""
    parts = -(-int(vocab) // int(hidden))
    return label_count(1 << max(0, (-(-int(tokens) // parts) - 1)).bit_length(), _CHUNK, tokens)


def find_chunk_peak(setup: Setup, chunked: Chunked) -> tuple[float, int]:
    """Bytes per token and word, and gradients of the output matrix, at the higher of two moments: while the logits of a
    chunk become their gradient, and while that becomes the matrix's, which is added to that of all chunks.
    """
    chunk_logits = count_chunk_tokens(setup, chunked)
    matrix = setup.architecture.hidden * setup.mode.weight if setup.weights.head_trained else 0
    moments = ((chunked.each, chunked.matrices), (2.0, max(2, chunked.matrices)))
    return max(moments, key=lambda moment: moment[0] * chunk_logits + moment[1] * matrix)


def count_chunk_tokens(setup: Setup, chunked: Chunked) -> int:
    """Tokens of one chunk of a loss that goes from chunk to chunk. torch.chunk makes the last one smaller."""
    batch = setup.batch
    if chunked.tokens:
        return merge_terms(-(-batch.tokens // max(1, batch.tokens // chunked.tokens)), _CHUNK)
    return merge_terms(-(-batch.tokens * chunked.sequences // max(chunked.sequences, batch.sequences)), _CHUNK)


def is_summed_in_place(setup: Setup) -> bool:
    """Whether autograd adds the embedding's gradient to the output matrix's in place, where they share a matrix.

    It does where nothing else has the storage of the first gradient (torch, autograd/input_buffer.cpp,
    `can_accumulate_inplace`). A linear layer's is a view of the transposed product, whose base lives on. The cast from
    autocast's 16 bits to fp32, a fused loss and the sum of several chunks leave a tensor of its own (measured:
    loss-1b-512x1 three tensors of the size, save-1b-amp, sft-1b-amp-ac, liger-1b-512x2 and liger-3b-ac two).
    """
    if setup.mode.autocast and setup.mode.weight == 4:
        return True
    fused = ("liger", "cce", "tiles", *CHUNKED_LOSSES, *RECOMPUTED_LOSSES)
    return setup.loss.kind in fused or find_loss(setup).pieces > 1


def _compute_chunk_copies(setup: Setup, loss: Loss) -> float:
    """Bytes of the copies that autocast makes of a frozen fp32 output matrix for each chunk but the first: it keeps a
    cast weight for the next use only where that has a gradient (torch, autocast_mode.cpp, `cached_cast`).
    """
    if (
        not loss.chunk
        or not setup.mode.autocast
        or compute_head_element_bytes(setup) != 4
        or setup.weights.head_trained
    ):
        return 0.0
    return (-(-setup.batch.length // loss.chunk) - 1) * 2.0 * setup.architecture.vocab * setup.architecture.hidden


def _build_tiled_head(setup: Setup, cost: Cost) -> Head:
    """The head that makes no logits but those of a tile."""
    shape, tokens, weight = setup.architecture, count_scored_tokens(setup), compute_head_element_bytes(setup)
    rows, columns = min(tokens, TILE[0]), min(shape.vocab, TILE[1])
    cast = weight == 4 and setup.mode.autocast  # a tile of the matrix, too
    tile = (rows + (shape.hidden if cast else 0)) * columns * (2 if weight == 2 or cast else 4)
    inputs = tokens * shape.hidden * (4.0 if setup.formats.residual == 4 else 6.0)
    matrix = shape.vocab * shape.hidden * (4 if weight == 4 else 6) if setup.weights.head_trained else 0.0
    kept = TILE_STATISTICS * tokens
    return Head(cost, NOTHING, tile + kept, kept, tile + kept + inputs, 0, matrix)


def _build_recomputed_head(setup: Setup, cost: Cost) -> Head:
    """The head whose chunks are recomputed. Autocast keeps no copy of the transposed matrix, which is no leaf."""
    cost = cost._replace(fixed_saved=0.0)
    shape, tokens = setup.architecture, setup.batch.tokens
    loss = RECOMPUTED_LOSSES[setup.loss.kind][setup.mode.weight == 4, setup.mode.autocast]
    chunk = label_count(min(tokens, RECOMPUTED_TOKENS), _CHUNK, tokens)
    logits, matrix = chunk * shape.vocab, shape.vocab * shape.hidden

    def find_highest(moments: Moments) -> tuple[float, float]:
        chunk, whole = max(moments, key=lambda moment: moment[0] * logits + moment[1] * matrix)
        return chunk * logits, whole * matrix

    kept = tokens * shape.hidden * setup.formats.residual
    forward, copies = find_highest(loss.forward)
    backward, gradients = find_highest(loss.trained if setup.weights.head_trained else loss.frozen)
    return Head(cost, NOTHING, forward + kept, kept, backward + 2 * kept, copies, gradients)


def _build_liger_head(setup: Setup, cost: Cost, matrix: float) -> Head:
    """Liger's fused loss (liger-kernel 0.8.5, ops/fused_linear_cross_entropy.py): in the forward pass the logits of a
    chunk, which become their gradient in place, the gradient of the input, and that of the matrix, to which each chunk
    is added in place. Autocast casts the transposed fp32 matrix for each chunk anew.
    """
    chunk_bytes, cast = _compute_liger_chunk(setup, setup.batch.tokens)
    gradient = setup.batch.tokens * setup.architecture.hidden * setup.formats.residual
    # The head's input is not kept. `cost` has it, as the forward pass does. A second copy of the matrix is cached until
    # that ends.
    cost = cost._replace(fixed_saved=0.0)
    held = 0.0 if setup.weights.head_trained else gradient
    return Head(cost, NOTHING, chunk_bytes, 0.0, held, matrix + 2 * cast, matrix)


def _compute_liger_chunk(setup: Setup, tokens: int) -> tuple[float, float]:
    """Bytes of the gradient of the input and of the logits of a chunk, and those of a cast of the output matrix."""
    mode = setup.mode
    shape = setup.architecture
    element = 2 if mode.autocast else mode.weight
    logits = element * min(tokens, count_liger_chunk_tokens(tokens, shape.hidden, shape.vocab)) * shape.vocab
    cast = 2.0 * shape.vocab * shape.hidden if mode.autocast and compute_head_element_bytes(setup) == 4 else 0.0
    return tokens * shape.hidden * setup.formats.residual + logits, cast


def build_head(setup: Setup) -> Head:
    """The head of a setup."""
    weights, batch, mode = setup.weights, setup.batch, setup.mode
    shape, tokens = setup.architecture, batch.tokens
    cost, name = (
        compute_head_cost(shape, mode, weights.head_trained, compute_head_element_bytes(setup)),
        setup.loss.kind,
    )
    if setup.loss.scores or not setup.part.ends:
        return Head(cost, NOTHING, 0, 0, 0, 0, 0)
    if name == "tiles":
        return _build_tiled_head(setup, cost)
    if name in RECOMPUTED_LOSSES:
        return _build_recomputed_head(setup, cost)
    logits = count_scored_tokens(setup) * shape.vocab
    if name in ("liger", "cce", "chunked_logits") or name in CHUNKED_LOSSES:
        # The gradient of the output matrix, where it is trained.
        matrix = shape.vocab * shape.hidden * mode.weight if weights.head_trained else 0.0
        gradient = tokens * shape.hidden * 2.0
        if name == "liger":
            return _build_liger_head(setup, cost, matrix)
        chunked = CHUNKED_LOSSES.get(name)
        if chunked is not None:  # forward and backward at once; the gradients of a chunk are added to those of all
            each, matrices = find_chunk_peak(setup, chunked)
            transient = each * count_chunk_tokens(setup, chunked) * shape.vocab
            return Head(cost, NOTHING, gradient + transient, gradient, gradient, matrices * matrix, matrix)
        if name == "cce":  # one number per token is kept; the matrix's gradient is accumulated in a copy
            return Head(cost, NOTHING, 8.0 * tokens, 8.0 * tokens, gradient + 8.0 * tokens, 0, 2 * matrix)
        transient = 10.0 * tokens / UPCAST_CHUNKS * shape.vocab
        return Head(cost, NOTHING, gradient + transient, gradient, gradient + transient, 2 * matrix, 2 * matrix)
    loss = find_loss(setup)
    family = FAMILIES.get(shape.formula)
    # The model's forward pass still holds the head's input, where the head's backward pass does not.
    normed = setup.formats.residual
    if family is not None and mode.autocast:
        normed = {"layer": 4, "layer_1p": 2}.get(family.norm, normed)
    held = tokens * shape.hidden * normed if normed == 4 or not weights.head_trained else 0
    capped = 2 if family is not None and family.capped and loss.capped else 0
    kept = 2 if setup.loss.keeps_logits else 0
    chunk = min(loss.chunk, batch.length) * batch.sequences * shape.vocab if loss.chunk else 0
    backward = logits * (loss.backward + capped + kept) + chunk * loss.chunk_backward
    if chunk:
        backward = max(backward, logits * (loss.head_backward + capped + kept) + _compute_dequantized_head(setup))
    copies = _compute_chunk_copies(setup, loss)
    return Head(
        cost,
        loss,
        logits * (loss.forward + capped) + held + chunk * loss.chunk_forward,
        logits * (loss.saved + capped + kept),
        backward,
        copies,
        copies,
        shape.vocab * shape.hidden * mode.weight if loss.pieces > 1 and weights.head_trained else 0.0,
        logits * (2.0 if mode.autocast or mode.weight == 2 else 4.0),
        logits * _compute_waiting_bytes(setup),
    )

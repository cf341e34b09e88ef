"""The loss head: final norm, output matrix, logits and loss.

If all logits exist at once, they often determine the peak: the usual head holds 10 bytes per logit (token and
vocabulary entry) at the end of the forward pass, and 12 in the backward pass of the loss.
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
    POLICIES,
    POLICY,
    RECOMPUTED_LOSSES,
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
    """The loss head for one micro batch, in bytes."""

    cost: Cost
    """Final norm and output matrix."""
    loss: Loss
    forward: float
    """Bytes of the loss's tensors at the peak of the forward pass."""
    saved: float
    backward: float
    fixed_forward: float
    """Bytes at the peak of the forward pass that do not depend on the tokens: a fused loss computes its weight gradient
    there.
    """
    fixed_backward: float
    """Bytes at the peak of the loss's backward pass that do not depend on the tokens."""
    added: float = 0
    """Bytes of a second gradient of the output matrix while the matrix runs backward in pieces."""
    logits: float = 0
    """Bytes of whole logits as the model returns them; their block does not share memory with the loss's tensors."""
    waiting: float = 0
    """Bytes of the loss that are held until the backward pass ends."""


@lru_cache(maxsize=1024)
def compute_head_cost(architecture: Architecture, mode: Mode, trained: bool, weight: int) -> Cost:
    """Return the cost of the final norm and the output matrix.

    `trained`: whether the output matrix is trained. `weight`: bytes per element of the output matrix. The output is
    as wide as the vocabulary.
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
    """Return the bytes per element of the output matrix as the forward pass reads it.

    A frozen output matrix may have 16 bits although trained layers are in fp32; autocast then makes no copy of it.
    """
    frozen, weight = setup.frozen_weights, setup.mode.weight
    return 2 if not setup.weights.head_trained and frozen.plain and frozen.plain_bytes == 2 else weight


def find_loss(setup: Setup) -> Loss:
    """Return the memory of the loss, in bytes per logit."""
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
    if loss.kind in POLICIES:
        return POLICIES[loss.kind]
    if loss.kind in OTHER_LOSSES:
        return OTHER_LOSSES[loss.kind]
    if loss.policy:
        return POLICY
    return _find_whole_loss(setup)


def _build_chunked_loss(setup: Setup) -> Loss:
    """Return axolotl's compiled loss of 8 chunks (0.16.1 monkeypatch/loss/chunked.py).

    Measured on a CPU (`tests/memory/chunked_losses.jsonl`), the loss creates nothing in fp32, but copies the chunks if
    there are several sequences, because each chunk then has a piece of every sequence. Logits that leave autocast also
    exist in fp32. The backward pass concatenates the gradients of the chunks.
    """
    each = _compute_logit_bytes(setup)
    copies = each if setup.batch.sequences > 1 else 0.0
    return Loss(each + copies + _compute_returned_bytes(setup), each, 2 * each)


def _compute_logit_bytes(setup: Setup) -> float:
    """Return the bytes per logit in the format in which the model computes logits."""
    return 4.0 if setup.mode.weight == 4 and not setup.mode.autocast else 2.0


def _compute_returned_bytes(setup: Setup) -> float:
    """Return the bytes per logit of the fp32 logits that the Trainer's autocast returns, or 0 if it returns none.

    Source: accelerate 1.15, utils/operations.py. DeepSpeed's engine does not use accelerate's autocast.
    """
    return 4.0 if setup.mode.autocast and setup.ranks.strategy != "zero" else 0.0


def _find_whole_loss(setup: Setup) -> Loss:
    """Return the memory of the model's own loss on whole logits."""
    mode = setup.mode
    if setup.compiled.loss:
        if mode.autocast:
            return COMPILED_AUTOCAST
        return COMPILED_FP32 if mode.weight == 4 else COMPILED
    return WHOLE_FP32 if mode.weight == 4 and not mode.autocast else WHOLE


def has_compiled_model(setup: Setup) -> bool:
    """Return whether the model is one compiled graph, which returns all gradients when its backward pass ends.

    DDP splits the graph by buckets (torch, _dynamo/backends/distributed.py). Hooks of FSDP and ZeRO-3, and the calls of
    quantized layers, break the graph.
    """
    if not setup.compiled.model:
        return False
    return setup.ranks.strategy in ("none", "zero") and setup.ranks.zero_stage < 3 and not setup.mode.quantized


def has_compiled_model_and_loss(setup: Setup) -> bool:
    """Return whether model and loss are one compiled graph.

    The inputs of this graph stay alive until its backward pass ends.
    """
    return setup.compiled.loss and setup.loss.kind == "none" and has_compiled_model(setup)


def has_fused_tied_gradient(setup: Setup) -> bool:
    """Return whether a tied matrix's gradient is one product, added to the embedding's at the end of the graph.

    inductor fuses the two gradients if they have the same format. The gradient of the logits then stays until the end.
    """
    cast = setup.mode.autocast and setup.mode.weight == 4
    return has_compiled_model_and_loss(setup) and setup.architecture.tied and setup.weights.head_trained and not cast


def _compute_waiting_bytes(setup: Setup) -> float:
    """Return the bytes per logit of a compiled loss that stay until the backward pass ends.

    These are zeros for the logits that the model returned, and possibly the gradient of the logits.
    """
    mode = setup.mode
    if not has_compiled_model_and_loss(setup):
        return 0.0
    logits = 2 if mode.weight == 2 or mode.autocast else 4
    zeros = 4 if mode.autocast else logits
    return float(zeros + (logits if has_fused_tied_gradient(setup) else 0))


_CHUNK: Final = "tokens of a chunk"

EVALUATION_LOSSES: Final = frozenset(("chunked", *COMPILED_HEADS))
"""Losses that are also used in evaluation and compute whole logits there."""
_WITHOUT_LOGITS: Final = frozenset(("cce", "tiles", *RECOMPUTED_LOSSES, *CHUNKED_LOSSES))
"""Losses that compute no whole logits in evaluation."""


def compute_evaluation_bytes(setup: Setup) -> float:
    """Return the bytes per logit of an evaluation's loss, or 0 if it computes no whole logits.

    Cut Cross-Entropy computes none (ml-cross-entropy, PatchOptions.use_lce: `train_only` is off by default). Neither do
    Liger's chunked losses, which trl and axolotl also call in evaluation (trl 0.24.0, dpo_trainer.py
    get_batch_loss_metrics). Liger's fused cross-entropy computes whole logits in evaluation unless the trainer
    disables that: by default it skips them only while the model trains (liger-kernel 0.8.5, model/llama.py).
    """
    if setup.loss.kind in _WITHOUT_LOGITS or _has_fused_evaluation(setup):
        return 0.0
    regular, unused = _compute_evaluated_bytes(setup), setup.loss.passing_logits
    return unused if unused > regular else regular


def _compute_evaluated_bytes(setup: Setup) -> float:
    """Return the bytes per logit of whole logits and their loss, without gradients."""
    if setup.loss.kind in COMPILED_HEADS:
        return find_loss(setup).forward
    if setup.loss.kind in POLICIES:
        return find_loss(setup).scored
    if setup.loss.kind != "chunked":
        return _find_whole_loss(setup).forward
    logit_bytes = _compute_logit_bytes(setup)  # the copies of chunks are freed when the model returns
    copies = logit_bytes if (setup.batch.evaluation_tokens or 0) > setup.batch.length else 0.0
    return logit_bytes + max(copies, _compute_returned_bytes(setup))


def _has_fused_evaluation(setup: Setup) -> bool:
    return setup.loss.kind == "liger" and setup.loss.fused_evaluation


def compute_evaluation_chunk(setup: Setup) -> float:
    """Return the bytes of one chunk of an evaluation's loss, or 0 if the loss is not computed in chunks.

    A chunked loss computes gradients even in evaluation; Liger's fused loss computes only the gradient of its input.
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
    """Return the number of tokens in a micro batch whose logits are computed."""
    batch = setup.batch
    return batch.tokens if batch.scored == 1 else merge_terms(batch.tokens * batch.scored, "tokens")


def _compute_dequantized_head(setup: Setup) -> float:
    """Return the bytes of the dequantized output matrix of a chunked head, or 0 if the matrix is not quantized."""
    family = FAMILIES.get(setup.architecture.formula)
    if family is None or not family.quantized_head or not setup.mode.quantized:
        return 0.0
    return setup.mode.dequantized * setup.architecture.vocab * setup.architecture.hidden


def count_liger_chunk_tokens(tokens: int, hidden: int, vocab: int) -> int:
    """Return the tokens per chunk of Liger's loss: tokens / ceil(vocab / hidden), rounded up to a power of two."""
    parts = -(-int(vocab) // int(hidden))
    return label_count(1 << max(0, (-(-int(tokens) // parts) - 1)).bit_length(), _CHUNK, tokens)


def find_chunk_peak(setup: Setup, chunked: Chunked) -> tuple[float, int]:
    """Return the bytes per logit of a chunk, and the number of output matrix gradients, at the chunk's peak.

    The peak is the higher of two moments: while the chunk's logits are replaced by their gradient, and while the
    chunk's gradient of the matrix is added to that of all chunks.
    """
    chunk_logits = count_chunk_tokens(setup, chunked)
    matrix = setup.architecture.hidden * setup.mode.weight if setup.weights.head_trained else 0
    moments = ((chunked.each, chunked.matrices), (2.0, max(2, chunked.matrices)))
    return max(moments, key=lambda moment: moment[0] * chunk_logits + moment[1] * matrix)


def count_chunk_tokens(setup: Setup, chunked: Chunked) -> int:
    """Return the tokens per chunk of a chunked loss; torch.chunk makes the last chunk smaller."""
    batch = setup.batch
    if chunked.tokens:
        return merge_terms(-(-batch.tokens // max(1, batch.tokens // chunked.tokens)), _CHUNK)
    return merge_terms(-(-batch.tokens * chunked.sequences // max(chunked.sequences, batch.sequences)), _CHUNK)


def is_summed_in_place(setup: Setup) -> bool:
    """Return whether autograd adds the embedding's gradient in place to that of a tied output matrix.

    Autograd does so if nothing else uses the storage of the first gradient (torch, autograd/input_buffer.cpp,
    `can_accumulate_inplace`). A linear layer's gradient is a view of the transposed product, whose base stays alive, so
    the sum is a new tensor. The cast from autocast's 16 bits to fp32, a fused loss and the sum of several chunks
    produce a separate tensor. Measured: three tensors of that size in loss-1b-512x1; two in save-1b-amp, sft-1b-amp-ac,
    liger-1b-512x2 and liger-3b-ac.
    """
    if setup.mode.autocast and setup.mode.weight == 4:
        return True
    fused = ("liger", "cce", "tiles", *CHUNKED_LOSSES, *RECOMPUTED_LOSSES)
    return setup.loss.kind in fused or find_loss(setup).pieces > 1


def _compute_chunk_copies(setup: Setup, loss: Loss) -> float:
    """Return the bytes of autocast's copies of a frozen fp32 output matrix, one for each chunk but the first.

    Autocast caches a cast weight only if it has a gradient (torch, autocast_mode.cpp, `cached_cast`).
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
    """Return the head that computes the logits of only one tile at a time."""
    shape, tokens, weight = setup.architecture, count_scored_tokens(setup), compute_head_element_bytes(setup)
    rows, columns = min(tokens, TILE[0]), min(shape.vocab, TILE[1])
    cast = weight == 4 and setup.mode.autocast  # autocast also casts a tile of the matrix
    tile = (rows + (shape.hidden if cast else 0)) * columns * (2 if weight == 2 or cast else 4)
    inputs = tokens * shape.hidden * (4.0 if setup.formats.residual == 4 else 6.0)
    matrix = shape.vocab * shape.hidden * (4 if weight == 4 else 6) if setup.weights.head_trained else 0.0
    kept = TILE_STATISTICS * tokens
    return Head(cost, NOTHING, tile + kept, kept, tile + kept + inputs, 0, matrix)


def _find_highest(setup: Setup, moments: Moments, size: int, tokens: float) -> tuple[float, float]:
    """Return the bytes of a chunk's logits and those of whole matrices at the highest of several moments.

    A chunk has `size` of all `tokens`.
    """
    chunk = label_count(min(tokens, size), _CHUNK, tokens)
    logits, matrix = chunk * setup.architecture.vocab, setup.architecture.vocab * setup.architecture.hidden
    each, whole = max(moments, key=lambda moment: moment[0] * logits + moment[1] * matrix)
    return each * logits, whole * matrix


def compute_scored_logits(setup: Setup, tokens: float) -> float:
    """Return the bytes of logits while log-probabilities of `tokens` tokens are computed without gradients."""
    if setup.loss.scores:
        return 0.0
    if setup.loss.kind in RECOMPUTED_LOSSES:
        loss = RECOMPUTED_LOSSES[setup.loss.kind][setup.mode.weight == 4, setup.mode.autocast]
        return sum(_find_highest(setup, loss.forward, loss.tokens, tokens))
    return tokens * setup.architecture.vocab * find_loss(setup).scored


def _build_recomputed_head(setup: Setup, cost: Cost) -> Head:
    """Return the head with recomputed chunks.

    Autocast does not cache a copy of the transposed matrix because the transpose is not a leaf.
    """
    cost = cost._replace(fixed_saved=0.0)
    shape, tokens = setup.architecture, setup.batch.tokens
    loss = RECOMPUTED_LOSSES[setup.loss.kind][setup.mode.weight == 4, setup.mode.autocast]
    kept = tokens * shape.hidden * setup.formats.residual
    forward, copies = _find_highest(setup, loss.forward, loss.tokens, tokens)
    moments = loss.trained if setup.weights.head_trained else loss.frozen
    backward, gradients = _find_highest(setup, moments, loss.tokens, tokens)
    return Head(cost, NOTHING, forward + kept, kept, backward + 2 * kept, copies, gradients)


def _build_liger_head(setup: Setup, cost: Cost, matrix: float) -> Head:
    """Return the head with Liger's fused loss (liger-kernel 0.8.5, ops/fused_linear_cross_entropy.py).

    For each chunk, the forward pass computes the logits, replaces them in place with their gradient, and computes the
    input's gradient and that of the matrix, which accumulates in place. Autocast casts the transposed fp32 matrix
    again for each chunk.
    """
    chunk_bytes, cast = _compute_liger_chunk(setup, setup.batch.tokens)
    gradient = setup.batch.tokens * setup.architecture.hidden * setup.formats.residual
    # The head's input is not added: `cost` includes it, and so does the forward pass. A second copy of the matrix is
    # cached until the forward pass ends.
    cost = cost._replace(fixed_saved=0.0)
    held = 0.0 if setup.weights.head_trained else gradient
    return Head(cost, NOTHING, chunk_bytes, 0.0, held, matrix + 2 * cast, matrix)


def _compute_liger_chunk(setup: Setup, tokens: int) -> tuple[float, float]:
    """Return the bytes of the input's gradient and a chunk's logits, and the bytes of a cast output matrix."""
    mode = setup.mode
    shape = setup.architecture
    element = 2 if mode.autocast else mode.weight
    logits = element * min(tokens, count_liger_chunk_tokens(tokens, shape.hidden, shape.vocab)) * shape.vocab
    cast = 2.0 * shape.vocab * shape.hidden if mode.autocast and compute_head_element_bytes(setup) == 4 else 0.0
    return tokens * shape.hidden * setup.formats.residual + logits, cast


def build_head(setup: Setup) -> Head:
    """Return the loss head of a setup; its loss is empty if the model only scores or the stage has no head."""
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
        # The gradient of the output matrix, if it is trained.
        matrix = shape.vocab * shape.hidden * mode.weight if weights.head_trained else 0.0
        gradient = tokens * shape.hidden * 2.0
        if name == "liger":
            return _build_liger_head(setup, cost, matrix)
        chunked = CHUNKED_LOSSES.get(name)
        if chunked is not None:  # forward and backward run at once; a chunk's gradients are added to the total
            each, matrices = find_chunk_peak(setup, chunked)
            transient = each * count_chunk_tokens(setup, chunked) * shape.vocab
            return Head(cost, NOTHING, gradient + transient, gradient, gradient, matrices * matrix, matrix)
        if name == "cce":  # one value per token is saved; the matrix's gradient is accumulated in a copy
            return Head(cost, NOTHING, 8.0 * tokens, 8.0 * tokens, gradient + 8.0 * tokens, 0, 2 * matrix)
        transient = 10.0 * tokens / UPCAST_CHUNKS * shape.vocab
        return Head(cost, NOTHING, gradient + transient, gradient, gradient + transient, 2 * matrix, 2 * matrix)
    loss = find_loss(setup)
    family = FAMILIES.get(shape.formula)
    # The model's forward pass still holds the head's input, even if the head's backward pass does not need it.
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

"""The batch of one rank in a step: micro batches, their sequences and tokens."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.memory.plan_reader import Reader
from cfglint_train.memory.ranks import Ranks


class Batch(Frozen):
    """A micro batch on one GPU; the defaults describe one sequence of one token, for jobs without a batch yet."""

    sequences: int = 1
    length: int = 1
    tokens: int = 1
    accumulation: int = 1
    evaluation_tokens: int | None = None
    image_tokens: int = 0
    """Image tokens among `tokens`."""
    scored: float = 1.0
    """Share of the tokens whose logits are computed."""
    records: float | None = None
    """Total size of the batches longer than all earlier ones, as a multiple of the longest, which is excluded.

    0 if all batches have the same length; None if their lengths differ and the order is unknown.
    """


def count_filled_tokens(reader: Reader, budget: int, length: int, ranks: Ranks) -> int:
    """Return the number of tokens that a rank's samples of one step can fill, limited by the token budget.

    Each rank gets its part of the global batch (OpenRLHF 0.11.2 trainer/ppo_utils/replay_buffer.py,
    setup_dynamic_batch).
    """
    samples = reader.get_number("batch.global_")
    samples_per_rank = samples * ranks.tensor * ranks.context // (ranks.nodes * ranks.local)
    return min(budget, samples_per_rank * length) if samples_per_rank else budget


def compute_flow(
    reader: Reader, tuning: str, context: int, flow: tuple[int, int, int]
) -> tuple[int, int, int | None, int]:
    """Return the sequences, tokens and evaluation tokens of a micro batch, and the length with virtual tokens.

    `flow`: tokens per GPU, or 0 if a number of sequences is stated instead; the sequences (or pairs of them); their
    length.
    """
    budget, micro, length = flow
    pairs = 2 if reader.get("batch.pairs") else 1
    virtual = reader.get_number("method.virtual_tokens") if tuning == "prompt_tuning" else 0
    batch_tokens = micro * (length + virtual)
    tokens = (budget if budget > batch_tokens else batch_tokens) * pairs // context or 1
    evaluation = reader.get("batch.eval_micro")
    if evaluation is not None:
        evaluation = evaluation * pairs * (reader.get("sequence.eval_length") or length) // context
    return micro * pairs, tokens, evaluation, length + virtual

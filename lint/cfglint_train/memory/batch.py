"""What flows through one rank in a step: micro batches, their sequences and tokens."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.memory.ranks import Ranks
from cfglint_train.memory.reader import Reader


class Batch(Frozen):
    """One micro batch on one GPU."""

    sequences: int
    length: int
    tokens: int
    evaluation_tokens: int | None
    virtual: int
    """Tokens that prompt tuning puts before each sequence."""


def filled(reader: Reader, budget: int, length: int, ranks: Ranks) -> int:
    """What of a token budget the samples of a step can fill: each rank has its part of the global batch (OpenRLHF
    0.11.2 trainer/ppo_utils/replay_buffer.py, setup_dynamic_batch).
    """
    if not budget:
        return 0
    samples = reader.number("batch.global_")
    each = samples * ranks.tensor * ranks.context // (ranks.nodes * ranks.local)
    return min(budget, each * length) if each else budget


def batch_of(reader: Reader, tuning: str, context: int, flow: tuple[int, int, int]) -> Batch:
    """What flows. `flow`: tokens per GPU, 0 if a number of sequences is stated instead; sequences (or pairs of them),
    and their length.
    """
    budget, micro, length = flow
    pairs = 2 if reader.get("batch.pairs") else 1
    virtual = reader.number("method.virtual_tokens") if tuning == "prompt_tuning" else 0
    stated = micro * (length + virtual)
    tokens = (budget if budget > stated else stated) * pairs // context or 1
    evaluation = reader.get("batch.eval_micro")
    if evaluation is not None:
        evaluation = evaluation * pairs * (reader.get("sequence.eval_length") or length) // context
    return Batch(micro * pairs, length, tokens, evaluation, virtual)

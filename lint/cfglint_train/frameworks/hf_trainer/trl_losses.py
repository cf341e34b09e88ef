"""What the losses of TRL's trainers hold of logits, by release, for the frameworks that train with them.

Bytes per token and word of the vocabulary are those of runs on the CPU with the loss functions of the wheels of trl
0.9.6 to 1.16.0 (`tests/oracles/trl_losses.py`, `tests/memory/trl_losses.jsonl`).
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import release_key

FUSED: Final = "1.15"
"""From here on, every trainer but that of reward models, ORPO and CPO computes log-probabilities by tiles of the output
matrix (`trainer/utils.py`, add_fused_lm_head); Liger's loss is switched off."""


class Made(Frozen):
    """How a trainer makes its loss, and the bytes per token and word of all logits at the peak of the forward pass, of
    fp32 and of 16-bit ones; None where no more are held than the loss itself has.
    """

    until: str
    """The first release that makes it otherwise."""
    loss: str
    both: tuple[int, int] | None = None
    """With a reference model, whose logits are made while those of the policy are kept."""
    alone: tuple[int, int] | None = None


_MADE: Final[Mapping[str, tuple[Made, ...]]] = {
    "sft": (  # copies for the accuracy of tokens
        Made("0.16", "none"),
        Made("1.4", "none", alone=(12, 10)),
        Made("1.6", "none", alone=(16, 10)),
        Made(FUSED, "none", alone=(12, 10)),
    ),
    "dpo": (
        Made("0.12", "log_softmax", (22, 11), (12, 7)),
        Made("0.14", "log_softmax", (16, 8), (12, 7)),
        Made("0.15", "log_softmax", (12, 7), (10, 7)),
        Made("0.29", "rows", (10, 7), (6, 7)),
        Made("1.6", "rows", (18, 13), (10, 9)),
        Made("1.14", "rows", (12, 9), (8, 7)),
        Made(FUSED, "row_kernel", (10, 7), (6, 5)),
    ),
    "kto": (  # the completions of other prompts have logits, too
        Made("0.10", "log_softmax", (24, 12), (20, 10)),
        Made("0.15", "log_softmax", (24, 12), (16, 8)),
        Made("0.17", "rows", (20, 10), (12, 8)),
        Made("1.6", "rows", (16, 8), (8, 6)),
        Made("1.7", "rows", (21, 13), (12, 8)),
        Made("1.8", "rows", (14, 9), (8, 6)),
        Made("1.9", "rows", (16, 10), (12, 8)),
        Made("1.14", "rows", (14, 11), (10, 9)),
        Made(FUSED, "row_kernel", (14, 9), (10, 7)),
    ),
    "grpo": (
        Made("1.0", "rows", alone=(8, 4)),
        Made("1.10", "rows_in_place", alone=(8, 6)),
        Made("1.14", "rows", alone=(8, 6)),
        Made(FUSED, "row_kernel"),
    ),
    "rloo": (
        Made("1.0", "rows", alone=(8, 5)),
        Made("1.10", "rows_in_place", alone=(8, 6)),
        Made("1.14", "rows", alone=(8, 6)),
        Made(FUSED, "row_kernel"),
    ),
    **dict.fromkeys(("orpo", "cpo"), (Made("0.15", "odds"), Made("1.14", "odds_rows"), Made("", "odds_kernel"))),
}  # fmt: skip


def made_at(trainer: str, release: str) -> Made:
    """How a trainer of a release of trl makes its loss, where neither Liger nor the output matrix does."""
    key = release_key(release)
    found = (row for row in _MADE.get(trainer, ()) if not row.until or key < release_key(row.until))
    return next(found, Made("", "none"))

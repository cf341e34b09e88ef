"""Peak memory of the logits in the losses of TRL's trainers, by release.

Frameworks that train with these trainers share the table. Bytes per token and vocabulary entry were measured on the CPU
with the loss functions from the trl wheels 0.9.6 to 1.16.0 (`tests/oracles/trl_losses.py`,
`tests/memory/trl_losses.jsonl`).
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import parse_release

FUSED_HEAD_SINCE: Final = "1.15"
"""First release with a fused output layer in every trainer except those of reward models, ORPO and CPO.

The layer computes log-probabilities tile by tile from the output matrix (`trainer/utils.py`, add_fused_lm_head), and
Liger's loss is switched off.
"""


class TrlLoss(Frozen):
    """Loss of a trainer up to a release, with the bytes of all logits at the peak of the forward pass.

    Each pair holds bytes per token and vocabulary entry: first for fp32 logits, then for 16-bit logits. None means that
    the memory of `loss` itself already covers all logits.
    """

    until: str
    """First release that uses a different loss; empty if this loss is still in use."""
    loss: str
    with_reference: tuple[int, int] | None = None
    """Bytes with a reference model, which computes its logits while those of the policy are still held."""
    without_reference: tuple[int, int] | None = None


_LOSSES: Final[Mapping[str, tuple[TrlLoss, ...]]] = {
    "sft": (  # copies for the token accuracy
        TrlLoss("0.16", "none"),
        TrlLoss("1.4", "none", without_reference=(12, 10)),
        TrlLoss("1.6", "none", without_reference=(16, 10)),
        TrlLoss(FUSED_HEAD_SINCE, "none", without_reference=(12, 10)),
    ),
    "dpo": (
        TrlLoss("0.12", "log_softmax", (22, 11), (12, 7)),
        TrlLoss("0.14", "log_softmax", (16, 8), (12, 7)),
        TrlLoss("0.15", "log_softmax", (12, 7), (10, 7)),
        TrlLoss("0.29", "rows", (10, 7), (6, 7)),
        TrlLoss("1.6", "rows", (18, 13), (10, 9)),
        TrlLoss("1.14", "rows", (12, 9), (8, 7)),
        TrlLoss(FUSED_HEAD_SINCE, "row_kernel", (10, 7), (6, 5)),
    ),
    "kto": (  # the KL pass over mismatched completions adds logits
        TrlLoss("0.10", "log_softmax", (24, 12), (20, 10)),
        TrlLoss("0.15", "log_softmax", (24, 12), (16, 8)),
        TrlLoss("0.17", "rows", (20, 10), (12, 8)),
        TrlLoss("1.6", "rows", (16, 8), (8, 6)),
        TrlLoss("1.7", "rows", (21, 13), (12, 8)),
        TrlLoss("1.8", "rows", (14, 9), (8, 6)),
        TrlLoss("1.9", "rows", (16, 10), (12, 8)),
        TrlLoss("1.14", "rows", (14, 11), (10, 9)),
        TrlLoss(FUSED_HEAD_SINCE, "row_kernel", (14, 9), (10, 7)),
    ),
    "grpo": (
        TrlLoss("1.0", "rows", without_reference=(8, 4)),
        TrlLoss("1.10", "rows_in_place", without_reference=(8, 6)),
        TrlLoss("1.14", "rows", without_reference=(8, 6)),
        TrlLoss(FUSED_HEAD_SINCE, "row_kernel"),
    ),
    "rloo": (
        TrlLoss("1.0", "rows", without_reference=(8, 5)),
        TrlLoss("1.10", "rows_in_place", without_reference=(8, 6)),
        TrlLoss("1.14", "rows", without_reference=(8, 6)),
        TrlLoss(FUSED_HEAD_SINCE, "row_kernel"),
    ),
    **dict.fromkeys(
        ("orpo", "cpo"), (TrlLoss("0.15", "odds"), TrlLoss("1.14", "odds_rows"), TrlLoss("", "odds_kernel"))
    ),
}  # fmt: skip


def find_trl_loss(trainer: str, release: str) -> TrlLoss:
    """Return the loss that a trainer uses at a trl release without Liger and without a fused output layer.

    The loss is `none` for a trainer that is not in the table and for a release after the trainer's last row.
    """
    key = parse_release(release)
    losses = (row for row in _LOSSES.get(trainer, ()) if not row.until or key < parse_release(row.until))
    return next(losses, TrlLoss("", "none"))

"""Losses of TRL's trainers by release, which determine how many logits exist at the same time.

Sources: trl 0.9.6 to 1.16.0 (`trainer/*_trainer.py`, `trainer/utils.py`); `hf_trainer/trl_losses.py` lists the tensors
that the losses keep.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.hf_trainer.infer import infer_passing_logits
from cfglint_train.frameworks.hf_trainer.trl_losses import FUSED_HEAD_SINCE, TrlLoss, find_trl_loss
from cfglint_train.frameworks.lens import Config, find_origin, is_before
from cfglint_train.frameworks.trl.settings import find_own_trainer, find_trainer, is_on, read_setting
from cfglint_train.plan.origin import Origin

_TILED_SINCE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("sft", "rloo"), FUSED_HEAD_SINCE),
    **dict.fromkeys(("dpo", "kto", "grpo"), "1.14"),
}
"""Trainer -> the first release that tiles its loss if Liger's kernels are requested."""
_LIGER_LOSSES: Final[Mapping[str, str]] = {
    "sft": "liger", "dpo": "liger_pairs", "kto": "liger_unpaired", "grpo": "liger_policy",
}  # fmt: skip


_WITHOUT_ODDS: Final[Mapping[str, str]] = {"odds": "log_softmax", "odds_rows": "rows", "odds_kernel": "row_kernel"}
"""CPO's loss -> the loss that replaces it if `cpo_alpha` is 0."""


def _build_loss(config: Config) -> TrlLoss:
    """Return the trainer's plain loss at the release: without Liger, and not fused with the output matrix."""
    loss = find_trl_loss(find_trainer(config) or "", config.release)
    if find_trainer(config) == "cpo" and read_setting(config, "cpo_alpha", "number") == 0:
        return loss._replace(loss=_WITHOUT_ODDS[loss.loss])
    return loss


def find_loss(config: Config, liger: bool) -> str:
    """Return the implementation of a trainer's loss. `liger`: the trainer's own keys turn on Liger's loss."""
    trainer = find_trainer(config) or ""
    if trainer in _TILED_SINCE and not is_before(config, _TILED_SINCE[trainer] if liger else FUSED_HEAD_SINCE):
        return "tiles"
    if liger and trainer in _LIGER_LOSSES:
        return _LIGER_LOSSES[trainer]
    if trainer == "sft" and _is_chunked(config):
        return "checkpointed" if is_before(config, "1.13") else "checkpointed_half"
    return _build_loss(config).loss


def infer_loss(job: Job) -> None:
    """Infer the logits outside the loss and the scored tokens, and mark a loss that no formula covers."""
    config, plan = job.main, job.plan
    trainer, loss = find_trainer(config), plan.get("activations.fused_loss")
    own_trainer = find_own_trainer(config)
    if own_trainer is not None or (trainer is None and config.document.syntax == "python"):
        reason = "no formula covers the loss of this trainer"
        if own_trainer is not None:
            reason = f"the trainer of this run (`{own_trainer.name}`) is not TRL's"
        plan.put(
            "activations.fused_loss",
            None,
            Origin("explicit", config.find_top(), reason, "loss_type", is_unsupported=True),
        )
    if trainer is None or loss is None:
        return
    reason = _explain_not_estimated(job, trainer, loss)
    if reason:
        place = find_origin(config, "loss_type").place or config.find_top()
        plan.put("activations.fused_loss", None, Origin("explicit", place, reason, "loss_type", is_unsupported=True))
        return
    if trainer in ("grpo", "rloo"):
        plan.infer("activations.scored_tokens", plan.get("rollout.new_tokens"), "only completions are scored")
    infer_passing_logits(job, _build_loss(config))
    if trainer == "sft" and loss == "liger" and not is_before(config, "0.29"):
        note = "with Liger's loss, SFT skips the logits in evaluation"
        plan.infer("activations.fused_evaluation", True, note)


def _explain_not_estimated(job: Job, trainer: str, loss: str) -> str:
    """Return why the loss of a run is not estimated, or an empty string if it is estimated."""
    config = job.main
    if trainer == "rloo" and is_before(config, "0.22"):
        return f"no formula covers the RLOO loop of TRL {config.release}"
    if trainer == "grpo" and is_before(config, "0.15"):
        return f"no formula covers GRPO's groups per prompt of a micro batch in TRL {config.release}"
    losses: Any = config.get("loss_type")
    if trainer == "sft" and loss == "none" and read_setting(config, "loss_type", "string") == "dft":
        return "no formula covers the logits of `loss_type: dft`"
    if trainer == "dpo" and loss == _build_loss(config).loss:
        copying_option = next(
            (option for option in ("rpo_alpha", "use_weighting") if config.get(option) not in (None, False)), None
        )
        if copying_option is not None or "sft" in (losses if isinstance(losses, list) else [losses]):
            return f"no formula covers the logits that `{copying_option or 'loss_type'}` copies"
    return ""


def _is_chunked(config: Config) -> bool:
    """Return whether SFT computes its loss in chunks: the default from 1.7 to 1.14, unless Liger's kernels are on."""
    loss = read_setting(config, "loss_type", "string")
    is_default = loss is None and not is_before(config, "1.7") and not is_on(config, "use_liger_kernel")
    return loss == "chunked_nll" or is_default

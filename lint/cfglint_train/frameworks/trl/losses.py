"""The end of TRL's models, by trainer and release: where there are logits, and how many at once.

Sources: trl 0.9.6 to 1.16.0 (`trainer/*_trainer.py`, `trainer/utils.py`); `hf_trainer/trl_losses.py` has what the
losses hold.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.hf_trainer.infer import infer_passing_logits
from cfglint_train.frameworks.hf_trainer.trl_losses import FUSED, Made, made_at
from cfglint_train.frameworks.lens import Config, before, origin_of
from cfglint_train.frameworks.trl.settings import on, stated, trainer_of
from cfglint_train.plan.origin import Origin

_TILES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("sft", "rloo"), FUSED),
    **dict.fromkeys(("dpo", "kto", "grpo"), "1.14"),
}
"""First release that does so where Liger's kernels are asked for."""
_LIGER: Final[Mapping[str, str]] = {
    "sft": "liger", "dpo": "liger_pairs", "kto": "liger_unpaired", "grpo": "liger_policy",
}  # fmt: skip


_WITHOUT_ODDS: Final[Mapping[str, str]] = {"odds": "log_softmax", "odds_rows": "rows", "odds_kernel": "row_kernel"}
"""What CPO makes where `cpo_alpha` is 0."""


def _made(config: Config) -> Made:
    """How the trainer makes its loss at the release, where it is neither Liger's nor fused with the output matrix."""
    found = made_at(trainer_of(config) or "", config.release)
    if trainer_of(config) == "cpo" and stated(config, "cpo_alpha", "number") == 0:
        return found._replace(loss=_WITHOUT_ODDS[found.loss])
    return found


def loss_of(config: Config, liger: bool) -> str:
    """How a trainer computes its loss. `liger`: by its own keys, Liger's is switched on."""
    trainer = trainer_of(config) or ""
    if trainer in _TILES and not before(config, _TILES[trainer] if liger else FUSED):
        return "tiles"
    if liger and trainer in _LIGER:
        return _LIGER[trainer]
    if trainer == "sft" and _is_chunked(config):
        return "checkpointed" if before(config, "1.13") else "checkpointed_half"
    return _made(config).loss


def infer_loss(job: Job) -> None:
    """Logits beside those of the loss, the tokens that have any, and what is not derived."""
    config, reading = job.main, job.reading
    trainer, loss = trainer_of(config), reading.get("activations.fused_loss")
    if trainer is None and config.document.syntax == "python":
        why = "no formula covers the loss of this trainer of TRL"
        reading.put("activations.fused_loss", None, Origin("explicit", config.top(), why, "loss_type", beyond=True))
    if trainer is None or loss is None:
        return
    why = _not_derived(job, trainer, loss)
    if why:
        place = origin_of(config, "loss_type").place or config.top()
        reading.put("activations.fused_loss", None, Origin("explicit", place, why, "loss_type", beyond=True))
        return
    if trainer in ("grpo", "rloo"):
        reading.infer("activations.scored_tokens", reading.get("rollout.new_tokens"), "only completions are scored")
    infer_passing_logits(job, _made(config))
    if trainer == "sft" and loss == "liger" and not before(config, "0.29"):
        note = "SFT has Liger's loss skip the logits of an evaluation"
        reading.infer("activations.fused_evaluation", True, note)


def _not_derived(job: Job, trainer: str, loss: str) -> str:
    """Why the loss of a run is not estimated; empty where it is."""
    config = job.main
    if trainer == "rloo" and before(config, "0.22"):
        return f"no formula covers the loop of RLOO in TRL {config.release}"
    if trainer == "grpo" and before(config, "0.15"):
        return f"no formula covers the groups that GRPO makes of each prompt of a micro batch in TRL {config.release}"
    losses: Any = config.get("loss_type")
    if trainer == "sft" and loss == "none" and stated(config, "loss_type", "string") == "dft":
        return "no formula covers the logits of `loss_type: dft`"
    if trainer == "dpo" and loss == _made(config).loss:
        further = next((one for one in ("rpo_alpha", "use_weighting") if config.get(one) not in (None, False)), None)
        if further is not None or "sft" in (losses if isinstance(losses, list) else [losses]):
            return f"no formula covers the logits that `{further or 'loss_type'}` copies"
    return ""


def _is_chunked(config: Config) -> bool:
    """Whether SFT computes its loss by chunks: the default from 1.7 to 1.14, unless Liger's kernels are on."""
    loss = stated(config, "loss_type", "string")
    by_default = loss is None and not before(config, "1.7") and not on(config, "use_liger_kernel")
    return loss == "chunked_nll" or by_default

"""Inference for HF Trainer scripts: the Trainer's defaults, and values that the code does not determine."""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.hf_scripts.recognise import is_generating
from cfglint_train.frameworks.hf_trainer.infer import (
    DEFAULT_IMAGE_PIXELS,
    infer_compilation,
    infer_images,
    infer_loops,
)
from cfglint_train.frameworks.lens import is_before
from cfglint_train.frameworks.trainer_script.infer import infer_script
from cfglint_train.frameworks.trl.settings import is_on, read_setting
from cfglint_train.frameworks.trl.weights import infer_placement, infer_weights
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin

_LOSS_FIELD: Final[Field] = "activations.fused_loss"


def infer(job: Job) -> None:
    """Infer strategy, number formats and loops, and mark sample length and loss as unknown if the code hides them."""
    config, reading = job.main, job.plan
    infer_placement(job, is_precision_stated=any(config.get(key) is not None for key in ("bf16", "fp16")))
    infer_weights(job)
    reading.infer("batch.pairs", False, "one sample is one sequence")
    reading.infer("method.reference_model", "none", "the Trainer has none")
    infer_loops(job)
    infer_script(job)
    if reading.get("sequence.length") is None and reading.get_origin("sequence.length") is None:
        note = "no call of a tokenizer shows where the script truncates samples (`truncation=True, max_length=...`)"
        reading.put("sequence.length", None, Origin("inferred", config.find_top(), note))
    if reading.get("method.tuning") == "full":
        infer_images(job, DEFAULT_IMAGE_PIXELS, "768 x 768 pixels")
    _infer_loss(job)
    infer_compilation(job)


def _infer_loss(job: Job) -> None:
    """Mark a custom loss or label smoothing as unsupported, and infer whether evaluation with Liger skips the logits.

    Source: transformers 5.15.0 trainer.py, prediction_step.
    """
    from cfglint_train.frameworks.trainer_script.reader import ScriptSettings

    config = job.main
    if is_on(config, "use_liger_kernel") and not is_before(config, "5.15"):
        job.plan.infer(
            "activations.fused_evaluation", True, "with Liger's loss, the Trainer skips the logits in evaluation"
        )
    node = config.get_node()
    if isinstance(node, ScriptSettings) and node.model_class and not is_generating(node.model_class):
        name = node.model_class.rpartition(".")[2]
        note = f"no formula covers the loss of `{name}`"
        job.plan.put(_LOSS_FIELD, None, Origin("explicit", config.find_top(), note, is_unsupported=True))
    elif isinstance(node, ScriptSettings) and node.computes_loss:
        note = "the script's own trainer class computes the loss"
        job.plan.put(_LOSS_FIELD, None, Origin("explicit", config.find_top(), note, is_unsupported=True))
    elif read_setting(config, "label_smoothing_factor", "number"):
        place = config.get_origin("label_smoothing_factor").place
        note = "no formula covers the logits of `label_smoothing_factor`"
        job.plan.put(_LOSS_FIELD, None, Origin("explicit", place, note, "label_smoothing_factor", is_unsupported=True))

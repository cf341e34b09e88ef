"""What a script does with its model beside what recipes have keys for."""

from __future__ import annotations

import ast

from cfglint_train.documents.document import Unknown
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.tree import Record
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.origin import Origin, Place

_SPREADING: Final = ("auto", "balanced", "balanced_low_0", "sequential")
"""Values of `device_map` that spread the layers of one model over the GPUs that a process sees."""

_POSITIONS: Final = ("config", "rope_scaling", "rope_parameters", "max_position_embeddings")
"""Arguments of `from_pretrained` by which a model gets other positions than its own."""


def infer_script(job: Job) -> None:
    """Layers spread over GPUs, casts, positions, a reference model of the script's own."""
    config, reading = job.main, job.reading
    _infer_line(job)
    node = config.node()
    loaded = node.parts.get("_LOADED_") if isinstance(node, Record) else None
    call = None if loaded is None else loaded.record
    changed = call is not None and (call.open or any(call.get(name) is not None for name in _POSITIONS))
    if loaded is not None and not changed and config.get("model_init_kwargs") is None:
        reading.infer("model.rope_scaling", "none", "the model is loaded as it is")
    spread = config.get("_DEVICE_MAP_")
    if (spread in _SPREADING or isinstance(spread, Unknown)) and reading.world != 1:
        origin = config.origin("_DEVICE_MAP_")
        # Started by torchrun it is refused, and one process alone spreads the layers.
        note = "`device_map` may spread the layers over the GPUs"
        reading.put("parallel.strategy", None, Origin("inferred", origin.place, note, "device_map"))
    if reading.get("precision.params") is None and config.get("_LOADED_") == "script" and config.get("dtype") is None:
        note = "without `dtype`, transformers 4 loads fp32 weights, and transformers 5 those of the checkpoint"
        reading.put("precision.params", None, Origin("inferred", config.origin("_LOADED_").place, note))
    frozen = _frozen_at(config) if reading.get("method.tuning") == "full" else None
    if frozen is not None:
        note = "the script sets `requires_grad`: which parameters are trained cannot be determined without running it"
        reading.put("method.tuning", None, Origin("inferred", frozen, note, "requires_grad"))
    if config.has("_CAST_"):
        origin = config.origin("_CAST_")
        note = "the script casts the model after it is loaded"
        for field in ("precision.params", "precision.frozen", "precision.grads", "precision.loaded"):
            reading.put(field, None, Origin("inferred", origin.place, note, "dtype"))
    elif config.get("_KBIT_") is True and reading.get("method.quantization") not in (None, "none"):
        note = "prepare_model_for_kbit_training casts what is not quantised to fp32"
        reading.put("model.embeddings_fp32", True, Origin("inferred", config.origin("_KBIT_").place, note))
    reference = config.get("_REFERENCE_")
    if reference == "full" and reading.get("method.reference_model") == "adapter-off":
        origin = Origin("inferred", config.origin("_REFERENCE_").place, "the script hands over a second model")
        reading.put("method.reference_model", "full", origin)
    elif isinstance(reference, Unknown) and reading.get("method.reference_model") is not None:
        reading.put("method.reference_model", None, Origin("inferred", note="what the script gives as `ref_model`"))


def _frozen_at(config: Config) -> Place | None:
    """Where a script freezes parameters of a model, be it by name, in a loop or as a whole."""
    document = config.document
    if not isinstance(document, PythonScript) or b"requires_grad" not in document.source:
        return None
    for node in document.nodes(ast.Attribute):
        if node.attr == "requires_grad" and isinstance(node.ctx, ast.Store):
            return Place(document, document.span(node))
    for call in document.nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "requires_grad_":
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            if given and not (isinstance(given[0], ast.Constant) and given[0].value is True):
                return Place(document, document.span(call))
    return None


def _infer_line(job: Job) -> None:
    """Why the model of a script is not known that takes its settings from its command line, or how it is sharded."""
    from cfglint_train.frameworks.trainer_script.line import RECIPE, FromLine

    config, reading = job.main, job.reading
    recipe = config.get(RECIPE)
    if not isinstance(config.get("model_name_or_path"), FromLine):
        if isinstance(config.get("fsdp"), FromLine) and reading.get("parallel.strategy") is None:
            note = "the command line of the script gives its settings, and no launch of it is known"
            if job.launch_known is not None:
                note = "the command line of the script gives its settings, and not all of its launch is known"
            reading.put("parallel.strategy", None, Origin("inferred", config.origin("fsdp").place, note, "fsdp"))
        return
    note = "the command line of the script gives its settings, and no launch with the model is known"
    if job.launch_known is not None:
        note = "the command line of the script gives its settings, and not every launch names a model"
    if isinstance(recipe, str):
        note = f"its settings are those of `{recipe}`, with which it is started; check that file"
    place = config.origin("model_name_or_path").place
    reading.put("model.id", None, Origin("inferred", place, note, "model_name_or_path"))

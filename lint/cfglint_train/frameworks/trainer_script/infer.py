"""Plan fields inferred from the way a script handles its model, which recipes have no keys for."""

from __future__ import annotations

import ast

from cfglint_train.documents.document import Unknown
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.tree import Record
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.origin import Origin, Place

_SPREADING_DEVICE_MAPS: Final = ("auto", "balanced", "balanced_low_0", "sequential")
"""Values of `device_map` that spread the layers of one model over the GPUs that a process sees."""

_POSITION_ARGUMENTS: Final = ("config", "rope_scaling", "rope_parameters", "max_position_embeddings")
"""Arguments of `from_pretrained` that may change the position embeddings of a model."""


def infer_script(job: Job) -> None:
    """Infer casts, position embeddings, frozen weights, layers spread over GPUs, and the script's reference model."""
    config, plan = job.main, job.plan
    _infer_command_line(job)
    node = config.get_node()
    loaded = node.parts.get("_LOADED_") if isinstance(node, Record) else None
    call = None if loaded is None else loaded.record
    changed = call is not None and (call.open or any(call.get(name) is not None for name in _POSITION_ARGUMENTS))
    if loaded is not None and not changed and config.get("model_init_kwargs") is None:
        plan.infer("model.rope_scaling", "none", "the model is loaded as it is")
    spread = config.get("_DEVICE_MAP_")
    if (spread in _SPREADING_DEVICE_MAPS or isinstance(spread, Unknown)) and plan.world_size != 1:
        origin = config.get_origin("_DEVICE_MAP_")
        # transformers rejects these device maps under torchrun; a single process spreads the layers over its GPUs.
        note = "`device_map` may spread the layers over the GPUs"
        plan.put("parallel.strategy", None, Origin("inferred", origin.place, note, "device_map"))
    if plan.get("precision.params") is None and config.get("_LOADED_") == "script" and config.get("dtype") is None:
        note = "without `dtype`, transformers 4 loads fp32 weights, and transformers 5 those of the checkpoint"
        plan.put("precision.params", None, Origin("inferred", config.get_origin("_LOADED_").place, note))
    frozen = _find_freezing(config) if plan.get("method.tuning") == "full" else None
    if frozen is not None:
        note = "the script sets `requires_grad`: which parameters are trained cannot be determined without running it"
        plan.put("method.tuning", None, Origin("inferred", frozen, note, "requires_grad"))
    if any(name in config.document.source for name in (b"allow_tf32", b"set_float32_matmul_precision")):
        plan.put("precision.tf32", True, Origin("inferred", note="the script sets the precision of fp32 products"))
    if config.has("_CAST_"):
        origin = config.get_origin("_CAST_")
        note = "the script casts the model after it is loaded"
        for field in ("precision.params", "precision.frozen", "precision.grads", "precision.loaded"):
            plan.put(field, None, Origin("inferred", origin.place, note, "dtype"))
    elif config.get("_KBIT_") is True and plan.get("method.quantization") not in (None, "none"):
        note = "prepare_model_for_kbit_training casts unquantised weights to fp32"
        plan.put("model.embeddings_fp32", True, Origin("inferred", config.get_origin("_KBIT_").place, note))
    reference = config.get("_REFERENCE_")
    if reference == "full" and plan.get("method.reference_model") == "adapter-off":
        origin = Origin("inferred", config.get_origin("_REFERENCE_").place, "the script passes a second model")
        plan.put("method.reference_model", "full", origin)
    elif isinstance(reference, Unknown) and plan.get("method.reference_model") is not None:
        plan.put("method.reference_model", None, Origin("inferred", note="the script's `ref_model`"))


def _find_freezing(config: Config) -> Place | None:
    """Return the place where a script sets `requires_grad`, on parameters or on a whole model, or None."""
    document = config.document
    if not isinstance(document, PythonScript) or b"requires_grad" not in document.source:
        return None
    for node in document.list_nodes(ast.Attribute):
        if node.attr == "requires_grad" and isinstance(node.ctx, ast.Store):
            return Place(document, document.find_span(node))
    for call in document.list_nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "requires_grad_":
            arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
            if arguments and not (isinstance(arguments[0], ast.Constant) and arguments[0].value is True):
                return Place(document, document.find_span(call))
    return None


def _infer_command_line(job: Job) -> None:
    """Record why the model or the sharding is unknown if a script gets its settings from the command line."""
    from cfglint_train.frameworks.trainer_script.line import RECIPE, CommandLineSetting

    config, plan = job.main, job.plan
    recipe = config.get(RECIPE)
    if not isinstance(config.get("model_name_or_path"), CommandLineSetting):
        if isinstance(config.get("fsdp"), CommandLineSetting) and plan.get("parallel.strategy") is None:
            note = "its settings come from the command line, and no launch of it is known"
            if job.launch_known is not None:
                note = "its settings come from the command line, and not all of its launch is known"
            plan.put("parallel.strategy", None, Origin("inferred", config.get_origin("fsdp").place, note, "fsdp"))
        return
    note = "its settings come from the command line, and no launch with the model is known"
    if job.launch_known is not None:
        note = "its settings come from the command line, and not every launch names a model"
    if isinstance(recipe, str):
        note = f"its settings come from `{recipe}`; check that file instead"
    place = config.get_origin("model_name_or_path").place
    plan.put("model.id", None, Origin("inferred", place, note, "model_name_or_path"))

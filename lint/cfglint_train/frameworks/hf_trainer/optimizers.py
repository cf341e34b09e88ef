"""Optimizers of the Hugging Face Trainer, by the value of `optim`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_train.documents.document import CannotEdit, Change, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.framework import Job
from cfglint_train.frameworks.lens import Changes, Config, Triple, parse_routes, refuse_override
from cfglint_train.frameworks.lens_types import Custom
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def _build_row(name: str, implementation: str, bits: int | None = None, paged: bool = False) -> dict[Field, Any]:
    row: dict[Field, Any] = {
        "optimizer.name": name,
        "optimizer.implementation": implementation,
        "optimizer.paged": paged,
    }
    # Without this entry, the state has the dtype of the weights.
    return row if bits is None else {**row, "optimizer.state_bits": bits}


# transformers training_args.OptimizerNames -> optimizer (trainer.get_optimizer_cls_and_kwargs).
OPTIMIZERS: Final[Mapping[str, Mapping[Field, Any]]] = {
    "adamw_torch_fused": _build_row("adamw", "fused"),
    "adamw_torch": _build_row("adamw", "foreach"),
    "adamw_torch_xla": _build_row("adamw", "xla"),
    "adamw_torch_npu_fused": _build_row("adamw", "npu"),
    "adamw_hf": _build_row("adamw", "single"),
    "adamw_apex_fused": _build_row("adamw", "apex", 32),
    "adamw_anyprecision": _build_row("adamw", "anyprecision", 32),
    "adamw_torch_8bit": _build_row("adamw", "torchao", 8),
    "adamw_torch_4bit": _build_row("adamw", "torchao", 4),
    "adamw_bnb_8bit": _build_row("adamw", "bitsandbytes", 8),
    "adamw_8bit": _build_row("adamw", "bitsandbytes", 8),
    "paged_adamw_32bit": _build_row("adamw", "bitsandbytes", 32, paged=True),
    "paged_adamw": _build_row("adamw", "bitsandbytes", 32, paged=True),
    "paged_adamw_8bit": _build_row("adamw", "bitsandbytes", 8, paged=True),
    "ademamix": _build_row("ademamix", "bitsandbytes", 32),
    "ademamix_8bit": _build_row("ademamix", "bitsandbytes", 8),
    "paged_ademamix_32bit": _build_row("ademamix", "bitsandbytes", 32, paged=True),
    "paged_ademamix_8bit": _build_row("ademamix", "bitsandbytes", 8, paged=True),
    "lion_32bit": _build_row("lion", "bitsandbytes", 32),
    "lion_8bit": _build_row("lion", "bitsandbytes", 8),
    "paged_lion_32bit": _build_row("lion", "bitsandbytes", 32, paged=True),
    "paged_lion_8bit": _build_row("lion", "bitsandbytes", 8, paged=True),
    "rmsprop": _build_row("rmsprop", "foreach"),
    "rmsprop_bnb": _build_row("rmsprop", "bitsandbytes", 32),
    "rmsprop_bnb_8bit": _build_row("rmsprop", "bitsandbytes", 8),
    "rmsprop_bnb_32bit": _build_row("rmsprop", "bitsandbytes", 32),
    "adafactor": _build_row("adafactor", "custom"),
    "sgd": _build_row("sgd", "foreach"),
    "adagrad": _build_row("adagrad", "foreach"),
    "galore_adamw": _build_row("galore_adamw", "custom"),
    "galore_adamw_8bit": _build_row("galore_adamw", "bitsandbytes", 8),
    "galore_adafactor": _build_row("galore_adafactor", "custom"),
    "galore_adamw_layerwise": _build_row("galore_adamw_layerwise", "custom"),
    "galore_adamw_8bit_layerwise": _build_row("galore_adamw_layerwise", "bitsandbytes", 8),
    "galore_adafactor_layerwise": _build_row("galore_adafactor_layerwise", "custom"),
    "apollo_adamw": _build_row("apollo_adamw", "custom"),
    "apollo_adamw_layerwise": _build_row("apollo_adamw_layerwise", "custom"),
    "lomo": _build_row("lomo", "custom"),
    "adalomo": _build_row("adalomo", "custom"),
    "grokadamw": _build_row("grokadamw", "custom"),
    "schedule_free_radam": _build_row("schedule_free_radam", "custom"),
    "schedule_free_adamw": _build_row("schedule_free_adamw", "custom"),
    "schedule_free_sgd": _build_row("schedule_free_sgd", "custom"),
    "stable_adamw": _build_row("stable_adamw", "custom"),
}

OPTIMIZER_FIELDS: Final = (
    "optimizer.name",
    "optimizer.implementation",
    "optimizer.state_bits",
    "optimizer.paged",
    "optimizer.stated_name",
)


def get_default_optimizer(config: Config) -> str:
    """Return the default of `optim`: fused AdamW with transformers 4.55 or newer and torch 2.8 or newer.

    An unknown release of torch counts as new enough, an unknown release of transformers as too old.
    """
    transformers, torch = config.releases.get("transformers"), config.releases.get("torch")
    if transformers is None or parse_release(transformers) < parse_release("4.55"):
        return "adamw_torch"
    return "adamw_torch_fused" if torch is None or parse_release(torch) >= parse_release("2.8") else "adamw_torch"


def infer_optimizer_state(job: Job) -> None:
    """Infer the precision of the optimizer states, and the projection of GaLore and APOLLO.

    torch's optimizers keep states in the dtype of the weights. With 8-bit optimizers of bitsandbytes, the Trainer keeps
    the states of embeddings in 32 bits (trainer.py, create_optimizer). Under DeepSpeed, the states of embeddings are
    8-bit, too, because its flat partitions hide which parameters are embeddings.
    """
    reading = job.plan
    _infer_projection(job)
    is_8bit = reading.get("optimizer.implementation") == "bitsandbytes" and reading.get("optimizer.state_bits") == 8
    is_galore = str(reading.get("optimizer.name")).startswith("galore")
    if is_8bit and not is_galore and reading.get("parallel.strategy") not in (None, "zero"):
        reading.infer("optimizer.embedding_bits", 32, "the HF Trainer keeps embedding states in 32 bits")
    weight_format = reading.get("precision.adapter" if reading.trains_adapter else "precision.params")
    if reading.get("precision.master") == "fp32" or weight_format == "fp32":
        reading.infer("optimizer.state_bits", 32, "optimizer states have the dtype of the fp32 weights")
    elif weight_format in ("bf16", "fp16") and reading.get("precision.master") == "none":
        reading.infer("optimizer.state_bits", 16, "optimizer states have the dtype of the 16-bit weights")


def _infer_projection(job: Job) -> None:
    """Infer rank, projection and targets of GaLore and APOLLO from `optim_args` and `optim_target_modules`.

    The defaults are rank 128 and `std`, which projects the shorter side (trainer_optimizer.py).
    """
    reading, config = job.plan, job.main
    if not str(reading.get("optimizer.name")).startswith(("galore", "apollo")):
        return
    optim_args = config.get("optim_args")
    options: dict[str, Any] = {}
    if isinstance(optim_args, dict):
        options = optim_args
    elif isinstance(optim_args, str):
        options = dict(part.split("=", 1) for part in optim_args.replace(" ", "").split(",") if "=" in part)
    try:
        rank = int(options.get("rank", 128))
    except (TypeError, ValueError, OverflowError):
        return
    reading.infer("optimizer.rank", rank, "optim_args, 128 by default")
    reading.infer("optimizer.projection", str(options.get("proj_type", "std")), "optim_args, std by default")
    targets = config.get("optim_target_modules")
    if isinstance(targets, list) and all(isinstance(target, str) for target in targets):
        reading.infer("optimizer.targets", tuple(targets), "optim_target_modules")
    elif isinstance(targets, str) and targets.replace("_", "-") == "all-linear":  # includes the head
        reading.infer("optimizer.targets", ("all-linear", "lm_head"), "optim_target_modules")
    elif isinstance(targets, str):  # no name contains the parentheses, so only the full regex matches
        reading.infer("optimizer.targets", (f"({targets})",), "optim_target_modules")


def read_optimizer(config: Config) -> Iterator[Triple]:
    """Yield the optimizer fields that `optim`, or its default, determines."""
    name = config.get("optim")
    if name is None:
        name = get_default_optimizer(config)
        note = f"transformers {config.releases.get('transformers') or 'of an unknown release'}"
        origin = Origin("default", note=note, key="optim")
    else:
        origin = config.get_origin("optim")
    row = OPTIMIZERS.get(name, {}) if isinstance(name, str) else {}
    for field in OPTIMIZER_FIELDS:
        if field == "optimizer.stated_name":
            yield field, name if isinstance(name, str) else None, origin
        elif field in row:
            yield field, row[field], origin


def write_optimizer(config: Config, changes: Changes) -> list[Change]:
    """Return the change of `optim` that sets the changed fields and keeps the others.

    Raise CannotEdit if no value of `optim` has that combination, or if the launch overrides `optim`.
    """
    current: Changes = {field: value for field, value, _ in read_optimizer(config)}
    target = {field: value for field, value in {**current, **changes}.items() if field != "optimizer.stated_name"}
    for name, row in OPTIMIZERS.items():
        if all(row.get(field) == value for field, value in target.items()):
            refuse_override(config, ("optim",))
            beside = ("learning_rate", "gradient_accumulation_steps", "per_device_train_batch_size")
            return [Set((*config.root, "optim"), name, beside)]
    raise CannotEdit("optim has no name for that combination")


OPTIMIZER: Final = Custom(dict.fromkeys(OPTIMIZER_FIELDS, parse_routes("optim")), read_optimizer, write_optimizer)

"""Lenses between axolotl's keys and the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

from cfglint_train.documents.document import CannotEdit, Change, Set
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import ValueByRelease
from cfglint_train.frameworks.axolotl import activations, method
from cfglint_train.frameworks.axolotl.fsdp import FSDP_LENS, WRAPPING, has_fsdp
from cfglint_train.frameworks.axolotl.settings import read_bool, read_integer
from cfglint_train.frameworks.codec import accept_unknown_folder, build_choice
from cfglint_train.frameworks.hf_trainer.arguments import build_argument_key
from cfglint_train.frameworks.hf_trainer.optimizers import OPTIMIZER_FIELDS, OPTIMIZERS
from cfglint_train.frameworks.lens import (
    Changes,
    Config,
    Triple,
    build_default_origin,
    find_origin,
    is_before,
    parse_routes,
    refuse_override,
)
from cfglint_train.frameworks.lens_types import ABSENT, Custom, Key, Table, refuse_write
from cfglint_train.frameworks.loaders import PYDANTIC
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def _read_saving(config: Config) -> Iterator[Triple]:
    # save_steps overrides save_strategy (core/builders/base.py _configure_save_and_eval_strategy).
    per_epoch = read_integer(config, "saves_per_epoch")
    steps = config.get("save_steps")
    if isinstance(steps, (int, float)) and not isinstance(steps, bool) and steps:
        yield "checkpoint.strategy", "steps", config.get_origin("save_steps")
        if 1 <= steps < inf:
            yield "checkpoint.interval", int(steps), config.get_origin("save_steps")
        elif steps < 0:
            yield "checkpoint.interval", 0, config.get_origin("save_steps")  # the Trainer saves only at the end
    elif per_epoch:
        yield "checkpoint.strategy", "epoch", config.get_origin("saves_per_epoch")
        yield "checkpoint.per_epoch", per_epoch, config.get_origin("saves_per_epoch")
    else:
        strategy = config.get("save_strategy")
        valid_strategy = (
            strategy if strategy in ("no", "steps", "epoch", "best") else None if strategy is not None else "epoch"
        )
        yield "checkpoint.strategy", valid_strategy, find_origin(config, "save_strategy")
    keep = read_integer(config, "save_total_limit")
    yield "checkpoint.keep", keep or 4, find_origin(config, "save_total_limit")
    yield "checkpoint.final", True, Origin("default", note=f"axolotl {config.release} saves the model at the end")


def _write_saving(config: Config, changes: Changes) -> list[Change]:
    if set(changes) == {"checkpoint.keep"} and isinstance(changes["checkpoint.keep"], int):
        refuse_override(config, ("save_total_limit",))
        return [Set((*config.root, "save_total_limit"), changes["checkpoint.keep"], ("save_steps", "saves_per_epoch"))]
    raise CannotEdit("axolotl has no single key for that")


_SAVING: Final = Custom(
    {
        "checkpoint.strategy": parse_routes("save_strategy", "save_steps", "saves_per_epoch"),
        "checkpoint.interval": parse_routes("save_steps"),
        "checkpoint.per_epoch": parse_routes("saves_per_epoch"),
        "checkpoint.keep": parse_routes("save_total_limit"),
        "checkpoint.final": (),
    },
    _read_saving,
    _write_saving,
)


def _read_eval(config: Config) -> Iterator[Triple]:
    val_set_size = config.get("val_set_size", default=0)
    has_data = bool(config.get("test_datasets")) or (isinstance(val_set_size, (int, float)) and val_set_size > 0)
    origin = find_origin(config, "test_datasets", "val_set_size")
    strategy = config.get("eval_strategy", default=config.get("evaluation_strategy"))
    step_interval = config.get("eval_steps") or config.get("evals_per_epoch")
    enabled = has_data and (step_interval is not None or strategy not in (None, "no", False))
    yield "eval.enabled", enabled, origin
    yield "eval.strategy", ("steps" if step_interval else strategy or "no") if has_data else "no", origin


_EVAL: Final = Custom(
    {
        "eval.enabled": parse_routes("val_set_size", "test_datasets"),
        "eval.strategy": parse_routes("eval_strategy", "evaluation_strategy", "evals_per_epoch"),
    },
    _read_eval,
    refuse_write,
)


_LOADER_KEYS: Final[Mapping[Field, str]] = {
    "data.workers": "dataloader_num_workers",
    "data.pin_memory": "dataloader_pin_memory",
    "data.prefetch": "dataloader_prefetch_factor",
}


def _read_loader(config: Config) -> Iterator[Triple]:
    keys = tuple(_LOADER_KEYS.values())
    if all(config.get(key) is None for key in keys) and not is_before(config, "0.12.0"):
        # default_dataloader_opts: as many workers as the node has GPUs, each of which prefetches 256 batches.
        yield "data.pin_memory", True, build_default_origin(config, keys[1:2])
        yield "data.prefetch", 256, build_default_origin(config, keys[2:])
        return
    yield "data.workers", read_integer(config, keys[0]) or 0, find_origin(config, keys[0])
    pin_memory = read_bool(config, keys[1])
    yield "data.pin_memory", True if pin_memory is None else pin_memory, find_origin(config, keys[1])
    if read_integer(config, keys[2]):
        yield "data.prefetch", read_integer(config, keys[2]), config.get_origin(keys[2])


def _write_loader(config: Config, changes: Changes) -> list[Change]:
    if all(config.get(key) is None for key in _LOADER_KEYS.values()) and not is_before(config, "0.12.0"):
        raise CannotEdit("axolotl sets workers and prefetching together if neither is set")
    for field in changes:
        refuse_override(config, (_LOADER_KEYS[field],))
    return [Set((*config.root, _LOADER_KEYS[field]), value) for field, value in changes.items()]


_LOADER: Final = Custom({field: parse_routes(key) for field, key in _LOADER_KEYS.items()}, _read_loader, _write_loader)


_GENERATION_KEYS: Final[Mapping[Field, str]] = {
    "rollout.samples_per_prompt": "num_generations",
    "rollout.new_tokens": "max_completion_length",
}


def _read_rollout(config: Config) -> Iterator[Triple]:
    if config.get("rl") not in ("grpo", "gdpo", "ebft"):
        return
    if read_bool(config, "trl", "use_vllm"):
        mode = config.get("trl", "vllm_mode", default="server")
        yield "rollout.engine", "vllm", config.get_origin("trl", "use_vllm")
        yield "rollout.mode", mode if mode in ("colocate", "server") else None, find_origin(config, "trl.vllm_mode")
        utilization = config.get("vllm", "gpu_memory_utilization")
        if isinstance(utilization, (int, float)):
            yield "rollout.utilization", float(utilization), config.get_origin("vllm", "gpu_memory_utilization")
        elif is_before(config, "0.21.0"):
            yield "rollout.utilization", 0.9, build_default_origin(config, ("vllm", "gpu_memory_utilization"))
    else:
        yield "rollout.engine", "hf", find_origin(config, "trl")
    for field, name in _GENERATION_KEYS.items():
        number = read_integer(config, "trl", name)
        if number is not None:
            yield field, number, config.get_origin("trl", name)


_ROLLOUT: Final = Custom(
    {
        "rollout.engine": parse_routes("trl.use_vllm", "trl"),
        "rollout.mode": parse_routes("trl.vllm_mode"),
        "rollout.utilization": parse_routes("vllm.gpu_memory_utilization", "vllm"),
        **{field: parse_routes(f"trl.{name}") for field, name in _GENERATION_KEYS.items()},
    },
    _read_rollout,
    refuse_write,
)


def _read_batch(config: Config) -> Iterator[Triple]:
    micro, batch = read_integer(config, "micro_batch_size"), read_integer(config, "batch_size")
    is_unreadable = config.get("micro_batch_size") is not None and micro is None
    yield "batch.micro", None if is_unreadable else micro or 1, find_origin(config, "micro_batch_size")
    if config.get("gradient_accumulation_steps") is not None:
        stated = read_integer(config, "gradient_accumulation_steps")
        yield "batch.accumulation", stated, config.get_origin("gradient_accumulation_steps")
    elif batch:
        # normalize_config: batch_size is micro batch x accumulation; it is multiplied by the world size later.
        yield "batch.accumulation", max(1, batch // (micro or 1)), config.get_origin("batch_size")
    else:
        yield "batch.accumulation", 1, build_default_origin(config, ("gradient_accumulation_steps",))


_BATCH_KEYS: Final[tuple[tuple[Field, str, str], ...]] = (
    ("batch.micro", "micro_batch_size", "gradient_accumulation_steps"),
    ("batch.accumulation", "gradient_accumulation_steps", "micro_batch_size"),
)


def _write_batch(config: Config, changes: Changes) -> list[Change]:
    if config.get("gradient_accumulation_steps") is None and config.get("batch_size") is not None:
        raise CannotEdit("batch_size is micro batch x accumulation")
    edits: list[Change] = []
    for field, name, beside in _BATCH_KEYS:
        if field in changes:
            refuse_override(config, (name,))
            edits.append(Set((*config.root, name), changes[field], (beside,)))
    return edits


_BATCH: Final = Custom(
    {
        "batch.micro": parse_routes("micro_batch_size"),
        "batch.accumulation": parse_routes("gradient_accumulation_steps", "batch_size"),
    },
    _read_batch,
    _write_batch,
)


_CUSTOM_OPTIMIZERS: Final[Mapping[str, Changes]] = {
    "optimi_adamw": {"optimizer.name": "optimi_adamw", "optimizer.implementation": "custom", "optimizer.paged": False},
    "ao_adamw_fp8": {
        "optimizer.name": "adamw", "optimizer.implementation": "torchao", "optimizer.state_bits": 8,
        "optimizer.paged": False,
    },
    "adopt_adamw": {"optimizer.name": "adopt", "optimizer.implementation": "custom", "optimizer.paged": False},
    "came_pytorch": {"optimizer.name": "came", "optimizer.implementation": "custom", "optimizer.paged": False},
    "muon": {"optimizer.name": "muon", "optimizer.implementation": "custom", "optimizer.paged": False},
    "dion": {"optimizer.name": "dion", "optimizer.implementation": "custom", "optimizer.paged": False},
    "sinkgd": {"optimizer.name": "sinkgd", "optimizer.implementation": "custom", "optimizer.paged": False},
}  # fmt: skip


def _read_rope(config: Config) -> Iterator[Triple]:
    """Yield the RoPE scaling that the file sets for the model, or "none" (loaders/utils.py)."""
    for section in ("overrides_of_model_config", "model_config"):
        for name in ("rope_scaling", "rope_parameters"):
            scaling = config.get(section, name)
            if isinstance(scaling, dict):
                kind = scaling.get("rope_type", scaling.get("type"))
                yield "model.rope_scaling", kind if isinstance(kind, str) else None, config.get_origin(section, name)
                return
    yield "model.rope_scaling", "none", build_default_origin(config, ("overrides_of_model_config", "rope_scaling"))


_ROPE: Final = Custom(
    {"model.rope_scaling": parse_routes("overrides_of_model_config.rope_scaling")}, _read_rope, refuse_write
)

LENSES: Final = (
    Key("model.id", parse_routes("base_model"), accept_unknown_folder(PYDANTIC.string)),
    Key("model.revision", parse_routes("revision_of_model", "model_revision"), PYDANTIC.string),
    Key("model.trust_remote_code", parse_routes("trust_remote_code"), PYDANTIC.boolean, default=False),
    Key("model.from_scratch", parse_routes("reinit_weights"), PYDANTIC.boolean, default=False),
    _ROPE,
    build_argument_key(PYDANTIC, "max_grad_norm"),
    Key("optimizer.learning_rate", parse_routes("learning_rate"), PYDANTIC.number),
    Key("optimizer.scheduler", parse_routes("lr_scheduler"), PYDANTIC.string, default="cosine"),
    build_argument_key(PYDANTIC, "warmup_steps", "learning_rate"),
    Key("model.frozen_vision", parse_routes("freeze_mm_modules"), PYDANTIC.boolean),
    method.STAGE,
    method.TUNING,
    method.LISA,
    Key("method.unfrozen", parse_routes("unfrozen_parameters"), method.WORD_LIST),
    method.QUANTIZATION,
    Key("method.lora_rank", parse_routes("lora_r"), PYDANTIC.integer),
    Key("method.lora_alpha", parse_routes("lora_alpha"), PYDANTIC.integer),
    method.TARGETS,
    Key("method.lora_target_parameters", parse_routes("lora_target_parameters"), method.WORD_LIST),
    Key("method.lora_dropout", parse_routes("lora_dropout"), PYDANTIC.number, default=0.0),
    Key("method.lora_modules_to_save", parse_routes("lora_modules_to_save"), method.WORD_LIST, default=()),
    Key("method.lora_dora", parse_routes("peft_use_dora"), PYDANTIC.boolean, default=False),
    method.LORA_KERNELS,
    method.PRECISION,
    Key(
        "precision.tf32",
        parse_routes("tf32"),
        build_choice({True: True, False: False, "auto": True}),
        default=ValueByRelease((("", False), ("0.16.0", True))),
        null_value=ABSENT,
        siblings=("bf16",),
    ),
    Key("sequence.length", parse_routes("sequence_len"), PYDANTIC.integer, default=512),
    Key("sequence.eval_length", parse_routes("eval_sequence_len"), PYDANTIC.integer),
    Key("sequence.packing", parse_routes("sample_packing"), PYDANTIC.boolean, default=False),
    Key("sequence.eval_packing", parse_routes("eval_sample_packing"), PYDANTIC.boolean),
    Key("sequence.padding", parse_routes("pad_to_sequence_len"), build_choice({True: "max_length", False: "longest"})),
    _BATCH,
    Key("batch.eval_micro", parse_routes("eval_batch_size"), PYDANTIC.integer, siblings=("micro_batch_size",)),
    build_argument_key(PYDANTIC, "auto_find_batch_size"),
    activations.CHECKPOINTING,
    activations.ATTENTION,
    activations.LOSS,
    Key("activations.tiled_mlp", parse_routes("tiled_mlp"), PYDANTIC.boolean, default=False),
    Key(
        "activations.compile",
        parse_routes("torch_compile"),
        build_choice({True: True, False: False, "auto": True}),
        default=False,
    ),
    Table(
        parse_routes("optimizer"),
        {**OPTIMIZERS, **_CUSTOM_OPTIMIZERS},
        OPTIMIZER_FIELDS,
        raw_field="optimizer.stated_name",
        default=ValueByRelease((("", "adamw_hf"), ("0.8.0", "adamw_torch_fused"))),
    ),
    FSDP_LENS,
    WRAPPING,
    Key("parallel.tensor", parse_routes("tensor_parallel_size"), PYDANTIC.integer, default=1),
    Key(
        "parallel.context",
        parse_routes("context_parallel_size", "sequence_parallel_degree"),
        PYDANTIC.integer,
        default=1,
    ),
    Key("parallel.expert", parse_routes("expert_parallel_size"), PYDANTIC.integer, default=1),
    Key("parallel.shard_size", parse_routes("dp_shard_size"), PYDANTIC.integer),
    Key("parallel.replicas", parse_routes("dp_replicate_size"), PYDANTIC.integer, applies=has_fsdp),
    build_argument_key(PYDANTIC, "max_steps", "num_epochs", "learning_rate"),
    Key("batch.epochs", parse_routes("num_epochs"), PYDANTIC.number, default=1.0, siblings=("learning_rate",)),
    _SAVING,
    build_argument_key(
        PYDANTIC, "save_only_model", "save_total_limit", "save_steps", "saves_per_epoch", "save_strategy", "output_dir"
    ),
    build_argument_key(PYDANTIC, "output_dir")._replace(default="./model-out"),
    Key("checkpoint.load_path", parse_routes("resume_from_checkpoint"), PYDANTIC.string),
    Key("checkpoint.resume_latest", parse_routes("auto_resume_from_checkpoints"), PYDANTIC.boolean, default=False),
    build_argument_key(PYDANTIC, "load_best_model_at_end"),
    _EVAL,
    build_argument_key(PYDANTIC, "eval_steps", "val_set_size")._replace(
        applies=lambda config: not config.get("evals_per_epoch")
    ),
    Key("logging.interval", parse_routes("logging_steps"), PYDANTIC.integer),
    Key("logging.empty_cache_interval", parse_routes("torch_empty_cache_steps", "gc_steps"), PYDANTIC.integer),
    _LOADER,
    Key("data.preprocessing_workers", parse_routes("dataset_num_proc", "dataset_processes"), PYDANTIC.integer),
    Key("data.streaming", parse_routes("streaming"), PYDANTIC.boolean),
    Key("data.held_out", parse_routes("val_set_size"), PYDANTIC.number),
    Key("data.template", parse_routes("chat_template"), PYDANTIC.string),
    _ROLLOUT,
)

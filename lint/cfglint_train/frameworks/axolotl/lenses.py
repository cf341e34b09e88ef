"""The lenses between axolotl's keys and the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

from cfglint_train.documents.document import CannotEdit, Change, Set
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import Since
from cfglint_train.frameworks.axolotl import activations, method
from cfglint_train.frameworks.axolotl.fsdp import FSDP_LENS, WRAPPING, shards
from cfglint_train.frameworks.axolotl.settings import read_bool, read_integer
from cfglint_train.frameworks.codec import choice
from cfglint_train.frameworks.hf_trainer.arguments import key
from cfglint_train.frameworks.hf_trainer.optimizers import OPTIMIZER_FIELDS, OPTIMIZERS
from cfglint_train.frameworks.lens import Changes, Config, Triple, before, granted, names, origin_of, refuse_override
from cfglint_train.frameworks.lens_types import Custom, Key, Table, read_only
from cfglint_train.frameworks.loaders import PYDANTIC
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin


def _read_saving(config: Config) -> Iterator[Triple]:
    # core/builders/base.py _configure_save_and_eval_strategy: save_steps wins over save_strategy.
    per_epoch = read_integer(config, "saves_per_epoch")
    steps = config.get("save_steps")
    if isinstance(steps, (int, float)) and not isinstance(steps, bool) and steps:
        yield "checkpoint.strategy", "steps", config.origin("save_steps")
        if 1 <= steps < inf:
            yield "checkpoint.interval", int(steps), config.origin("save_steps")
    elif per_epoch:
        yield "checkpoint.strategy", "epoch", config.origin("saves_per_epoch")
        yield "checkpoint.per_epoch", per_epoch, config.origin("saves_per_epoch")
    else:
        strategy = config.get("save_strategy")
        known = strategy if strategy in ("no", "steps", "epoch", "best") else None if strategy is not None else "epoch"
        yield "checkpoint.strategy", known, origin_of(config, "save_strategy")
    keep = read_integer(config, "save_total_limit")
    yield "checkpoint.keep", keep or 4, origin_of(config, "save_total_limit")
    yield "checkpoint.final", True, Origin("default", note=f"axolotl {config.release} saves the model at the end")


def _write_saving(config: Config, changes: Changes) -> list[Change]:
    if set(changes) == {"checkpoint.keep"} and isinstance(changes["checkpoint.keep"], int):
        refuse_override(config, ("save_total_limit",))
        return [Set((*config.root, "save_total_limit"), changes["checkpoint.keep"], ("save_steps", "saves_per_epoch"))]
    raise CannotEdit("axolotl has no single key for that")


_SAVING: Final = Custom(
    {
        "checkpoint.strategy": names("save_strategy", "save_steps", "saves_per_epoch"),
        "checkpoint.interval": names("save_steps"),
        "checkpoint.per_epoch": names("saves_per_epoch"),
        "checkpoint.keep": names("save_total_limit"),
        "checkpoint.final": (),
    },
    _read_saving,
    _write_saving,
)


def _read_eval(config: Config) -> Iterator[Triple]:
    size = config.get("val_set_size", default=0)
    data = bool(config.get("test_datasets")) or (isinstance(size, (int, float)) and size > 0)
    origin = origin_of(config, "test_datasets", "val_set_size")
    strategy = config.get("eval_strategy", default=config.get("evaluation_strategy"))
    by_steps = config.get("eval_steps") or config.get("evals_per_epoch")
    enabled = data and (by_steps is not None or strategy not in (None, "no", False))
    yield "eval.enabled", enabled, origin
    yield "eval.strategy", ("steps" if by_steps else strategy or "no") if data else "no", origin


_EVAL: Final = Custom(
    {
        "eval.enabled": names("val_set_size", "test_datasets"),
        "eval.strategy": names("eval_strategy", "evaluation_strategy", "evals_per_epoch"),
    },
    _read_eval,
    read_only,
)


_LOADED: Final[Mapping[Field, str]] = {
    "data.workers": "dataloader_num_workers",
    "data.pin_memory": "dataloader_pin_memory",
    "data.prefetch": "dataloader_prefetch_factor",
}


def _read_loader(config: Config) -> Iterator[Triple]:
    keys = tuple(_LOADED.values())
    if all(config.get(key) is None for key in keys) and not before(config, "0.12.0"):
        # default_dataloader_opts: one worker per GPU of the node, 256 batches each.
        yield "data.pin_memory", True, granted(config, keys[1:2])
        yield "data.prefetch", 256, granted(config, keys[2:])
        return
    yield "data.workers", read_integer(config, keys[0]) or 0, origin_of(config, keys[0])
    pinned = read_bool(config, keys[1])
    yield "data.pin_memory", True if pinned is None else pinned, origin_of(config, keys[1])
    if read_integer(config, keys[2]):
        yield "data.prefetch", read_integer(config, keys[2]), config.origin(keys[2])


def _write_loader(config: Config, changes: Changes) -> list[Change]:
    if all(config.get(key) is None for key in _LOADED.values()) and not before(config, "0.12.0"):
        raise CannotEdit("axolotl chooses workers and prefetching together if neither is set")
    for field in changes:
        refuse_override(config, (_LOADED[field],))
    return [Set((*config.root, _LOADED[field]), value) for field, value in changes.items()]


_LOADER: Final = Custom({field: names(key) for field, key in _LOADED.items()}, _read_loader, _write_loader)


_GENERATED: Final[Mapping[Field, str]] = {
    "rollout.samples_per_prompt": "num_generations",
    "rollout.new_tokens": "max_completion_length",
}


def _read_rollout(config: Config) -> Iterator[Triple]:
    if config.get("rl") not in ("grpo", "gdpo", "ebft"):
        return
    if read_bool(config, "trl", "use_vllm"):
        mode = config.get("trl", "vllm_mode", default="server")
        yield "rollout.engine", "vllm", config.origin("trl", "use_vllm")
        yield "rollout.mode", mode if mode in ("colocate", "server") else None, origin_of(config, "trl.vllm_mode")
        share = config.get("vllm", "gpu_memory_utilization")
        if isinstance(share, (int, float)):
            yield "rollout.utilization", float(share), config.origin("vllm", "gpu_memory_utilization")
        elif before(config, "0.21.0"):
            yield "rollout.utilization", 0.9, granted(config, ("vllm", "gpu_memory_utilization"))
    else:
        yield "rollout.engine", "hf", origin_of(config, "trl")
    for field, name in _GENERATED.items():
        number = read_integer(config, "trl", name)
        if number is not None:
            yield field, number, config.origin("trl", name)


_ROLLOUT: Final = Custom(
    {
        "rollout.engine": names("trl.use_vllm", "trl"),
        "rollout.mode": names("trl.vllm_mode"),
        "rollout.utilization": names("vllm.gpu_memory_utilization", "vllm"),
        **{field: names(f"trl.{name}") for field, name in _GENERATED.items()},
    },
    _read_rollout,
    read_only,
)


def _read_batch(config: Config) -> Iterator[Triple]:
    micro, batch = read_integer(config, "micro_batch_size"), read_integer(config, "batch_size")
    unreadable = config.get("micro_batch_size") is not None and micro is None
    yield "batch.micro", None if unreadable else micro or 1, origin_of(config, "micro_batch_size")
    if config.get("gradient_accumulation_steps") is not None:
        stated = read_integer(config, "gradient_accumulation_steps")
        yield "batch.accumulation", stated, config.origin("gradient_accumulation_steps")
    elif batch:
        # normalize_config: batch_size is micro batch x accumulation, before the world size is multiplied in.
        yield "batch.accumulation", max(1, batch // (micro or 1)), config.origin("batch_size")
    else:
        yield "batch.accumulation", 1, granted(config, ("gradient_accumulation_steps",))


_BATCH_KEYS: Final[tuple[tuple[Field, str, str], ...]] = (
    ("batch.micro", "micro_batch_size", "gradient_accumulation_steps"),
    ("batch.accumulation", "gradient_accumulation_steps", "micro_batch_size"),
)


def _write_batch(config: Config, changes: Changes) -> list[Change]:
    if config.get("gradient_accumulation_steps") is None and config.get("batch_size") is not None:
        raise CannotEdit("batch_size is micro batch x accumulation")
    written: list[Change] = []
    for field, name, beside in _BATCH_KEYS:
        if field in changes:
            refuse_override(config, (name,))
            written.append(Set((*config.root, name), changes[field], (beside,)))
    return written


_BATCH: Final = Custom(
    {
        "batch.micro": names("micro_batch_size"),
        "batch.accumulation": names("gradient_accumulation_steps", "batch_size"),
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
    """`overrides_of_model_config` replaces keys of the model's configuration (loaders/utils.py)."""
    for section in ("overrides_of_model_config", "model_config"):
        for name in ("rope_scaling", "rope_parameters"):
            scaling = config.get(section, name)
            if isinstance(scaling, dict):
                kind = scaling.get("rope_type", scaling.get("type"))
                yield "model.rope_scaling", kind if isinstance(kind, str) else None, config.origin(section, name)
                return
    yield "model.rope_scaling", "none", granted(config, ("overrides_of_model_config", "rope_scaling"))


_ROPE: Final = Custom({"model.rope_scaling": names("overrides_of_model_config.rope_scaling")}, _read_rope, read_only)

LENSES: Final = (
    Key("model.id", names("base_model"), PYDANTIC.string),
    Key("model.revision", names("revision_of_model", "model_revision"), PYDANTIC.string),
    Key("model.trust_remote_code", names("trust_remote_code"), PYDANTIC.boolean, default=False),
    Key("model.from_scratch", names("reinit_weights"), PYDANTIC.boolean, default=False),
    _ROPE,
    key(PYDANTIC, "max_grad_norm"),
    Key("optimizer.learning_rate", names("learning_rate"), PYDANTIC.number),
    Key("optimizer.scheduler", names("lr_scheduler"), PYDANTIC.string, default="cosine"),
    key(PYDANTIC, "warmup_steps", "learning_rate"),
    Key("model.frozen_vision", names("freeze_mm_modules"), PYDANTIC.boolean),
    method.STAGE,
    method.TUNING,
    method.LISA,
    Key("method.unfrozen", names("unfrozen_parameters"), method.WORDS),
    method.QUANTIZATION,
    Key("method.lora_rank", names("lora_r"), PYDANTIC.integer),
    Key("method.lora_alpha", names("lora_alpha"), PYDANTIC.integer),
    method.TARGETS,
    Key("method.lora_target_parameters", names("lora_target_parameters"), method.WORDS),
    Key("method.lora_dropout", names("lora_dropout"), PYDANTIC.number, default=0.0),
    Key("method.lora_modules_to_save", names("lora_modules_to_save"), method.WORDS, default=()),
    Key("method.lora_dora", names("peft_use_dora"), PYDANTIC.boolean, default=False),
    method.LORA_KERNELS,
    method.PRECISION,
    Key("sequence.length", names("sequence_len"), PYDANTIC.integer, default=512),
    Key("sequence.eval_length", names("eval_sequence_len"), PYDANTIC.integer),
    Key("sequence.packing", names("sample_packing"), PYDANTIC.boolean, default=False),
    Key("sequence.eval_packing", names("eval_sample_packing"), PYDANTIC.boolean),
    Key("sequence.padding", names("pad_to_sequence_len"), choice({True: "max_length", False: "longest"})),
    _BATCH,
    Key("batch.eval_micro", names("eval_batch_size"), PYDANTIC.integer, beside=("micro_batch_size",)),
    key(PYDANTIC, "auto_find_batch_size"),
    activations.CHECKPOINTING,
    activations.ATTENTION,
    activations.LOSS,
    Key("activations.tiled_mlp", names("tiled_mlp"), PYDANTIC.boolean, default=False),
    Key("activations.compile", names("torch_compile"), choice({True: True, False: False, "auto": True}), default=False),
    Table(
        names("optimizer"),
        {**OPTIMIZERS, **_CUSTOM_OPTIMIZERS},
        OPTIMIZER_FIELDS,
        raw="optimizer.stated_name",
        default=Since((("", "adamw_hf"), ("0.8.0", "adamw_torch_fused"))),
    ),
    FSDP_LENS,
    WRAPPING,
    Key("parallel.tensor", names("tensor_parallel_size"), PYDANTIC.integer, default=1),
    Key("parallel.context", names("context_parallel_size", "sequence_parallel_degree"), PYDANTIC.integer, default=1),
    Key("parallel.expert", names("expert_parallel_size"), PYDANTIC.integer, default=1),
    Key("parallel.shard_size", names("dp_shard_size"), PYDANTIC.integer),
    Key("parallel.replicas", names("dp_replicate_size"), PYDANTIC.integer, applies=shards),
    key(PYDANTIC, "max_steps", "num_epochs", "learning_rate"),
    Key("batch.epochs", names("num_epochs"), PYDANTIC.number, default=1.0, beside=("learning_rate",)),
    _SAVING,
    key(
        PYDANTIC, "save_only_model", "save_total_limit", "save_steps", "saves_per_epoch", "save_strategy", "output_dir"
    ),
    key(PYDANTIC, "output_dir")._replace(default="./model-out"),
    Key("checkpoint.load_path", names("resume_from_checkpoint"), PYDANTIC.string),
    Key("checkpoint.resume_latest", names("auto_resume_from_checkpoints"), PYDANTIC.boolean, default=False),
    key(PYDANTIC, "load_best_model_at_end"),
    _EVAL,
    key(PYDANTIC, "eval_steps", "val_set_size")._replace(applies=lambda config: not config.get("evals_per_epoch")),
    Key("logging.interval", names("logging_steps"), PYDANTIC.integer),
    Key("logging.empty_cache_interval", names("torch_empty_cache_steps", "gc_steps"), PYDANTIC.integer),
    _LOADER,
    Key("data.preprocessing_workers", names("dataset_num_proc", "dataset_processes"), PYDANTIC.integer),
    Key("data.streaming", names("streaming"), PYDANTIC.boolean),
    Key("data.template", names("chat_template"), PYDANTIC.string),
    _ROLLOUT,
)

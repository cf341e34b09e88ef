"""The lenses of LLaMA-Factory v0: its keys and those of the Trainer, both ways.

Sources: LLaMA-Factory 0.8.0 to 0.9.5 (`hparams/`, `model/adapter.py`, `model/loader.py`, `model/model_utils/`,
`train/trainer_utils.py`); transformers 4.57.1 and 5.8.0 `training_args.py`. HfArgumentParser's `parse_dict` converts
nothing: a value of the wrong type fails later, and the field is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Route, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import Since
from cfglint_train.frameworks.codec import Codec, choice
from cfglint_train.frameworks.hf_trainer.arguments import batch, compiled, counting, key
from cfglint_train.frameworks.hf_trainer.fsdp import FSDP_LENS, wraps_blocks
from cfglint_train.frameworks.hf_trainer.wrapping import wrapping
from cfglint_train.frameworks.lens import Changes, Config, Triple, names, origin_of, refuse_override
from cfglint_train.frameworks.lens_types import PLAIN as NESTED
from cfglint_train.frameworks.lens_types import Custom, Found, Key, find, read_only
from cfglint_train.frameworks.llamafactory import activations, method
from cfglint_train.frameworks.llamafactory.length import LENGTH, NEW_TOKENS
from cfglint_train.frameworks.llamafactory.optimizer import OPTIMIZER
from cfglint_train.frameworks.llamafactory.settings import MEGATRON, is_megatron, on, stage_of
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.plan.names import Field


def _read_megatron(config: Config) -> Iterator[Triple]:
    if not is_megatron(config):
        return
    for field, name in MEGATRON.items():
        value = config.get(name, default=1)
        known = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        yield field, value if known else None, origin_of(config, name)


def _read_resuming(config: Config) -> Iterator[Triple]:
    stated = config.get("resume_from_checkpoint")
    if isinstance(stated, str):
        yield "checkpoint.load_path", stated, config.origin("resume_from_checkpoint")
    elif stated is True:
        yield "checkpoint.resume_latest", True, config.origin("resume_from_checkpoint")


def _read_eval(config: Config) -> Iterator[Triple]:
    spellings = ("eval_strategy", "evaluation_strategy")
    name = next((one for one in spellings if config.get(one) is not None), "eval_strategy")
    stated = config.get(name, default="no")
    strategy = stated if stated in ("no", "steps", "epoch") else None
    size = config.get("val_size", default=0)
    data = bool(config.get("eval_dataset")) or (isinstance(size, (int, float)) and size > 1e-6)
    enabled = None if strategy is None else data and (strategy != "no" or on(config, "do_eval"))
    yield "eval.enabled", enabled, origin_of(config, name, "eval_dataset", "val_size")
    yield "eval.strategy", strategy, origin_of(config, name)


def _read_streaming(config: Config) -> Iterator[Triple]:
    value = config.get("streaming", default=False)
    yield "data.streaming", value if isinstance(value, bool) else None, origin_of(config, "streaming")


def _read_samples(config: Config) -> Iterator[Triple]:
    """`max_samples` of each data set (data/loader.py, _load_single_dataset); interleaving may repeat some of them, and
    stage `pt` cuts texts into as many rows as they fill.
    """
    if stage_of(config) == "pt":
        return
    most, listed = PLAIN.integer.readable(config.get("max_samples")), config.get("dataset")
    names = listed.split(",") if isinstance(listed, str) else listed
    if most is not None and isinstance(names, list) and config.get("mix_strategy", default="concat") == "concat":
        yield "batch.samples", most * len(names), config.origin("max_samples")


def _write_streaming(config: Config, changes: Changes) -> list[Change]:
    share = config.get("val_size", default=0)
    if changes["data.streaming"] and config.get("max_samples") is not None:
        raise CannotEdit("LLaMA-Factory refuses max_samples with streaming")
    if changes["data.streaming"] and isinstance(share, float) and 0 < share < 1:
        raise CannotEdit("streaming asks for val_size in samples")
    if changes["data.streaming"] and config.get("max_steps") is None:
        raise CannotEdit("streaming asks for max_steps")
    refuse_override(config, ("streaming",))
    return [Set((*config.root, "streaming"), changes["data.streaming"], ("dataset",))]


_PARALLEL: Final = Custom({field: names(name) for field, name in MEGATRON.items()}, _read_megatron, read_only)
_RESUMING: Final = Custom(
    dict.fromkeys(("checkpoint.load_path", "checkpoint.resume_latest"), names("resume_from_checkpoint")),
    _read_resuming,
    read_only,
)
_EVALUATION: Final = Custom(
    {
        "eval.enabled": names("eval_dataset", "val_size", "do_eval"),
        "eval.strategy": names("eval_strategy", "evaluation_strategy"),
    },
    _read_eval,
    read_only,
)
_SAMPLES: Final = Custom({"batch.samples": names("max_samples")}, _read_samples, read_only)
_STREAMING: Final = Custom({"data.streaming": names("streaming")}, _read_streaming, _write_streaming)

_SAVING: Final = ("save_total_limit", "save_only_model", "save_steps", "save_strategy", "logging_steps", "output_dir")
_BATCH: Final = ("per_device_train_batch_size", "gradient_accumulation_steps")
_EVAL: Final = ("val_size", "eval_strategy", "eval_steps", "eval_dataset")


def _off(field: Field, name: str) -> Key:
    """A switch that is off where it is not stated."""
    return Key(field, names(name), PLAIN.boolean, default=False)


def _number(field: Field, name: str, default: Any, *beside: str, codec: Codec = PLAIN.integer) -> Key:
    """A number that must not be null."""
    return Key(field, names(name), codec, default=default, null=None, beside=beside)


def _counting(config: Config, names: tuple[Route, ...]) -> tuple[Route | None, Found]:
    """LLaMA-Factory's PPO reads `per_device_...` only (0.9.4, train/ppo/trainer.py)."""
    return find(config, names[:1]) if stage_of(config) == "ppo" else counting(config, names)


def _batch(name: str, *beside: str) -> Key:
    return batch(PLAIN, name, NESTED._replace(find=_counting), *beside)


def _wraps_blocks(config: Config) -> bool:
    """Whether the Trainer wraps by the classes of the file; PEFT takes those of the model for an adapter."""
    return wraps_blocks(config) and config.get("finetuning_type", default="lora") in ("full", "freeze")


LENSES: Final = (
    Key("model.id", names("model_name_or_path"), PLAIN.string),
    Key("model.revision", names("model_revision"), PLAIN.string, default="main"),
    Key(
        "model.trust_remote_code",
        names("trust_remote_code"),
        PLAIN.boolean,
        default=Since((("", True), ("0.9.2", False))),
        beside=("model_name_or_path",),
    ),
    method.FROZEN,
    _off("model.host_experts", "use_kt"),
    _off("model.from_scratch", "train_from_scratch"),
    Key("model.rope_scaling", names("rope_scaling"), PLAIN.string, "none", "none", ("model_name_or_path",)),
    method.STAGE,
    Key(
        "method.tuning",
        names("finetuning_type"),
        choice({"lora": "lora", "full": "full", "freeze": "freeze", "oft": "oft"}),
        default="lora",
        null=None,
        beside=("stage", "do_train"),
    ),
    _number("method.lora_rank", "lora_rank", 8, "finetuning_type"),
    Key("method.lora_alpha", names("lora_alpha"), PLAIN.number, beside=("lora_rank",)),
    method.TARGET_MODULES,
    method.OFT,
    method.MODULES_TO_SAVE,
    _off("method.lora_dora", "use_dora"),
    _off("method.lora_kernels", "use_unsloth"),
    method.TRAINABLE_LAYERS,
    method.QUANTIZATION,
    method.PRECISION,
    OPTIMIZER,
    key(PLAIN, "max_grad_norm", "learning_rate"),
    key(PLAIN, "learning_rate", "num_train_epochs", "max_steps"),
    key(PLAIN, "lr_scheduler_type", "learning_rate"),
    key(PLAIN, "warmup_steps", "lr_scheduler_type", "learning_rate"),
    _batch("per_device_train_batch_size", "learning_rate"),
    key(PLAIN, "gradient_accumulation_steps", *_BATCH),
    _batch("per_device_eval_batch_size", *_EVAL, *_BATCH),
    key(PLAIN, "auto_find_batch_size"),
    LENGTH,
    NEW_TOKENS,
    activations.PACKING,
    activations.CHECKPOINTING,
    Key(
        "activations.attention",
        names("flash_attn"),
        choice(activations.ATTENTION),
        default="sdpa",
        null=None,
        beside=("trust_remote_code", "model_name_or_path"),
    ),
    activations.LIGER,
    compiled(lambda config: PLAIN.boolean.readable(config.get("torch_compile", default=False))),
    _number("method.lora_dropout", "lora_dropout", 0.0, "lora_rank", codec=PLAIN.number),
    FSDP_LENS,
    wrapping(_wraps_blocks),
    _PARALLEL,
    key(PLAIN, "max_steps", "num_train_epochs", "learning_rate"),
    key(PLAIN, "num_train_epochs", "learning_rate"),
    _SAMPLES,
    key(PLAIN, "save_strategy", *_SAVING),
    key(PLAIN, "save_steps", *_SAVING),
    key(PLAIN, "save_total_limit", *_SAVING[2:]),
    key(PLAIN, "save_only_model", *_SAVING),
    key(PLAIN, "output_dir"),
    key(PLAIN, "overwrite_output_dir"),
    key(PLAIN, "load_best_model_at_end"),
    _RESUMING,
    _EVALUATION,
    key(PLAIN, "eval_steps", "eval_strategy"),
    key(PLAIN, "logging_steps", "output_dir"),
    key(PLAIN, "include_num_input_tokens_seen"),
    key(PLAIN, "torch_empty_cache_steps"),
    _off("logging.profiler", "enable_torch_profiler"),
    key(PLAIN, "dataloader_num_workers", "preprocessing_num_workers"),
    key(PLAIN, "dataloader_prefetch_factor", "dataloader_num_workers"),
    key(PLAIN, "dataloader_pin_memory"),
    Key("data.preprocessing_workers", names("preprocessing_num_workers"), PLAIN.integer, default=1, null=1),
    _STREAMING,
    Key("data.template", names("template"), PLAIN.string),
)

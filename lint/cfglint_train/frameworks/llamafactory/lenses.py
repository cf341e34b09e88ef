"""Lenses of LLaMA-Factory v0: its keys and those of the Trainer.

Sources: LLaMA-Factory 0.8.0 to 0.9.5 (`hparams/`, `model/adapter.py`, `model/loader.py`, `model/model_utils/`,
`train/trainer_utils.py`); transformers 4.57.1 and 5.8.0 `training_args.py`. HfArgumentParser's `parse_dict` converts
nothing: a value of the wrong type fails later, and the field is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Route, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import ValueByRelease
from cfglint_train.frameworks.codec import Codec, accept_unknown_folder, build_choice
from cfglint_train.frameworks.hf_trainer.arguments import (
    build_argument_key,
    build_batch_key,
    build_compile_lens,
    find_batch_size,
)
from cfglint_train.frameworks.hf_trainer.fsdp import FSDP_LENS, is_wrapping_blocks
from cfglint_train.frameworks.hf_trainer.wrapping import build_wrapping_lens
from cfglint_train.frameworks.lens import Changes, Config, Triple, find_origin, parse_routes, refuse_override
from cfglint_train.frameworks.lens_types import PLAIN as NESTED
from cfglint_train.frameworks.lens_types import Custom, Key, LookupResult, find_stated, refuse_write
from cfglint_train.frameworks.llamafactory import activations, method
from cfglint_train.frameworks.llamafactory.length import LENGTH, NEW_TOKENS
from cfglint_train.frameworks.llamafactory.optimizer import OPTIMIZER
from cfglint_train.frameworks.llamafactory.settings import MEGATRON_KEYS, get_stage, is_megatron, is_on
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.plan.names import Field


def _read_megatron(config: Config) -> Iterator[Triple]:
    if not is_megatron(config):
        return
    for field, name in MEGATRON_KEYS.items():
        value = config.get(name, default=1)
        is_valid = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        yield field, value if is_valid else None, find_origin(config, name)


def _read_resuming(config: Config) -> Iterator[Triple]:
    stated = config.get("resume_from_checkpoint")
    if isinstance(stated, str):
        yield "checkpoint.load_path", stated, config.get_origin("resume_from_checkpoint")
    elif stated is True:
        yield "checkpoint.resume_latest", True, config.get_origin("resume_from_checkpoint")


def _read_eval(config: Config) -> Iterator[Triple]:
    spellings = ("eval_strategy", "evaluation_strategy")
    name = next((spelling for spelling in spellings if config.get(spelling) is not None), "eval_strategy")
    stated = config.get(name, default="no")
    strategy = stated if stated in ("no", "steps", "epoch") else None
    val_size = config.get("val_size", default=0)
    has_data = bool(config.get("eval_dataset")) or (isinstance(val_size, (int, float)) and val_size > 1e-6)
    enabled = None if strategy is None else has_data and (strategy != "no" or is_on(config, "do_eval"))
    yield "eval.enabled", enabled, find_origin(config, name, "eval_dataset", "val_size")
    yield "eval.strategy", strategy, find_origin(config, name)


def _read_streaming(config: Config) -> Iterator[Triple]:
    value = config.get("streaming", default=False)
    yield "data.streaming", value if isinstance(value, bool) else None, find_origin(config, "streaming")


def _read_sample_count(config: Config) -> Iterator[Triple]:
    """Yield the number of samples: `max_samples` of each data set (data/loader.py, _load_single_dataset).

    The number stays unknown if data sets are interleaved, which may repeat samples, and in stage `pt`, because the
    number of rows then depends on the length of the texts.
    """
    if get_stage(config) == "pt":
        return
    max_samples, datasets = PLAIN.integer.read_or_none(config.get("max_samples")), config.get("dataset")
    names = datasets.split(",") if isinstance(datasets, str) else datasets
    if max_samples is not None and isinstance(names, list) and config.get("mix_strategy", default="concat") == "concat":
        yield "batch.samples", max_samples * len(names), config.get_origin("max_samples")


def _write_streaming(config: Config, changes: Changes) -> list[Change]:
    val_size = config.get("val_size", default=0)
    if changes["data.streaming"] and config.get("max_samples") is not None:
        raise CannotEdit("LLaMA-Factory rejects max_samples with streaming")
    if changes["data.streaming"] and isinstance(val_size, float) and 0 < val_size < 1:
        raise CannotEdit("streaming requires val_size in samples")
    if changes["data.streaming"] and config.get("max_steps") is None:
        raise CannotEdit("streaming requires max_steps")
    refuse_override(config, ("streaming",))
    return [Set((*config.root, "streaming"), changes["data.streaming"], ("dataset",))]


_PARALLEL: Final = Custom(
    {field: parse_routes(name) for field, name in MEGATRON_KEYS.items()}, _read_megatron, refuse_write
)
_RESUMING: Final = Custom(
    dict.fromkeys(("checkpoint.load_path", "checkpoint.resume_latest"), parse_routes("resume_from_checkpoint")),
    _read_resuming,
    refuse_write,
)
_EVALUATION: Final = Custom(
    {
        "eval.enabled": parse_routes("eval_dataset", "val_size", "do_eval"),
        "eval.strategy": parse_routes("eval_strategy", "evaluation_strategy"),
    },
    _read_eval,
    refuse_write,
)
_SAMPLES: Final = Custom({"batch.samples": parse_routes("max_samples")}, _read_sample_count, refuse_write)
_STREAMING: Final = Custom({"data.streaming": parse_routes("streaming")}, _read_streaming, _write_streaming)

_SAVING: Final = ("save_total_limit", "save_only_model", "save_steps", "save_strategy", "logging_steps", "output_dir")
_BATCH: Final = ("per_device_train_batch_size", "gradient_accumulation_steps")
_EVAL: Final = ("val_size", "eval_strategy", "eval_steps", "eval_dataset")


def _build_switch_key(field: Field, name: str) -> Key:
    """Return the lens of a switch that is off by default."""
    return Key(field, parse_routes(name), PLAIN.boolean, default=False)


def _build_number_key(field: Field, name: str, default: Any, *beside: str, codec: Codec = PLAIN.integer) -> Key:
    """Return the lens of a number; null leaves the field unknown."""
    return Key(field, parse_routes(name), codec, default=default, null_value=None, siblings=beside)


def _find_batch_size(config: Config, names: tuple[Route, ...]) -> tuple[Route | None, LookupResult]:
    """Return the spelling and the value of the batch size in use.

    LLaMA-Factory's PPO reads only `per_device_...` (0.9.4, train/ppo/trainer.py).
    """
    return find_stated(config, names[:1]) if get_stage(config) == "ppo" else find_batch_size(config, names)


def _build_batch_key(name: str, *beside: str) -> Key:
    return build_batch_key(PLAIN, name, NESTED._replace(find=_find_batch_size), *beside)


def _is_wrapping_blocks(config: Config) -> bool:
    """Return whether FSDP wraps the classes that the file names; with an adapter, PEFT chooses them."""
    return is_wrapping_blocks(config) and config.get("finetuning_type", default="lora") in ("full", "freeze")


LENSES: Final = (
    Key("model.id", parse_routes("model_name_or_path"), accept_unknown_folder(PLAIN.string)),
    Key("model.revision", parse_routes("model_revision"), PLAIN.string, default="main"),
    Key(
        "model.trust_remote_code",
        parse_routes("trust_remote_code"),
        PLAIN.boolean,
        default=ValueByRelease((("", True), ("0.9.2", False))),
        siblings=("model_name_or_path",),
    ),
    method.FROZEN,
    _build_switch_key("model.host_experts", "use_kt"),
    _build_switch_key("model.from_scratch", "train_from_scratch"),
    Key("model.rope_scaling", parse_routes("rope_scaling"), PLAIN.string, "none", "none", ("model_name_or_path",)),
    method.STAGE,
    Key(
        "method.tuning",
        parse_routes("finetuning_type"),
        build_choice({"lora": "lora", "full": "full", "freeze": "freeze", "oft": "oft"}),
        default="lora",
        null_value=None,
        siblings=("stage", "do_train"),
    ),
    _build_number_key("method.lora_rank", "lora_rank", 8, "finetuning_type"),
    Key("method.lora_alpha", parse_routes("lora_alpha"), PLAIN.number, siblings=("lora_rank",)),
    method.TARGET_MODULES,
    method.OFT,
    method.MODULES_TO_SAVE,
    _build_switch_key("method.lora_dora", "use_dora"),
    _build_switch_key("method.lora_kernels", "use_unsloth"),
    method.TRAINABLE_LAYERS,
    method.QUANTIZATION,
    method.PRECISION,
    build_argument_key(PLAIN, "tf32", "bf16"),
    OPTIMIZER,
    build_argument_key(PLAIN, "max_grad_norm", "learning_rate"),
    build_argument_key(PLAIN, "learning_rate", "num_train_epochs", "max_steps"),
    build_argument_key(PLAIN, "lr_scheduler_type", "learning_rate"),
    build_argument_key(PLAIN, "warmup_steps", "lr_scheduler_type", "learning_rate"),
    _build_batch_key("per_device_train_batch_size", "learning_rate"),
    build_argument_key(PLAIN, "gradient_accumulation_steps", *_BATCH),
    _build_batch_key("per_device_eval_batch_size", *_EVAL, *_BATCH),
    build_argument_key(PLAIN, "auto_find_batch_size"),
    LENGTH,
    NEW_TOKENS,
    activations.PACKING,
    activations.CHECKPOINTING,
    Key(
        "activations.attention",
        parse_routes("flash_attn"),
        build_choice(activations.ATTENTION),
        default="sdpa",
        null_value=None,
        siblings=("trust_remote_code", "model_name_or_path"),
    ),
    activations.LIGER,
    build_compile_lens(lambda config: PLAIN.boolean.read_or_none(config.get("torch_compile", default=False))),
    _build_number_key("method.lora_dropout", "lora_dropout", 0.0, "lora_rank", codec=PLAIN.number),
    FSDP_LENS,
    build_wrapping_lens(_is_wrapping_blocks, is_argument=True),
    _PARALLEL,
    build_argument_key(PLAIN, "max_steps", "num_train_epochs", "learning_rate"),
    build_argument_key(PLAIN, "num_train_epochs", "learning_rate"),
    _SAMPLES,
    build_argument_key(PLAIN, "save_strategy", *_SAVING),
    build_argument_key(PLAIN, "save_steps", *_SAVING),
    build_argument_key(PLAIN, "save_total_limit", *_SAVING[2:]),
    build_argument_key(PLAIN, "save_only_model", *_SAVING),
    build_argument_key(PLAIN, "output_dir"),
    build_argument_key(PLAIN, "overwrite_output_dir"),
    build_argument_key(PLAIN, "load_best_model_at_end"),
    _RESUMING,
    _EVALUATION,
    build_argument_key(PLAIN, "eval_steps", "eval_strategy"),
    build_argument_key(PLAIN, "logging_steps", "output_dir"),
    build_argument_key(PLAIN, "include_num_input_tokens_seen"),
    build_argument_key(PLAIN, "torch_empty_cache_steps"),
    _build_switch_key("logging.profiler", "enable_torch_profiler"),
    build_argument_key(PLAIN, "dataloader_num_workers", "preprocessing_num_workers"),
    build_argument_key(PLAIN, "dataloader_prefetch_factor", "dataloader_num_workers"),
    build_argument_key(PLAIN, "dataloader_pin_memory"),
    Key(
        "data.preprocessing_workers", parse_routes("preprocessing_num_workers"), PLAIN.integer, default=1, null_value=1
    ),
    _STREAMING,
    Key("data.held_out", parse_routes("val_size"), PLAIN.number),
    Key("data.template", parse_routes("template"), PLAIN.string),
)

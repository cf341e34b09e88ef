"""Lenses of TRL: the mapping between plan fields and the keys of TRL's own classes and the Trainer.

Sources: trl 0.9.2 to 1.16.0 (`trainer/*_config.py`, `trainer/model_config.py`, `scripts/`); transformers 4.57.1 and
5.8.0 `training_args.py`. Defaults come from the vocabulary, for the release and the trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec, accept_unknown_folder, build_choice
from cfglint_train.frameworks.hf_trainer.arguments import build_argument_key as argument
from cfglint_train.frameworks.hf_trainer.arguments import (
    build_batch_key,
    build_compile_lens,
    build_steps_codec,
    find_batch_size,
)
from cfglint_train.frameworks.hf_trainer.fsdp import FSDP_LENS, is_wrapping_blocks
from cfglint_train.frameworks.hf_trainer.loader import HF_ARGPARSER
from cfglint_train.frameworks.hf_trainer.optimizers import OPTIMIZER
from cfglint_train.frameworks.hf_trainer.wrapping import build_wrapping_lens
from cfglint_train.frameworks.lens import (
    Config,
    Triple,
    build_default_origin,
    find_origin,
    is_before,
    parse_routes,
    resolve_default,
)
from cfglint_train.frameworks.lens_types import ABSENT, PLAIN, UNRESOLVED, Custom, Key, LookupResult, refuse_write
from cfglint_train.frameworks.trl import activations, method, rollout
from cfglint_train.frameworks.trl.dtype import DTYPE
from cfglint_train.frameworks.trl.sequence import LENGTH, PACKING
from cfglint_train.frameworks.trl.settings import find_default, find_trainer, is_on, list_trl_commands, read_setting
from cfglint_train.plan.names import Field


def _yield_default(config: Config, key: Key, route: Route | None) -> Iterator[Triple]:
    """Yield the vocabulary's default for the release and the trainer, or else the default of the lens."""
    name = str((route or key.names[0])[0])
    default = find_default(config, name)
    if default is not None:
        yield key.field, key.codec.read_or_none(default), build_default_origin(config, (name,))
    elif key.default is not ABSENT:
        yield key.field, resolve_default(config, key.default), build_default_origin(config, (name,))


ACCESS: Final = PLAIN._replace(yield_default=_yield_default)


def _build_argument(name: str, *siblings: str) -> Key:
    """Return the lens of one of the Trainer's arguments."""
    lens = argument(HF_ARGPARSER, name, *siblings)
    # If the vocabulary's default is null, the lens's default applies: the value that the Trainer's code uses.
    return lens._replace(access=ACCESS)


def _find_batch_key(config: Config, names: tuple[Route, ...]) -> tuple[Route | None, LookupResult]:
    """Return the batch key and its value, which is `UNRESOLVED` for an older spelling in GRPO and RLOO.

    Both trainers count completions with one spelling and load samples with the other (trl 0.22.2
    trainer/grpo_config.py, grpo_trainer.py), so the older spelling alone does not determine the micro batch.
    """
    route, result = find_batch_size(config, names)
    return route, result if route == names[0] or find_trainer(config) not in ("grpo", "rloo") else UNRESOLVED


def _build_batch(name: str, *siblings: str) -> Key:
    return build_batch_key(HF_ARGPARSER, name, ACCESS._replace(find=_find_batch_key), *siblings)


def _build_key(field: Field, name: str, codec: Codec, *siblings: str, null_value: Any = ABSENT) -> Key:
    return Key(field, parse_routes(name), codec, null_value=null_value, siblings=siblings, access=ACCESS)


def has_adapter(config: Config) -> bool:
    """Return whether PEFT trains an adapter."""
    return is_on(config, "use_peft")


def _build_adapter_key(field: Field, name: str, codec: Codec) -> Key:
    return _build_key(field, name, codec, "use_peft")._replace(applies=has_adapter)


def _read_resuming(config: Config) -> Iterator[Triple]:
    """Yield the checkpoint that a run resumes from, provided that the script passes it to `trainer.train`.

    The Trainer itself ignores `resume_from_checkpoint`. TRL's own scripts pass it on from 1.14.1 on (`scripts/*.py`);
    in a user's script, only the argument of `trainer.train` counts.
    """
    is_script = config.document.syntax == "python"
    name = "_RESUMES_" if is_script else "resume_from_checkpoint"
    resume = config.get(name)
    if not is_script and resume is not None and is_before(config, "1.14.1"):
        if list_trl_commands(config) or config.document.syntax == "shell":
            yield "checkpoint.resume_latest", False, build_default_origin(config, (name,))
            return
        if not config.evidence.commands:
            yield "checkpoint.resume_latest", None, config.get_origin(name)
            return
    if isinstance(resume, bool):
        yield "checkpoint.resume_latest", resume, config.get_origin(name)
    elif isinstance(resume, str) and resume.lower() in ("true", "false"):
        yield "checkpoint.load_path", None, config.get_origin(name)
    elif isinstance(resume, str):
        yield "checkpoint.load_path", resume, config.get_origin(name)
    elif not is_script or (config.has(name) and resume is None):
        yield "checkpoint.resume_latest", False, build_default_origin(config, ("resume_from_checkpoint",))


def _is_never_evaluated(config: Config, strategy: str) -> bool:
    """Return whether the run never evaluates, because the trainer has no evaluation data or no step triggers it.

    The Trainer evaluates at multiples of `eval_steps` but not before `eval_delay`, and from 5.4.0 on also at the last
    step (transformers 4.57.1, 5.3.0, 5.4.0 and 5.23.0 trainer_callback.py, DefaultFlowCallback.on_step_end).
    """
    if config.get("_WITHOUT_EVAL_") is True:
        return True
    limit = HF_ARGPARSER.integer.read_or_none(config.get("max_steps", default=0)) or 0
    if strategy != "steps" or limit < 1 or is_on(config, "eval_on_start"):
        return False
    delay = HF_ARGPARSER.number.read_or_none(config.get("eval_delay", default=0)) or 0
    if delay > limit:
        return True
    interval = build_steps_codec(HF_ARGPARSER).read_or_none(config.get("eval_steps"))
    if not interval or config.releases.is_at_least("transformers", "5.4.0") is not False:
        return False
    last = limit // interval * interval
    return bool(last < max(delay, 1))


def _read_eval(config: Config) -> Iterator[Triple]:
    spellings = ("eval_strategy", "evaluation_strategy")
    name = next((spelling for spelling in spellings if config.get(spelling) is not None), spellings[0])
    stated_strategy = config.get(name, default="no")
    stated_strategy = (
        "no" if stated_strategy is False else stated_strategy
    )  # YAML reads a bare `no` as false, and the Trainer rejects it
    strategy = stated_strategy if stated_strategy in ("no", "steps", "epoch") else None
    # The scripts pass the test split if a strategy is stated (trl 0.16.1, scripts/sft.py).
    enabled = None if strategy is None else strategy != "no" and not _is_never_evaluated(config, strategy)
    yield "eval.enabled", enabled, find_origin(config, name)
    yield "eval.strategy", strategy, find_origin(config, name)


_RESUMING: Final = Custom(
    dict.fromkeys(("checkpoint.load_path", "checkpoint.resume_latest"), parse_routes("resume_from_checkpoint")),
    _read_resuming,
    refuse_write,
)
_EVALUATION: Final = Custom(
    {
        "eval.enabled": parse_routes("eval_strategy"),
        "eval.strategy": parse_routes("eval_strategy", "evaluation_strategy"),
    },
    _read_eval,
    refuse_write,
)
_SAVING: Final = ("save_total_limit", "save_only_model", "save_steps", "save_strategy", "logging_steps", "output_dir")
_BATCH: Final = ("per_device_train_batch_size", "gradient_accumulation_steps")
_INTEGER, _NUMBER, _BOOLEAN = HF_ARGPARSER.integer, HF_ARGPARSER.number, HF_ARGPARSER.boolean
_STRING: Final = HF_ARGPARSER.string

_wraps: Callable[[Config], bool] = is_wrapping_blocks

LENSES: Final = (
    Key("model.id", parse_routes("model_name_or_path"), accept_unknown_folder(_STRING)),
    _build_key("model.revision", "model_revision", _STRING, "model_name_or_path"),
    _build_key("model.trust_remote_code", "trust_remote_code", _BOOLEAN, "model_name_or_path"),
    DTYPE,
    method.STAGE,
    Key(
        "method.tuning",
        parse_routes("use_peft"),
        Codec(lambda value: "lora" if _BOOLEAN.read(value) else "full", lambda value: value == "lora"),
        default="full",
        siblings=("model_name_or_path",),
    ),
    _build_adapter_key("method.lora_rank", "lora_r", _INTEGER),
    _build_adapter_key("method.lora_alpha", "lora_alpha", _NUMBER),
    _build_adapter_key("method.lora_dropout", "lora_dropout", _NUMBER),
    _build_adapter_key("method.lora_dora", "use_dora", _BOOLEAN),
    method.TARGET_MODULES,
    method.TARGET_PARAMETERS,
    method.MODULES_TO_SAVE,
    method.QUANTIZATION,
    method.PRECISION,
    argument(HF_ARGPARSER, "tf32", "bf16"),
    OPTIMIZER,
    _build_argument("max_grad_norm", "learning_rate"),
    _build_argument("learning_rate", "num_train_epochs", "max_steps"),
    _build_argument("lr_scheduler_type", "learning_rate"),
    argument(HF_ARGPARSER, "warmup_steps", "lr_scheduler_type", "learning_rate"),
    _build_batch("per_device_train_batch_size", "learning_rate"),
    _build_argument("gradient_accumulation_steps", *_BATCH),
    _build_batch("per_device_eval_batch_size", *_BATCH),
    _build_argument("auto_find_batch_size"),
    LENGTH,
    PACKING,
    Key("sequence.eval_packing", parse_routes("eval_packing"), _BOOLEAN),
    activations.CHECKPOINTING,
    _build_key(
        "activations.attention",
        "attn_implementation",
        build_choice(activations.ATTENTION),
        "model_name_or_path",
    )._replace(default="sdpa"),
    activations.LIGER,
    build_compile_lens(lambda config: read_setting(config, "torch_compile", "boolean")),
    FSDP_LENS,
    build_wrapping_lens(_wraps, is_argument=True),
    argument(HF_ARGPARSER, "max_steps", "num_train_epochs", "learning_rate"),
    _build_argument("num_train_epochs", "max_steps", "learning_rate"),
    _build_argument("save_strategy", *_SAVING),
    _build_argument("save_steps", *_SAVING),
    argument(HF_ARGPARSER, "save_total_limit", *_SAVING[2:]),
    _build_argument("save_only_model", *_SAVING),
    argument(HF_ARGPARSER, "output_dir"),
    _build_argument("load_best_model_at_end"),
    _RESUMING,
    _EVALUATION,
    argument(HF_ARGPARSER, "eval_steps", "eval_strategy"),
    _build_argument("logging_steps", "output_dir"),
    argument(HF_ARGPARSER, "include_num_input_tokens_seen"),
    argument(HF_ARGPARSER, "torch_empty_cache_steps"),
    _build_argument("dataloader_num_workers", "dataset_num_proc"),
    argument(HF_ARGPARSER, "dataloader_prefetch_factor", "dataloader_num_workers"),
    _build_argument("dataloader_pin_memory"),
    Key("data.preprocessing_workers", parse_routes("dataset_num_proc"), _INTEGER, default=1, null_value=1),
    *rollout.LENSES,
)

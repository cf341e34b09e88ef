"""The lenses of TRL: the keys of its own classes and those of the Trainer, both ways.

Sources: trl 0.9.2 to 1.16.0 (`trainer/*_config.py`, `trainer/model_config.py`, `scripts/`); transformers 4.57.1 and
5.8.0 `training_args.py`. Defaults are those of the vocabulary, at the release and for the trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cfglint_train.documents.document import Route
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec, choice
from cfglint_train.frameworks.hf_trainer.arguments import batch, compiled, counting, steps
from cfglint_train.frameworks.hf_trainer.arguments import key as argument
from cfglint_train.frameworks.hf_trainer.fsdp import FSDP_LENS, wraps_blocks
from cfglint_train.frameworks.hf_trainer.loader import HF_ARGPARSER
from cfglint_train.frameworks.hf_trainer.optimizers import OPTIMIZER
from cfglint_train.frameworks.hf_trainer.wrapping import wrapping
from cfglint_train.frameworks.lens import Config, Triple, before, default_at, granted, names, origin_of
from cfglint_train.frameworks.lens_types import ABSENT, PLAIN, UNRESOLVED, Custom, Found, Key, read_only
from cfglint_train.frameworks.trl import activations, method, rollout
from cfglint_train.frameworks.trl.dtype import DTYPE
from cfglint_train.frameworks.trl.sequence import LENGTH, PACKING
from cfglint_train.frameworks.trl.settings import default_of, on, stated, trainer_of, ways
from cfglint_train.plan.names import Field


def _take_default(config: Config, key: Key, route: Route | None) -> Iterator[Triple]:
    """What the vocabulary has as the default, at the release and for the trainer."""
    name = str((route or key.names[0])[0])
    default = default_of(config, name)
    if default is not None:
        yield key.field, key.codec.readable(default), granted(config, (name,))
    elif key.default is not ABSENT:
        yield key.field, default_at(config, key.default), granted(config, (name,))


ACCESS: Final = PLAIN._replace(default=_take_default)


def _argument(name: str, *beside: str) -> Key:
    """The lens of one of the Trainer's arguments."""
    made = argument(HF_ARGPARSER, name, *beside)
    # Without a default, the vocabulary's null is what the Trainer's code stands for.
    return made._replace(access=ACCESS)


def _counting(config: Config, names: tuple[Route, ...]) -> tuple[Route | None, Found]:
    """GRPO and RLOO count completions by the one spelling and load samples by the other (trl 0.22.2
    trainer/grpo_config.py, grpo_trainer.py): what they do with the older one is not read.
    """
    route, found = counting(config, names)
    return route, found if route == names[0] or trainer_of(config) not in ("grpo", "rloo") else UNRESOLVED


def _batch(name: str, *beside: str) -> Key:
    return batch(HF_ARGPARSER, name, ACCESS._replace(find=_counting), *beside)


def _key(field: Field, name: str, codec: Codec, *beside: str, null: Any = ABSENT) -> Key:
    return Key(field, names(name), codec, null=null, beside=beside, access=ACCESS)


def adapter(config: Config) -> bool:
    """Whether PEFT trains an adapter."""
    return on(config, "use_peft")


def _of_adapter(field: Field, name: str, codec: Codec) -> Key:
    return _key(field, name, codec, "use_peft")._replace(applies=adapter)


def _read_resuming(config: Config) -> Iterator[Triple]:
    """What a run resumes from, where the setting is handed to `trainer.train`: the Trainer itself does not read it.

    TRL's own scripts hand it over from 1.14.1 on (`scripts/*.py`); a script that is read states what it hands over.
    """
    own = config.document.syntax == "python"
    name = "_RESUMES_" if own else "resume_from_checkpoint"
    given = config.get(name)
    if not own and given is not None and before(config, "1.14.1"):
        if ways(config) or config.document.syntax == "shell":
            yield "checkpoint.resume_latest", False, granted(config, (name,))
            return
        if not config.evidence.commands:
            yield "checkpoint.resume_latest", None, config.origin(name)
            return
    if isinstance(given, bool):
        yield "checkpoint.resume_latest", given, config.origin(name)
    elif isinstance(given, str) and given.lower() in ("true", "false"):
        yield "checkpoint.load_path", None, config.origin(name)
    elif isinstance(given, str):
        yield "checkpoint.load_path", given, config.origin(name)
    elif not own or (config.has(name) and given is None):
        yield "checkpoint.resume_latest", False, granted(config, ("resume_from_checkpoint",))


def _never_evaluates(config: Config, strategy: str) -> bool:
    """Whether no evaluation can come: the trainer gets no data for it, or no step of the run is one for it.

    transformers 4.57.1, 5.3.0, 5.4.0 and 5.23.0 trainer_callback.py (DefaultFlowCallback.on_step_end): no step before
    `eval_delay` evaluates, and those that are multiples of `eval_steps` do; from 5.4.0 on the last one does, too.
    """
    if config.get("_WITHOUT_EVAL_") is True:
        return True
    limit = HF_ARGPARSER.integer.readable(config.get("max_steps", default=0)) or 0
    if strategy != "steps" or limit < 1 or on(config, "eval_on_start"):
        return False
    delay = HF_ARGPARSER.number.readable(config.get("eval_delay", default=0)) or 0
    if delay > limit:
        return True
    interval = steps(HF_ARGPARSER).readable(config.get("eval_steps"))
    if not interval or config.releases.at_least("transformers", "5.4.0") is not False:
        return False
    last = limit // interval * interval
    return bool(last < max(delay, 1))


def _read_eval(config: Config) -> Iterator[Triple]:
    spellings = ("eval_strategy", "evaluation_strategy")
    name = next((one for one in spellings if config.get(one) is not None), spellings[0])
    given = config.get(name, default="no")
    given = "no" if given is False else given  # YAML reads a bare `no` as false, and the Trainer refuses it
    strategy = given if given in ("no", "steps", "epoch") else None
    # The scripts hand over the test split where a strategy is stated (trl 0.16.1, scripts/sft.py).
    enabled = None if strategy is None else strategy != "no" and not _never_evaluates(config, strategy)
    yield "eval.enabled", enabled, origin_of(config, name)
    yield "eval.strategy", strategy, origin_of(config, name)


_RESUMING: Final = Custom(
    dict.fromkeys(("checkpoint.load_path", "checkpoint.resume_latest"), names("resume_from_checkpoint")),
    _read_resuming,
    read_only,
)
_EVALUATION: Final = Custom(
    {
        "eval.enabled": names("eval_strategy"),
        "eval.strategy": names("eval_strategy", "evaluation_strategy"),
    },
    _read_eval,
    read_only,
)
_SAVING: Final = ("save_total_limit", "save_only_model", "save_steps", "save_strategy", "logging_steps", "output_dir")
_BATCH: Final = ("per_device_train_batch_size", "gradient_accumulation_steps")
_INTEGER, _NUMBER, _BOOLEAN = HF_ARGPARSER.integer, HF_ARGPARSER.number, HF_ARGPARSER.boolean
_STRING: Final = HF_ARGPARSER.string

_wraps: Callable[[Config], bool] = wraps_blocks

LENSES: Final = (
    Key("model.id", names("model_name_or_path"), _STRING),
    _key("model.revision", "model_revision", _STRING, "model_name_or_path"),
    _key("model.trust_remote_code", "trust_remote_code", _BOOLEAN, "model_name_or_path"),
    DTYPE,
    method.STAGE,
    Key(
        "method.tuning",
        names("use_peft"),
        Codec(lambda value: "lora" if _BOOLEAN.read(value) else "full", lambda value: value == "lora"),
        default="full",
        beside=("model_name_or_path",),
    ),
    _of_adapter("method.lora_rank", "lora_r", _INTEGER),
    _of_adapter("method.lora_alpha", "lora_alpha", _NUMBER),
    _of_adapter("method.lora_dropout", "lora_dropout", _NUMBER),
    _of_adapter("method.lora_dora", "use_dora", _BOOLEAN),
    method.TARGET_MODULES,
    method.TARGET_PARAMETERS,
    method.MODULES_TO_SAVE,
    method.QUANTIZATION,
    method.PRECISION,
    OPTIMIZER,
    _argument("max_grad_norm", "learning_rate"),
    _argument("learning_rate", "num_train_epochs", "max_steps"),
    _argument("lr_scheduler_type", "learning_rate"),
    argument(HF_ARGPARSER, "warmup_steps", "lr_scheduler_type", "learning_rate"),
    _batch("per_device_train_batch_size", "learning_rate"),
    _argument("gradient_accumulation_steps", *_BATCH),
    _batch("per_device_eval_batch_size", *_BATCH),
    _argument("auto_find_batch_size"),
    LENGTH,
    PACKING,
    Key("sequence.eval_packing", names("eval_packing"), _BOOLEAN),
    activations.CHECKPOINTING,
    _key(
        "activations.attention",
        "attn_implementation",
        choice(activations.ATTENTION),
        "model_name_or_path",
    )._replace(default="sdpa"),
    activations.LIGER,
    compiled(lambda config: stated(config, "torch_compile", "boolean")),
    FSDP_LENS,
    wrapping(_wraps),
    argument(HF_ARGPARSER, "max_steps", "num_train_epochs", "learning_rate"),
    _argument("save_strategy", *_SAVING),
    _argument("save_steps", *_SAVING),
    argument(HF_ARGPARSER, "save_total_limit", *_SAVING[2:]),
    _argument("save_only_model", *_SAVING),
    argument(HF_ARGPARSER, "output_dir"),
    _argument("load_best_model_at_end"),
    _RESUMING,
    _EVALUATION,
    argument(HF_ARGPARSER, "eval_steps", "eval_strategy"),
    _argument("logging_steps", "output_dir"),
    argument(HF_ARGPARSER, "include_num_input_tokens_seen"),
    argument(HF_ARGPARSER, "torch_empty_cache_steps"),
    _argument("dataloader_num_workers", "dataset_num_proc"),
    argument(HF_ARGPARSER, "dataloader_prefetch_factor", "dataloader_num_workers"),
    _argument("dataloader_pin_memory"),
    Key("data.preprocessing_workers", names("dataset_num_proc"), _INTEGER, default=1, null=1),
    *rollout.LENSES,
)

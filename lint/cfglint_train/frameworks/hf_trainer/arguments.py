"""Keys of the Trainer's arguments (`TrainingArguments`), with their plan fields and defaults.

Source: transformers 5.8.0 `training_args.py`. The defaults hold for 4.41 to 5.23. Each framework builds the lenses for
the keys in its files with its own loader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cfglint_train.documents.document import CannotEdit, Change, Route, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec, UnreadableError, build_choice, write_zero_as_null
from cfglint_train.frameworks.lens import Changes, Config, Triple, find_origin, parse_routes, refuse_override
from cfglint_train.frameworks.lens_types import ABSENT, Access, Custom, Key, LookupResult, find_stated
from cfglint_train.frameworks.loaders import Loader
from cfglint_train.plan.names import Field

SECTION_FILES: Final = ("fsdp_config", "accelerator_config")
"""Arguments that accept a section or the path of a JSON file that contains the section.

transformers 4.30.0 to 5.24.0 accept a path for `fsdp_config`; 4.38 and newer also for `accelerator_config`.
"""


def build_steps_codec(loader: Loader) -> Codec:
    """Return the codec of a number of steps. A value below 1 is a share of all steps, so it is unreadable."""

    def read(value: Any) -> Any:
        if loader.number.read(value) < 1:
            raise UnreadableError
        return loader.integer.read(value)

    return Codec(read, loader.integer.write)


def _build_save_steps_codec(loader: Loader) -> Codec:
    """Return the codec of the steps between checkpoints. Values up to 0 mean that none is saved before the end: 0.

    Source: transformers 4.26.1 to 5.23.0, trainer_callback.py (DefaultFlowCallback.on_step_end).
    """
    steps = build_steps_codec(loader)
    return Codec(lambda value: 0 if loader.number.read(value) <= 0 else steps.read(value), steps.write)


def _build_limit_codec(loader: Loader) -> Codec:
    """Return the codec of a number of checkpoints to keep. Values below 1 mean "all"."""

    def read(value: Any) -> Any:
        number = loader.integer.read(value)
        return number if number > 0 else "all"

    return Codec(read, lambda value: None if value == "all" else value)


def _build_run_steps_codec(loader: Loader) -> Codec:
    """Return the codec of the run's steps. Values below 1 are unreadable: the number of epochs applies."""

    def read(value: Any) -> Any:
        number = loader.integer.read(value)
        if number < 1:
            raise UnreadableError
        return number

    return Codec(read, loader.integer.write)


def _build_warmup_codec(loader: Loader) -> Codec:
    """Return the codec of warmup steps. A value between 0 and 1 is a share of all steps, so it is unreadable.

    Source: transformers 5.
    """

    def read(value: Any) -> Any:
        number = loader.number.read(value)
        if 0 < number < 1:
            raise UnreadableError
        return loader.integer.read(value)

    return Codec(read, loader.integer.write)


def _build_choice(*words: str) -> Callable[[Loader], Codec]:
    return lambda _: build_choice({word: word for word in words})


def _build_counts_codec(_: Loader) -> Codec:
    return build_choice({True: True, False: False, "all": True, "non_padding": True, "no": False})


_CODEC_BUILDERS: Final[Mapping[str, Callable[[Loader], Codec]]] = {
    "integer": lambda loader: loader.integer,
    "number": lambda loader: loader.number,
    "boolean": lambda loader: loader.boolean,
    "string": lambda loader: loader.string,
    "steps": build_steps_codec,
    "save_steps": _build_save_steps_codec,
    "run": _build_run_steps_codec,
    "warmup": _build_warmup_codec,
    "limit": _build_limit_codec,
    "interval": lambda loader: write_zero_as_null(loader.integer),
    "strategy": _build_choice("steps", "epoch", "no", "best"),
    "counts": _build_counts_codec,
}

# Key -> plan field, name of the codec, default, meaning of null (ABSENT: the default applies; None: invalid).
_ARGUMENTS: Final[Mapping[str, tuple[Field, str, Any, Any]]] = {
    "tf32": ("precision.tf32", "boolean", False, ABSENT),
    "max_grad_norm": ("optimizer.clipping", "number", 1.0, ABSENT),
    "learning_rate": ("optimizer.learning_rate", "number", 5e-5, None),
    "lr_scheduler_type": ("optimizer.scheduler", "string", "linear", None),
    "warmup_steps": ("optimizer.warmup_steps", "warmup", ABSENT, ABSENT),
    "per_device_train_batch_size": ("batch.micro", "integer", 8, None),
    "gradient_accumulation_steps": ("batch.accumulation", "integer", 1, None),
    "per_device_eval_batch_size": ("batch.eval_micro", "integer", 8, None),
    "auto_find_batch_size": ("batch.auto_find", "boolean", False, ABSENT),
    "max_steps": ("batch.steps", "run", ABSENT, ABSENT),
    "num_train_epochs": ("batch.epochs", "number", 3.0, None),
    "save_strategy": ("checkpoint.strategy", "strategy", "steps", None),
    "save_steps": ("checkpoint.interval", "save_steps", 500, None),
    "eval_steps": ("eval.interval", "steps", ABSENT, ABSENT),
    "save_total_limit": ("checkpoint.keep", "limit", "all", "all"),
    "save_only_model": ("checkpoint.model_only", "boolean", False, ABSENT),
    "output_dir": ("checkpoint.path", "string", ABSENT, ABSENT),
    "overwrite_output_dir": ("checkpoint.overwrite", "boolean", False, ABSENT),
    "load_best_model_at_end": ("checkpoint.load_best_at_end", "boolean", False, ABSENT),
    "logging_steps": ("logging.interval", "steps", 500, None),
    "include_num_input_tokens_seen": ("logging.count_tokens", "counts", False, ABSENT),
    "torch_empty_cache_steps": ("logging.empty_cache_interval", "interval", 0, 0),
    "dataloader_num_workers": ("data.workers", "integer", 0, None),
    "dataloader_prefetch_factor": ("data.prefetch", "integer", ABSENT, ABSENT),
    "dataloader_pin_memory": ("data.pin_memory", "boolean", True, False),
}

OLDER_BATCH_KEYS: Final[Mapping[str, str]] = {
    "per_device_train_batch_size": "per_gpu_train_batch_size",
    "per_device_eval_batch_size": "per_gpu_eval_batch_size",
}
"""Former spelling of each batch size."""


def build_batch_key(loader: Loader, name: str, access: Access, *beside: str) -> Key:
    """Return the lens of a batch size that also has a former spelling."""
    lens = build_argument_key(loader, name, *beside)
    return lens._replace(names=((name,), (OLDER_BATCH_KEYS[name],)), access=access)


def find_batch_size(config: Config, names: tuple[Route, ...]) -> tuple[Route | None, LookupResult]:
    """Return the spelling of a batch size that takes effect, with its value.

    transformers 4 uses `per_gpu_...` unless it is null or 0, otherwise `per_device_...` (4.57.1, training_args.py:
    train_batch_size, eval_batch_size); transformers 5 rejects `per_gpu_...`.
    """
    current, older = names
    return find_stated(config, (older,) if config.get(*older) else (current,))


def build_argument_key(loader: Loader, name: str, *beside: str) -> Key:
    """Return the lens of an argument. A new key is written next to one of the keys `beside`."""
    field, kind, default, null = _ARGUMENTS[name]
    return Key(field, ((name,),), _CODEC_BUILDERS[kind](loader), default, null, beside)


def build_compile_lens(switch: Callable[[Config], bool | None]) -> Custom:
    """Return the lens of `torch_compile`, which two other arguments also turn on; `switch` reads the key itself."""
    compile_options = ("torch_compile_backend", "torch_compile_mode")

    def read(config: Config) -> Iterator[Triple]:
        stated_option = next((option for option in compile_options if config.get(option) is not None), None)
        value = switch(config) if stated_option is None else True
        yield "activations.compile", value, find_origin(config, stated_option or "torch_compile")

    def write(config: Config, changes: Changes) -> list[Change]:
        if not changes["activations.compile"] and any(config.get(option) is not None for option in compile_options):
            raise CannotEdit("torch_compile_backend and torch_compile_mode also turn it on")
        refuse_override(config, ("torch_compile",))
        return [Set((*config.root, "torch_compile"), changes["activations.compile"])]

    return Custom(
        {"activations.compile": parse_routes("torch_compile")}, read, write, other_keys=parse_routes(*compile_options)
    )

"""The keys of the Trainer's arguments (`TrainingArguments`), each with its plan field and default.

Source: transformers 5.8.0 `training_args.py`; the defaults are those of 4.41 to 5.23. A framework builds the lenses of
those keys that its files have with its own loader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cfglint_train.documents.document import CannotEdit, Change, Route, Set
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec, Unreadable, choice, or_zero
from cfglint_train.frameworks.lens import Changes, Config, Triple, names, origin_of, refuse_override
from cfglint_train.frameworks.lens_types import ABSENT, Access, Custom, Found, Key, find
from cfglint_train.frameworks.loaders import Loader
from cfglint_train.plan.names import Field

SECTION_FILES: Final = ("fsdp_config", "accelerator_config")
"""Arguments that take a section, or the name of a JSON file which has it (transformers 4.30.0 to 5.24.0, 4.38 on)."""


def steps(loader: Loader) -> Codec:
    """A number of steps; a number below 1 is a share of all steps, whose number is unknown."""

    def read(value: Any) -> Any:
        if loader.number.read(value) < 1:
            raise Unreadable
        return loader.integer.read(value)

    return Codec(read, loader.integer.write)


def _limit(loader: Loader) -> Codec:
    """How many are kept; 0 and less keep all."""

    def read(value: Any) -> Any:
        number = loader.integer.read(value)
        return number if number > 0 else "all"

    return Codec(read, lambda value: None if value == "all" else value)


def _of_the_run(loader: Loader) -> Codec:
    """Steps of the whole run; 0 and less leave them to the epochs."""

    def read(value: Any) -> Any:
        number = loader.integer.read(value)
        if number < 1:
            raise Unreadable
        return number

    return Codec(read, loader.integer.write)


def _warmup(loader: Loader) -> Codec:
    """A number of steps; a number between 0 and 1 is a share of all steps (transformers 5)."""

    def read(value: Any) -> Any:
        number = loader.number.read(value)
        if 0 < number < 1:
            raise Unreadable
        return loader.integer.read(value)

    return Codec(read, loader.integer.write)


def _named(*words: str) -> Callable[[Loader], Codec]:
    return lambda _: choice({word: word for word in words})


def _counts(_: Loader) -> Codec:
    return choice({True: True, False: False, "all": True, "non_padding": True, "no": False})


_KINDS: Final[Mapping[str, Callable[[Loader], Codec]]] = {
    "integer": lambda loader: loader.integer,
    "number": lambda loader: loader.number,
    "boolean": lambda loader: loader.boolean,
    "string": lambda loader: loader.string,
    "steps": steps,
    "run": _of_the_run,
    "warmup": _warmup,
    "limit": _limit,
    "interval": lambda loader: or_zero(loader.integer),
    "strategy": _named("steps", "epoch", "no", "best"),
    "counts": _counts,
}

# key -> plan field, kind of value, default, what null means (ABSENT: the default; None: nothing that can run).
_ROWS: Final[Mapping[str, tuple[Field, str, Any, Any]]] = {
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
    "save_steps": ("checkpoint.interval", "steps", 500, None),
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

OLDER_BATCH: Final[Mapping[str, str]] = {
    "per_device_train_batch_size": "per_gpu_train_batch_size",
    "per_device_eval_batch_size": "per_gpu_eval_batch_size",
}
"""The older spelling of each batch size."""


def batch(loader: Loader, name: str, access: Access, *beside: str) -> Key:
    """The lens of a batch size that has an older spelling."""
    made = key(loader, name, *beside)
    return made._replace(names=((name,), (OLDER_BATCH[name],)), access=access)


def counting(config: Config, names: tuple[Route, ...]) -> tuple[Route | None, Found]:
    """The spelling of a batch size that counts: transformers 4 takes `per_gpu_...` unless it is null or 0, else
    `per_device_...` (4.57.1, training_args.py: train_batch_size, eval_batch_size); transformers 5 refuses the former.
    """
    present, older = names
    return find(config, (older,) if config.get(*older) else (present,))


def key(loader: Loader, name: str, *beside: str) -> Key:
    """The lens of one argument; a new value is written next to one of the keys `beside`."""
    field, kind, default, null = _ROWS[name]
    return Key(field, ((name,),), _KINDS[kind](loader), default, null, beside)


def compiled(switch: Callable[[Config], bool | None]) -> Custom:
    """Return the lens of `torch_compile`, which two other arguments switch on as well."""
    others = ("torch_compile_backend", "torch_compile_mode")

    def read(config: Config) -> Iterator[Triple]:
        chosen = next((one for one in others if config.get(one) is not None), None)
        value = switch(config) if chosen is None else True
        yield "activations.compile", value, origin_of(config, chosen or "torch_compile")

    def write(config: Config, changes: Changes) -> list[Change]:
        if not changes["activations.compile"] and any(config.get(one) is not None for one in others):
            raise CannotEdit("torch_compile_backend and torch_compile_mode switch it on as well")
        refuse_override(config, ("torch_compile",))
        return [Set((*config.root, "torch_compile"), changes["activations.compile"])]

    return Custom({"activations.compile": names("torch_compile")}, read, write, also=names(*others))

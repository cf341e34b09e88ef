"""Lenses for the length and packing of TRL's sequences."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Route, Set
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.hf_trainer.loader import HF_ARGPARSER
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
from cfglint_train.frameworks.lens_types import Custom
from cfglint_train.frameworks.trl.settings import find_default, find_trainer, has_setting, is_on, read_setting

GENERATING_TRAINERS: Final = ("grpo", "rloo")
"""Trainers that generate completions; each of their sequences is a prompt with its completion."""
_PART_KEYS: Final = ("max_prompt_length", "max_completion_length")
_WINDOW_KEY: Final = "vllm_max_model_length"
_LENGTH_KEYS: Final = ("max_length", "max_seq_length")


def find_length_key(config: Config) -> str:
    """Return the key that limits whole sequences at the release."""
    has_old_key = find_trainer(config) == "sft" and is_before(config, "0.20")  # from 0.16 on, only if stated
    stated_key = next(
        (key for key in (reversed(_LENGTH_KEYS) if has_old_key else _LENGTH_KEYS) if config.get(key) is not None), None
    )
    if stated_key is not None:
        return stated_key
    return "max_seq_length" if has_old_key and is_before(config, "0.16") else "max_length"


def _read_length(config: Config) -> Iterator[Triple]:
    if find_trainer(config) in GENERATING_TRAINERS:
        yield from _read_parts(config)
        return
    name = find_length_key(config)
    is_stated = config.has(name)
    value = config.get(name) if is_stated else find_default(config, name)
    if value is None:
        yield "sequence.length", _find_unset_limit(config), build_default_origin(config, (name,))
    elif is_stated:
        yield "sequence.length", HF_ARGPARSER.integer.read_or_none(value), config.get_origin(name)
    else:
        yield "sequence.length", value, build_default_origin(config, (name,))


_EVERY_RELEASE: Final = "999"
"""A version newer than every release."""
# Trainer -> the first release that does not truncate samples if no limit is stated, and the limit of earlier releases
# in tokens. SFT also uses the tokenizer's limit, which is seldom lower (`__init__` of trl 0.9.6 to 0.24.0
# trainer/*_trainer.py; of 1.16.0 experimental/orpo/orpo_trainer.py and experimental/cpo/cpo_trainer.py).
_UNSET_LIMITS: Final = {
    "sft": ("0.15", 1024),
    "dpo": ("0.13", 512),
    "kto": ("0.25", 512),
    "reward": ("0.14", 512),
    **dict.fromkeys(("orpo", "cpo"), (_EVERY_RELEASE, 512)),
}


def _find_unset_limit(config: Config) -> int | None:
    """Return the limit in tokens that a trainer applies if none is stated, or None if the trainer truncates nothing."""
    before_release, tokens = _UNSET_LIMITS.get(find_trainer(config) or "", ("0", 0))
    return tokens if is_before(config, before_release) else None


def _read_parts(config: Config) -> Iterator[Triple]:
    parts = [read_setting(config, name, "integer") for name in _PART_KEYS]
    origin = find_origin(config, *reversed(_PART_KEYS))
    if None not in parts:
        yield "sequence.length", sum(parts), origin
    elif is_on(config, "use_vllm") and config.get(_WINDOW_KEY) is not None:
        # vLLM's window limits prompt and completion together.
        yield (
            "sequence.length",
            HF_ARGPARSER.integer.read_or_none(config.get(_WINDOW_KEY)),
            config.get_origin(_WINDOW_KEY),
        )
    else:
        # The length of a prompt without a limit depends on the data.
        yield "sequence.length", None, origin


def _list_terms(config: Config) -> tuple[Route, ...]:
    if find_trainer(config) not in GENERATING_TRAINERS:
        return parse_routes(find_length_key(config))
    return parse_routes(
        *(name for name in _PART_KEYS if name == _PART_KEYS[-1] or config.has(name) or has_setting(config, name))
    )


def _write_length(config: Config, changes: Changes) -> list[Change]:
    trainer = find_trainer(config)
    if trainer is None or trainer in GENERATING_TRAINERS:
        raise CannotEdit("prompt and completion each have a limit")
    name = find_length_key(config)
    refuse_override(config, (name,))
    return [Set((*config.root, name), changes["sequence.length"], ("packing", "per_device_train_batch_size"))]


def _read_packing(config: Config) -> Iterator[Triple]:
    if find_trainer(config) == "sft":
        yield "sequence.packing", read_setting(config, "packing", "boolean"), find_origin(config, "packing")
    elif find_trainer(config) is not None:
        yield "sequence.packing", False, build_default_origin(config, ("packing",))


def _write_packing(config: Config, changes: Changes) -> list[Change]:
    if find_trainer(config) != "sft":
        raise CannotEdit("only SFT packs")
    refuse_override(config, ("packing",))
    return [Set((*config.root, "packing"), changes["sequence.packing"], _LENGTH_KEYS)]


LENGTH: Final = Custom(
    {"sequence.length": parse_routes(*_LENGTH_KEYS, *_PART_KEYS)},
    _read_length,
    _write_length,
    other_keys=parse_routes(_WINDOW_KEY),
    list_terms=_list_terms,
)
PACKING: Final = Custom({"sequence.packing": parse_routes("packing")}, _read_packing, _write_packing)


def has_filled_packs(config: Config) -> bool:
    """Return whether packing concatenates all samples and cuts them into pieces of the full length.

    This is the only strategy before 0.19.0, and the strategy `wrapped` since then (0.15.2 ConstantLengthDataset, 0.18.0
    and 1.6.0 data_utils.py, pack_dataset).
    """
    return is_before(config, "0.19.0") or read_setting(config, "packing_strategy", "string") == "wrapped"

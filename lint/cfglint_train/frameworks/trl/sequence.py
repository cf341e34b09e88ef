"""How long TRL's sequences are, and how they are packed."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Route, Set
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.hf_trainer.loader import HF_ARGPARSER
from cfglint_train.frameworks.lens import Changes, Config, Triple, before, granted, names, origin_of, refuse_override
from cfglint_train.frameworks.lens_types import Custom
from cfglint_train.frameworks.trl.settings import default_of, is_setting, on, stated, trainer_of

GENERATES: Final = ("grpo", "rloo")
"""The trainers whose sequences are a prompt and what the model makes of it."""
_PARTS: Final = ("max_prompt_length", "max_completion_length")
_WINDOW: Final = "vllm_max_model_length"
_WHOLE: Final = ("max_length", "max_seq_length")


def length_key(config: Config) -> str:
    """The key that limits whole sequences at the release."""
    former = trainer_of(config) == "sft" and before(config, "0.20")  # from 0.16 on, where both are stated
    given = next((one for one in (reversed(_WHOLE) if former else _WHOLE) if config.get(one) is not None), None)
    if given is not None:
        return given
    return "max_seq_length" if former and before(config, "0.16") else "max_length"


def _read_length(config: Config) -> Iterator[Triple]:
    if trainer_of(config) in GENERATES:
        yield from _read_parts(config)
        return
    name = length_key(config)
    given = config.has(name)
    value = config.get(name) if given else default_of(config, name)
    if value is None:
        yield "sequence.length", _unset(config), granted(config, (name,))
    elif given:
        yield "sequence.length", HF_ARGPARSER.integer.readable(value), config.origin(name)
    else:
        yield "sequence.length", value, granted(config, (name,))


_ALL: Final = "999"
"""Beyond every release."""
# Trainer -> the tokens to which it cuts where no limit is set, and the first release that cuts no more. SFT asks the
# tokenizer as well, which seldom has fewer (`__init__` of trl 0.9.6 to 0.24.0 trainer/*_trainer.py; of 1.16.0
# experimental/orpo/orpo_trainer.py and experimental/cpo/cpo_trainer.py).
_UNSET: Final = {
    "sft": ("0.15", 1024),
    "dpo": ("0.13", 512),
    "kto": ("0.25", 512),
    "reward": ("0.14", 512),
    **dict.fromkeys(("orpo", "cpo"), (_ALL, 512)),
}


def _unset(config: Config) -> int | None:
    """The limit of a trainer that has none set; None where nothing is cut then."""
    before_release, tokens = _UNSET.get(trainer_of(config) or "", ("0", 0))
    return tokens if before(config, before_release) else None


def _read_parts(config: Config) -> Iterator[Triple]:
    parts = [stated(config, name, "integer") for name in _PARTS]
    origin = origin_of(config, *reversed(_PARTS))
    if None not in parts:
        yield "sequence.length", sum(parts), origin
    elif on(config, "use_vllm") and config.get(_WINDOW) is not None:
        # vLLM takes no more than its window, prompt and completion together.
        yield "sequence.length", HF_ARGPARSER.integer.readable(config.get(_WINDOW)), config.origin(_WINDOW)
    else:
        # A prompt without a limit is as long as the data have it.
        yield "sequence.length", None, origin


def _terms(config: Config) -> tuple[Route, ...]:
    if trainer_of(config) not in GENERATES:
        return names(length_key(config))
    return names(*(one for one in _PARTS if one == _PARTS[-1] or config.has(one) or is_setting(config, one)))


def _write_length(config: Config, changes: Changes) -> list[Change]:
    trainer = trainer_of(config)
    if trainer is None or trainer in GENERATES:
        raise CannotEdit("prompt and completion have a limit each")
    name = length_key(config)
    refuse_override(config, (name,))
    return [Set((*config.root, name), changes["sequence.length"], ("packing", "per_device_train_batch_size"))]


def _read_packing(config: Config) -> Iterator[Triple]:
    if trainer_of(config) == "sft":
        yield "sequence.packing", stated(config, "packing", "boolean"), origin_of(config, "packing")
    elif trainer_of(config) is not None:
        yield "sequence.packing", False, granted(config, ("packing",))


def _write_packing(config: Config, changes: Changes) -> list[Change]:
    if trainer_of(config) != "sft":
        raise CannotEdit("only SFT packs")
    refuse_override(config, ("packing",))
    return [Set((*config.root, "packing"), changes["sequence.packing"], _WHOLE)]


LENGTH: Final = Custom(
    {"sequence.length": names(*_WHOLE, *_PARTS)}, _read_length, _write_length, also=names(_WINDOW), terms=_terms
)
PACKING: Final = Custom({"sequence.packing": names("packing")}, _read_packing, _write_packing)


def fills_packs(config: Config) -> bool:
    """Whether packing cuts all samples, put end to end, into pieces of the full length: the only way before 0.19.0, and
    `wrapped` since (0.15.2 ConstantLengthDataset, 0.18.0 and 1.6.0 data_utils.py, pack_dataset).
    """
    return before(config, "0.19.0") or stated(config, "packing_strategy", "string") == "wrapped"

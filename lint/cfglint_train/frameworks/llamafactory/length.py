"""How long LLaMA-Factory's sequences are: `cutoff_len`, and under PPO what is generated on top.

PPO cuts the prompt to `cutoff_len` (data/processor/unsupervised.py), generates up to `max_new_tokens` behind it, and
trains on both (train/ppo/trainer.py, get_inputs and prepare_model_inputs). Of a `max_new_tokens` of 0 or less
`max_length` takes the place, which counts the prompt, too (hparams/generating_args.py, to_dict).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Route
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import Since
from cfglint_train.frameworks.lens import Changes, Config, Triple, names, origin_of
from cfglint_train.frameworks.lens_types import Custom, Key, read_only
from cfglint_train.frameworks.llamafactory.settings import stage_of
from cfglint_train.frameworks.loaders import PLAIN

_CUTOFF: Final = "cutoff_len"
_GENERATED: Final = "max_new_tokens"
_WHOLE: Final = "max_length"

_DATA: Final = Key(
    "sequence.length",
    names(_CUTOFF),
    PLAIN.integer,
    default=Since((("", 1024), ("0.9.1", 2048))),
    null=None,
    beside=("template", "dataset"),
)
_DEFAULT: Final = 1024
"""Of `max_new_tokens` and `max_length`."""


def _tokens(config: Config, name: str) -> int | None:
    tokens = PLAIN.integer.readable(config.get(name, default=_DEFAULT))
    return tokens if isinstance(tokens, int) else None


def _read_length(config: Config) -> Iterator[Triple]:
    found = list(_DATA.read(config))
    terms = _terms(config)
    if not terms:
        yield from found
        return
    for field, cutoff, origin in found:
        generated = _tokens(config, _GENERATED)
        if generated is None or cutoff is None:
            yield field, None, origin if cutoff is None else config.origin(_GENERATED)
        elif generated > 0:
            yield field, cutoff + generated, origin._replace(key=f"{_CUTOFF} + {_GENERATED}")
        else:
            whole = _tokens(config, _WHOLE)
            yield field, None if whole is None else max(cutoff, whole), origin_of(config, _WHOLE)


def _terms(config: Config) -> tuple[Route, ...]:
    return names(_CUTOFF, _GENERATED) if stage_of(config) == "ppo" else ()


def _write_length(config: Config, changes: Changes) -> list[Change]:
    if _terms(config):
        raise CannotEdit(f"PPO's sequences have {_CUTOFF} + {_GENERATED} tokens")
    return _DATA.write(config, changes)


def _read_generated(config: Config) -> Iterator[Triple]:
    if stage_of(config) == "ppo":
        tokens = _tokens(config, _GENERATED)
        yield "rollout.new_tokens", tokens if tokens is None or tokens > 0 else None, origin_of(config, _GENERATED)


LENGTH: Final = Custom(
    {"sequence.length": names(_CUTOFF)}, _read_length, _write_length, also=names(_GENERATED, _WHOLE), terms=_terms
)
NEW_TOKENS: Final = Custom({"rollout.new_tokens": names(_GENERATED)}, _read_generated, read_only, also=names(_WHOLE))

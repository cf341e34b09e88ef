"""Length of LLaMA-Factory's sequences: `cutoff_len`, plus generated tokens under PPO.

PPO cuts the prompt to `cutoff_len` (data/processor/unsupervised.py), generates up to `max_new_tokens` after it, and
trains on both (train/ppo/trainer.py, get_inputs and prepare_model_inputs). If `max_new_tokens` is 0 or less,
`max_length` applies instead, which includes the prompt (hparams/generating_args.py, to_dict).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.document import CannotEdit, Change, Route
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import ValueByRelease
from cfglint_train.frameworks.lens import Changes, Config, Triple, find_origin, parse_routes
from cfglint_train.frameworks.lens_types import Custom, Key, refuse_write
from cfglint_train.frameworks.llamafactory.settings import get_stage
from cfglint_train.frameworks.loaders import PLAIN

_CUTOFF_KEY: Final = "cutoff_len"
_NEW_TOKENS_KEY: Final = "max_new_tokens"
_MAX_LENGTH_KEY: Final = "max_length"

_CUTOFF_LENS: Final = Key(
    "sequence.length",
    parse_routes(_CUTOFF_KEY),
    PLAIN.integer,
    default=ValueByRelease((("", 1024), ("0.9.1", 2048))),
    null_value=None,
    siblings=("template", "dataset"),
)
_DEFAULT_TOKENS: Final = 1024
"""Default of `max_new_tokens` and `max_length`."""


def _read_tokens(config: Config, name: str) -> int | None:
    tokens = PLAIN.integer.read_or_none(config.get(name, default=_DEFAULT_TOKENS))
    return tokens if isinstance(tokens, int) else None


def _read_length(config: Config) -> Iterator[Triple]:
    triples = list(_CUTOFF_LENS.read(config))
    terms = _list_terms(config)
    if not terms:
        yield from triples
        return
    for field, cutoff, origin in triples:
        generated = _read_tokens(config, _NEW_TOKENS_KEY)
        if generated is None or cutoff is None:
            yield field, None, origin if cutoff is None else config.get_origin(_NEW_TOKENS_KEY)
        elif generated > 0:
            yield field, cutoff + generated, origin._replace(key=f"{_CUTOFF_KEY} + {_NEW_TOKENS_KEY}")
        else:
            max_length = _read_tokens(config, _MAX_LENGTH_KEY)
            yield field, None if max_length is None else max(cutoff, max_length), find_origin(config, _MAX_LENGTH_KEY)


def _list_terms(config: Config) -> tuple[Route, ...]:
    return parse_routes(_CUTOFF_KEY, _NEW_TOKENS_KEY) if get_stage(config) == "ppo" else ()


def _write_length(config: Config, changes: Changes) -> list[Change]:
    if _list_terms(config):
        raise CannotEdit(f"PPO's sequences have {_CUTOFF_KEY} + {_NEW_TOKENS_KEY} tokens")
    return _CUTOFF_LENS.write(config, changes)


def _read_new_tokens(config: Config) -> Iterator[Triple]:
    if get_stage(config) == "ppo":
        tokens = _read_tokens(config, _NEW_TOKENS_KEY)
        yield (
            "rollout.new_tokens",
            tokens if tokens is None or tokens > 0 else None,
            find_origin(config, _NEW_TOKENS_KEY),
        )


LENGTH: Final = Custom(
    {"sequence.length": parse_routes(_CUTOFF_KEY)},
    _read_length,
    _write_length,
    other_keys=parse_routes(_NEW_TOKENS_KEY, _MAX_LENGTH_KEY),
    list_terms=_list_terms,
)
NEW_TOKENS: Final = Custom(
    {"rollout.new_tokens": parse_routes(_NEW_TOKENS_KEY)},
    _read_new_tokens,
    refuse_write,
    other_keys=parse_routes(_MAX_LENGTH_KEY),
)

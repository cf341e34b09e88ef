"""Lenses of command-line flags: read as OpenRLHF's parser reads them, written in the words of the script.

A concept has a dotted name (0.10.2 and later) and flat ones; the tuples below hold the dotted names first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cfglint_train.documents.document import MISSING, CannotEdit, Change, Delete, Route, Set, Unknown
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.codec import Codec, Unreadable, written_as
from cfglint_train.frameworks.lens import Changes, Config, Triple, refuse_override
from cfglint_train.frameworks.lens_types import ABSENT, NOT_STATED, Access, Custom, Found, Key, Stated, read_only
from cfglint_train.frameworks.loaders import ARGPARSE
from cfglint_train.frameworks.openrlhf import names as flag
from cfglint_train.frameworks.openrlhf.flags import (
    ENTRIES,
    default_of,
    granted,
    name_at,
    stated,
    usage,
    value_of,
    without,
)
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin

Names = tuple[str, ...]

INTEGER: Final = ARGPARSE.integer
NUMBER: Final = ARGPARSE.number
STRING: Final = ARGPARSE.string


def keys_of(*names: Names) -> tuple[Route, ...]:
    """The routes of some flags, below an invocation."""
    return tuple((name,) for group in names for name in group)


def _flags(keys: tuple[Route, ...]) -> Names:
    """The flags that some routes name."""
    return tuple(str(name) for (name,) in keys)


def _find(config: Config, keys: tuple[Route, ...]) -> tuple[Route | None, Found]:
    """The flag that is given; else the one that the script's release has."""
    names = _flags(keys)
    route = stated(config, names)
    if route is not None:
        return route, Stated(config.value(*route), config.origin(*route))
    name = name_at(config, names)
    return None if name is None else (name,), NOT_STATED


def _take_default(config: Config, key: Key, route: Route | None) -> Iterator[Triple]:
    """The parser's default; the key's own where the release has no such flag."""
    names = _flags(key.names)
    value = default_of(config, names)
    if value is not MISSING:
        yield key.field, key.codec.readable(value), granted(config, names)
    elif key.default is not ABSENT and route is None:
        yield key.field, key.default, granted(config, names)


def _put(config: Config, key: Key, _: Route | None, value: Any) -> list[Change]:
    """Replace the word, add the flag or take it away."""
    names = _flags(key.names)
    word = key.codec.write(value)
    if word is False:
        return drop(config, names)
    if value is None or key.codec.readable(word) != value:
        raise CannotEdit(f"OpenRLHF has no value for {value!r}")
    return put(config, names, word)


FLAGS: Final = Access(_find, _take_default, _put)
"""Flags of a command line."""


def flag_of(
    field: Field,
    names: Names,
    codec: Codec,
    missing: Any = ABSENT,
    applies: Callable[[Config], bool] | None = None,
) -> Key:
    """A flag with a word behind it; `missing` is the plan value where the release has no such flag."""
    return Key(field, keys_of(names), codec, missing, access=FLAGS, applies=applies)


def switch(
    field: Field, names: Names, on: Any = True, off: Any = False, applies: Callable[[Config], bool] | None = None
) -> Key:
    """A flag without a value: `on` where it is given and `off` where it is not."""

    def read(value: Any) -> Any:
        given = is_given(value)
        if given is None:
            raise Unreadable
        return on if given else off

    return Key(
        field, keys_of(names), Codec(read, written_as({True: on, False: off})), off, access=FLAGS, applies=applies
    )


def custom(
    keys: Mapping[Field, tuple[Route, ...]],
    reader: Callable[[Config], Iterator[Triple]],
    writer: Callable[[Config, Changes], list[Change]],
    terms: Callable[[Config], tuple[Route, ...]] | None = None,
) -> Custom:
    """A lens of two functions over flags."""
    return Custom(keys, reader, writer, FLAGS, terms=terms)


def is_given(value: Any) -> bool | None:
    """Whether a switch is on; None for words behind it, which argparse refuses."""
    if isinstance(value, Unknown):
        return True  # what follows may be nothing, or further flags
    return value if isinstance(value, bool) else None


def put(config: Config, names: Names, value: Any) -> list[Change]:
    """Give a flag a value in the words of the script. Raises CannotEdit where its release has no such flag."""
    route = stated(config, names)
    if route is not None:
        refuse_override(config, route)
        return [Set((*config.root, *route), value)]
    told = usage(config)
    name = name_at(config, names)
    if name is None:
        raise CannotEdit(f"OpenRLHF {told.release} has no {names[0]}")
    near = tuple(told.given[one][-1] for one in _near(name) if one in told.given)
    return [Set((*config.root, name), value, near)]


def drop(config: Config, names: Names) -> list[Change]:
    """Remove a flag, wherever it is. Raises CannotEdit where nothing else determines the script's release."""
    route = stated(config, names)
    if route is None:
        raise CannotEdit("it may be among the flags that cannot be determined")
    refuse_override(config, route)
    told = usage(config)
    if without(config, frozenset(names)) != told.release:
        raise CannotEdit("without it the release that the script is written for is unknown")
    return [Delete((*config.root, spelled)) for name in names for spelled in told.given.get(name, ())]


# New flags go behind the first of these that the script has.
_NEAR: Final[tuple[Names, ...]] = (
    ("--ds.zero_stage", "--ds.adam_offload", "--ds.zpg", "--ds.overlap_comm", "--ds.enable_sleep", "--ds.param_dtype"),
    ("--zero_stage", "--adam_offload", "--zpg", "--overlap_comm", "--deepspeed_enable_sleep", "--bf16"),
    ("--train.batch_size", "--train.micro_batch_size", "--train.dynamic_batch_enable", "--train.max_tokens_per_gpu"),
    ("--train_batch_size", "--micro_train_batch_size", "--use_dynamic_batch", "--train_max_tokens_per_gpu"),
    ("--ckpt.save_steps", "--ckpt.max_num", "--ckpt.path", "--ckpt.output_dir", "--ckpt.save_hf", "--ckpt.disable_ds"),
    ("--save_steps", "--max_ckpt_num", "--ckpt_path", "--save_path", "--save_hf_ckpt", "--disable_ds_ckpt"),
    ("--vllm.gpu_memory_utilization", "--vllm.num_engines", "--vllm.enable_sleep", "--vllm.tensor_parallel_size"),
    ("--vllm_gpu_memory_utilization", "--vllm_num_engines", "--vllm_enable_sleep", "--vllm_tensor_parallel_size"),
)  # fmt: skip


def _near(name: str) -> Names:
    return next((group for group in _NEAR if name in group), ())


def origin_of(config: Config, names: Names) -> Origin:
    """Where the value of a flag comes from: where it is given, else the parser."""
    route = stated(config, names)
    return granted(config, names) if route is None else config.origin(*route)


def setting(config: Config, names: Names, codec: Codec) -> Any:
    """What holds for a flag, given or by default, in plan terms; None where that cannot be determined."""
    value = value_of(config, names)
    if value is MISSING:
        value = default_of(config, names)
    return None if value is MISSING else codec.readable(value)


def is_on(config: Config, names: Names) -> bool | None:
    """Whether a switch holds; None where that cannot be determined."""
    route = stated(config, names)
    if route is not None:
        return is_given(config.value(*route))
    return None if usage(config).open else False


def before(config: Config, release: str) -> bool:
    """Whether the invocation counts for a release older than this one."""
    return release_key(usage(config).release) < release_key(release)


def is_ppo(config: Config) -> bool:
    """Whether the entry point does reinforcement learning."""
    return ENTRIES[usage(config).entry] == "ppo"


def fixed(field: Field, value: Any, applies: Callable[[Config], bool] | None = None) -> Custom:
    """What no flag reaches."""

    def read(config: Config) -> Iterator[Triple]:
        if applies is None or applies(config):
            yield field, value, Origin("default", note=f"openrlhf {usage(config).release}", framework="openrlhf")

    return Custom({field: ()}, read, read_only)


def has_reward_model(config: Config) -> bool:
    """Rewards come from a model of the job, not over the network or out of a program, or, in a copy whose parser has no
    flag for that model, from the copy's own code.
    """
    remote = value_of(config, flag.REMOTE) is not MISSING or value_of(config, flag.AGENT) is not MISSING
    return not remote and name_at(config, flag.REWARD_MODEL) is not None

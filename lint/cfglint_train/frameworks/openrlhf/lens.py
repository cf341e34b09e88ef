"""Lenses of command-line flags, which are read like OpenRLHF's parser and written with the script's names.

A setting has a dotted name (0.10.2 and later) and flat names; the tuples of names have the dotted name first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cfglint_train.documents.document import MISSING, CannotEdit, Change, Delete, Route, Set, Unknown
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.codec import Codec, UnreadableError, build_writer
from cfglint_train.frameworks.lens import Changes, Config, Triple, refuse_override
from cfglint_train.frameworks.lens_types import (
    ABSENT,
    NOT_STATED,
    Access,
    Custom,
    Key,
    LookupResult,
    StatedValue,
    refuse_write,
)
from cfglint_train.frameworks.loaders import ARGPARSE
from cfglint_train.frameworks.openrlhf import names as flag
from cfglint_train.frameworks.openrlhf.flags import (
    ENTRIES,
    build_default_origin,
    find_default,
    find_name,
    find_release_without,
    find_route,
    get_value,
    read_usage,
)
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin

FlagNames = tuple[str, ...]

INTEGER: Final = ARGPARSE.integer
NUMBER: Final = ARGPARSE.number
STRING: Final = ARGPARSE.string


def build_routes(*names: FlagNames) -> tuple[Route, ...]:
    """Return the routes of flags below an invocation."""
    return tuple((name,) for group in names for name in group)


def _list_flags(keys: tuple[Route, ...]) -> FlagNames:
    """Return the flags that the routes name."""
    return tuple(str(name) for (name,) in keys)


def _find_flag(config: Config, keys: tuple[Route, ...]) -> tuple[Route | None, LookupResult]:
    """Return the flag that is set and its value, or else the release's spelling and NOT_STATED."""
    names = _list_flags(keys)
    route = find_route(config, names)
    if route is not None:
        return route, StatedValue(config.get_value(*route), config.get_origin(*route))
    name = find_name(config, names)
    return None if name is None else (name,), NOT_STATED


def _yield_default(config: Config, key: Key, route: Route | None) -> Iterator[Triple]:
    """Yield the parser's default, or the key's own default if the release lacks the flag."""
    names = _list_flags(key.names)
    value = find_default(config, names)
    if value is not MISSING:
        yield key.field, key.codec.read_or_none(value), build_default_origin(config, names)
    elif key.default is not ABSENT and route is None:
        yield key.field, key.default, build_default_origin(config, names)


def _write_flag(config: Config, key: Key, _: Route | None, value: Any) -> list[Change]:
    """Return the change that replaces the word, or adds or removes the flag."""
    names = _list_flags(key.names)
    word = key.codec.write(value)
    if word is False:
        return remove_flag(config, names)
    if value is None or key.codec.read_or_none(word) != value:
        raise CannotEdit(f"OpenRLHF has no value for {value!r}")
    return put_flag(config, names, word)


FLAGS: Final = Access(_find_flag, _yield_default, _write_flag)
"""Access to flags of a command line."""


def build_flag(
    field: Field,
    names: FlagNames,
    codec: Codec,
    default: Any = ABSENT,
    applies: Callable[[Config], bool] | None = None,
) -> Key:
    """Return the lens of a flag with a value; `default` is the plan value if the release lacks the flag."""
    return Key(field, build_routes(names), codec, default, access=FLAGS, applies=applies)


def build_switch(
    field: Field, names: FlagNames, on: Any = True, off: Any = False, applies: Callable[[Config], bool] | None = None
) -> Key:
    """Return the lens of a flag without a value; the plan value is `on` if the flag is set, and `off` otherwise."""

    def read(value: Any) -> Any:
        is_switched_on = is_switch_on(value)
        if is_switched_on is None:
            raise UnreadableError
        return on if is_switched_on else off

    return Key(
        field,
        build_routes(names),
        Codec(read, build_writer({True: on, False: off})),
        off,
        access=FLAGS,
        applies=applies,
    )


def build_custom(
    keys: Mapping[Field, tuple[Route, ...]],
    reader: Callable[[Config], Iterator[Triple]],
    writer: Callable[[Config, Changes], list[Change]],
    list_terms: Callable[[Config], tuple[Route, ...]] | None = None,
) -> Custom:
    """Return a lens of flags that consists of two functions."""
    return Custom(keys, reader, writer, FLAGS, list_terms=list_terms)


def is_switch_on(value: Any) -> bool | None:
    """Return whether a switch is on, or None if words follow it, which argparse rejects."""
    if isinstance(value, Unknown):
        return True  # the following words may expand to nothing or to further flags
    return value if isinstance(value, bool) else None


def put_flag(config: Config, names: FlagNames, value: Any) -> list[Change]:
    """Return the change that sets a flag under the name that the script or its release uses.

    Raise CannotEdit if the release has none of the names, or if the launch overrides the flag.
    """
    route = find_route(config, names)
    if route is not None:
        refuse_override(config, route)
        return [Set((*config.root, *route), value)]
    flag_usage = read_usage(config)
    name = find_name(config, names)
    if name is None:
        raise CannotEdit(f"OpenRLHF {flag_usage.release} has no {names[0]}")
    siblings = tuple(
        flag_usage.given_flags[sibling][-1] for sibling in _find_siblings(name) if sibling in flag_usage.given_flags
    )
    return [Set((*config.root, name), value, siblings)]


def remove_flag(config: Config, names: FlagNames) -> list[Change]:
    """Return the changes that remove a flag, in every spelling.

    Raise CannotEdit if the flag is not visible or is overridden, or if the remaining flags would select another
    release.
    """
    route = find_route(config, names)
    if route is None:
        raise CannotEdit("it may be among the flags that cannot be determined")
    refuse_override(config, route)
    flag_usage = read_usage(config)
    if find_release_without(config, frozenset(names)) != flag_usage.release:
        raise CannotEdit("without it, the script's release is unknown")
    return [Delete((*config.root, spelling)) for name in names for spelling in flag_usage.given_flags.get(name, ())]


# A new flag is inserted after the first flag of its group that the script has.
_SIBLINGS: Final[tuple[FlagNames, ...]] = (
    ("--ds.zero_stage", "--ds.adam_offload", "--ds.zpg", "--ds.overlap_comm", "--ds.enable_sleep", "--ds.param_dtype"),
    ("--zero_stage", "--adam_offload", "--zpg", "--overlap_comm", "--deepspeed_enable_sleep", "--bf16"),
    ("--train.batch_size", "--train.micro_batch_size", "--train.dynamic_batch_enable", "--train.max_tokens_per_gpu"),
    ("--train_batch_size", "--micro_train_batch_size", "--use_dynamic_batch", "--train_max_tokens_per_gpu"),
    ("--ckpt.save_steps", "--ckpt.max_num", "--ckpt.path", "--ckpt.output_dir", "--ckpt.save_hf", "--ckpt.disable_ds"),
    ("--save_steps", "--max_ckpt_num", "--ckpt_path", "--save_path", "--save_hf_ckpt", "--disable_ds_ckpt"),
    ("--vllm.gpu_memory_utilization", "--vllm.num_engines", "--vllm.enable_sleep", "--vllm.tensor_parallel_size"),
    ("--vllm_gpu_memory_utilization", "--vllm_num_engines", "--vllm_enable_sleep", "--vllm_tensor_parallel_size"),
)  # fmt: skip


def _find_siblings(name: str) -> FlagNames:
    return next((group for group in _SIBLINGS if name in group), ())


def find_origin(config: Config, names: FlagNames) -> Origin:
    """Return the origin of a flag's value: its place, or the parser's default."""
    route = find_route(config, names)
    return build_default_origin(config, names) if route is None else config.get_origin(*route)


def read_setting(config: Config, names: FlagNames, codec: Codec) -> Any:
    """Return the plan value of a flag, set or by default, or None if it cannot be determined."""
    value = get_value(config, names)
    if value is MISSING:
        value = find_default(config, names)
    return None if value is MISSING else codec.read_or_none(value)


def is_on(config: Config, names: FlagNames) -> bool | None:
    """Return whether a switch is on, or None if that cannot be determined."""
    route = find_route(config, names)
    if route is not None:
        return is_switch_on(config.get_value(*route))
    return None if read_usage(config).has_hidden_flags else False


def is_before(config: Config, release: str) -> bool:
    """Return whether the invocation's release is older than `release`."""
    return parse_release(read_usage(config).release) < parse_release(release)


def is_ppo(config: Config) -> bool:
    """Return whether the entry point does reinforcement learning."""
    return ENTRIES[read_usage(config).entry] == "ppo"


def build_fixed(field: Field, value: Any, applies: Callable[[Config], bool] | None = None) -> Custom:
    """Return the lens of a value that no flag changes."""

    def read(config: Config) -> Iterator[Triple]:
        if applies is None or applies(config):
            yield field, value, Origin("default", note=f"openrlhf {read_usage(config).release}", framework="openrlhf")

    return Custom({field: ()}, read, refuse_write)


def has_reward_model(config: Config) -> bool:
    """Return whether rewards come from a model of the job.

    Otherwise rewards come over the network, from an agent function or, in a copy of OpenRLHF whose parser has no flag
    for a reward model, from the copy's own code.
    """
    remote = (
        get_value(config, flag.REMOTE_REWARD) is not MISSING or get_value(config, flag.AGENT_FUNCTION) is not MISSING
    )
    return not remote and find_name(config, flag.REWARD_MODEL) is not None

"""Rollout lenses of OpenRLHF: generation and token budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cfglint_train.documents.document import MISSING, CannotEdit, Change
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.lens import Changes, Config, Lens, Triple
from cfglint_train.frameworks.lens_types import refuse_write
from cfglint_train.frameworks.openrlhf import names as flag
from cfglint_train.frameworks.openrlhf.flags import build_default_origin, find_name, find_route, get_value, read_usage
from cfglint_train.frameworks.openrlhf.lens import (
    INTEGER,
    NUMBER,
    STRING,
    build_custom,
    build_flag,
    build_routes,
    build_switch,
    find_origin,
    is_before,
    is_on,
    is_ppo,
    put_flag,
    read_setting,
)
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin

FlagNames = tuple[str, ...]


def build_token_reader(names: FlagNames, field: Field) -> Callable[[Config], Iterator[Triple]]:
    """Return the reader of a token budget, which applies only if batches are built by length."""

    def read(config: Config) -> Iterator[Triple]:
        if not is_on(config, flag.DYNAMIC_BATCH):
            return
        tokens = read_setting(config, names, INTEGER)
        if tokens is None and names == flag.ROLLOUT_TOKENS and get_value(config, names) is MISSING:
            # cli/train_ppo_ray.py: the training budget also applies to the rollout.
            tokens, origin = read_setting(config, flag.TRAIN_TOKENS, INTEGER), find_origin(config, flag.TRAIN_TOKENS)
            yield field, tokens, Origin("inferred", origin.place, "the token budget of training", origin.key)
        else:
            yield field, tokens, find_origin(config, names)

    return read


def build_token_writer(names: FlagNames, field: Field) -> Callable[[Config, Changes], list[Change]]:
    """Return the writer of a token budget."""

    def write(config: Config, changes: Changes) -> list[Change]:
        if not is_on(config, flag.DYNAMIC_BATCH) or not isinstance(changes[field], int):
            raise CannotEdit("batches are not built by length")
        return put_flag(config, names, str(changes[field]))

    return write


def _read_engine(config: Config) -> Iterator[Triple]:
    if not is_ppo(config):
        return
    engines, origin = read_setting(config, flag.ENGINES, INTEGER), find_origin(config, flag.ENGINES)
    if read_usage(config).entry == "train_ppo":
        yield "rollout.engine", "hf", build_default_origin(config, flag.ENGINES)
        return
    if engines is None and find_route(config, flag.ENGINES) is not None:
        yield "rollout.engine", None, origin
        return
    if read_usage(config).has_hidden_flags and engines is None:
        return
    # Without engines, the policy itself generates up to 0.7.5; later releases fail.
    yield "rollout.engine", "vllm" if engines else "hf" if is_before(config, "0.8.0") else None, origin
    if engines is not None:
        yield "rollout.engines", engines, origin


def _write_engine(config: Config, changes: Changes) -> list[Change]:
    engines = changes.get("rollout.engines")
    if set(changes) != {"rollout.engines"} or not isinstance(engines, int) or engines < 1:
        raise CannotEdit("fixes only change the number of engines")
    if not read_setting(config, flag.ENGINES, INTEGER):
        raise CannotEdit("the run has no engines")
    return put_flag(config, flag.ENGINES, str(engines))


def _read_new_tokens(config: Config) -> Iterator[Triple]:
    if not is_ppo(config):
        return
    names = flag.NEW_TOKENS if find_name(config, flag.NEW_TOKENS) is not None else flag.GENERATED_LENGTH
    tokens = read_setting(config, names, INTEGER)
    if tokens is not None or find_route(config, names) is not None:
        yield "rollout.new_tokens", tokens, find_origin(config, names)


def _has_engines(config: Config) -> bool:
    return is_ppo(config) and bool(read_setting(config, flag.ENGINES, INTEGER))


LENSES: Final[tuple[Lens, ...]] = (
    build_custom(
        dict.fromkeys(("rollout.engine", "rollout.engines"), build_routes(flag.ENGINES)),
        _read_engine,
        _write_engine,
    ),
    build_flag(
        "rollout.utilization",
        ("--vllm.gpu_memory_utilization", "--vllm_gpu_memory_utilization"),
        NUMBER,
        default=0.9,
        applies=_has_engines,
    ),
    build_flag(
        "rollout.tensor",
        ("--vllm.tensor_parallel_size", "--vllm_tensor_parallel_size"),
        INTEGER,
        applies=_has_engines,
    ),
    build_switch("rollout.sleep", ("--vllm.enable_sleep", "--vllm_enable_sleep"), applies=is_ppo),
    build_switch("rollout.train_sleep", ("--ds.enable_sleep", "--deepspeed_enable_sleep"), applies=is_ppo),
    build_flag("rollout.batch", ("--rollout.batch_size", "--rollout_batch_size"), INTEGER, applies=is_ppo),
    build_flag(
        "rollout.samples_per_prompt",
        ("--rollout.n_samples_per_prompt", "--n_samples_per_prompt"),
        INTEGER,
        default=1,
        applies=is_ppo,
    ),
    build_flag("rollout.micro", ("--rollout.micro_batch_size", "--micro_rollout_batch_size"), INTEGER, applies=is_ppo),
    build_custom(
        {"rollout.tokens_per_gpu": build_routes(flag.ROLLOUT_TOKENS)},
        build_token_reader(flag.ROLLOUT_TOKENS, "rollout.tokens_per_gpu"),
        build_token_writer(flag.ROLLOUT_TOKENS, "rollout.tokens_per_gpu"),
    ),
    build_custom(
        {"rollout.new_tokens": build_routes(flag.NEW_TOKENS, flag.GENERATED_LENGTH)}, _read_new_tokens, refuse_write
    ),
    build_switch("rollout.asynchronous", flag.ASYNCHRONOUS, applies=is_ppo),
    build_switch("rollout.colocate_all", flag.COLOCATE_ALL, applies=is_ppo),
    build_switch("rollout.enforce_eager", ("--vllm.enforce_eager", "--enforce_eager"), applies=is_ppo),
    build_flag("rollout.advantage", flag.ESTIMATOR, STRING, default="gae", applies=is_ppo),
    build_flag("rollout.kl_coefficient", flag.KL_COEFFICIENT, NUMBER, applies=is_ppo),
)

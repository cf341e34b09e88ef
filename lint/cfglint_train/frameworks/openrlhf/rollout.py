"""How an OpenRLHF run generates, and its budgets of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cfglint_train.documents.document import MISSING, CannotEdit, Change
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.lens import Changes, Config, Lens, Triple
from cfglint_train.frameworks.lens_types import read_only
from cfglint_train.frameworks.openrlhf import names as flag
from cfglint_train.frameworks.openrlhf.flags import granted, name_at, stated, usage, value_of
from cfglint_train.frameworks.openrlhf.lens import (
    INTEGER,
    NUMBER,
    STRING,
    before,
    custom,
    flag_of,
    is_on,
    is_ppo,
    keys_of,
    origin_of,
    put,
    setting,
    switch,
)
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin

Names = tuple[str, ...]


def read_tokens(names: Names, field: Field) -> Callable[[Config], Iterator[Triple]]:
    """The reader of a token budget, which counts where batches are built by length."""

    def read(config: Config) -> Iterator[Triple]:
        if not is_on(config, flag.DYNAMIC):
            return
        tokens = setting(config, names, INTEGER)
        if tokens is None and names == flag.ROLLOUT_TOKENS and value_of(config, names) is MISSING:
            # cli/train_ppo_ray.py: the training budget counts for the rollout too.
            tokens, origin = setting(config, flag.TRAIN_TOKENS, INTEGER), origin_of(config, flag.TRAIN_TOKENS)
            yield field, tokens, Origin("inferred", origin.place, "the budget of training", origin.key)
        else:
            yield field, tokens, origin_of(config, names)

    return read


def write_tokens(names: Names, field: Field) -> Callable[[Config, Changes], list[Change]]:
    """The writer of a token budget."""

    def write(config: Config, changes: Changes) -> list[Change]:
        if not is_on(config, flag.DYNAMIC) or not isinstance(changes[field], int):
            raise CannotEdit("batches are not built by length here")
        return put(config, names, str(changes[field]))

    return write


def _read_engine(config: Config) -> Iterator[Triple]:
    if not is_ppo(config):
        return
    engines, origin = setting(config, flag.ENGINES, INTEGER), origin_of(config, flag.ENGINES)
    if usage(config).entry == "train_ppo":
        yield "rollout.engine", "hf", granted(config, flag.ENGINES)
        return
    if engines is None and stated(config, flag.ENGINES) is not None:
        yield "rollout.engine", None, origin
        return
    if usage(config).open and engines is None:
        return
    # Up to 0.7.5 the policy generates itself where there are no engines; later that fails.
    yield "rollout.engine", "vllm" if engines else "hf" if before(config, "0.8.0") else None, origin
    if engines is not None:
        yield "rollout.engines", engines, origin


def _write_engine(config: Config, changes: Changes) -> list[Change]:
    engines = changes.get("rollout.engines")
    if set(changes) != {"rollout.engines"} or not isinstance(engines, int) or engines < 1:
        raise CannotEdit("only the number of engines is changed")
    if not setting(config, flag.ENGINES, INTEGER):
        raise CannotEdit("the run has no engines")
    return put(config, flag.ENGINES, str(engines))


def _read_new_tokens(config: Config) -> Iterator[Triple]:
    if not is_ppo(config):
        return
    names = flag.NEW_TOKENS if name_at(config, flag.NEW_TOKENS) is not None else flag.GENERATED
    tokens = setting(config, names, INTEGER)
    if tokens is not None or stated(config, names) is not None:
        yield "rollout.new_tokens", tokens, origin_of(config, names)


def _has_engines(config: Config) -> bool:
    return is_ppo(config) and bool(setting(config, flag.ENGINES, INTEGER))


LENSES: Final[tuple[Lens, ...]] = (
    custom(
        dict.fromkeys(("rollout.engine", "rollout.engines"), keys_of(flag.ENGINES)),
        _read_engine,
        _write_engine,
    ),
    flag_of(
        "rollout.utilization",
        ("--vllm.gpu_memory_utilization", "--vllm_gpu_memory_utilization"),
        NUMBER,
        missing=0.9,
        applies=_has_engines,
    ),
    flag_of(
        "rollout.tensor",
        ("--vllm.tensor_parallel_size", "--vllm_tensor_parallel_size"),
        INTEGER,
        applies=_has_engines,
    ),
    switch("rollout.sleep", ("--vllm.enable_sleep", "--vllm_enable_sleep"), applies=is_ppo),
    switch("rollout.train_sleep", ("--ds.enable_sleep", "--deepspeed_enable_sleep"), applies=is_ppo),
    flag_of("rollout.batch", ("--rollout.batch_size", "--rollout_batch_size"), INTEGER, applies=is_ppo),
    flag_of(
        "rollout.samples_per_prompt",
        ("--rollout.n_samples_per_prompt", "--n_samples_per_prompt"),
        INTEGER,
        missing=1,
        applies=is_ppo,
    ),
    flag_of("rollout.micro", ("--rollout.micro_batch_size", "--micro_rollout_batch_size"), INTEGER, applies=is_ppo),
    custom(
        {"rollout.tokens_per_gpu": keys_of(flag.ROLLOUT_TOKENS)},
        read_tokens(flag.ROLLOUT_TOKENS, "rollout.tokens_per_gpu"),
        write_tokens(flag.ROLLOUT_TOKENS, "rollout.tokens_per_gpu"),
    ),
    custom({"rollout.new_tokens": keys_of(flag.NEW_TOKENS, flag.GENERATED)}, _read_new_tokens, read_only),
    switch("rollout.asynchronous", flag.ASYNCHRONOUS, applies=is_ppo),
    switch("rollout.colocate_all", flag.COLOCATE_ALL, applies=is_ppo),
    switch("rollout.enforce_eager", ("--vllm.enforce_eager", "--enforce_eager"), applies=is_ppo),
    flag_of("rollout.advantage", flag.ESTIMATOR, STRING, missing="gae", applies=is_ppo),
    flag_of("rollout.kl_coefficient", flag.KL, NUMBER, applies=is_ppo),
)

"""Lenses between verl's settings and the plan.

The names of a setting are those of the PPO trainer's tree, then those of the supervised trainers' trees. The release's
tree has only one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cfglint_train.documents.document import CannotEdit, Change, Route
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec, accept_unknown_folder, bound_below, build_choice
from cfglint_train.frameworks.launchers import read_launch
from cfglint_train.frameworks.lens import Changes, Config, Lens, Triple, parse_routes
from cfglint_train.frameworks.lens_types import ABSENT, Custom, Key, refuse_write
from cfglint_train.frameworks.loaders import PLAIN
from cfglint_train.frameworks.verl import names as key
from cfglint_train.frameworks.verl.settings import (
    ACCESS,
    find_entry,
    find_origin,
    find_other_engine,
    find_program,
    find_route,
    get_invocation,
    has_defaults,
    has_key,
    has_known_tree,
    has_own_trainer,
    is_ppo,
    put,
    read,
)
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin

Reader = Callable[[Config], Iterator[Triple]]
Writer = Callable[[Config, Changes], list[Change]]

COUNT: Final = bound_below(1, PLAIN.integer)
DTYPE: Final = build_choice(
    {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
)
_SCORING: Final = (key.SCORE_MICRO, key.REFERENCE_MICRO)
_RECOMPUTE: Final = build_choice({True: "full", False: "none"})
_OFFLOAD: Final = build_choice({True: "cpu", False: "none"})
_ATTENTION: Final = build_choice(
    {"flash_attention_2": "flash", "flash_attention_3": "flash3", "sdpa": "sdpa", "eager": "eager",
     "flex_attention": "flex"}
)  # fmt: skip
_ESTIMATORS: Final[Mapping[str, str]] = {
    "gae": "ppo", "grpo": "grpo", "grpo_passk": "grpo", "grpo_vectorized": "grpo", "gdpo": "grpo", "rloo": "rloo",
    "rloo_vectorized": "rloo",
}  # fmt: skip
_ENGINES: Final = build_choice({"vllm": "vllm", "sglang": "sglang", "hf": "hf"})
OFFLOADED: Final[tuple[Field, ...]] = ("parallel.offload_params", "parallel.offload_optimizer")
OPTIMIZER_FIELDS: Final[tuple[Field, ...]] = (
    "optimizer.name", "optimizer.implementation", "optimizer.paged", "optimizer.state_bits"
)  # fmt: skip
_OPTIMIZER_KEYS: Final = (*key.OPTIMIZER, *key.OPTIMIZER_MODULE)
_ADAMW: Final = ("adamw", "foreach", False, None)
_OPTIMIZERS: Final[Mapping[tuple[str | None, str | None], tuple[Any, ...]]] = {
    ("torch.optim", "AdamW"): _ADAMW,
    ("torch.optim", "Adam"): ("adam", "foreach", False, None),
    ("torchao.optim", "_AdamW"): ("adamw", "torchao", False, None),
    ("torchao.optim", "AdamW8bit"): ("adamw", "torchao", False, 8),
    ("torchao.optim", "AdamW4bit"): ("adamw", "torchao", False, 4),
    ("bitsandbytes.optim", "AdamW"): ("adamw", "bitsandbytes", False, 32),
    ("bitsandbytes.optim", "AdamW8bit"): ("adamw", "bitsandbytes", False, 8),
    ("bitsandbytes.optim", "PagedAdamW"): ("adamw", "bitsandbytes", True, 32),
    ("bitsandbytes.optim", "PagedAdamW8bit"): ("adamw", "bitsandbytes", True, 8),
}
"""Values of `OPTIMIZER_FIELDS` by module and class; without bits, states have the dtype of the weights.

Source: verl 0.6.1 to 0.9.1 `workers/config/optimizer.py` (build_optimizer).
"""
_STRATEGIES: Final[Mapping[str, str]] = {"fsdp": "fsdp1", "fsdp2": "fsdp2"}


def build_key(
    field: Field,
    names: key.Names,
    codec: Codec,
    default: Any = ABSENT,
    null_value: Any = ABSENT,
    applies: Callable[[Config], bool] | None = None,
) -> Key:
    """Return the lens of a setting that states one field."""
    return Key(field, parse_routes(*names), codec, default, null_value, access=ACCESS, applies=applies)


def build_custom(
    keys: Mapping[Field, key.Names],
    reader: Reader,
    writer: Writer = refuse_write,
    list_terms: Callable[[Config], tuple[Route, ...]] | None = None,
) -> Custom:
    """Return the lens of fields that a function reads from settings."""
    routes = {field: parse_routes(*names) for field, names in keys.items()}
    return Custom(routes, reader, writer, ACCESS, list_terms=list_terms)


def build_fixed(field: Field, value: Any, applies: Callable[[Config], bool] | None = None) -> Custom:
    """Return the lens of a value that no setting changes."""

    def read_value(config: Config) -> Iterator[Triple]:
        if applies is None or applies(config):
            yield field, value, Origin("default", note=config.default_note, framework=config.framework)

    return Custom({field: ()}, read_value, refuse_write)


def is_dynamic(config: Config) -> bool | None:
    """Return whether micro batches are filled up to a number of tokens, or None if that is unknown."""
    if find_route(config, parse_routes(*key.DYNAMIC)) is None:
        return False
    value = read(config, PLAIN.boolean, *key.DYNAMIC)
    return None if value is None else bool(value)


def has_adapter(config: Config) -> bool:
    """Return whether the run trains a LoRA adapter."""
    return (read(config, PLAIN.integer, *key.LORA_RANK) or 0) > 0


def get_context_size(config: Config) -> int:
    """Return the ranks that share a sequence (Ulysses)."""
    return max(read(config, COUNT, *key.ULYSSES) or 1, read(config, COUNT, *key.VEOMNI_ULYSSES) or 1)


def _read_stage(config: Config) -> Iterator[Triple]:
    if not is_ppo(config):
        yield "method.stage", "sft", Origin("explicit", config.find_top(), framework="verl")
        return
    estimator = read(config, PLAIN.string, *key.ESTIMATOR)
    if estimator is not None:
        yield "method.stage", _ESTIMATORS.get(estimator, "reinforce"), find_origin(config, *key.ESTIMATOR)
        yield "rollout.advantage", estimator, find_origin(config, *key.ESTIMATOR)


def _read_tuning(config: Config) -> Iterator[Triple]:
    rank, origin = read(config, PLAIN.integer, *key.LORA_RANK), find_origin(config, *key.LORA_RANK)
    if rank is None:
        if has_defaults(config) and find_route(config, parse_routes(*key.LORA_RANK)) is None:
            yield "method.tuning", "full", origin
        return
    yield "method.tuning", "lora" if rank > 0 else "full", origin
    if rank <= 0:
        return
    yield "method.lora_rank", rank, origin
    targets = read(config, Codec(lambda value: value), *key.LORA_TARGETS)
    names = [targets] if isinstance(targets, str) else targets
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    yield "method.lora_targets", tuple(names) if is_list and names else None, find_origin(config, *key.LORA_TARGETS)


def write_tuning(config: Config, changes: Changes) -> list[Change]:
    """Return the change of an adapter's rank; raise CannotEdit for other changes."""
    rank = changes.get("method.lora_rank")
    if set(changes) != {"method.lora_rank"} or not isinstance(rank, int) or rank < 1 or not has_adapter(config):
        raise CannotEdit("fixes only change the rank of existing adapters")
    return put(config, rank, *key.LORA_RANK)


def _read_optimizer(config: Config) -> Iterator[Triple]:
    """Yield the optimizer; releases without a setting for it build AdamW."""
    module, name = (read(config, PLAIN.string, *names) for names in (key.OPTIMIZER_MODULE, key.OPTIMIZER))
    route = find_route(config, parse_routes(*key.OPTIMIZER))
    has_setting = route is not None and (has_key(config, route) or not has_known_tree(config))
    choice, origin = _OPTIMIZERS.get((module, name)) if has_setting else _ADAMW, find_origin(config, *_OPTIMIZER_KEYS)
    if choice is None and module and name:
        note = f"the states of `{module}.{name}` are unknown to cfglint"
        origin = origin._replace(note=note, is_unsupported=True)
    for field, value in zip(OPTIMIZER_FIELDS, choice or (None,) * len(OPTIMIZER_FIELDS), strict=True):
        if value is not None or field == "optimizer.name":
            yield field, value, origin


def _read_mode(config: Config) -> Iterator[Triple]:
    """Yield where the engine is: on the trainer's GPUs, or on those of a pool.

    Only the trees of asynchronous training count the engine's GPUs (verl 0.9.1 `experimental/*/config/`).
    """
    if is_ppo(config):
        is_counted = any(config.has(*route) for route in parse_routes(*key.POOL_SIZE))
        is_separate = is_counted or read(config, PLAIN.boolean, *key.HYBRID) is False
        yield "rollout.mode", "pool" if is_separate else "colocate", find_origin(config, *key.HYBRID)


def _read_strategy(config: Config) -> Iterator[Triple]:
    origin = find_origin(config, *key.STRATEGY)
    strategy = read(config, PLAIN.string, *key.STRATEGY)
    invocation, entry = get_invocation(config), find_entry(config).split("_")
    other = "" if invocation is None else find_other_engine(invocation)
    strategy = other or next((name for name in entry if name in key.OTHER_ENGINES), strategy)
    if other or strategy in key.OTHER_ENGINES:
        title = key.OTHER_ENGINES.get(strategy, strategy)
        note = f"how {title} divides the model is not estimated: only FSDP is"
        yield "parallel.strategy", None, origin._replace(note=note, is_unsupported=True)
    elif strategy is not None:
        yield "parallel.strategy", _STRATEGIES.get(strategy), origin


def _write_strategy(config: Config, changes: Changes) -> list[Change]:
    spelling = next((name for name, value in _STRATEGIES.items() if value == changes["parallel.strategy"]), None)
    if spelling is None:
        raise CannotEdit("verl shards with FSDP or FSDP2")
    return put(config, spelling, *key.STRATEGY)


def _read_length(config: Config) -> Iterator[Triple]:
    if not is_ppo(config):
        length = read(config, COUNT, *key.LENGTH)
        if length is not None:
            yield "sequence.length", length, find_origin(config, *key.LENGTH)
        return
    prompt, response = read(config, COUNT, *key.PROMPT_LENGTH), read(config, COUNT, *key.RESPONSE_LENGTH)
    if response is not None:
        yield "rollout.new_tokens", response, find_origin(config, *key.RESPONSE_LENGTH)
    if prompt is not None and response is not None:
        origin = find_origin(config, *key.RESPONSE_LENGTH)
        yield "sequence.length", prompt + response, origin._replace(note=origin.note or "prompt plus response")


def _read_padding(config: Config) -> Iterator[Triple]:
    value = read(config, PLAIN.boolean, *key.REMOVE_PADDING)
    if value is not None:
        origin = find_origin(config, *key.REMOVE_PADDING)
        yield "sequence.packing", value, origin
        yield "sequence.padding", "longest" if value else "max_length", origin


def _write_padding(config: Config, changes: Changes) -> list[Change]:
    if changes.get("sequence.padding", "longest") != "longest" or changes.get("sequence.packing", True) is not True:
        raise CannotEdit("fixes only remove padding")
    return put(config, True, *key.REMOVE_PADDING)


def _list_length_terms(config: Config) -> tuple[Route, ...]:
    names = (key.PROMPT_LENGTH, key.RESPONSE_LENGTH) if is_ppo(config) else (key.LENGTH,)
    routes = (find_route(config, parse_routes(*group)) for group in names)
    return tuple(route for route in routes if route is not None)


def _write_length(config: Config, changes: Changes) -> list[Change]:
    length = changes.get("sequence.length")
    if is_ppo(config) or set(changes) != {"sequence.length"} or not isinstance(length, int):
        raise CannotEdit("the length is the longest prompt plus the longest response")
    return put(config, length, *key.LENGTH)


def build_product(
    field: Field,
    names: key.Names,
    factor: Callable[[Config], int | None],
    applies: Callable[[Config], bool | None] = lambda _: True,
    sft_names: key.Names = (),
) -> Custom:
    """Return the lens of a field that is a setting times another number."""

    def find_names(config: Config) -> key.Names:
        return names if is_ppo(config) or not sft_names else sft_names

    def read_product(config: Config) -> Iterator[Triple]:
        if not applies(config):
            return
        value, times = read(config, COUNT, *find_names(config)), factor(config)
        if value is not None:
            yield field, None if times is None else value * times, find_origin(config, *find_names(config))
        elif any(config.has(*route) for route in parse_routes(*find_names(config))):
            yield field, None, find_origin(config, *find_names(config))

    def write_product(config: Config, changes: Changes) -> list[Change]:
        times, value = factor(config), changes[field]
        if not applies(config) or not times or not isinstance(value, int) or value % times:
            raise CannotEdit(f"{find_names(config)[0]} cannot give {changes[field]}")
        return put(config, value // times, *find_names(config))

    def list_terms(config: Config) -> tuple[Route, ...]:
        route = find_route(config, parse_routes(*find_names(config)))
        return () if route is None else (route,)

    return build_custom({field: (*names, *sft_names)}, read_product, write_product, list_terms)


def _read_coefficient(config: Config) -> Iterator[Triple]:
    """Yield the largest coefficient of the KL terms that are on, 0 if none is; each needs the reference's outputs."""
    largest: Triple = ("rollout.kl_coefficient", 0.0, find_origin(config, *key.KL_LOSS))
    for switch, names in ((key.KL_LOSS, key.KL_LOSS_COEFFICIENT), (key.KL_REWARD, key.KL_REWARD_COEFFICIENT)):
        is_on, coefficient = read(config, PLAIN.boolean, *switch), read(config, PLAIN.number, *names)
        if is_on is None or (is_on and coefficient is None):
            return
        if is_on and (coefficient > largest[1] or largest[1] == 0):
            is_stated = any(config.has(*route) for route in parse_routes(*names))
            largest = (largest[0], coefficient, find_origin(config, *(names if is_stated else switch)))
    if has_own_trainer(config):  # the loss of another program may need the reference's outputs
        yield largest


def _write_coefficient(config: Config, changes: Changes) -> list[Change]:
    raise CannotEdit("two settings add a KL term")


def _read_sleep(config: Config) -> Iterator[Triple]:
    """Yield whether weights and states leave the GPU between the passes.

    Source: verl 0.9.1 `workers/engine/base.py`, `workers/engine/fsdp/transformer_impl.py`.
    """
    if not is_ppo(config):
        return
    fields: tuple[tuple[Field, key.Names], ...] = (
        ("rollout.weights_sleep", key.WEIGHTS_SLEEP),
        ("rollout.train_sleep", key.STATES_SLEEP),
    )
    for field, names in fields:
        value = read(config, PLAIN.boolean, *names)
        if value is not None:
            yield field, bool(value), find_origin(config, *names)


def _write_sleep(config: Config, changes: Changes) -> list[Change]:
    settings = {"rollout.weights_sleep": key.WEIGHTS_SLEEP, "rollout.train_sleep": key.STATES_SLEEP}
    return [change for field, value in changes.items() for change in put(config, value, *settings[field])]


def _read_offload(config: Config) -> Iterator[Triple]:
    """Yield where FSDP2 keeps the weights, gradients and states of the actor (torch's CPUOffloadPolicy)."""
    value = read(config, PLAIN.boolean, *key.OFFLOAD_POLICY)
    if value is not None and is_fsdp2(config):
        for field in OFFLOADED:
            yield field, "cpu" if value else "none", find_origin(config, *key.OFFLOAD_POLICY)


def _write_offload(config: Config, changes: Changes) -> list[Change]:
    devices = set(changes.values())
    if set(changes) != set(OFFLOADED) or len(devices) != 1 or not is_fsdp2(config):
        raise CannotEdit("only FSDP2 has an offload policy, which is for weights and states alike")
    return put(config, devices == {"cpu"}, *key.OFFLOAD_POLICY)


def _read_scoring(config: Config) -> Iterator[Triple]:
    """Yield the larger micro batch of the passes that score; dynamic batches have a token budget."""
    if is_ppo(config) and not is_dynamic(config):
        sizes = [(size, names) for names in _SCORING if (size := read(config, COUNT, *names))]
        if sizes:
            size, names = max(sizes)
            yield "rollout.micro", size, find_origin(config, *names)


def _write_scoring(config: Config, changes: Changes) -> list[Change]:
    size = changes.get("rollout.micro")
    larger = [names for names in _SCORING if isinstance(size, int) and (read(config, COUNT, *names) or 0) > size]
    if not larger or set(changes) != {"rollout.micro"}:
        raise CannotEdit("fixes only lower the micro batches that score")
    return [change for names in larger for change in put(config, size, *names)]


def is_fsdp2(config: Config) -> bool:
    """Return whether the actor is sharded by FSDP2."""
    return bool(read(config, PLAIN.string, *key.STRATEGY) == "fsdp2")


def get_samples(config: Config) -> int | None:
    """Return the answers per prompt in PPO, 1 in supervised training, or None if unknown."""
    return read(config, COUNT, *key.SAMPLES) if is_ppo(config) else 1


def _read_saving(config: Config) -> Iterator[Triple]:
    frequency, origin = read(config, PLAIN.integer, *key.SAVE_FREQUENCY), find_origin(config, *key.SAVE_FREQUENCY)
    if origin.kind == "default" and not has_known_tree(config):
        note = f"the tree of `{find_program(config)}` has verl's default of `{key.SAVE_FREQUENCY[0]}`"
        origin = origin._replace(assumption=origin.assumption or note)
    if frequency is None:
        if any(config.has(*route) for route in parse_routes(*key.SAVE_FREQUENCY)):
            yield "checkpoint.strategy", None, origin
        return
    yield "checkpoint.strategy", "steps" if frequency > 0 else "no", origin
    if frequency > 0:
        yield "checkpoint.interval", frequency, origin
    # PPO saves the last step only if it saves at all (trainer/ppo/ray_trainer.py); sft_trainer always does.
    yield (
        "checkpoint.final",
        frequency > 0 or not is_ppo(config),
        origin._replace(kind="inferred", note="the last step"),
    )


def write_saving(config: Config, changes: Changes) -> list[Change]:
    """Return the change of the save interval; raise CannotEdit for other changes."""
    interval = changes.get("checkpoint.interval")
    if changes.get("checkpoint.strategy", "steps") != "steps" or not isinstance(interval, int) or interval < 1:
        raise CannotEdit("the trainer saves at an interval of steps, or not at all")
    return put(config, interval, *key.SAVE_FREQUENCY)


def _read_contents(config: Config) -> Iterator[Triple]:
    contents = read(config, Codec(lambda value: value), *key.CONTENTS)
    origin = find_origin(config, *key.CONTENTS)
    if isinstance(contents, list):
        yield "checkpoint.model_only", "optimizer" not in contents, origin
        yield "checkpoint.hf_export", "hf_model" in contents, origin


def _read_testing(config: Config) -> Iterator[Triple]:
    frequency, origin = read(config, PLAIN.integer, *key.TEST_FREQUENCY), find_origin(config, *key.TEST_FREQUENCY)
    if frequency is None:
        return
    yield "eval.enabled", frequency > 0, origin
    yield "eval.strategy", "steps" if frequency > 0 else "no", origin
    if frequency > 0:
        yield "eval.interval", frequency, origin


def _write_testing(config: Config, changes: Changes) -> list[Change]:
    interval = changes.get("eval.interval")
    if set(changes) != {"eval.interval"} or not isinstance(interval, int) or interval < 1:
        raise CannotEdit("only the number of steps between tests has a setting")
    return put(config, interval, *key.TEST_FREQUENCY)


def _read_keep(config: Config) -> Iterator[Triple]:
    route = find_route(config, parse_routes(*key.KEEP))
    if route is None:
        return
    value, origin = read(config, Codec(lambda value: value), *key.KEEP), find_origin(config, *key.KEEP)
    if value is None and (config.get(*route, default=None) is None):
        yield "checkpoint.keep", "all", origin
    elif isinstance(value, int):
        # max_ckpt_to_keep 0 and below keep all (utils/checkpoint/checkpoint_manager.py).
        yield "checkpoint.keep", value if value > 0 else "all", origin


def _write_keep(config: Config, changes: Changes) -> list[Change]:
    keep = changes["checkpoint.keep"]
    return put(config, None if keep == "all" else keep, *key.KEEP)


def _read_launch(config: Config) -> Iterator[Triple]:
    invocation = get_invocation(config)
    if invocation is None or not isinstance(config.document, ShellDocument):
        return
    launch = read_launch(config.document, invocation)
    yield from launch.list_common_fields(Origin("explicit", config.find_top(), framework="verl"))


def _build_count(field: Field, names: key.Names) -> Key:
    return build_key(field, names, COUNT, applies=is_ppo)


LENSES: Final[tuple[Lens, ...]] = (
    build_key("model.id", key.MODEL, accept_unknown_folder(PLAIN.string)),
    build_key("model.trust_remote_code", key.REMOTE_CODE, PLAIN.boolean, default=False),
    build_custom({"method.stage": key.ESTIMATOR, "rollout.advantage": key.ESTIMATOR}, _read_stage),
    build_custom(
        {"method.tuning": key.LORA_RANK, "method.lora_rank": key.LORA_RANK, "method.lora_targets": key.LORA_TARGETS},
        _read_tuning,
        write_tuning,
    ),
    build_key("method.lora_alpha", key.LORA_ALPHA, PLAIN.number, applies=has_adapter),
    build_fixed("method.quantization", "none"),
    build_key("precision.params", key.MODEL_DTYPE, DTYPE, default="fp32", null_value="fp32"),
    build_key("precision.compute", key.COMPUTE_DTYPE, DTYPE, default="bf16"),
    build_custom(dict.fromkeys(OPTIMIZER_FIELDS, _OPTIMIZER_KEYS), _read_optimizer),
    build_key("optimizer.learning_rate", key.LEARNING_RATE, PLAIN.number),
    build_key("optimizer.clipping", key.CLIPPING, PLAIN.number),
    build_key("batch.micro", key.MICRO, COUNT, applies=lambda config: is_dynamic(config) is False),
    build_product("batch.global_", key.MINI, get_samples, sft_names=key.BATCH),
    build_product("batch.tokens_per_gpu", key.TOKENS, get_context_size, is_dynamic),
    build_key("batch.steps", key.STEPS, COUNT),
    build_key("batch.epochs", key.EPOCHS, PLAIN.integer),
    build_custom(
        {
            "sequence.length": (*key.PROMPT_LENGTH, *key.RESPONSE_LENGTH, *key.LENGTH),
            "rollout.new_tokens": key.RESPONSE_LENGTH,
        },
        _read_length,
        _write_length,
        _list_length_terms,
    ),
    build_custom(
        dict.fromkeys(("sequence.packing", "sequence.padding"), key.REMOVE_PADDING), _read_padding, _write_padding
    ),
    build_key("activations.checkpointing", key.CHECKPOINTING, _RECOMPUTE),
    build_key("activations.offload", key.ACTIVATION_OFFLOAD, _OFFLOAD, default="none"),
    build_key("activations.liger_layers", key.LIGER, PLAIN.boolean, default=False),
    build_key("activations.tiled_mlp", key.TILED_MLP, PLAIN.boolean, default=False),
    build_key("activations.attention", key.ATTENTION, _ATTENTION, default="flash"),
    build_custom({"parallel.strategy": key.STRATEGY}, _read_strategy, _write_strategy),
    build_key("parallel.context", key.ULYSSES, COUNT, default=1),
    build_custom(dict.fromkeys(OFFLOADED, key.OFFLOAD_POLICY), _read_offload, _write_offload),
    build_key("parallel.reshard_after_forward", key.RESHARD, PLAIN.boolean, default=True),
    build_custom(
        dict.fromkeys(("checkpoint.strategy", "checkpoint.interval", "checkpoint.final"), key.SAVE_FREQUENCY),
        _read_saving,
        write_saving,
    ),
    build_custom(dict.fromkeys(("checkpoint.model_only", "checkpoint.hf_export"), key.CONTENTS), _read_contents),
    build_custom({"checkpoint.keep": key.KEEP}, _read_keep, _write_keep),
    build_key("checkpoint.path", key.FOLDER, PLAIN.string),
    build_custom(
        dict.fromkeys(("eval.enabled", "eval.strategy", "eval.interval"), key.TEST_FREQUENCY),
        _read_testing,
        _write_testing,
    ),
    build_key("data.workers", key.WORKERS, PLAIN.integer),
    build_key("rollout.engine", key.ENGINE, _ENGINES, applies=is_ppo),
    build_custom({"rollout.mode": key.HYBRID}, _read_mode),
    build_key("rollout.utilization", key.UTILIZATION, PLAIN.number, applies=is_ppo),
    _build_count("rollout.tensor", key.TENSOR),
    build_key("rollout.expert", key.EXPERT, COUNT, default=1, applies=is_ppo),
    _build_count("rollout.batch", key.PROMPTS),
    _build_count("rollout.samples_per_prompt", key.SAMPLES),
    build_custom({"rollout.micro": _SCORING[0]}, _read_scoring, _write_scoring),
    build_key("rollout.sleep", key.SLEEP, PLAIN.boolean, applies=is_ppo),
    build_custom(
        {"rollout.weights_sleep": key.WEIGHTS_SLEEP, "rollout.train_sleep": key.STATES_SLEEP}, _read_sleep, _write_sleep
    ),
    build_custom(
        {"rollout.kl_coefficient": (*key.KL_LOSS_COEFFICIENT, *key.KL_REWARD_COEFFICIENT)},
        _read_coefficient,
        _write_coefficient,
    ),
    build_key("rollout.enforce_eager", key.EAGER, PLAIN.boolean, applies=is_ppo),
    _build_count("launch.nodes", key.NODES),
    _build_count("launch.gpus_per_node", key.GPUS),
    build_custom(dict.fromkeys(("launch.launcher", "launch.working_copy", "launch.environment"), ()), _read_launch),
)

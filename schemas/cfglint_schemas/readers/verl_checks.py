"""Settings of verl whose values its PPO trainer certainly checks: words, and numbers that it computes with.

The words are read from the code of the release or of the copy. A number counts only if the code has the expression in
the table. `x-checked-if` states the settings with which the code runs; trainers of recipes are not judged by it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from cfglint_schemas.readers.checks import (
    Words,
    find_asserted_words,
    find_branch_words,
    find_registered_words,
)
from cfglint_schemas.readers.source import Source, UndecidedError, evaluate
from cfglint_schemas.readers.types import Fragment
from cfglint_train.foundation.frozen import Frozen

Conditions = Mapping[str, Any]
FindWords = Callable[[Source], "Words | None"]

_TRAINED: Final[Conditions] = {"=trainer.val_only": "off"}
_DYNAMIC: Final[Conditions] = {"=actor_rollout_ref.actor.use_dynamic_bsz": "true"}
_FIXED: Final[Conditions] = {"=actor_rollout_ref.actor.use_dynamic_bsz": "off"}
_POLICY_LOSS: Final[Conditions] = {"=distillation.enabled": "off"}
_KL_LOSS: Final[Conditions] = {**_POLICY_LOSS, "=actor_rollout_ref.actor.use_kl_loss": "true"}
_KL_REWARD: Final[Conditions] = {"=algorithm.use_kl_in_reward": "true"}
_REGISTERED: Final[Conditions] = {
    "=reward.reward_manager.source": {"in": ["register"]},
    "reward_model.reward_manager": "absent",
}
_REGISTERED_FORMERLY: Final[Conditions] = {"=reward_manager.source": {"in": ["register"]}}
_REGISTERED_FIRST: Final[Conditions] = {
    "=reward_model.reward_loop_source": {"absent-or": ["register"]},
    "=reward_manager.source": {"absent-or": ["register"]},
    "=reward.reward_manager.source": {"absent-or": ["register"]},
    "reward_manager.name": "absent",
}
_VERL_DATASET: Final[Conditions] = {"=data.custom_cls.path": "absent"}
_VERL_OPTIMIZER: Final[Conditions] = {"actor_rollout_ref.actor.optim.optimizer_impl": "absent"}
_VLLM: Final[Conditions] = {"=actor_rollout_ref.rollout.name": {"in": ["vllm"]}}
"""`hf` (`HFRollout`) does not read the setting, and SGLang (`ServerArgs`) takes null for a share of its own choice."""
_CRITIC: Final[Conditions] = {"=algorithm.adv_estimator": {"in": ["gae"]}, "=critic.enable": {"not": "false"}}
_ALGORITHMS: Final = "verl.trainer.ppo.core_algos"
_FSDP: Final = ("fsdp", "fsdp2")
_ENGINE: Final = "verl/workers/engine"
_LOOP: Final = "verl/experimental/reward_loop"

_UNBUILT_SECTIONS: Final = ("actor_rollout_ref.ref", "reward", "reward_model", "distillation")
"""Sections of models that only some runs build."""


def find_building_conditions(route: tuple[str, ...]) -> Conditions | None:
    """Return the settings with which the trainer builds the dataclass of a section, or None if they are not known."""
    name = ".".join(route)
    if any(f"{name}.".startswith(f"{section}.") for section in _UNBUILT_SECTIONS):
        return None
    return _CRITIC if route[:1] == ("critic",) else {}


def _find_branches(
    expression: str, places: tuple[tuple[str, str], ...], source: Source, switch: str = ""
) -> Words | None:
    """Return the words of branches in the first of the modules and functions that has them."""
    for name, function in places:
        module = source.find_module(name)
        for tree in () if module is None else _list_functions(module.tree, function):
            if module is not None and (words := find_branch_words(tree, module, expression, switch)) is not None:
                return words
    return None


def _list_functions(tree: ast.AST, name: str) -> Iterator[ast.AST]:
    yield from (
        (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name)
        if name
        else (tree,)
    )


def _find_estimators(source: Source) -> Words | None:
    places = (("verl.trainer.ppo.ray_trainer", "__init__"),)
    words = _find_branches("config.algorithm.adv_estimator", places, source)
    return words or find_registered_words(source, "verl", "register_adv_est")


def _find_losses(source: Source) -> Words | None:
    words = find_registered_words(source, "verl", "register_policy_loss")
    return words and list(dict.fromkeys(["vanilla", *words]))


def _find_strategies(role: str, source: Source) -> Words | None:
    # With `use_legacy_worker_impl=disable`, the registry of engines refuses other words.
    branches = _find_branches(f"{role}.strategy", (("verl.trainer.main_ppo", ""),), source, "use_legacy_worker_impl")
    engines = find_registered_words(source, _ENGINE, "EngineRegistry.register", argument="backend")
    is_checked = branches is not None or source.find_module("verl.trainer.main_ppo_v0") or _is_engine_only(source)
    return list(dict.fromkeys([*(branches or ()), *(engines or ())])) or None if is_checked else None


def _is_engine_only(source: Source) -> bool:
    """Return whether the workers build every engine from the registry."""
    return source.find_module("verl.workers.engine_workers") is not None and not source.find_module(
        "verl.workers.fsdp_workers"
    )


def _find_rollouts(position: int, source: Source) -> Words | None:
    """Return the names or the modes of the rollout's engines."""
    module = source.find_module("verl.workers.rollout.base")
    symbol = None if module is None else module.bindings.get("_ROLLOUT_REGISTRY")
    if module is None or symbol is None:
        places = (("verl.workers.fsdp_workers", "_build_rollout"),)
        return None if position else _find_branches("rollout_name", places, source)
    try:
        pairs = [evaluate(module, key) for key in getattr(symbol, "keys", ())]
    except UndecidedError:
        return None
    is_known = all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
    return list(dict.fromkeys(pair[position] for pair in pairs)) or None if is_known else None


def _find_divergences(source: Source) -> Words | None:
    """Return the estimators of the KL divergence, with those that end in `+` if the release strips the sign."""
    places = ((_ALGORITHMS, "kl_penalty_forward"), (_ALGORITHMS, "kl_penalty"))
    words = _find_branches("kl_penalty", places, source)
    is_stripped = "kl_penalty[:-1]" in source.tree.files.get("verl/trainer/ppo/core_algos.py", "")
    return words and [*words, *(f"{word}+" for word in words if is_stripped)]


def _find_reward_managers(source: Source) -> Words | None:
    """Return the reward managers; since 0.7.0, a loop has a registry of its own, which replaced the older one."""
    if "reward.reward_manager" in source.tree.files.get("verl/trainer/ppo/reward.py", ""):
        return find_registered_words(source, _LOOP, "register", "register_manager")
    places = (("verl.trainer.main_ppo", ""), ("verl.trainer.ppo.reward", ""))
    words = _find_branches("reward_manager_name", places, source)
    words = words or find_registered_words(source, "verl/workers/reward_manager", "register")
    others = find_registered_words(source, _LOOP, "register", "register_manager")
    return words and list(dict.fromkeys([*words, *(others or ())]))


def _find_truncations(source: Source) -> Words | None:
    """Return the ways to cut a prompt, if the data set of prompts cuts them."""
    module = source.find_module("verl.utils.torch_functional")
    is_cut = "truncation=self.truncation" in source.tree.files.get("verl/utils/dataset/rl_dataset.py", "")
    return find_asserted_words(module.tree, module, "truncation") if module is not None and is_cut else None


def _find_loggers(source: Source) -> Words | None:
    module = source.find_module("verl.utils.tracking")
    symbol = None if module is None else module.bindings.get("Tracking")
    for node in getattr(symbol, "body", ()):
        if (
            module is not None
            and getattr(next(iter(getattr(node, "targets", ())), None), "id", "") == "supported_backend"
        ):
            try:
                return [*evaluate(module, node.value), "tracking"]
            except UndecidedError:
                return None
    return None


class WordCheck(Frozen):
    """A setting that accepts certain words."""

    name: str
    find_words: FindWords
    conditions: Conditions = {}
    is_open: bool = False
    """True if the user's code may register other words."""
    is_list: bool = False


class NumberCheck(Frozen):
    """A setting that the trainer computes with, so that it stops for a word."""

    name: str
    expressions: tuple[str, ...]
    """Regular expressions of the computation, of which the code must have one."""
    conditions: Conditions = {}


WORD_CHECKS: Final = (
    WordCheck("algorithm.adv_estimator", _find_estimators, is_open=True),
    WordCheck("algorithm.kl_penalty", _find_divergences, _KL_REWARD),
    WordCheck(
        "algorithm.kl_ctrl.type",
        partial(_find_branches, "kl_ctrl.type", ((_ALGORITHMS, "get_kl_controller"),)),
        _KL_REWARD,
    ),
    WordCheck("actor_rollout_ref.actor.strategy", partial(_find_strategies, "actor"), is_open=True),
    WordCheck("critic.strategy", partial(_find_strategies, "critic"), _CRITIC, is_open=True),
    WordCheck("actor_rollout_ref.actor.kl_loss_type", _find_divergences, _KL_LOSS),
    WordCheck(
        "actor_rollout_ref.actor.loss_agg_mode",
        partial(_find_branches, "loss_agg_mode", ((_ALGORITHMS, "agg_loss"),)),
    ),
    WordCheck("actor_rollout_ref.actor.policy_loss.loss_mode", _find_losses, _POLICY_LOSS, is_open=True),
    WordCheck("actor_rollout_ref.rollout.name", partial(_find_rollouts, 0), is_open=True),
    WordCheck("actor_rollout_ref.rollout.mode", partial(_find_rollouts, 1)),
    WordCheck("data.truncation", _find_truncations, _VERL_DATASET),
    WordCheck("reward_model.reward_manager", _find_reward_managers, _REGISTERED_FIRST, is_open=True),
    WordCheck("reward_manager.name", _find_reward_managers, _REGISTERED_FORMERLY, is_open=True),
    WordCheck("reward.reward_manager.name", _find_reward_managers, _REGISTERED, is_open=True),
    WordCheck("trainer.logger", _find_loggers, is_list=True),
)

_LENGTHS: Final = (r"\bprompt_length \+ (self\.)?config\.response_length", r"max_length=self\.max_prompt_length")
NUMBER_CHECKS: Final = (
    NumberCheck("trainer.nnodes", (r"\] \* config\.trainer\.nnodes",)),
    NumberCheck("trainer.n_gpus_per_node", (r"\[config\.trainer\.n_gpus_per_node\] \*",)),
    NumberCheck("trainer.total_epochs", (r"\* self\.config\.trainer\.total_epochs",)),
    NumberCheck("trainer.save_freq", (r"self\.config\.trainer\.save_freq > 0",)),
    NumberCheck("trainer.test_freq", (r"self\.config\.trainer\.test_freq > 0",)),
    NumberCheck("trainer.critic_warmup", (r"self\.config\.trainer\.critic_warmup <= self\.",)),
    NumberCheck("data.train_batch_size", (r"\bdata\.train_batch_size",), {"data.gen_batch_size": "absent"}),
    NumberCheck("data.max_prompt_length", _LENGTHS, {"actor_rollout_ref.rollout.prompt_length": "absent"}),
    NumberCheck("data.max_response_length", _LENGTHS[:1], {"actor_rollout_ref.rollout.response_length": "absent"}),
    NumberCheck("actor_rollout_ref.model.lora_rank", (r"\blora_rank(\", 0\))? > 0",)),
    NumberCheck(
        "actor_rollout_ref.actor.ppo_mini_batch_size",
        (r"actor\.ppo_mini_batch_size //=", r"ppo_mini_batch_size \* self\.config\.actor_rollout_ref\.rollout\.n"),
    ),
    NumberCheck(
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        (r"split\(self\.config\.ppo_micro_batch_size_per_gpu\)", r"actor\.ppo_micro_batch_size_per_gpu"),
        _FIXED,
    ),
    NumberCheck(
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
        (r"self\.config\.ppo_max_token_len_per_gpu \*", r"actor\.ppo_max_token_len_per_gpu"),
        _DYNAMIC,
    ),
    NumberCheck("actor_rollout_ref.actor.ppo_epochs", (r"range\(self\.config\.ppo_epochs\)", r"actor\.ppo_epochs")),
    NumberCheck(
        "actor_rollout_ref.actor.entropy_coeff", (r"entropy_coeff = (self\.)?config\.entropy_coeff",), _POLICY_LOSS
    ),
    NumberCheck("actor_rollout_ref.actor.kl_loss_coef", (r"kl_loss \* (self\.)?config\.kl_loss_coef",), _KL_LOSS),
    NumberCheck(
        "actor_rollout_ref.actor.optim.lr",
        (r"lr=optim_config\.lr", r"\"lr\": config\.lr"),
        _VERL_OPTIMIZER,
    ),
    NumberCheck("critic.optim.lr", (r"lr=config\.optim\.lr", r"\"lr\": config\.lr"), _CRITIC),
    NumberCheck("actor_rollout_ref.rollout.n", (r"\brollout\.n\b",)),
    NumberCheck(
        "actor_rollout_ref.rollout.tensor_model_parallel_size", (r"infer_tp = \S+\.tensor_model_parallel_size",)
    ),
    NumberCheck(
        "actor_rollout_ref.rollout.gpu_memory_utilization",
        (r"gpu_memory_utilization\"?[=:] ?(self\.)?config\.gpu_memory_utilization",),
        _VLLM,
    ),
)
_COMPUTING_CODE: Final = ("verl/trainer/", "verl/workers/", "verl/utils/")


class Checks:
    """The checks of one release, by setting."""

    def __init__(self, source: Source) -> None:
        """Read the words, and find the computations."""
        self._schemas: dict[str, Fragment] = {}
        for word_check in WORD_CHECKS:
            words = word_check.find_words(source)
            if words:
                self._schemas[word_check.name] = {
                    "enum": words,
                    **({"type": "array"} if word_check.is_list else {}),
                    **({"x-registry": True} if word_check.is_open else {}),
                    "x-checked-if": {**_TRAINED, **word_check.conditions},
                }
        texts = [
            text
            for path, text in source.tree.files.items()
            if path.startswith(_COMPUTING_CODE) and path.endswith(".py") and "sft" not in path
        ]
        for check in NUMBER_CHECKS:
            if any(re.search(expression, text) for expression in check.expressions for text in texts):
                self._schemas[check.name] = {"x-checked-if": {**_TRAINED, **check.conditions}}

    def add(self, route: tuple[str, ...], schema: Fragment) -> Fragment:
        """Return the schema of a setting with what the release checks; a tree's own default is accepted."""
        name, default = ".".join(route), schema.get("default")
        check, rest = self._schemas.get(name), {word: schema[word] for word in schema if word not in ("type", "items")}
        if check is None or "$ref" in schema or not self._is_checked(name, check, default):
            return schema
        if "enum" in check:
            return {
                **rest,
                **check,
                "enum": [*check["enum"], *([None] if default is None and "default" in schema else [])],
            }
        rest.pop("x-unchecked", None)
        types = ["number", "null"] if default is None and "default" in schema else "number"
        return {**rest, "type": schema.get("type", types), **check}

    def _is_checked(self, name: str, check: Fragment, default: Any) -> bool:
        if name.endswith(".strategy") and default not in _FSDP:
            return False  # groups of other engines have the strategy of their own dataclass
        defaults = default if isinstance(default, list) else [default]
        return "enum" not in check or default is None or all(item in check["enum"] for item in defaults)

"""Ask the code of one release of verl which words it accepts for a setting.

    python tests/oracles/verl_words.py FOLDER < questions.jsonl
    {"check": "algorithm.adv_estimator", "word": "grpo"}
    {"accepted": true, "why": null}

FOLDER holds the release's `verl` package. The functions that read the setting run with empty objects in place of
tensors; other packages (torch, ray, transformers) are empty objects. `accepted` is null if the release has no such
function.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verl_config import REFUSALS, load_release

ALGORITHMS = "verl.trainer.ppo.core_algos"
CHECKED = (ValueError, NotImplementedError, AssertionError)
"""What verl's checks raise; anything else comes from the objects in place of tensors."""


def call(module: str, name: str, *words: Any, **named: Any) -> None:
    """Call a function of the release; what such an object raises later does not count."""
    function = getattr(importlib.import_module(module), name)
    try:
        function(*words, **named)
    except CHECKED:
        raise
    except Exception:
        return


def check_estimator(folder: Path, word: str) -> None:
    """Run the constructor's choice of a critic, then the look-up of the estimator."""
    tree = ast.parse((folder / "verl/trainer/ppo/ray_trainer.py").read_text(encoding="utf-8"))
    trainer = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "RayPPOTrainer")
    start = next(node for node in trainer.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    choices = [
        node for node in ast.walk(start) if isinstance(node, ast.If) and "adv_estimator" in ast.unparse(node.test)
    ]
    algorithms = importlib.import_module(ALGORITHMS)
    names: dict[str, Any] = {"self": types.SimpleNamespace(config=types.SimpleNamespace())}
    names["config"] = names["self"].config
    names["config"].algorithm = types.SimpleNamespace(adv_estimator=word)
    if choices and choices[0].orelse:
        source = algorithms if hasattr(algorithms, "AdvantageEstimator") else None
        names["AdvantageEstimator"] = getattr(source, "AdvantageEstimator", None) or read_enumeration(tree)
        exec(compile(ast.Module([choices[0]], []), "ray_trainer", "exec"), names)
    if hasattr(algorithms, "get_adv_estimator_fn"):
        algorithms.get_adv_estimator_fn(word)


def read_enumeration(tree: ast.Module) -> Any:
    """Return the enumeration of estimators of a release that defines it beside the trainer."""
    names: dict[str, Any] = {}
    node = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "AdvantageEstimator")
    exec(compile(ast.Module([*ast.parse("from enum import Enum").body, node], []), "ray_trainer", "exec"), names)
    return names["AdvantageEstimator"]


def check_divergence(_: Path, word: str) -> None:
    """Compute a KL divergence."""
    from verl_config import _Anything

    call(ALGORITHMS, "kl_penalty", _Anything(), _Anything(), word)


def check_loss(_: Path, word: str) -> None:
    """Look the loss up, unless it is the one that older releases compute without a look-up."""
    if word != "vanilla" or "vanilla" in importlib.import_module(ALGORITHMS).POLICY_LOSS_REGISTRY:
        importlib.import_module(ALGORITHMS).get_policy_loss_fn(word)


def check_aggregation(_: Path, word: str) -> None:
    """Aggregate a loss."""
    from verl_config import _Anything

    call(ALGORITHMS, "agg_loss", _Anything(), _Anything(), word)


def check_controller(_: Path, word: str) -> None:
    """Build the controller of the KL coefficient."""
    settings = types.SimpleNamespace(type=word, kl_coef=1.0, horizon=1, target_kl=1.0)
    function = importlib.import_module(ALGORITHMS).get_kl_controller
    is_nested = "config" in function.__code__.co_varnames
    function(types.SimpleNamespace(kl_ctrl=settings) if is_nested else settings)


def check_engine(_: Path, word: str) -> None:
    """Look the rollout's engine up; its package need not be installed."""
    module = importlib.import_module("verl.workers.rollout.base")
    modes = {mode for name, mode in module._ROLLOUT_REGISTRY}
    assert any((word, mode) in module._ROLLOUT_REGISTRY for mode in modes), word


def check_reward_manager(folder: Path, word: str) -> None:
    """Look a reward manager up; 0.7.0 has two registries, and a setting selects one."""
    loop = "verl.experimental.reward_loop.reward_manager"
    is_new = "reward.reward_manager" in (folder / "verl/trainer/ppo/reward.py").read_text(encoding="utf-8")
    modules = [loop] if is_new else ["verl.workers.reward_manager"]
    if not is_new and (folder / loop.replace(".", "/")).is_dir():
        modules.append(loop)
    problems = []
    for name in modules:
        try:
            importlib.import_module(name).get_reward_manager_cls(word)
        except CHECKED as problem:
            problems.append(problem)
    if len(problems) == len(modules):
        raise problems[0]


def check_logger(_: Path, word: str) -> None:
    """Start the loggers."""
    tracking = importlib.import_module("verl.utils.tracking").Tracking
    if word != "tracking":
        assert word in tracking.supported_backend


CHECKS: dict[str, Callable[[Path, str], None]] = {
    "algorithm.adv_estimator": check_estimator,
    "algorithm.kl_penalty": check_divergence,
    "actor_rollout_ref.actor.kl_loss_type": check_divergence,
    "actor_rollout_ref.actor.policy_loss.loss_mode": check_loss,
    "actor_rollout_ref.actor.loss_agg_mode": check_aggregation,
    "algorithm.kl_ctrl.type": check_controller,
    "actor_rollout_ref.rollout.name": check_engine,
    "reward_model.reward_manager": check_reward_manager,
    "reward.reward_manager.name": check_reward_manager,
    "trainer.logger": check_logger,
}


def main() -> None:
    folder = Path(sys.argv[1])
    load_release(folder)
    for line in sys.stdin:
        question = json.loads(line)
        accepted: bool | None = True
        why = None
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                CHECKS[question["check"]](folder, question["word"])
        except REFUSALS as refusal:
            accepted, why = False, f"{type(refusal).__name__}: {refusal}"
        except (AttributeError, ImportError, FileNotFoundError, StopIteration) as problem:
            accepted, why = None, f"{type(problem).__name__}: {problem}"
        print(json.dumps({"accepted": accepted, "why": why}), flush=True)


if __name__ == "__main__":
    main()

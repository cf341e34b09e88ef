"""Compose and validate configurations with one release of verl: a question per line in, a verdict per line out.

    python tests/oracles/verl_config.py [FOLDER] < questions.jsonl
    {"name": "ppo_trainer", "words": ["data.train_batch_size=64"], "files": {}}
    {"accepted": true, "values": {"data.train_batch_size": 64}, "gone": [], "why": null}

`values` are the resolved leaves that differ from those without words and files (with neither: all of them), and `gone`
are the leaves that are deleted.
FOLDER holds the release's `verl` package; without it, the installed one is asked. `files` are YAML files beside the
configuration `name`; without any, it is one of verl's. Hydra composes, and verl's own checks of the configuration run:
`validate_config`, since 0.6.0 with the dataclasses of actor and critic, and the construction of the rollout's and the
model's dataclass, which is the first step of a worker. Other packages (torch, ray, transformers) are empty objects, and
no model is opened.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import hydra
import omegaconf
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

REFUSALS = (
    hydra.errors.HydraException,
    omegaconf.errors.OmegaConfBaseException,
    AssertionError,
    KeyError,
    NotImplementedError,
    TypeError,
    ValueError,
)
REAL = {"verl", "hydra", "omegaconf", "yaml", "antlr4"}
ABSENT = ("vllm.config.lora",)  # without it, verl has the ranks that vLLM accepts itself
UNNEEDED = "verl.single_controller"


class _Meta(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything

    def __or__(cls, _: Any) -> Any:
        return cls

    __ror__ = __or__

    def __neg__(cls) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())


class _Anything(metaclass=_Meta):
    """Stand-in for a class, function, decorator or value of a package that is not needed."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __init_subclass__(cls, **_: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything

    def __call__(self, *words: Any, **_: Any) -> Any:
        return words[0] if len(words) == 1 and callable(words[0]) else self

    def __class_getitem__(cls, _: Any) -> Any:
        return cls

    def __bool__(self) -> bool:
        return False


class _Module(types.ModuleType):
    __path__: list[str] = []
    __version__ = "1.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder that gives an empty module for every package outside verl and the standard library."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name in ABSENT:
            raise ModuleNotFoundError(name)
        top = name.partition(".")[0]
        if (top in REAL and not name.startswith(UNNEEDED)) or top in sys.stdlib_module_names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def load_release(folder: Path) -> None:
    """Make the release importable, without running the `__init__.py` of packages that look for others' metadata."""
    sys.meta_path.insert(0, _StandIns())
    for name in ("verl", "verl.workers.rollout.vllm_rollout"):
        package = types.ModuleType(name)
        package.__path__ = [str(folder / name.replace(".", "/"))]
        sys.modules[name] = package
    sys.modules["verl"].DataProto = _Anything  # type: ignore[attr-defined]
    sys.modules["verl"].__version__ = "0"  # type: ignore[attr-defined]


def compose(folder: Path, question: dict[str, Any]) -> Any:
    """Return the composed configuration with all interpolations resolved."""
    with tempfile.TemporaryDirectory() as temporary:
        configs = folder / "verl" / "trainer" / "config"
        words = question["words"]
        if question.get("files"):
            for name, text in question["files"].items():
                Path(temporary, name).write_text(text, encoding="utf-8")
            words = [f"hydra.searchpath=[file://{configs}]", *words]
            configs = Path(temporary)
        GlobalHydra.instance().clear()
        with hydra.initialize_config_dir(str(configs), version_base=None):
            config = hydra.compose(question["name"], words)
    OmegaConf.resolve(config)
    return config


_composed: dict[str, Any] = {}


def compose_words(folder: Path, question: dict[str, Any]) -> Any:
    """Return what `compose` returns, three times as fast: Hydra applies the words to a tree that it composed before.

    Words that choose options of a group change the tree itself, and so do files.
    """
    configs, name = folder / "verl" / "trainer" / "config", question["name"]
    overrides = OverridesParser.create().parse_overrides(question["words"])
    groups = [override for override in overrides if (configs / override.key_or_group.partition("@")[0]).is_dir()]
    if question.get("files") or any(override.key_or_group.startswith("hydra") for override in overrides) or groups:
        return compose(folder, question)
    if name not in _composed:
        GlobalHydra.instance().clear()
        with hydra.initialize_config_dir(str(configs), version_base=None):
            _composed[name] = hydra.compose(name)
    config = copy.deepcopy(_composed[name])
    ConfigLoaderImpl._apply_overrides_to_config(overrides, config)
    OmegaConf.resolve(config)
    return config


def find_validation(folder: Path) -> Callable[[Any], None]:
    """Return the release's validation of the PPO trainer's configuration."""
    if "def validate_config" in (folder / "verl/utils/config.py").read_text(encoding="utf-8"):
        return _build_new_validation()
    return _build_old_validation(folder)


def _build_new_validation() -> Callable[[Any], None]:
    from verl.trainer.ppo.utils import need_critic
    from verl.utils.config import omega_conf_to_dataclass, validate_config
    from verl.workers.config import HFModelConfig

    HFModelConfig.__post_init__ = lambda self: None  # type: ignore[method-assign]

    def validate(config: Any) -> None:
        uses_reference = config.algorithm.use_kl_in_reward or config.actor_rollout_ref.actor.use_kl_loss
        validate_config(config, use_reference_policy=uses_reference, use_critic=need_critic(config))
        omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
        omega_conf_to_dataclass(config.actor_rollout_ref.model)

    return validate


def _build_old_validation(folder: Path) -> Callable[[Any], None]:
    """Return the method of the trainer, and the choice of the critic in its constructor, without the module."""
    tree = ast.parse((folder / "verl/trainer/ppo/ray_trainer.py").read_text(encoding="utf-8"))
    algorithms = folder / "verl/trainer/ppo/core_algos.py"
    others = ast.parse(algorithms.read_text(encoding="utf-8"))
    classes = [
        node
        for node in (*tree.body, *others.body)
        if isinstance(node, ast.ClassDef) and node.name == "AdvantageEstimator"
    ]
    trainer = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "RayPPOTrainer")
    methods = {node.name: node for node in trainer.body if isinstance(node, ast.FunctionDef)}
    choice = next(
        node
        for node in ast.walk(methods["__init__"])
        if isinstance(node, ast.If) and "adv_estimator" in ast.unparse(node.test)
    )
    methods["__init__"].body = [choice]
    methods["__init__"].args = ast.parse("def f(self): 0").body[0].args  # type: ignore[attr-defined]
    parts: list[ast.stmt] = [classes[0], methods["__init__"], methods["_validate_config"]]
    for part in parts:
        part.decorator_list = []  # type: ignore[attr-defined]
    names: dict[str, Any] = {"Enum": Enum, "OmegaConf": OmegaConf}
    exec(compile(ast.Module(parts, []), "ray_trainer", "exec"), names)

    def validate(config: Any) -> None:
        uses_reference = config.algorithm.get("use_kl_in_reward") or config.actor_rollout_ref.actor.use_kl_loss
        trainer = types.SimpleNamespace(config=config, use_reference_policy=uses_reference)
        names["__init__"](trainer)
        names["_validate_config"](trainer)

    return validate


def _find_installed() -> Path:
    """Return the folder that the installed package is in, without importing it."""
    spec = importlib.util.find_spec("verl")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations))).parent


def flatten(value: Any, route: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a tree by dotted route; an empty mapping is a leaf."""
    if isinstance(value, dict) and (value or not route):
        for name, inner in value.items():
            yield from flatten(inner, f"{route}.{name}" if route else str(name))
    else:
        yield route, value


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else _find_installed()
    load_release(folder)
    warnings.simplefilter("ignore")
    validate = find_validation(folder)
    defaults: dict[str, dict[str, Any]] = {}
    for line in sys.stdin:
        question = json.loads(line)
        values: dict[str, Any] = {}
        gone: list[str] = []
        why = None
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                config = compose_words(folder, question)
                values = dict(flatten(OmegaConf.to_container(config)))
                if question["words"] or question.get("files"):
                    base = "ppo_trainer" if question.get("files") else question["name"]
                    if base not in defaults:
                        plain = compose_words(folder, {"name": base, "words": []})
                        defaults[base] = dict(flatten(OmegaConf.to_container(plain)))
                    gone = sorted(defaults[base].keys() - values.keys())
                    missing = object()
                    values = {
                        name: value for name, value in values.items() if defaults[base].get(name, missing) != value
                    }
                if "ppo" in question["name"] or "actor_rollout_ref" in config:
                    validate(config)
        except REFUSALS as refusal:
            cause = refusal.__cause__ or refusal  # Hydra wraps what a dataclass or OmegaConf raises
            why = f"{type(cause).__name__}: {' '.join(str(cause).split())[:300]}"
        print(
            json.dumps({"accepted": why is None, "values": values, "gone": gone, "why": why}, default=str), flush=True
        )


if __name__ == "__main__":
    main()

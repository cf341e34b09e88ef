"""Run axolotl's own validation over configurations: one JSON object per line in, one verdict per line out.

Needs axolotl itself (without its dependencies), torch, transformers, datasets, accelerate, addict and pillow. All other
imports of axolotl are replaced by empty modules: validation calls none of them.

    python tests/oracles/axolotl_validation.py < configurations.jsonl
    {"accepted": true, "kept": ["base_model", ...], "values": {"base_model": "gpt2", ...}, "why": null, "errors": []}
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import sys
from types import ModuleType
from typing import Any

os.environ.update(AXOLOTL_DO_NOT_TRACK="1", HF_HUB_OFFLINE="1", AXOLOTL_LOG_LEVEL="ERROR")

ABSENT = frozenset(
    "bitsandbytes comet_ml compressed_tensors cut_cross_entropy deep_ep einops evaluate fla flash_attn kernels "
    "liger_kernel llmcompressor mistral_common mlflow numba optimum posthog ring_flash_attn sonicmoe swanlab torchao "
    "triton trl wandb".split()
)


class _Anything(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})

    def __call__(cls, *values: Any, **named: Any) -> Any:
        """Return the argument, as a decorator does, or a new object if there is none."""
        return values[0] if values else object()


class _EmptyModule(ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})


class _EmptyModuleFinder:
    """An import hook that finds an empty module for every missing dependency."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.split(".")[0] in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: Any) -> ModuleType:
        return _EmptyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def validate(config: dict[str, Any]) -> dict[str, Any]:
    from axolotl.integrations.base import PluginManager
    from axolotl.utils.config import validate_config
    from axolotl.utils.dict import DictDefault

    PluginManager._instance = None
    plugins = PluginManager.get_instance()
    for name in config.get("plugins") or []:
        plugins.register(name)
    try:
        validated = validate_config(
            DictDefault(config),
            capabilities={"bf16": True, "fp8": True, "tf32": True, "n_gpu": 8, "compute_capability": "sm_90"},
            env_capabilities={"torch_version": "2.13.0"},
        )
    except Exception as error:  # its validators raise anything, DeprecationWarning included
        why = f"{type(error).__name__}: {error}"
        return {"accepted": False, "kept": [], "values": {}, "why": why, "errors": _list_errors(error)}
    return {"accepted": True, "kept": sorted(validated), "values": dict(validated), "why": None, "errors": []}


def _list_errors(error: Exception) -> list[dict[str, Any]]:
    """List pydantic's errors: the route of the key and the kind of the error."""
    if not hasattr(error, "errors"):
        return []
    return [{"at": list(detail["loc"]), "type": detail["type"]} for detail in error.errors()]


def main() -> None:
    sys.meta_path.append(_EmptyModuleFinder())  # type: ignore[arg-type]
    for line in sys.stdin:
        print(json.dumps(validate(json.loads(line)), default=str), flush=True)


if __name__ == "__main__":
    main()

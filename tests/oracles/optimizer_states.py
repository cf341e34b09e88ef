"""States and temporary buffers of optimizers: their own packages' code on a small Llama, on a CPU.

Prints one JSON object per name and format: `{"name": ..., "state": bytes, "scratch": bytes}`. `state` is the size of
all tensors that the optimizer keeps after two steps; `scratch` is how far live storages rise above that during the
second step, which recomputes no projection. torchao compiles its step, unless TORCHDYNAMO_DISABLE=1.

    python optimizer_states.py NAME...        # all of OPTIMIZERS without names

Needs torch and transformers, and the packages of the named optimizers among galore_torch, apollo_torch, adam_mini,
schedulefree, came_pytorch, prodigyopt, lomo_optim, torch_optimi, bitsandbytes, torchao and llamafactory; an optimizer
that is not installed is printed with `"skipped"`. `kahan_adamw` is EasyR1's, from a checkout on PYTHONPATH (b44b311).
"""

from __future__ import annotations

import json
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = {
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 4000,
    "tie_word_embeddings": False,
}
RANK = 16
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class LiveStorages(TorchDispatchMode):
    """Bytes of the storages that operations create, and the highest total."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[int, Any] = {}
        self.bytes = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = {id(leaf.untyped_storage()) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                key = id(storage)
                if key in inputs or key in self.storages:
                    continue
                size = storage.size()

                def forget(_: object, key: int = key, size: int = size) -> None:
                    if self.storages.pop(key, None) is not None:
                        self.bytes -= size

                self.storages[key] = weakref.ref(storage, forget)
                self.bytes += size
        self.peak = max(self.peak, self.bytes)
        return result


def group_parameters(model: torch.nn.Module, **options: Any) -> list[dict[str, Any]]:
    """Build parameter groups as the HF Trainer does for GaLore and APOLLO on all linear layers."""
    projected = [p for name, p in model.named_parameters() if any(target in name for target in LINEAR)]
    others = [p for name, p in model.named_parameters() if not any(target in name for target in LINEAR)]
    return [
        {"params": others},
        {"params": projected, "rank": RANK, "update_proj_gap": 200, "proj_type": "std", **options},
    ]


def make_galore(kind: str, **options: Any) -> Callable[[Any], Any]:
    def make(model: Any) -> Any:
        import galore_torch

        return getattr(galore_torch, kind)(group_parameters(model, scale=0.25), **options)

    return make


def build_apollo(model: Any) -> Any:
    from apollo_torch import APOLLOAdamW

    return APOLLOAdamW(group_parameters(model, scale=1.0, proj="random", scale_type="channel"))


def build_adam_mini(model: Any) -> Any:
    from adam_mini import Adam_mini

    sizes = {"dim": CONFIG["hidden_size"], "n_heads": CONFIG["num_attention_heads"]}
    return Adam_mini(model.named_parameters(), n_kv_heads=CONFIG["num_key_value_heads"], verbose=False, **sizes)


def build_muon(model: Any) -> Any:
    from llamafactory.third_party.muon import Muon

    is_matrix = {n: p.ndim == 2 and "embed" not in n and "lm_head" not in n for n, p in model.named_parameters()}
    split = {kind: [p for n, p in model.named_parameters() if is_matrix[n] is kind] for kind in (True, False)}
    return Muon(muon_params=split[True], adamw_params=split[False])


def make_optimizer(module: str, kind: str, **options: Any) -> Callable[[Any], Any]:
    def make(model: Any) -> Any:
        import importlib

        return getattr(importlib.import_module(module), kind)(model.parameters(), **options)

    return make


def make_bitsandbytes(kind: str, **options: Any) -> Callable[[Any], Any]:
    """Return a constructor that uses bitsandbytes as the HF Trainer does: an embedding's states have 32 bits."""

    def make(model: Any) -> Any:
        import bitsandbytes

        optimizer = getattr(bitsandbytes.optim, kind)(model.parameters(), **options)
        if options.get("optim_bits", 8) == 8:
            manager = bitsandbytes.optim.GlobalOptimManager.get_instance()
            manager.register_module_override(model.get_input_embeddings(), "weight", {"optim_bits": 32})
        return optimizer

    return make


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "adamw": make_optimizer("torch.optim", "AdamW", foreach=False),
    "adamw_foreach": make_optimizer("torch.optim", "AdamW", foreach=True),
    "sgd": make_optimizer("torch.optim", "SGD", foreach=True),
    "rmsprop": make_optimizer("torch.optim", "RMSprop", foreach=False),
    "rmsprop_foreach": make_optimizer("torch.optim", "RMSprop", foreach=True),
    "adagrad": make_optimizer("torch.optim", "Adagrad", foreach=False),
    "adagrad_foreach": make_optimizer("torch.optim", "Adagrad", foreach=True),
    "adafactor": make_optimizer(
        "transformers.optimization", "Adafactor", scale_parameter=False, relative_step=False, lr=1e-3
    ),
    "galore_adamw": make_galore("GaLoreAdamW", no_deprecation_warning=True),
    "galore_adafactor": make_galore("GaLoreAdafactor", scale_parameter=False, relative_step=False, lr=1e-3),
    "apollo_adamw": build_apollo,
    "adam_mini": build_adam_mini,
    "muon": build_muon,
    "came": make_optimizer("came_pytorch", "CAME", lr=1e-3),
    "prodigy": make_optimizer("prodigyopt", "Prodigy"),
    "schedule_free_adamw": make_optimizer("schedulefree", "AdamWScheduleFree", foreach=True),
    "schedule_free_radam": make_optimizer("schedulefree", "RAdamScheduleFree", foreach=True),
    "schedule_free_sgd": make_optimizer("schedulefree", "SGDScheduleFree", foreach=True),
    "stable_adamw": make_optimizer("optimi", "StableAdamW", lr=1e-3),
    "optimi_adamw": make_optimizer("optimi", "AdamW", lr=1e-3, foreach=False),
    "kahan_adamw": make_optimizer("verl.utils.torch_functional", "AnyPrecisionAdamW", lr=1e-3),
    "adamw_8bit": make_bitsandbytes("AdamW", optim_bits=8),
    "lion_8bit": make_bitsandbytes("Lion", optim_bits=8),
    "ademamix_8bit": make_bitsandbytes("AdEMAMix", optim_bits=8),
    "adamw_torch_8bit": make_optimizer("torchao.optim", "AdamW8bit", lr=1e-3),
    "adamw_torch_4bit": make_optimizer("torchao.optim", "AdamW4bit", lr=1e-3),
}


def list_tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a state, including those in a projector's attributes and in tensor subclasses."""
    if isinstance(value, torch.Tensor):
        inner = getattr(value, "__tensor_flatten__", None)
        if inner is not None:
            for name in inner()[0]:
                yield from list_tensors(getattr(value, name))
        else:
            yield value
    elif isinstance(value, dict):
        for entry in value.values():
            yield from list_tensors(entry)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from list_tensors(entry)
    elif type(value).__name__.endswith("Projector"):
        yield from list_tensors(vars(value))


def measure_state(optimizer: Any) -> int:
    """Sum the bytes that the optimizer keeps, counting each storage once and without its lists of parameters."""
    sizes = {id(p.untyped_storage()): 0 for group in optimizer.param_groups for p in group["params"]}
    for state in optimizer.state.values():
        for tensor in list_tensors(state):
            sizes.setdefault(id(tensor.untyped_storage()), tensor.untyped_storage().size())
    return sum(sizes.values())


def measure(name: str, dtype: torch.dtype) -> dict[str, Any]:
    """Measure one optimizer in one format and return its row."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**CONFIG)).to(dtype)
    try:
        optimizer = OPTIMIZERS[name](model)
    except ImportError as error:
        return {"name": name, "skipped": str(error)}
    if hasattr(optimizer, "train"):
        optimizer.train()
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    with LiveStorages() as live:
        optimizer.step()
    return {"name": name, "state": measure_state(optimizer), "scratch": live.peak}


if __name__ == "__main__":
    for requested in sys.argv[1:] or list(OPTIMIZERS):
        for dtype in (torch.float32, torch.bfloat16):
            try:
                row = measure(requested, dtype)
            except Exception as error:  # a package may not run on a CPU
                row = {"name": requested, "skipped": f"{type(error).__name__}: {error}"[:200]}
            print(json.dumps({"dtype": str(dtype).removeprefix("torch."), **row}), flush=True)

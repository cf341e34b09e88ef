"""Memory of one real training step, without a GPU: transformers' own code on fake tensors of a fake CUDA device.

`trace(case)` builds the model from a configuration, runs forward, loss, backward, clipping and the optimizer step under
`FakeTensorMode` (no storage is ever allocated) and follows the lifetime of every storage, rounded up to 512 bytes as
the CUDA allocator does. It cannot see workspaces inside kernels, fragmentation or the CUDA context.

Needs torch 2.13.0 (CPU build), transformers 5.x, peft and, once, a C++ compiler for `fake_cuda.cpp`. As a program it
writes the rows of `TRACES` as JSON lines:  python step_trace.py OUT.jsonl
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import tempfile
import weakref
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import torch.nn.functional as functional
from torch._guards import active_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BLOCK = 512


class Case(NamedTuple):
    """One step; `config` holds the arguments of the family's transformers configuration."""

    family: str
    config: dict[str, Any]
    sequence: int
    micro: int = 1
    attention: str = "flash"
    """flash, fa2 (flash-attention 2's layout), efficient (sdpa with a mask), eager."""
    checkpointing: bool = False
    precision: str = "bf16"
    """bf16, fp32, amp (fp32 weights, autocast), amp_bf16w (bf16 weights, autocast)."""
    optimizer: str = "fused"
    """fused, foreach, single."""
    lora: int | None = None
    lora_targets: str = "all-linear"
    lora_dropout: float = 0.0
    dora: bool = False
    accumulate: bool = False
    """Gradients of an earlier micro batch exist already."""
    padding: bool = False
    keep_outputs: bool = False
    labels: bool = True


class Trace(NamedTuple):
    """Bytes at the ends and peaks of the step's phases, and live storages (op, dtype, shape) -> (count, bytes)."""

    parameters: int
    trainable: int
    base: int
    after_forward: int
    forward_peak: int
    backward_peak: int
    after_backward: int
    optimizer_peak: int
    peak: int
    peak_op: str
    saved: dict[tuple[str, str, tuple[int, ...]], tuple[int, int]]
    at_peak: dict[tuple[str, str, tuple[int, ...]], tuple[int, int]]


class LiveStorages(TorchDispatchMode):
    """A counter of the bytes of distinct live storages, per phase and at the peak."""

    def __init__(self, detail: bool) -> None:
        super().__init__()
        self.detail = detail
        self.live: dict[int, tuple[Any, int, str, str, tuple[int, ...], str]] = {}
        self.bytes = 0
        self.phase = "before"
        self.peaks: dict[str, int] = defaultdict(int)
        self.peak = 0
        self.peak_op = ""
        self.at_peak: dict[tuple[str, str, tuple[int, ...]], tuple[int, int]] = {}
        self.mode: Any = None
        self.events: list[tuple[int, int]] = []
        """(serial number, bytes) when a storage appears, (serial number, 0) when it is freed."""
        self.serial = 0

    def __enter__(self) -> LiveStorages:
        self.mode = active_fake_mode()
        return super().__enter__()

    def add(self, tensor: torch.Tensor, op: str) -> None:
        """Follow a tensor's storage until it is freed."""
        storage = tensor.untyped_storage()
        key = id(storage)
        entry_before = self.live.get(key)
        if entry_before is not None and entry_before[0]() is storage:
            return
        size = -(-storage.size() // BLOCK) * BLOCK
        self.serial += 1
        serial = self.serial
        self.events.append((serial, size))

        def forget(_: object, key: int = key) -> None:
            entry = self.live.pop(key, None)
            if entry is not None:
                self.bytes -= entry[1]
                self.events.append((serial, 0))

        dtype = str(tensor.dtype).removeprefix("torch.")
        self.live[key] = (weakref.ref(storage, forget), size, op, dtype, tuple(tensor.shape), self.phase)
        self.bytes += size

    def note(self, op: str) -> None:
        """Update the peaks with the current total."""
        self.peaks[self.phase] = max(self.peaks[self.phase], self.bytes)
        if self.bytes > self.peak:
            self.peak, self.peak_op = self.bytes, op
            if self.detail:
                self.at_peak = self.group_live()

    def group_live(self, phase: str | None = None) -> dict[tuple[str, str, tuple[int, ...]], tuple[int, int]]:
        """Group the live storages by operation, dtype and shape."""
        groups: dict[tuple[str, str, tuple[int, ...]], tuple[int, int]] = {}
        for _, size, op, dtype, shape, made in list(self.live.values()):
            if phase is None or made == phase:
                count, total = groups.get((op, dtype, shape), (0, 0))
                groups[op, dtype, shape] = (count + 1, total + size)
        return groups

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if active_fake_mode() is self.mode:
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor):
                    self.add(leaf, str(func))
            self.note(str(func))
        return result


@functools.cache
def install_fake_cuda() -> None:
    """Build and load the shim, and patch the CUDA functions that training code calls."""
    from torch.utils.cpp_extension import load

    folder = Path(os.environ.get("FAKE_CUDA_BUILD", Path(tempfile.gettempdir()) / "fake_cuda_build"))
    folder.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("fake_cuda.cpp")
    library = folder / "fake_cuda.so"
    if not library.exists():
        load(name="fake_cuda", sources=[str(source)], build_directory=str(folder))
    if ctypes.CDLL(str(library)).fake_cuda_install() != 1:
        raise RuntimeError("the fake CUDA device could not be installed: is this the CPU build of torch 2.13.0?")
    # Ops with a CUDA kernel and a decomposition: without the kernel the decomposition's temporaries would count.
    overrides = torch.library.Library("aten", "IMPL", "CUDA")
    overrides.impl("silu_backward", lambda grad, _: torch.empty_like(grad))
    overrides.impl("mish_backward", lambda grad, _: torch.empty_like(grad))
    install_fake_cuda.keep = overrides  # type: ignore[attr-defined]
    cuda = torch.cuda
    cuda.is_available = lambda: True
    cuda.is_bf16_supported = lambda *_, **__: True
    cuda.current_device = lambda: 0
    cuda.device_count = lambda: 1
    cuda._lazy_init = lambda: None
    cuda.is_current_stream_capturing = lambda: False
    cuda.get_device_capability = lambda *_: (9, 0)
    FakeTensorMode.avoid_device_init = property(lambda _: True)


def attention_op(kind: str) -> Any:
    """Return a `scaled_dot_product_attention` that calls the kernel which a GPU would choose."""

    def attend(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):  # type: ignore[no-untyped-def]
        device = query.device.type
        if torch.is_autocast_enabled(device):
            low = torch.get_autocast_dtype(device)
            query, key, value = query.to(low), key.to(low), value.to(low)
        width = query.shape[-1]
        chosen = kind
        if chosen == "flash" and (attn_mask is not None or width > 256 or query.dtype == torch.float32):
            chosen = "efficient"
        if chosen == "flash":
            padded = functional.pad(value, (0, width - value.shape[-1])) if value.shape[-1] != width else value
            op = torch.ops.aten._scaled_dot_product_flash_attention
            return op(query, key, padded, dropout_p, is_causal, False, scale=scale)[0][..., : value.shape[-1]]
        if enable_gqa:
            groups = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                attn_mask = torch.where(attn_mask, 0.0, float("-inf")).to(query.dtype)
            attn_mask = attn_mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        if key.shape[1] != query.shape[1]:  # no kernel broadcasts heads
            op = torch.ops.aten._scaled_dot_product_attention_math
            with torch.autocast(device, enabled=False):  # below autocast, as for a real kernel
                return op(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)[0]
        op = torch.ops.aten._scaled_dot_product_efficient_attention
        needs = query.requires_grad or key.requires_grad
        return op(query, key, value, attn_mask, needs, dropout_p, is_causal, scale=scale)[0]

    return attend


def flash_attention_2(module, query, key, value, attention_mask, dropout=0.0, scaling=None, **_):  # type: ignore[no-untyped-def]
    """Run attention and keep the same tensors as flash-attention 2.

    These are query, key and value as [batch, length, heads, width], the output, and the log-sum-exp.
    """
    query, key, value = (item.transpose(1, 2).contiguous() for item in (query, key, value))
    width, values = query.shape[-1], value.shape[-1]
    if values != width:
        value = functional.pad(value, (0, width - values))
    op = torch.ops.aten._scaled_dot_product_flash_attention
    out = op(*(item.transpose(1, 2) for item in (query, key, value)), dropout, True, False, scale=scaling)[0]
    return out.transpose(1, 2)[..., :values], None


def _build(case: Case, dtype: torch.dtype) -> Any:
    import transformers.masking_utils as masking
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register("traced_fa2", flash_attention_2)
    masking.ALL_MASK_ATTENTION_FUNCTIONS.register("traced_fa2", masking.flash_attention_mask)
    # For fake tensors transformers assumes graph tracing and makes masks that a real run does without.
    masking.find_packed_sequence_indices = lambda _: None
    masking._ignore_causal_mask_sdpa = lambda padding_mask, q, kv, *a, **k: _can_skip_mask(case, kv, a, k)
    config = configuration(case.family, case.config)
    config.use_cache = False
    config._attn_implementation = {"eager": "eager", "fa2": "traced_fa2"}.get(case.attention, "sdpa")
    names = ("num_experts", "n_routed_experts", "num_local_experts")
    mixture = any(hasattr(config.get_text_config(), name) for name in names)
    if mixture and case.family not in (
        "llama4_text",
        "longcat_flash",
        "step3p5",
    ):  # their experts have one implementation
        config.get_text_config()._experts_implementation = "grouped_mm"
    functional.scaled_dot_product_attention = attention_op("efficient" if case.attention == "efficient" else "flash")
    with torch.device("cuda"):
        model = built(config, dtype)
    model.train()
    return model


WRAPPED = {"step3p5": "step3p7", "mistral4": "mistral3", "glm4v_text": "glm4v", "mllama_text_model": "mllama"}
"""Decoders that transformers offers only as part of a multimodal model -> that model."""


def configuration(family: str, arguments: dict[str, Any]) -> Any:
    """Return the configuration of a decoder, wrapped in that of its multimodal model if there is no other."""
    import transformers

    if family not in WRAPPED:
        return transformers.AutoConfig.for_model(family, **arguments)
    return transformers.AutoConfig.for_model(WRAPPED[family], text_config={**arguments, "model_type": family})


def built(config: Any, dtype: torch.dtype) -> Any:
    """Build the model of a configuration, without a vision tower."""
    import transformers

    if config.model_type not in WRAPPED.values():
        return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    model = transformers.AutoModelForImageTextToText.from_config(config, dtype=dtype)
    for name, _ in list(model.model.named_children()):
        if any(word in name for word in ("vision", "visual", "projector", "embedding_projection")):
            setattr(model.model, name, torch.nn.Identity())
    return model


def _can_skip_mask(case: Case, length: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    window = kwargs.get("local_attention_size", args[2] if len(args) > 2 else None)
    return not case.padding and (window is None or length < window)


def _adapt(case: Case, model: Any) -> Any:
    from peft import LoraConfig, get_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    # Module.to cannot move fake tensors: the adapters are made on the device, in fp32, as peft leaves them.
    BaseTunerLayer._move_adapter_to_device_of_base_layer = lambda *_, **__: None
    to, torch.nn.Module.to = torch.nn.Module.to, lambda self, *_, **__: self
    targets: Any = case.lora_targets if case.lora_targets == "all-linear" else case.lora_targets.split(",")
    try:
        with torch.device("cuda"):
            adapted = get_peft_model(
                model,
                LoraConfig(
                    r=case.lora or 8,
                    lora_alpha=16,
                    target_modules=targets,
                    lora_dropout=case.lora_dropout,
                    use_dora=case.dora,
                    task_type="CAUSAL_LM",
                ),
            )
    finally:
        torch.nn.Module.to = to
    return adapted


def trace(case: Case, detail: bool = False) -> Trace:
    """Run one steady-state step and return its bytes."""
    install_fake_cuda()
    import torch.optim.adam as adam

    adam._get_value = lambda value: 1.0 if isinstance(value, torch.Tensor) else value
    dtypes = {"bf16": torch.bfloat16, "fp32": torch.float32, "amp": torch.float32, "amp_bf16w": torch.bfloat16}
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = _build(case, dtypes[case.precision])
        if case.lora:
            model = _adapt(case, model)
        if case.checkpointing:
            keywords = {"use_reentrant": False, "preserve_rng_state": False}
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=keywords)
            if case.lora:
                model.enable_input_require_grads()
        model.train()
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        choice = {"fused": {"fused": True}, "foreach": {"foreach": True}, "single": {"foreach": False}}
        optimizer = torch.optim.AdamW(trained, lr=1e-4, **choice[case.optimizer])
        for parameter in trained:
            optimizer.state[parameter] = {
                "step": torch.zeros((), device="cuda"),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
            if case.accumulate:
                parameter.grad = torch.empty_like(parameter)
        shape = (case.micro, case.sequence)
        ids = torch.zeros(*shape, dtype=torch.long, device="cuda")
        mask = torch.ones(*shape, dtype=torch.long, device="cuda") if case.padding else None
        live = LiveStorages(detail)
        for tensor in (*model.parameters(), *model.buffers(), ids):
            live.add(tensor, "held")
        for state in optimizer.state.values():
            for value in state.values():
                live.add(value, "held")
        for parameter in trained:
            if parameter.grad is not None:
                live.add(parameter.grad, "held")
        base = live.bytes
        autocast = (
            torch.autocast("cuda", torch.bfloat16) if case.precision.startswith("amp") else contextlib.nullcontext()
        )
        with live:
            live.phase = "forward"
            with autocast:
                out = model(input_ids=ids, labels=ids, attention_mask=mask, use_cache=False)
            loss = out.loss
            if not case.keep_outputs:
                del out
            after_forward, saved = live.bytes, live.group_live("forward") if detail else {}
            live.phase = "backward"
            # In the caller's thread, so that recomputed code may make tensors from numbers.
            with torch.autograd.set_multithreading_enabled(False):
                loss.backward()
            after_backward = live.bytes
            live.phase = "optimizer"
            torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=True)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        result = Trace(
            sum(parameter.numel() for parameter in model.parameters()),
            sum(parameter.numel() for parameter in trained),
            base,
            after_forward,
            live.peaks["forward"],
            live.peaks["backward"],
            after_backward,
            live.peaks["optimizer"],
            live.peak,
            live.peak_op,
            saved,
            live.at_peak,
        )
    del model, optimizer
    gc.collect()
    return result

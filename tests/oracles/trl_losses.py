"""Logits memory of the losses of TRL's trainers, measured on the functions of its wheels on a CPU.

The loss functions of a release are read from its source (`trainer/*_trainer.py`, `experimental/*/`, `trainer/utils.py`)
and called for a model of one matrix, whose vocabulary is so much wider than its states that all bytes are those of
logits. The profiler's memory events give bytes per token and word: at the peak of the forward pass, at its end, and at
the peak of the backward pass. Triton kernels are replaced by functions that compute nothing; what they allocate is the
wheel's own code around them.

Needs torch 2.13.0 (CPU build), transformers, accelerate, and unpacked wheels (WHEELS/0.24.0/trl/...); half an hour.
Writes the rows of `tests/memory/trl_losses.jsonl`:  python trl_losses.py WHEELS OUT.jsonl [TRAINER [RELEASE...]]
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import typing
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
import transformers
from accelerate.utils.operations import convert_to_fp32
from packaging.version import Version
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, record_function
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.modeling_outputs import CausalLMOutput

SEQUENCES, LENGTH, WORDS, WIDTH = 4, 513, 4096, 4
RELEASES = {
    "sft": "0.12.2 0.16.1 1.2.0 1.4.0 1.6.0",
    "dpo": "0.11.4 0.12.2 0.14.0 0.16.1 0.28.0 0.29.1 1.5.1 1.9.0 1.13.0 1.14.2",
    "kto": "0.12.2 0.14.0 0.16.1 0.19.1 1.5.1 1.6.0 1.7.0 1.9.0 1.14.2",
    "grpo": "0.16.1 0.24.0 1.0.0 1.9.0 1.13.0 1.14.2",
    "rloo": "0.22.2 1.0.0 1.13.0 1.14.2",
    "orpo": "0.9.6 0.14.0 0.16.1 0.28.0 1.16.0",
    "cpo": "0.9.6 0.14.0 0.16.1 0.24.0 1.16.0",
}
"""First and last of a range of releases with the same functions, if both were available."""


class Model(nn.Module):
    """An output matrix, wrapped as accelerate does if the run is in mixed precision."""

    def __init__(self, mixed: bool) -> None:
        super().__init__()
        kind = torch.float32 if mixed else torch.bfloat16
        self.body = nn.Embedding(64, WIDTH, dtype=kind)
        self.head = nn.Linear(WIDTH, WORDS, bias=False, dtype=kind)
        self.config = MagicMock(output_router_logits=False)
        self.mixed = mixed

    def _run(self, input_ids: Any, labels: Any = None, keep: int = 0) -> CausalLMOutput:
        states = self.body(input_ids)
        logits = self.head(states[:, -keep:] if keep else states)
        return CausalLMOutput(None if labels is None else ForCausalLMLoss(logits, labels, WORDS), logits)

    def forward(self, input_ids: Any, attention_mask: Any = None, **options: Any) -> Any:
        keep = options.get("logits_to_keep") or options.get("num_logits_to_keep") or 0
        if not self.mixed:
            return self._run(input_ids, options.get("labels"), keep)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = self._run(input_ids, options.get("labels"), keep)
        return convert_to_fp32(outputs)


# --- the functions of a wheel ---------------------------------------------------------------------------------------


class _KernelStub:
    """A kernel that computes nothing."""

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *arguments, **named: None


def _list_names() -> dict[str, Any]:
    """Return the names that the functions look up in their modules."""
    names: dict[str, Any] = {**vars(typing), "torch": torch, "nn": nn, "F": functional, "transformers": transformers}
    names.update(amp=torch.amp, defaultdict=defaultdict, nullcontext=nullcontext, contextmanager=contextmanager)
    names.update(Version=Version, PreTrainedModel=nn.Module, PeftModel=type("PeftModel", (), {}))
    names.update(FDivergenceType=MagicMock(), FDivergenceConstants=MagicMock())
    no = ("is_peft_model", "is_torch_xla_available", "is_torch_xpu_available", "is_torch_npu_available")
    return {**names, **dict.fromkeys(no, lambda *arguments: False), "is_triton_available": lambda: True}


def _define_function(node: ast.FunctionDef, names: dict[str, Any]) -> None:
    """Define a function without its annotations and decorators."""
    node.decorator_list, node.returns = [], None
    for argument in (*node.args.args, *node.args.kwonlyargs):
        argument.annotation = None
    exec(compile(ast.Module([node], []), "wheel", "exec"), names)


def _read_source(folder: Path, trainer: str) -> str:
    homes = (folder / "experimental" / trainer, folder / "trainer")
    texts = [
        (home / f"{trainer}_trainer.py").read_text() for home in homes if (home / f"{trainer}_trainer.py").exists()
    ]
    return max(texts, key=len).replace("super().compute_loss(", "self.whole(")


def read_functions(folder: Path, trainer: str) -> dict[str, tuple[Any, bool]]:
    """Return the methods of a trainer, and whether each is static."""
    names, text = _list_names(), _read_source(folder, trainer)
    helpers = ("trainer/utils.py", "core.py", "experimental/utils.py")
    texts = [(folder / name).read_text() for name in helpers if (folder / name).exists()]
    for tree in map(ast.parse, (*texts, text)):
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name not in names:
                _define_function(node, names)
    names.update(disable_gradient_checkpointing=lambda *arguments: nullcontext(), _fused_logprob_entropy=None)
    names["_supports_trl_loss_kernel"] = lambda *arguments: True
    kernel = folder / "kernels" / "logprob_entropy.py"
    if kernel.exists():
        kernel_names: dict[str, Any] = {
            "torch": torch,
            "triton": SimpleNamespace(jit=lambda function: function, cdiv=lambda *arguments: 1),
        }
        kernel_names["tl"] = SimpleNamespace(constexpr=int)
        tree = ast.parse(kernel.read_text())
        tree.body = [node for node in tree.body if not isinstance(node, (ast.Import, ast.ImportFrom))]
        exec(compile(tree, "kernel", "exec"), kernel_names)
        kernel_names["_forward_kernel"] = kernel_names["_backward_kernel"] = _KernelStub()
        names["_fused_logprob_entropy"] = kernel_names["selective_log_softmax_and_entropy"]
    methods = {}
    for owner in ast.parse(text).body:
        if isinstance(owner, ast.ClassDef) and owner.name == f"{trainer.upper()}Trainer":
            for node in owner.body:
                if isinstance(node, ast.FunctionDef) and node.name != "__init__":
                    static = "staticmethod" in map(ast.unparse, node.decorator_list)
                    _define_function(node, names)
                    methods[node.name] = names[node.name], static
    return methods


# --- a step ----------------------------------------------------------------------------------------------------------


def _build_trainer(methods: dict[str, tuple[Any, bool]], model: Model, reference: Model | None, **options: Any) -> Any:
    """Build a trainer with the attributes that its functions look up."""
    self = SimpleNamespace(**options)
    for name, (method, static) in methods.items():
        setattr(self, name, method if static else MethodType(method, self))
    self.accelerator = MagicMock(device=torch.device("cpu"))
    self.accelerator.gather_for_metrics = self.accelerator.gather = lambda value_, *options: value_
    self.accelerator.unwrap_model = lambda value_, **options: value_
    off = dict.fromkeys(("use_liger_kernel", "use_liger_loss", "padding_free", "sync_ref_model"), False)
    none = dict.fromkeys(("rpo_alpha", "max_length", "ld_alpha", "gradient_checkpointing_kwargs"))
    self.args = MagicMock(device=torch.device("cpu"), truncation_mode="keep_end", **off, **none)
    self.store_metrics = lambda *options, **named: None
    self.whole = lambda model, inputs, **options: (lambda value_: (value_.loss, value_))(model(**inputs))
    self.model, self.ref_model, self.state, self.control = (
        model,
        reference,
        MagicMock(),
        MagicMock(should_evaluate=False),
    )
    self._metrics = {"train": defaultdict(list)}
    values = {
        **dict.fromkeys(
            (
                "is_encoder_decoder", "aux_loss_enabled", "use_liger_kernel", "_peft_has_been_casted_to_bf16",
                "is_vision_model", "_is_vlm", "reference_free", "use_weighting", "padding_free", "use_vllm",
                "use_logits_to_keep", "use_num_logits_to_keep", "use_liger_loss", "_entropy_bonus_enabled",
            ),
            False,
        ),
        **dict.fromkeys(("precompute_ref_logps", "precompute_ref_log_probs"), reference is None),
        **dict.fromkeys(("max_length", "ld_alpha", "max_prompt_length"), None),
        **dict.fromkeys(("_total_train_tokens", "num_virtual_tokens", "pad_token_id", "padding_value"), 0),
        **dict.fromkeys(("desirable_weight", "undesirable_weight", "temperature", "cpo_alpha", "_tp_size"), 1),
        "label_pad_token_id": -100, "calculate_KL": True, "use_dpo_data_collator": True, "label_smoothing": 0.0,
        "loss_weights": [1.0], "loss_types": ["sigmoid"], "f_divergence_type": "reverse_kl", "alpha": 0.0,
        "f_divergence_params": {}, "truncation_mode": "keep_end", "beta": 0.1, "simpo_gamma": 0.5,
        "model_kwarg_keys": {"logits_to_keep"},
    }  # fmt: skip
    for name, value in values.items():
        setattr(self, name, value)
    return self


def _make_ids(sequences: int = SEQUENCES, length: int = LENGTH) -> Any:
    return torch.randint(1, 60, (sequences, length))


def _make_pairs() -> dict[str, Any]:
    batch = {}
    for name in ("chosen", "rejected"):
        ids = _make_ids(SEQUENCES // 2)
        batch.update({f"{name}_input_ids": ids, f"{name}_attention_mask": torch.ones_like(ids)})
        batch[f"{name}_labels"] = ids.clone()
    prompt = _make_ids(SEQUENCES // 2, 4)
    return {**batch, "prompt_input_ids": prompt, "prompt_attention_mask": torch.ones_like(prompt)}


def _make_unpaired() -> dict[str, Any]:
    batch = {}
    for name in ("", "KL_"):
        ids = _make_ids()
        for part in ("", "completion_"):
            batch.update({f"{name}{part}input_ids": ids, f"{name}{part}attention_mask": torch.ones_like(ids)})
        batch.update({f"{name}completion_mask": torch.ones_like(ids), f"{name}completion_labels": ids.clone()})
    return batch


def _make_loss(trainer: str, release: Version, self: Any) -> Callable[[], Any]:
    """Return a function that calls the trainer's loss once."""
    model, zeros = self.model, torch.zeros(SEQUENCES // 2)
    if trainer == "sft":
        ids = _make_ids()
        whole = {"input_ids": ids, "attention_mask": ids * 0 + 1, "labels": ids}
        if not hasattr(self, "compute_loss"):  # the Trainer's own loss
            return lambda: model(**whole).loss
        return lambda: self.compute_loss(model, dict(whole))
    if trainer in ("grpo", "rloo"):
        ids = _make_ids()
        options = {} if hasattr(self, "_get_per_token_logps") else {"compute_entropy": True}
        call = getattr(self, "_get_per_token_logps", None) or self._get_per_token_logps_and_entropies

        def score() -> Any:
            outputs = call(model, ids, torch.ones_like(ids), LENGTH - 1, **options)
            return (outputs["logps"] if isinstance(outputs, dict) else outputs[0] if options else outputs).sum()

        return score
    if trainer == "kto":
        batch = _make_unpaired()
        answers = [True, False] * (SEQUENCES // 2)
        batch["label"] = answers if release < Version("1.5") else torch.tensor(answers)
        if self.ref_model is None:
            names = ("reference_logps", "reference_KL_logps", "ref_logps", "ref_KL_logps")
            batch.update(dict.fromkeys(names, torch.zeros(SEQUENCES)))
    elif trainer == "dpo" and not hasattr(self, "get_batch_loss_metrics"):
        ids = _make_ids()
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "completion_mask": torch.ones_like(ids)}
    else:
        batch = _make_pairs()
    if self.ref_model is None:
        names = ("ref_chosen_logps", "ref_rejected_logps", "reference_chosen_logps", "reference_rejected_logps")
        batch.update(dict.fromkeys(names, zeros) if trainer == "dpo" else {})
    call = getattr(self, "get_batch_loss_metrics", None) or self._compute_loss
    arguments = [False] if "return_outputs" in inspect.signature(call).parameters else []

    def score_pairs() -> Any:
        outputs = call(model, dict(batch), *arguments)
        return outputs[0] if isinstance(outputs, tuple) else outputs

    return score_pairs


def measure(model: Model, loss: Callable[[], Any], divisor: int) -> tuple[float, float, float]:
    """Measure the bytes per token and word: at the forward peak, at the end of it, and at the backward peak."""
    loss().backward()
    model.zero_grad(set_to_none=True)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        with record_function("FORWARD"):
            result = loss()
        with record_function("BACKWARD"):
            result.backward()
        del result
    events = run.profiler.kineto_results.events()  # type: ignore[union-attr]
    ends = {event.name(): event.end_ns() for event in events if event.name() in ("FORWARD", "BACKWARD")}
    now = forward = saved = backward = 0
    for event in sorted((item for item in events if item.name() == "[memory]"), key=lambda item: item.start_ns()):
        now += event.nbytes()
        if event.start_ns() <= ends["FORWARD"]:
            forward, saved = max(forward, now), now
        elif event.start_ns() <= ends["BACKWARD"]:
            backward = max(backward, now)
    return round(forward / divisor, 2), round(saved / divisor, 2), round(backward / divisor, 2)


def measure_rows(folder: Path, trainer: str, release: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of one trainer in one release."""
    methods = read_functions(folder / release / "trl", trainer)
    for mixed in (True, False):
        for reference in (True, False) if trainer in ("dpo", "kto") else (False,):
            torch.manual_seed(0)
            model = Model(mixed)
            reference_model = Model(mixed).requires_grad_(False) if reference else None
            kinds = {"kto": "kto", "cpo": "sigmoid"}
            several = ["sigmoid"] if Version(release) >= Version("0.21") else "sigmoid"
            self = _build_trainer(methods, model, reference_model, loss_type=kinds.get(trainer, several))
            joined = trainer == "dpo" and "get_batch_loss_metrics" in methods and Version(release) >= Version("0.12")
            tokens = SEQUENCES * (LENGTH - 1 if trainer in ("grpo", "rloo") else LENGTH + 4 * joined)
            sizes = measure(model, _make_loss(trainer, Version(release), self), tokens * WORDS)
            row = {"trainer": trainer, "release": release, "logits": "fp32" if mixed else "16 bits"}
            yield {**row, "reference": reference, **dict(zip(("forward", "saved", "backward"), sizes))}


def main() -> None:
    """Write all rows."""
    folder, out, *requested = sys.argv[1:]
    with Path(out).open("a" if requested else "w") as file:
        for trainer in requested[:1] or RELEASES:
            for release in requested[1:] or RELEASES[trainer].split():
                for row in measure_rows(Path(folder), trainer, release):
                    file.write(json.dumps(row) + "\n")
                    file.flush()


if __name__ == "__main__":
    main()

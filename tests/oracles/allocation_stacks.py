"""Call stacks of the allocations in training steps of transformers, peft and DeepSpeed on a CPU, with their tensors.

All widths are different, so the shape of a tensor shows its kind: logits have the vocabulary and the tokens, gradients
the shape of a weight. DeepSpeed's tensors have one dimension: gathered weights the size of a weight, buckets their
length, and the others are gradients. FSDP's buffers are named by the operation that uses them. In the optimizer step,
what is filled with zeros is a state and the rest is temporary. While DeepSpeed starts, copies in fp32 are master
weights and what `zeros` fills are gradients. Tensors that are smaller than the keys of a layer are left out.

Needs torch, transformers, peft, accelerate and deepspeed; two minutes:
    python allocation_stacks.py > tests/postmortem/stacks.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from typing import Any

SEQUENCES, LENGTH, HIDDEN, INTERMEDIATE, VOCAB = 2, 7, 48, 80, 106
TOKENS = SEQUENCES * LENGTH
SMALLEST = TOKENS * 24
BUCKET = 1000
"""Elements of DeepSpeed's bucket, from `zero_engine.py`."""
CASES = ("full", "lora", "checkpointed", "evaluated", "zero2", "zero3", "fsdp2")


def main(case: str) -> list[dict[str, Any]]:
    """Return the allocations of a case, each stack once."""
    from transformers import LlamaConfig, LlamaForCausalLM

    if case.startswith("zero"):
        from zero_engine import start_deepspeed

        start_deepspeed(8)
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    rows: dict[str, dict[str, Any]] = {}
    pending: dict[int, dict[str, Any]] = {}
    state: dict[str, Any] = {"phase": None, "weights": set(), "sizes": set()}

    class Recorder(TorchDispatchMode):
        """The allocations of all operations while a phase is set."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            settle(func.__name__, [leaf for leaf in tree_leaves((args, kwargs)) if is_tensor(leaf)])
            before = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if is_tensor(leaf)}
            for leaf in tree_leaves(result):
                is_new = is_tensor(leaf) and leaf.untyped_storage()._cdata not in before
                if state["phase"] and is_new and leaf.numel() >= SMALLEST:
                    record(func.__name__, leaf)
            return result

    def is_tensor(item: Any) -> bool:
        return isinstance(item, torch.Tensor) and item.device.type == "cpu"

    def record(operation: str, tensor: Any) -> None:
        frames = [
            [frame.filename.rpartition("site-packages/")[2], frame.name, (frame.line or "")[:100]]
            for frame in traceback.extract_stack()
            if "site-packages" in frame.filename
            and not frame.filename.endswith(("_python_dispatch.py", "_compile.py", "_contextlib.py", "eval_frame.py"))
        ]
        row = {"case": case, "phase": state["phase"], "part": "", "frames": frames}
        if case == "fsdp2" and tensor.dim() == 1 and "empty" in operation:
            pending[tensor.untyped_storage()._cdata] = row
            return
        row["part"] = classify(operation, tuple(tensor.shape), tensor.dtype)
        rows.setdefault(json.dumps(row), row)

    def settle(operation: str, tensors: list[Any]) -> None:
        """Name FSDP's buffers by the operation that uses them; the smaller one of a reduction is a shard."""
        is_reduction = "reduce_scatter" in operation or "chunk_cat" in operation
        if not is_reduction and "all_gather" not in operation and "split_with_sizes_copy" not in operation:
            return
        largest = max(tensor.numel() for tensor in tensors)
        for tensor in tensors:
            row = pending.pop(tensor.untyped_storage()._cdata, None)
            if row is not None:
                is_shard = tensor.numel() < largest and "reduce_scatter" in operation
                row["part"] = "gradients" if is_shard else "reduction" if is_reduction else "gathered"
                rows.setdefault(json.dumps(row), row)

    def classify(operation: str, shape: tuple[int, ...], dtype: Any) -> str:
        if len(shape) == 1 and (shape[0] == BUCKET or (shape[0] in state["sizes"] and "empty" in operation)):
            return "buckets" if shape[0] == BUCKET else "gathered"
        if state["phase"] == "load":
            if "zeros" in operation:
                return "optimizer" if "zeros_like" in operation else "gradients"
            is_update = "foreach" in operation or "sqrt" in operation
            return "update" if is_update else "master" if dtype == torch.float32 else "weights"
        if state["phase"] == "optimizer step":
            return "optimizer" if "zeros" in operation else "update"
        if VOCAB in shape and shape not in state["weights"]:
            return "logits"
        if len(shape) == 1 and (case.startswith("zero") or (case == "fsdp2" and state["phase"] == "backward")):
            return "gradients"
        if shape in state["weights"]:
            return "gradients" if state["phase"] == "backward" else "weights"
        return "layer"

    def run(phase: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        outer = state["phase"]
        state["phase"] = outer or phase
        try:
            return function(*args, **kwargs)
        finally:
            state["phase"] = outer

    config = LlamaConfig(
        hidden_size=HIDDEN, intermediate_size=INTERMEDIATE, vocab_size=VOCAB, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, attn_implementation="eager",
    )  # fmt: skip
    batch = {"input_ids": torch.ones(SEQUENCES, LENGTH, dtype=torch.long)}
    batch["labels"] = batch["input_ids"]
    model = LlamaForCausalLM(config)
    if case == "lora":
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear"))
    state["weights"] = {tuple(weight.shape) for weight in model.parameters()}
    state["sizes"] = {weight.numel() for weight in model.parameters()} if case == "zero3" else set()
    if case.startswith("zero"):
        record_deepspeed(case, model, batch, run, Recorder)
    elif case == "fsdp2":
        record_fsdp(model, batch, run, Recorder)
    else:
        record_trainer(case, model, batch, run, Recorder)
    return list(rows.values())


def record_trainer(case: str, model: Any, batch: dict[str, Any], run: Any, recorder: Any) -> None:
    """Run two steps of transformers' Trainer, and an evaluation."""
    import torch
    from transformers import Trainer, TrainingArguments

    class PhasedTrainer(Trainer):
        """A trainer that marks its phases."""

        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            return run("forward", super().compute_loss, *args, **kwargs)

        def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
            return run("eval", super().evaluation_loop, *args, **kwargs)

    examples = [{name: values[0] for name, values in batch.items()}] * 8
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=2, per_device_train_batch_size=SEQUENCES, report_to=[], save_strategy="no",
            use_cpu=True, gradient_checkpointing=case == "checkpointed", optim="adamw_torch",
            per_device_eval_batch_size=SEQUENCES,
        )  # fmt: skip
        trainer = PhasedTrainer(model=model, args=arguments, train_dataset=examples, eval_dataset=examples)
        backward, step = torch.Tensor.backward, torch.optim.AdamW.step
        torch.Tensor.backward = lambda *args, **kwargs: run("backward", backward, *args, **kwargs)  # type: ignore
        torch.optim.AdamW.step = lambda *args, **kwargs: run("optimizer step", step, *args, **kwargs)  # type: ignore
        with recorder():
            if case == "evaluated":
                trainer.evaluate()
            else:
                trainer.train()


def record_deepspeed(case: str, model: Any, batch: dict[str, Any], run: Any, recorder: Any) -> None:
    """Run two steps of DeepSpeed's engine as one of eight ranks."""
    import deepspeed
    import torch
    from zero_engine import build_settings

    settings = build_settings({"stage": int(case[-1])})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    with recorder():
        engine = run("load", deepspeed.initialize, model=model.bfloat16(), config=settings, optimizer=optimizer)[0]
        for _ in range(2):
            loss = run("forward", engine, **batch).loss
            run("backward", engine.backward, loss)
            run("optimizer step", engine.step)


def record_fsdp(model: Any, batch: dict[str, Any], run: Any, recorder: Any) -> None:
    """Run two steps of a model that FSDP2 shards, as one of eight ranks."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="8", MASTER_ADDR="127.0.0.1", MASTER_PORT="29998")
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    options: dict[str, Any] = {"mesh": init_device_mesh("cpu", (8,)), "mp_policy": MixedPrecisionPolicy(torch.bfloat16)}
    for module in (*model.model.layers, model):
        fully_shard(module, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    with recorder():
        for _ in range(2):
            loss = run("forward", model, **batch).loss
            run("backward", loss.backward)
            run("optimizer step", torch.nn.utils.clip_grad_norm_, model.parameters(), 1.0)
            run("optimizer step", optimizer.step)
            optimizer.zero_grad()


def pack(rows: list[dict[str, Any]]) -> str:
    """Return the rows as JSON with each frame once."""
    table: dict[str, int] = {}
    packed = []
    for row in rows:
        stack = [table.setdefault(json.dumps(frame), len(table)) for frame in row["frames"]]
        packed.append({**row, "frames": stack})
    frames = ",\n".join(table)
    lines = ",\n".join(json.dumps(row) for row in packed)
    return f'{{"frames": [\n{frames}\n],\n"allocations": [\n{lines}\n]}}'


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print("ROWS " + json.dumps(main(sys.argv[1])), flush=True)
        os._exit(0)  # DeepSpeed's fake group has no other ranks
    allocations: list[dict[str, Any]] = []
    for name in CASES:
        outcome = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=False)
        lines = [line for line in outcome.stdout.splitlines() if line.startswith("ROWS ")]
        if not lines:
            raise SystemExit(f"{name}: {outcome.stderr[-3000:]}")
        allocations += json.loads(lines[0].removeprefix("ROWS "))
    print(pack(allocations))

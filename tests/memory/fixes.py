"""Runs of small real models on one GPU, the changes that `cfglint fit` proposes for them, and the step of each plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from cfglint_train import api
from cfglint_train.fitting.alternatives import list_alternatives
from cfglint_train.memory.budget import STEP_PHASES
from cfglint_train.memory.components import WORKSPACES
from cfglint_train.plan.fields import Plan
from cfglint_train.runs.run import Run
from tests.support.linting import change_directory

TRACED = Path(__file__).with_name("fixes.jsonl")

AXOLOTL = """\
# cfglint: nodes=1 gpus-per-node=1 gpu=4GB
base_model: {model}
datasets: [{{path: x.jsonl, type: alpaca}}]
output_dir: out
bf16: true
attn_implementation: {attention}
sample_packing: true
pad_to_sequence_len: true
sequence_len: {length}
micro_batch_size: {micro}
gradient_accumulation_steps: {accumulation}
optimizer: {optimizer}
"""
LLAMAFACTORY = """\
# cfglint: nodes=1 gpus-per-node=1 gpu=4GB
model_name_or_path: {model}
stage: sft
do_train: true
finetuning_type: full
dataset: identity
template: default
output_dir: out
{precision}
flash_attn: sdpa
packing: true
cutoff_len: {length}
per_device_train_batch_size: {micro}
gradient_accumulation_steps: {accumulation}
disable_gradient_checkpointing: {unchecked}
"""
MODELS = {
    "Qwen/Qwen2.5-0.5B": "qwen2.5-0.5b",
    "Qwen/Qwen3-0.6B": "qwen3-0.6b",
    "meta-llama/Llama-3.2-1B": "llama3.2-1b",
}
"""Model of a run -> its shape in tests/oracles/trace_rows.py."""

_RUNS = [
    (AXOLOTL, {"attention": "flash_attention_2", "optimizer": "adamw_torch", "accumulation": 1}),
    (AXOLOTL, {"attention": "sdpa", "optimizer": "adamw_torch_fused", "accumulation": 2}),
    (LLAMAFACTORY, {"precision": "bf16: true", "unchecked": "true", "accumulation": 1}),
    (LLAMAFACTORY, {"precision": "pure_bf16: true", "unchecked": "false", "accumulation": 1}),
]
_SIZES = {"Qwen/Qwen2.5-0.5B": (4, 1024), "Qwen/Qwen3-0.6B": (2, 2048), "meta-llama/Llama-3.2-1B": (8, 1024)}

TRACEABLE = frozenset(
    ("activations.checkpointing", "batch.micro", "batch.accumulation", "sequence.length", "optimizer.implementation")
)


class Change(NamedTuple):
    """An alternative: the settings that it names, and the runs before and after it."""

    model: str
    settings: tuple[str, ...]
    before: Run
    after: Run


def list_changes() -> Iterator[Change]:
    for model, (micro, length) in _SIZES.items():
        for number, (text, options) in enumerate(_RUNS):
            source = text.format(model=model, micro=micro, length=length, **options)
            path = f"{number}.yaml"
            with TemporaryDirectory() as empty, change_directory(Path(empty)):
                [alternatives] = api.fit(path, api.Options(isolated=True), {path: source}).ladders
            assert list_alternatives(alternatives.run).judgement is not None
            for alternative in alternatives.alternatives:
                if TRACEABLE.issuperset(alternative.move.changes):
                    yield Change(
                        MODELS[model],
                        alternative.settings,
                        alternatives.run,
                        alternatives.run.replace_fields(alternative.move.changes),
                    )


def describe_step(plan: Plan) -> dict[str, Any]:
    """Describe the step of a plan as arguments of `step_trace.Case`."""
    precision, activations, batch = plan.precision, plan.activations, plan.batch
    formats = {("bf16", True): "amp_bf16w", ("bf16", False): "bf16", ("fp32", True): "amp", ("fp32", False): "fp32"}
    return {
        "sequence": plan.sequence.length,
        "micro": batch.micro,
        "attention": {"sdpa": "flash", "flash": "fa2", "eager": "eager"}[str(activations.attention)],
        "checkpointing": activations.checkpointing == "full",
        "precision": formats[str(precision.params), bool(precision.autocast)],
        "optimizer": plan.optimizer.implementation,
        "accumulate": (batch.accumulation or 1) > 1,
        "keep_outputs": bool(activations.keeps_outputs),
    }


def sum_allocated(run: Run) -> int:
    """Sum the bytes that torch allocates at the peak of the step, without kernel workspaces, which no trace sees."""
    peaks = [phase.gpu for phase in run.estimate.phases if phase.name in STEP_PHASES and phase.gpu is not None]
    return max(
        sum(size for component, size in peak.sizes if component.counter == "allocated" and component is not WORKSPACES)
        for peak in peaks
    )


def read_traces() -> dict[str, int]:
    """Read the traces: model and step -> peak in bytes."""
    rows = (json.loads(line) for line in TRACED.read_text(encoding="utf-8").splitlines())
    return {make_key(row["model"], row["step"]): row["peak"] for row in rows}


def make_key(model: str, step: dict[str, Any]) -> str:
    return json.dumps([model, step], sort_keys=True)

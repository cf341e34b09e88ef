"""Space of plans: the values that each field may have, for tests that change plans or draw them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from cfglint_train.plan.enumerations import list_choices
from cfglint_train.plan.fields import Plan, Role
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin
from cfglint_train.plan.reading import ResolvedPlan
from cfglint_train.runs.run import Run
from tests.memory.generated import CHOICES, MODELS

_OF_KIND: Mapping[str, tuple[Any, ...]] = {
    "bool": (False, True),
    "int": (0, 1, 2, 7, 8, 64, 1000, 131_072, 10**12),
    "float": (0.0, 1e-5, 0.1, 0.9, 1.0, 10.0),
    "int | Literal['all']": (0, 1, 3, 100, "all"),
}
_ROLES = (
    (Role("actor", "Qwen/Qwen2.5-7B", True, 1, 8, "all"), Role("reference", None, False, 1, 8, "all")),
    (Role("actor", None, True, 1, 3), Role("critic", None, True, 2, 8, offload=True), Role("ema", None, False)),
    (Role("actor", "meta-llama/Llama-3.1-70B", True, 1, 1),),
    (
        Role("actor", "Qwen/Qwen2.5-7B", True, 1, 8, "all"),
        Role("critic", "Qwen/Qwen2.5-7B", True, 1, 8, "all", unstated="c"),
    ),
)
_NAMED: Mapping[str, tuple[Any, ...]] = {
    "method.lora_targets": (("q_proj", "mlp.*"),),
    "method.lora_target_pattern": (r".*\\.(q|v)_proj", ".*", "("),
    "method.lora_target_parameters": (("mlp.experts.gate_up_proj",),),
    "method.lora_kernel_parts": ((), ("mlp",), ("mlp", "qkv", "o")),
    "activations.liger_parts": ((), ("norm",), ("norm", "rotary", "mlp")),
    "method.unfrozen": ((), (r"^model\.layers\.1\.", "lm_head"), ("(",)),
    "model.id": (*MODELS, "example-lab/Nebula-9B", "./model", "meta-llama/Llama-2-7b-hf", "microsoft/phi-2"),
    "model.revision": ("main", "0123456789abcdef0123456789abcdef01234567"),
    "model.overrides": ((), (("num_hidden_layers", 2),), (("rope_scaling", {"type": "linear", "factor": 2.0}),)),
    "model.architecture": (
        (),
        (("d_model", 4096), ("n_heads", 32), ("n_layers", 32), ("vocab_size", 50257)),
        (("d_model", 4096), ("n_heads", 32), ("n_layers", 32), ("vocab_size", 100278), ("embedding_size", 100352)),
    ),
    "model.rope_scaling": ("none", "linear", "yarn"),
    "model.roles": ((), *_ROLES),
    "optimizer.targets": ((), ("all-linear",), ("attn", "mlp")),
    "optimizer.stated_name": ("adamw_torch", "adamw_bnb_8bit", "lion"),
    "optimizer.scheduler": ("constant", "constant_with_warmup", "linear", "cosine"),
    "parallel.communication": ("fp32",),
    "parallel.wrapped_classes": ((), ("LlamaDecoderLayer",), ("NoSuchLayer", "Qwen2DecoderLayer")),
    "checkpoint.checkpointer": ("torch_new",),
    "checkpoint.load_checkpointer": ("torch_legacy", "olmo_core"),
    "checkpoint.path": ("out", "/checkpoints", "/tmp/out", "s3://bucket/out"),
    "checkpoint.load_path": ("out/checkpoint-10", "/checkpoints", "s3://bucket/step10-unsharded"),
    "checkpoint.final_path": ("./final", "/final"),
    "data.token_dtype": ("uint16", "uint32"),
    "data.template": ("llama3", "chatml", "qwen", "no_such_template"),
    "rollout.advantage": ("group_norm", "gae", "rloo"),
    "launch.groups": ((), (("actor", 8),), (("actor", 8), ("engines", 32))),
    "launch.launcher": ("torchrun", "accelerate", "ray"),
    "launch.environment": ((), (("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1"), ("CUDA_VISIBLE_DEVICES", "0,1"))),
}


@cache
def list_legal_values(field: Field) -> tuple[Any, ...]:
    """Return the values that a field may have, without None."""
    group, name = field.split(".")
    kind = type(Plan._field_defaults[group]).__annotations__[name].removesuffix(" | None")
    candidates = (
        *(list_choices(field) or ()),
        *_OF_KIND.get(kind, ()),
        *CHOICES.get(field, ()),
        *_NAMED.get(field, ()),
    )
    different = {repr(value): value for value in candidates if value is not None}
    if not different:
        raise AssertionError(f"{field} needs values here")
    return tuple(different.values())


def change_plan(run: Run, changes: Mapping[Field, Any]) -> Run:
    """Return the same job with other values in its plan, including inferred ones; nothing is inferred again."""
    reading = ResolvedPlan(run.resolved_plan.values)
    facts = dict(run.inputs.facts)
    for field, value in changes.items():
        previous = run.resolved_plan.values.get(field)
        origin = Origin("user", note="a test") if previous is None else previous.origin
        reading.put(field, value, origin)
        if field in facts:
            facts[field] = facts[field]._replace(value=value)
    return Run(run.inputs._replace(facts=facts), run.stated_plan, reading, run.architecture)

"""Named values of plan fields, each set defined once; `plan.fields` uses them as types and lists them."""

from __future__ import annotations

from cfglint_train.foundation.typed import Final, Literal

Tuning = Literal[
    "full", "freeze", "lora", "adalora", "fourierft", "hra", "ia3", "ln_tuning", "loha", "miss", "oft",
    "prefix_tuning", "prompt_tuning", "vera",
]  # fmt: skip
"""Kind of training. `freeze` trains some layers only; the rest are adapters by PEFT's names."""

ReferenceModel = Literal["none", "full", "adapter-off"]
"""Second copy of the policy for preference losses: none, a whole model, or the same weights without the adapter."""

Format = Literal[
    "fp32", "bf16", "fp16", "fp8", "int8", "nf4", "fp4", "int4", "mxfp4", "nvfp4", "none",
]  # fmt: skip
"""Number formats; `none` if there is no such copy."""

Compute = Literal["bf16", "fp16", "fp32", "fp8"]
"""Number formats of matrix products."""

Checkpointing = Literal["none", "full", "selective", "selective_ops", "every_n", "fine_grained", "budget"]
"""Recomputed activations: full recomputes every block, selective keeps attention outputs, selective_ops also keeps the
output of every second matrix product.
"""

ActivationOffload = Literal["none", "cpu", "disk"]
"""Place where kept activations wait."""

FusedLoss = Literal[
    "none", "liger", "cce", "chunked", "chunked_logits", "liger_pairs", "liger_unpaired", "liger_policy",
    "liger_distilled", "triton", "log_softmax", "rows", "rows_in_place", "row_kernel", "odds", "odds_rows",
    "odds_kernel", "tiles", "checkpointed", "checkpointed_half", "compiled_shifted",
]  # fmt: skip
"""Loss implementation. cce: cut cross-entropy; chunked: only the fp32 upcast; triton: flash-attn's. liger_*: Liger's
losses of preferences, one pair (DPO, ORPO) or one answer (KTO) at a time, of a policy (GRPO), and of the student of a
teacher (JSD). log_softmax: log-probabilities of whole logits at once, or (rows) of one sequence at a time;
rows_in_place: of logits that are divided by the temperature in place; row_kernel: by a kernel. odds: log-probabilities
and the cross-entropy of the chosen answers. tiles: log-probabilities without logits, by tiles of the output matrix.
checkpointed: chunks of 256 tokens, each recomputed, with an fp32 copy of the output matrix, or (half) without one.
compiled_shifted: torch.compile covers the loss of a copy of the logits without the last ones, but not the whole model.
"""

Strategy = Literal["none", "ddp", "zero", "fsdp1", "fsdp2", "device_map"]
"""Data parallelism: none is one GPU, zero is DeepSpeed."""

FSDP: Final = ("fsdp1", "fsdp2")
"""The FSDP strategies of both generations."""

Sharding = Literal["full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"]
"""FSDP's sharding strategies."""

SplitVocabulary = Literal["none", "head", "ends", "all"]
"""Vocabulary matrices that tensor parallelism splits besides the layers: head (the output matrix; every rank has all
logits), ends (embedding and output matrix; every rank has all logits), all (embedding, output matrix and logits).
"""

Schedule = Literal["1f1b", "gpipe", "interleaved_1f1b", "looped_bfs", "zero_bubble", "zbv"]
"""Pipeline schedule; zero_bubble is the interleaved variant."""

Offload = Literal["none", "cpu", "nvme"]
"""Place where parameters or optimizer states wait."""

Wrapping = Literal["block", "block_and_size", "group", "size", "root"]
"""FSDP units: block_and_size is blocks, embedding and head; root is one unit."""

Projection = Literal["std", "reverse_std", "left", "right", "full"]
"""Side of a gradient that GaLore projects: std is the shorter side, full both."""

Implementation = Literal[
    "fused", "foreach", "single", "bitsandbytes", "torchao", "deepspeed", "cpu", "custom",
    "anyprecision", "apex", "npu", "xla",
]  # fmt: skip
"""Implementation of the optimizer step."""

Padding = Literal["max_length", "longest", "none"]
"""max_length: always the full length; none: no sequence is padded, and there is no mask."""

SaveStrategy = Literal["no", "steps", "epoch", "best"]
"""Times at which checkpoints are written."""

EvalStrategy = Literal["no", "steps", "epoch"]
"""Times at which the model is evaluated."""

StateDict = Literal["full", "sharded", "local"]
"""FSDP's format of saved weights."""

Engine = Literal["none", "vllm", "sglang", "hf"]
"""Engine that generates rollouts."""

EngineMode = Literal["colocate", "server", "pool"]
"""Place of rollout generation: on the training GPUs, by a server, or on separate GPUs of the job."""

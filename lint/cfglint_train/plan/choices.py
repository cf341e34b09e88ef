"""The named values of plan fields, each set once: `plan.fields` types its fields with them and lists them."""

from __future__ import annotations

from cfglint_train.foundation.typed import Final, Literal

Tuning = Literal[
    "full", "freeze", "lora", "adalora", "fourierft", "hra", "ia3", "ln_tuning", "loha", "miss", "oft",
    "prefix_tuning", "prompt_tuning", "vera",
]  # fmt: skip
"""What is trained. `freeze`: some layers only; the rest are adapters by PEFT's names."""

ReferenceModel = Literal["none", "full", "adapter-off"]
"""A second copy of the policy for preference losses: none, a whole model, or the same weights without the adapter."""

Format = Literal[
    "fp32", "bf16", "fp16", "fp8", "int8", "nf4", "fp4", "int4", "mxfp4", "nvfp4", "none",
]  # fmt: skip
"""Number formats; `none` where there is no such copy."""

Compute = Literal["bf16", "fp16", "fp32", "fp8"]
"""Number formats of matrix products."""

Checkpointing = Literal["none", "full", "selective", "selective_ops", "every_n", "fine_grained", "budget"]
"""Which activations are recomputed: full is every block, selective keeps attention outputs, selective_ops keeps every
second matrix product's, too."""

ActivationOffload = Literal["none", "cpu", "disk"]
"""Where kept activations wait."""

FusedLoss = Literal[
    "none", "liger", "cce", "chunked", "chunked_logits", "liger_pairs", "liger_unpaired", "liger_policy",
    "liger_distilled", "triton", "log_softmax", "rows", "rows_in_place", "row_kernel", "odds", "odds_rows",
    "odds_kernel", "tiles", "checkpointed", "checkpointed_half", "compiled_shifted",
]  # fmt: skip
"""cce: cut cross-entropy; chunked: only the fp32 upcast; triton: flash-attn's. Liger's losses of preferences, one pair
(DPO, ORPO) or one answer (KTO) at a time, of a policy (GRPO), and of a teacher's student (JSD). log_softmax:
log-probabilities of whole logits at once, or (rows) of one sequence at a time; rows_in_place: of logits that are
divided by the temperature where they are; row_kernel: by a kernel. odds: log-probabilities and the cross-entropy of the
chosen answers. tiles: log-probabilities without logits, by tiles of the output matrix.
checkpointed: chunks of 256 tokens, each recomputed, with an fp32 copy of the output matrix, or (half) without one.
compiled_shifted: torch.compile covers the loss, of a copy of the logits without the last ones, and not the whole model.
"""

Strategy = Literal["none", "ddp", "zero", "fsdp1", "fsdp2", "device_map"]
"""none is one GPU, zero is DeepSpeed."""

FSDP: Final = ("fsdp1", "fsdp2")
"""The strategies that are FSDP, of either generation."""

Sharding = Literal["full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"]
"""FSDP's strategies."""

SplitVocabulary = Literal["none", "head", "ends", "all"]
"""What tensor parallelism splits besides the layers: head (the output matrix; every rank has all logits), ends
(embedding and output matrix; the same), all (embedding, output matrix and logits)."""

Schedule = Literal["1f1b", "gpipe", "interleaved_1f1b", "looped_bfs", "zero_bubble", "zbv"]
"""Of a pipeline; zero_bubble is the interleaved one."""

Offload = Literal["none", "cpu", "nvme"]
"""Where parameters or optimizer states wait."""

Wrapping = Literal["block", "block_and_size", "group", "size", "root"]
"""FSDP units: block_and_size is blocks, embedding and head; root is one unit."""

Projection = Literal["std", "reverse_std", "left", "right", "full"]
"""Which side of a gradient GaLore projects: std is the shorter one, full both."""

Implementation = Literal[
    "fused", "foreach", "single", "bitsandbytes", "torchao", "deepspeed", "cpu", "custom",
    "anyprecision", "apex", "npu", "xla",
]  # fmt: skip
"""What computes an optimizer step."""

Padding = Literal["max_length", "longest", "none"]
"""max_length: always the full length; none: no sequence is padded, and there is no mask."""

SaveStrategy = Literal["no", "steps", "epoch", "best"]
"""When checkpoints are written."""

EvalStrategy = Literal["no", "steps", "epoch"]
"""When the model is evaluated."""

StateDict = Literal["full", "sharded", "local"]
"""How FSDP saves."""

Engine = Literal["none", "vllm", "sglang", "hf"]
"""What generates rollouts."""

EngineMode = Literal["colocate", "server", "pool"]
"""Where rollouts are generated: on the training GPUs, by a server, on GPUs of the job's own."""

"""Named values of plan fields: `plan.fields` uses each set as a type, and `plan.enumerations` lists its values."""

from __future__ import annotations

from cfglint_train.foundation.typed import Final, Literal

Tuning = Literal[
    "full", "freeze", "lora", "adalora", "fourierft", "hra", "ia3", "ln_tuning", "loha", "miss", "oft",
    "prefix_tuning", "prompt_tuning", "vera",
]  # fmt: skip
"""Tuning methods: `freeze` trains some layers; the values after it are PEFT methods."""

ReferenceModel = Literal["none", "full", "adapter-off"]
"""Reference policy of preference losses; `adapter-off` is the trained model with its adapter disabled."""

Format = Literal[
    "fp32", "bf16", "fp16", "fp8", "int8", "nf4", "fp4", "int4", "mxfp4", "nvfp4", "none",
]  # fmt: skip
"""Number formats of a copy of the weights or gradients; `none` if the run has no such copy."""

Compute = Literal["bf16", "fp16", "fp32", "fp8"]
"""Format of matrix products."""

Checkpointing = Literal["none", "full", "selective", "selective_ops", "every_n", "fine_grained", "budget"]
"""`full` recomputes every block. `selective` keeps attention outputs, `selective_ops` also every second matrix product.
"""

ActivationOffload = Literal["none", "cpu", "disk"]
"""Place to which saved activations are offloaded."""

FusedLoss = Literal[
    "none", "liger", "cce", "chunked", "chunked_logits", "liger_pairs", "liger_unpaired", "liger_policy",
    "liger_distilled", "triton", "log_softmax", "rows", "rows_in_place", "row_kernel", "odds", "odds_rows",
    "odds_kernel", "tiles", "checkpointed", "checkpointed_half", "compiled_shifted", "policy", "policy_scaled",
    "policy_copied", "policy_padded", "policy_cut", "policy_entropy", "policy_entropy_eager", "policy_entropy_chunks",
    "policy_fused", "policy_fused_entropy",
]  # fmt: skip
"""`cce`: cut cross-entropy. `chunked`: only the fp32 upcast is chunked. `triton`: flash-attn's kernel. `liger_*`:
Liger's preference losses, by pair (DPO, ORPO), by answer (KTO), of a policy (GRPO) and of a student (JSD).
`log_softmax`: log-probabilities of all logits at once; `rows`: one sequence at a time; `rows_in_place`: divided by the
temperature in place; `row_kernel`: by a kernel. `odds*`: plus the cross-entropy of chosen answers. `tiles`:
log-probabilities without logits. `checkpointed`: recomputed chunks of 256 tokens with an fp32 copy of the output
matrix; `checkpointed_half`: without that copy. `compiled_shifted`: torch.compile covers only the loss of shifted
logits. `policy`: log-probabilities from flash-attn's kernel, in place (verl); `policy_scaled`: of logits that the
temperature divides in place; `policy_copied`: of a divided copy; `policy_padded`: cut out of padded sequences;
`policy_cut`: the same, scored without the entropy (EasyR1).
`policy_entropy*`: plus the entropy, compiled, without compilation (`_eager`), or in chunks. `policy_fused*`: output
matrix and log-probabilities in chunks of 512 tokens.
"""

Strategy = Literal["none", "ddp", "zero", "fsdp1", "fsdp2", "device_map"]
"""Distribution strategies: `none` is one GPU, `zero` is DeepSpeed."""

FSDP: Final = ("fsdp1", "fsdp2")
"""The FSDP strategies of both generations."""

Sharding = Literal["full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"]
"""FSDP's sharding strategies."""

SplitVocabulary = Literal["none", "head", "ends", "all"]
"""Parts that tensor parallelism splits in addition to the layers: the output matrix (`head`), also the embedding
(`ends`), or also the logits (`all`).
"""

Schedule = Literal["1f1b", "gpipe", "interleaved_1f1b", "looped_bfs", "zero_bubble", "zbv"]
"""Pipeline schedules; `zero_bubble` is the interleaved variant."""

Offload = Literal["none", "cpu", "nvme"]
"""Place to which parameters or optimizer states are offloaded."""

Wrapping = Literal["block", "block_and_size", "group", "size", "root"]
"""Choice of FSDP units; `block_and_size`: blocks, embedding and head; `root`: the whole model as one unit."""

Projection = Literal["std", "reverse_std", "left", "right", "full"]
"""Side that GaLore projects; `std`: the shorter side, `full`: both sides."""

Implementation = Literal[
    "fused", "foreach", "single", "bitsandbytes", "torchao", "deepspeed", "cpu", "custom",
    "anyprecision", "apex", "npu", "xla",
]  # fmt: skip
"""Implementation of the optimizer step."""

Padding = Literal["max_length", "longest", "none"]
"""Padding of batches; `max_length`: always the full length; `none`: no padding and no mask."""

SaveStrategy = Literal["no", "steps", "epoch", "best"]
"""Times at which checkpoints are written."""

EvalStrategy = Literal["no", "steps", "epoch"]
"""Times at which the model is evaluated."""

StateDict = Literal["full", "sharded", "local"]
"""FSDP's format of saved weights."""

Engine = Literal["none", "vllm", "sglang", "hf"]
"""Engine that generates rollouts."""

EngineMode = Literal["colocate", "server", "pool"]
"""Location of the engine: the training GPUs (`colocate`), a server, or separate GPUs of the job (`pool`)."""

"""Comparison of cfglint with other estimators, each on the rows that it can estimate.

| name | estimates | what it counts |
|---|---|---|
| accelerate | full training with AdamW, one GPU | `estimate-memory`: the largest of weights, gradients, Adam |
| deepspeed | full training, ZeRO-2 and 3 | `estimate_zero*_model_states_mem_needs`: states |
| cookbook | AdamW, dense, one GPU or ZeRO | EleutherAI's `calc_transformer_mem.py`: states and activations |
| llm-analysis | the same | `LLMAnalysis.training`: states and activations |
| fitcheck-llm | full, LoRA and QLoRA on one GPU | states, activations, logits, the context, what the allocator keeps |
| canifinetune | the same | the same; its safety margin, which it reports apart, is left out |
| fitscout | the same | states, activations, logits, the context |
| 16 bytes | full training with AdamW | rule of thumb: 2 + 2 + 12 bytes per parameter, sharded as by ZeRO and FSDP |

Except for the rule of thumb, cfglint calls the estimators' own functions and reimplements none. It skips estimators
that Python cannot import: all but the cookbook, whose folder must be on PYTHONPATH, are packages.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from cfglint_train.calibration.compare import PEAK, Comparison
from cfglint_train.calibration.measurements import is_measured
from cfglint_train.calibration.report import compute_median
from cfglint_train.calibration.rows import Row, Unreadable
from cfglint_train.calibration.subject import Subject, build_subject
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import GIB
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.plan.names import Field

_COOKBOOK_OUTPUT: Final = compile_on_use(r"Per-GPU Memory Required for Training: ([0-9.]+) GiB")


def _import_module(name: str) -> Any:
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return importlib.import_module(name)
    except Exception:  # skip a peer that fails to load, for whatever reason
        return None


def _is_plain_adamw(case: Subject) -> bool:
    """Return whether AdamW trains all weights with 32-bit states."""
    fields = case.fields
    is_full_adamw = fields["method.tuning"] == "full" and fields["optimizer.name"] == "adamw"
    return is_full_adamw and fields.get("optimizer.state_bits", 32) == 32 and "method.active_layers" not in fields


def _read_parallelism(case: Subject) -> tuple[int, int, int, int] | None:
    """Return the number of GPUs, the data-parallel and tensor-parallel degrees, and the ZeRO stage.

    Return None unless a dense model is trained on one GPU or with ZeRO, without offload or further parallelism.
    """
    fields = case.fields
    strategy = fields["parallel.strategy"]
    degrees = [fields.get("parallel.pipeline", 1), fields.get("parallel.context", 1), fields.get("parallel.expert", 1)]
    offloads = {fields.get("parallel.offload_optimizer", "none"), fields.get("parallel.offload_params", "none")}
    if strategy not in ("none", "zero") or case.architecture.experts is not None or max(degrees) > 1:
        return None
    if offloads != {"none"}:
        return None
    tensor = fields.get("parallel.tensor", 1)
    gpus = fields["launch.gpus_per_node"] * fields["launch.nodes"] if strategy == "zero" else 1
    return gpus, gpus // tensor, tensor, fields["parallel.zero_stage"] if strategy == "zero" else 0


def _ask_accelerate(module: Any, case: Subject) -> float | None:
    """Return the estimate of `accelerate estimate-memory`, given the fp32 weights' bytes and the compute dtype."""
    if case.fields["parallel.strategy"] != "none" or not _is_plain_adamw(case):
        return None
    dtype = "float32" if case.fields["precision.compute"] == "fp32" else "float16"
    usage = module.estimate_training_usage(int(4 * case.architecture.parameters), dtype)
    return float(max(usage.values()))


def _estimate_with_deepspeed(modules: tuple[Any, Any], case: Subject) -> float | None:
    fields, (zero2, zero3) = case.fields, modules
    if fields["parallel.strategy"] != "zero" or fields["method.tuning"] != "full":
        return None
    stage, gpus_per_node, nodes = fields["parallel.zero_stage"], fields["launch.gpus_per_node"], fields["launch.nodes"]
    offload = fields.get("parallel.offload_optimizer", "none") != "none"
    parameters = case.architecture.parameters
    if stage == 2:
        answer = zero2.estimate_zero2_model_states_mem_needs(parameters, gpus_per_node, nodes, offload)
        return float(answer[1])
    if stage == 3:
        answer = zero3.estimate_zero3_model_states_mem_needs(
            parameters, case.architecture.largest_tensor, gpus_per_node, nodes, offload, False, True
        )
        return float(answer[1])
    return None


def _ask_cookbook(module: Any, case: Subject) -> float | None:
    """Return the estimate that the cookbook's command prints for the model's dimensions."""
    parallelism = _read_parallelism(case)
    if parallelism is None or not _is_plain_adamw(case):
        return None
    fields, architecture, (gpus, _, tensor, stage) = case.fields, case.architecture, parallelism
    options = {
        "num-gpus": gpus, "tensor-parallel-size": tensor, "zero-stage": stage,
        "batch-size-per-gpu": fields["batch.micro"], "sequence-length": fields["sequence.length"],
        "vocab-size": architecture.vocab, "hidden-size": architecture.hidden, "num-attention-heads": architecture.heads,
        "num-layers": architecture.layers, "ffn-expansion-factor": architecture.intermediate / architecture.hidden,
        "num-mlp-linears": 3 if architecture.gated else 2, "kv-size-ratio": architecture.kv_heads / architecture.heads,
        "bytes-per-grad-ele": 4 if fields["precision.grads"] == "fp32" else 2,
    }  # fmt: skip
    words = [f"--{name}={value}" for name, value in options.items()]
    if fields["activations.checkpointing"] == "full":
        words.append("--checkpoint-activations")
    if fields["precision.compute"] == "fp32":
        words.append("--disable-mixed-precision")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        module.calc_mem(module.config_parser().parse_args(words))
    match = _COOKBOOK_OUTPUT.search(output.getvalue())
    return float(match[1]) * GIB if match else None


def _estimate_with_llm_analysis(modules: tuple[Any, Any], case: Subject) -> float | None:
    parallelism = _read_parallelism(case)
    if parallelism is None or not _is_plain_adamw(case):
        return None
    fields, architecture, (analysis, config), (_, data_parallel, tensor, stage) = (
        case.fields,
        case.architecture,
        modules,
        parallelism,
    )
    model = config.ModelConfig(
        "row", architecture.layers, architecture.heads, architecture.hidden, architecture.vocab,
        fields["sequence.length"], architecture.kv_heads,
        ffn_embed_dim=architecture.intermediate, expansion_ratio=architecture.intermediate / architecture.hidden,
    )  # fmt: skip
    bits = 32 if fields["precision.compute"] == "fp32" else 16
    large_gpu = dataclasses.replace(config.get_gpu_config_by_name("a100-sxm-80gb"), mem_per_GPU_in_GB=10**6)
    run = analysis.LLMAnalysis(
        model,
        large_gpu,  # llm-analysis gives no estimate if a run does not fit its GPU
        config.DtypeConfig("row", bits, bits, bits),
        config.ParallelismConfig(tp_size=tensor, dp_size=data_parallel),
        flops_efficiency=0.5,
        hbm_memory_efficiency=1,
    )
    recomputation = {"full": "FULL", "selective": "SELECTIVE"}.get(fields["activations.checkpointing"], "NONE")
    usage = run.training(
        batch_size_per_gpu=fields["batch.micro"],
        gradient_accumulation_steps=1,
        seq_len=fields["sequence.length"],
        activation_recomputation=analysis.ActivationRecomputation[recomputation],
        ds_zero=analysis.DSZeRO(stage),
        mlp_gated_linear_units=architecture.gated,
        flash_attn=fields["activations.attention"] != "eager",
    )
    return float(usage["(weight+op_state+grad+act)_memory_per_gpu"])


class _PlainRun(Frozen):
    """A run in the terms that the estimators for one GPU share."""

    adapters: bool
    quantization: str
    """One of `none`, `nf4` and `int8`."""
    optimizer_bits: int
    targets: str
    """Scope of LoRA: `minimal` (queries and values), `attention` or `all`."""


_WITHOUT_OPTION: Final[tuple[Field, ...]] = (
    "activations.compile",
    "method.lora_dora",
    "method.lora_modules_to_save",
    "method.active_layers",
    "method.trainable_layers",
    "method.lora_kernels",
    "activations.liger_layers",
    "sequence.image_tokens",
    "batch.pairs",
)
"""Fields that these estimators have no option for."""
_LOSSES_OVER_ALL_LOGITS: Final = ("none", "upcast", "upcast-kept", "litgpt-whole")
_MATRICES_OF_MLPS: Final = {"all-linear", "gate_proj", "up_proj", "down_proj", "w1", "w2", "fc1", "fc2"}


def _read_plain_run(case: Subject) -> _PlainRun | None:
    """Return the run, or None unless these estimators have an option for all of it.

    That is a dense text model on one GPU: all weights or LoRA on 16-bit, nf4 or int8 weights, AdamW, a loss over all
    logits, no compiler and no offload.
    """
    fields = case.fields
    get = fields.get
    is_plain = (
        fields["parallel.strategy"] == "none"
        and case.architecture.experts is None
        and fields["method.tuning"] in ("full", "lora")
        and fields["optimizer.name"] == "adamw"
        and get("optimizer.state_bits", 32) in (8, 32)
        and get("method.quantization", "none") in ("none", "nf4", "int8")
        and get("activations.fused_loss", "none") in _LOSSES_OVER_ALL_LOGITS
        and get("activations.offload", "none") == "none"
        and not any(map(get, _WITHOUT_OPTION))
    )
    if not is_plain:
        return None
    targets = set(get("method.lora_targets", ()))
    scope = "all" if targets & _MATRICES_OF_MLPS else "minimal" if targets == {"q_proj", "v_proj"} else "attention"
    return _PlainRun(
        fields["method.tuning"] == "lora",
        get("method.quantization", "none"),
        get("optimizer.state_bits", 32),
        scope,
    )


def _ask_fitcheck(modules: tuple[Any, Any, Any], case: Subject) -> float | None:
    """Return the estimate of fitcheck-llm, with a GPU that is never too small."""
    run, (package, hardware, adapters) = _read_plain_run(case), modules
    if run is None:
        return None
    fields, architecture = case.fields, case.architecture
    model = package.ModelConfig(
        "row", int(architecture.parameters), architecture.hidden, architecture.layers, architecture.heads,
        architecture.kv_heads, architecture.intermediate, architecture.vocab, architecture.head_dim, architecture.tied,
    )  # fmt: skip
    targets = {
        "minimal": adapters.LORA_TARGETS_MINIMAL,
        "attention": adapters.LORA_TARGETS_STANDARD,
        "all": adapters.LORA_TARGETS_FULL,
    }
    training = package.TrainingConfig(
        precision=fields["precision.compute"],
        quantization=run.quantization,
        double_quant=run.quantization == "nf4" and bool(fields.get("method.double_quantization")),
        optimizer="adamw" if run.optimizer_bits == 32 else "adamw-8bit",
        batch_size=fields["batch.micro"],
        seq_len=fields["sequence.length"],
        lora_rank=fields["method.lora_rank"] if run.adapters else None,
        lora_targets=list(targets[run.targets]),
        grad_checkpoint=fields["activations.checkpointing"] == "full",
        flash_attn=fields["activations.attention"] != "eager",
    )
    report = package.estimate(model, training, hardware.get_gpu(vram_mib=10**6))
    return float(report.total_mib) * 2**20


def _ask_canifinetune(modules: tuple[Any], case: Subject) -> float | None:
    """Return the estimate of canifinetune without its safety margin, for the row's GPU or one of 80 GiB."""
    run, (memory,) = _read_plain_run(case), modules
    if run is None:
        return None
    fields, architecture = case.fields, case.architecture
    quantization = {"nf4": "nf4_double_quant" if fields.get("method.double_quantization") else "nf4"}
    optimizer = "adamw_torch" if run.optimizer_bits == 32 else "adamw_8bit"
    request = memory.EstimateRequest(
        model_id="row",
        method="qlora" if run.quantization != "none" else "lora" if run.adapters else "full",
        seq_len=fields["sequence.length"],
        micro_batch_size=fields["batch.micro"],
        base_dtype=fields["precision.compute"],
        quantization=quantization.get(run.quantization, "int8"),
        lora_rank=fields.get("method.lora_rank", 16),
        lora_target_scope={"minimal": "conservative", "attention": "attention", "all": "all_linear"}[run.targets],
        optimizer=optimizer,
        gradient_checkpointing=fields["activations.checkpointing"] == "full",
        attention_implementation={"flash": "flash_attention_2"}.get(
            fields["activations.attention"], fields["activations.attention"]
        ),
        gpu_vram_gb=(case.capacity or 80 * GIB) / GIB,
        use_network=False,
        override={
            "family": "llama",
            "hidden_size": architecture.hidden, "num_hidden_layers": architecture.layers,
            "num_attention_heads": architecture.heads, "num_key_value_heads": architecture.kv_heads,
            "intermediate_size": architecture.intermediate, "vocab_size": architecture.vocab,
            "tie_word_embeddings": architecture.tied, "total_params": int(architecture.parameters),
        },
    )  # fmt: skip
    answer = memory.estimate(request).memory
    return float(answer.total_estimated_gb - answer.safety_margin_gb) * GIB


def _ask_fitscout(modules: tuple[Any, Any], case: Subject) -> float | None:
    """Return the estimate of fitscout, which knows no int8 weights and adapts queries and values only."""
    run, (estimator, profiles) = _read_plain_run(case), modules
    if run is None or run.quantization == "int8":
        return None
    fields, architecture = case.fields, case.architecture
    profile = profiles.ModelProfile(
        int(architecture.parameters), architecture.layers, architecture.hidden, architecture.heads,
        architecture.kv_heads, architecture.intermediate, architecture.vocab, architecture.tied,
        dtype_bytes=4 if fields["precision.compute"] == "fp32" else 2,
    )  # fmt: skip
    answer = estimator.estimate_memory(
        profile,
        method="qlora" if run.quantization != "none" else "lora" if run.adapters else "full",
        micro_batch=fields["batch.micro"],
        seq_len=fields["sequence.length"],
        grad_ckpt=fields["activations.checkpointing"] == "full",
        opt_8bit=run.optimizer_bits == 8,
        lora_rank=fields.get("method.lora_rank", 16),
    )
    return float(answer.total_gb) * GIB


def _apply_rule_of_thumb(case: Subject) -> float | None:
    """Return 16-bit weights and gradients plus 12 bytes of fp32 states per parameter, and nothing else."""
    if not _is_plain_adamw(case):
        return None
    fields, strategy = case.fields, case.fields["parallel.strategy"]
    model_parallel = fields.get("parallel.tensor", 1) * fields.get("parallel.pipeline", 1)
    ranks = fields["launch.gpus_per_node"] * fields["launch.nodes"] // model_parallel
    stage = {"none": 0, "ddp": 0, "zero": fields.get("parallel.zero_stage", 0)}.get(strategy, 3)
    weights, gradients, states = (ranks if stage >= least else 1 for least in (3, 2, 1))
    return float(case.architecture.parameters / model_parallel * (2 / weights + 2 / gradients + 12 / states))


_MODULES: Final[dict[str, tuple[str, ...]]] = {
    "accelerate": ("accelerate.commands.estimate",),
    "deepspeed": ("deepspeed.runtime.zero.stage_1_and_2", "deepspeed.runtime.zero.stage3"),
    "cookbook": ("calc_transformer_mem",),
    "llm-analysis": ("llm_analysis.analysis", "llm_analysis.config"),
    "fitcheck-llm": ("fitcheck", "fitcheck.gpu_db", "fitcheck.memory.lora"),
    "canifinetune": ("canifinetune.estimator.memory",),
    "fitscout": ("fitscout.memory.estimator", "fitscout.model.profile"),
    "16 bytes": (),
}
PEERS: Final = tuple(_MODULES)


def load_peers() -> dict[str, Callable[[Subject], float | None]]:
    """Return a function for each installed peer, by name.

    Each function accepts the subject of a row and returns bytes, or None if the peer cannot estimate the row.
    """
    adapters: dict[str, Any] = {
        "accelerate": lambda imported, case: _ask_accelerate(imported[0], case),
        "deepspeed": _estimate_with_deepspeed,
        "cookbook": lambda imported, case: _ask_cookbook(imported[0], case),
        "llm-analysis": _estimate_with_llm_analysis,
        "fitcheck-llm": _ask_fitcheck,
        "canifinetune": _ask_canifinetune,
        "fitscout": _ask_fitscout,
        "16 bytes": lambda _, case: _apply_rule_of_thumb(case),
    }
    peers: dict[str, Callable[[Subject], float | None]] = {}
    for name, modules in _MODULES.items():
        imported = tuple(_import_module(module) for module in modules)
        if None not in imported:
            peers[name] = lambda case, ask=adapters[name], imported=imported: ask(imported, case)  # type: ignore[misc]
    return peers


def compare_peers(rows: Iterable[Row | Unreadable], evaluated: Iterable[Comparison]) -> dict[str, Any]:
    """Return the rows of each peer with measurement, prediction and error, and the median absolute errors.

    `median` is the peer's, `ours` is cfglint's on the same rows. `evaluated` holds cfglint's estimates of the rows.
    Rows of the project's own harness, bounds, and figures other than the training peak are left out.
    """
    peers = load_peers()
    logging.getLogger("llm_analysis").setLevel(logging.ERROR)
    values = {row.id: row for row in evaluated if row.error is not None and not row.bound and row.scope == PEAK}
    result: dict[str, Any] = {name: {"installed": name in peers, "rows": []} for name in PEERS}
    ours: dict[str, list[float]] = {name: [] for name in PEERS}
    for row in rows:
        if isinstance(row, Unreadable) or row.id not in values or is_measured(row):
            continue
        case, measured = build_subject(row), values[row.id].measured or 0.0
        for name, ask in peers.items():
            predicted = ask(case)
            if predicted is None:
                continue
            entry = {"id": row.id, "measured": measured, "predicted": round(predicted / GIB, 3)}
            result[name]["rows"].append({**entry, "error": round(predicted / GIB / measured - 1, 4)})
            ours[name].append(abs(values[row.id].error or 0.0))
    for name, summary in result.items():
        errors = [abs(entry["error"]) for entry in summary["rows"]]
        summary["median"], summary["ours"] = (
            (compute_median(errors), compute_median(ours[name])) if errors else (None, None)
        )
    return result


def render_peers(peers: Mapping[str, Any]) -> Iterator[str]:
    """Yield the medians as lines of text."""
    for name, peer in peers.items():
        if not peer["installed"]:
            yield f"{name:<12} not installed"
        elif not peer["rows"]:
            yield f"{name:<12} cannot estimate any of these rows"
        else:
            yield f"{name:<12} {len(peer['rows'])} rows, median error {peer['median']:.1%}; cfglint {peer['ours']:.1%}"


def render_peers_markdown(peers: Mapping[str, Any]) -> Iterator[str]:
    """Yield the Markdown table of the docs, with the medians of the peers that estimate any row."""
    yield "| estimator | rows | its median error | cfglint's on the same rows |"
    yield "|---|---|---|---|"
    for name, peer in peers.items():
        if peer["rows"]:
            yield f"| {name} | {len(peer['rows'])} | {peer['median']:.1%} | {peer['ours']:.1%} |".replace("%", " %")

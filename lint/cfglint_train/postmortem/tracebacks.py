"""Tracebacks of failed allocations: the phase and the kind of tensor that their functions stand for.

Names of functions come from torch 1.12 to 2.13 (optim, distributed/fsdp, utils/checkpoint.py), DeepSpeed 0.9 to 0.19
(runtime/zero), transformers 4.26 to 5.23 (trainer.py, modeling_utils.py, models), trl 0.7 to 1.16, OpenRLHF 0.5 to
0.11, verl 0.3 to 0.9, bitsandbytes 0.41 to 0.50, vLLM and SGLang.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final, Literal
from cfglint_train.postmortem.messages import Frame

Part = Literal[
    "logits", "layer", "weights", "gathered", "buckets", "gradients", "reduction", "master", "optimizer", "update",
    "engine", "sent",
]  # fmt: skip
"""Kind of tensor. layer: values of a layer. sent: weights on their way to a rollout engine."""


class Place(Frozen):
    """The place of a failed allocation as far as a traceback shows it."""

    phase: str | None = None
    """Name of a phase of an estimate."""
    part: Part | None = None
    function: str = ""
    """Function or line of code that names the part, or else the phase."""
    path: str = ""
    """File of the function, or empty."""


class _Rule(Frozen):
    """Functions that stand for a phase or a part; all expressions that are not empty must match one frame."""

    value: Any
    function: re.Pattern[str] | None = None
    path: re.Pattern[str] | None = None
    code: re.Pattern[str] | None = None
    is_inner: bool = False
    """True if only frames of torch and of hooks may lie inside of the matching one."""

    def is_match(self, frame: Frame) -> bool:
        """Return whether a frame matches."""
        return (
            (self.function is None or self.function.fullmatch(frame.function) is not None)
            and (self.path is None or self.path.search(frame.path) is not None)
            and (self.code is None or self.code.search(frame.code) is not None)
        )


def _compile(pattern: str) -> re.Pattern[str] | None:
    return compile_on_use(pattern) if pattern else None


def _build_rule(value: str, function: str = "", path: str = "", code: str = "", is_inner: bool = False) -> _Rule:
    return _Rule(value, _compile(function), _compile(path), _compile(code), is_inner)


_ENGINES: Final = r"^(?:vllm|sglang)/"
_HOOKS: Final = compile_on_use(
    r"^(?:torch/|accelerate/hooks|accelerate/utils/operations|deepspeed/runtime/zero/linear|$)"
)

_SENDERS: Final = r"_move_model_to_vllm|(?:broadcast|update|sync)_(?:to_vllm|weights?).*"
"""Functions that send weights to a rollout engine."""
_QUANTIZERS: Final = r"create_quantized_param\w*|set_module_(?:quantized_)?tensor_to_device"
_LOADERS: Final = (
    r"from_pretrained|_load_(?:pretrained_model|state_dict_into_meta_model|parameter_into_model)|load_model(?:_.*)?"
    r"|prepare_model_for_\w+|_init_param_handle\w*|_move_module_to_device|materialize\w*|fsdp2_prepare_model"
    r"|load_shard_file\w*"
)
"""Functions that load weights or put them on the GPU."""
_TRAINER: Final = r"\btransformers/trainer\.py$"
"""The Trainer's constructor moves the model to the GPU, and allocates nothing else there (4.26 to 5.23)."""
_LOADING_CODE: Final = r"\bload_model\(|from_pretrained\("
_CLONING_CODE: Final = r"Failed to clone\(\) tensor"

_PHASES: Final = (
    _build_rule("rollout", path=_ENGINES),
    _build_rule(
        "save",
        r"_?save(?:_.*)?|.*save_(?:model|checkpoint|pretrained|state|hf|full|ckpt).*|get_state_dict"
        r"|.*state_dict_(?:hook|type).*|_zero3_consolidated_16bit_state_dict|state_dict|full_state_dict",
    ),
    _build_rule("save", code=_CLONING_CODE),
    _build_rule("resume", r"_load_from_checkpoint|_?load_checkpoint|_load_optimizer_and_scheduler"),
    _build_rule(
        "rollout",
        r"generate|_generate.*|generate_(?:sequences|experience|samples|rollouts|completions)|make_experience.*"
        rf"|compute_(?:ref_)?log_prob|infer_batch|{_SENDERS}",
    ),
    _build_rule("eval", r"evaluat(?:e|ion_loop)|prediction_(?:step|loop)|predict|_evaluate|validat(?:e|ion)|_validate"),
    _build_rule("backward", r"_?(?:engine_)?run_backward|backward|_backward|.*post_backward.*"),
    _build_rule("backward", code=r"\.backward\("),
    _build_rule("load", r"_configure_(?:zero_)?optimizer|_configure_distributed_model|initialize_optimizer_states"),
    _build_rule(
        "optimizer step",
        r"step|_?(?:multi|single)_tensor_\w+|_take_model_step|_?optimizer_step|clip_grad_norm_?"
        r"|_?(?:fused_)?adam\w*|step_with_ready_grads|update_step|_init_group",
        r"(?:optim|zero|accelerate|deepspeed|bitsandbytes|clip_grad|lr_scheduler|megatron)",
    ),
    _build_rule("optimizer step", code=r"optimizer\.step\(|exp_avg_sq|_foreach_sqrt"),
    _build_rule(
        "load",
        rf"{_LOADERS}|{_QUANTIZERS}|dispatch_model|_create_fp16_partitions\w*|_create_fp32_partitions"
        r"|flatten_dense_tensors\w*|_build_model_optimizer",
    ),
    _build_rule("load", code=_LOADING_CODE),
    _build_rule(
        "forward",
        r"training_step|_?compute_loss|forward_step|_?forward_micro_batch"
        r"|update_(?:actor|critic|policy)|train_step|concatenated_forward|forward",
    ),
    _build_rule("forward", code=r"cross_entropy|logits|model\(\*\*"),
    _build_rule("load", r"cuda|convert|_apply", r"torch/nn/modules/module"),
    _build_rule("load", "__init__", _TRAINER),
)
"""Phases, the most decisive first: a forward pass within an evaluation belongs to the evaluation."""

_PARTS: Final = (
    _build_rule("weights", code=_CLONING_CODE),
    _build_rule("sent", _SENDERS),
    _build_rule("engine", path=_ENGINES),
    _build_rule(
        "logits",
        r".*cross_entropy.*|.*log_?probs?_from_.*|entropy_from_logits.*|.*log_softmax.*|log_prob"
        r"|_?get_batch_log_?p\w*|compute_log_probs|\w*vocab_parallel_\w+|ForCausalLMLoss|ForCausalLM_loss|nested_concat"
        r"|pad_across_processes|_?compute_entropy\w*",
    ),
    _build_rule(
        "logits", code=r"\blm_head\b|(?:_|\b)logits\b|log_softmax\(|cross_entropy|\bembed_out\(", is_inner=True
    ),
    _build_rule(
        "gathered",
        r"_alloc_padded_unsharded_flat_param|_{0,2}all_?gather\w*|foreach_all_gather\w*|unshard|_unshard\w*|wait_for_unshard"
        r"|fetch_sub_module|_fetch_sub_module_impl|_dist_allgather_fn|_pre_unshard|summon_full_params",
    ),
    _build_rule("weights", rf"quantize_4bit|{_QUANTIZERS}"),
    _build_rule("gradients", r"copy_grads_in_partition"),
    _build_rule(
        "gradients", path=r"zero/stage", code=r"(?:grad_partition|gradient_buffer|flat_buffer\b.*) = torch\.zeros"
    ),
    _build_rule("buckets", path=r"zero/stage", code=r"bucket\.buffer = torch\.empty"),
    _build_rule("gradients", path=r"zero/linear", code=r"grad_(?:weight|bias) ="),
    _build_rule("layer", path=r"zero/linear", code=r"grad_input ="),
    _build_rule(
        "buckets",
        r"reduce_independent_p_g_buckets_and_remove_grads|reduce_ready_partitions_and_remove_grads|allreduce_bucket"
        r"|average_tensor|setup_buckets|__add_grad_to_ipg_bucket|__avg_scatter_contiguous_grads|__avg_scatter_grads|__reduce_and_\w+"
        r"|reduce_ipg_grads|allreduce_and_copy\w*|buffered_allreduce_fallback|allreduce_no_retain|reduce_scatter_coalesced",
    ),
    _build_rule("gradients", r"foreach_reduce", code=r"^reduce_output = "),
    _build_rule(
        "reduction", r"_reduce_grad|foreach_reduce|_post_backward_hook|post_backward|_get_reduce_scatter_tensors"
    ),
    _build_rule("master", r"_create_fp32_partitions|_create_fp32_sub_partitions|_broadcast_fp32_\w+"),
    _build_rule("master", path=r"zero/stage", code=r"clone\(\)\.float\(|\.float\(\)\.detach|float\(\)\.clone"),
    _build_rule(
        "weights", r"flatten_dense_tensors\w*|_create_fp16_partitions\w*|_partition_param", r"deepspeed|_utils"
    ),
    _build_rule("optimizer", r"_?init_group|init_state|get_state_buffer|_init_optimizer_states"),
    _build_rule(
        "optimizer",
        path=r"optim|deepspeed/ops|bitsandbytes",
        code=r"zeros_like\(|state\[['\"]?(?:exp_avg|step|state1|momentum)",
    ),
    _build_rule(
        "update",
        r"_multi_tensor_\w+|_single_tensor_\w+|clip_grad_norm_?|_?get_(?:flattened_)?grad_norm\w*|scaled_global_norm"
        r"|_foreach_norm|_?get_total_norm|unscale_and_clip_grads|_prepare_sub_group",
    ),
    _build_rule("update", path=r"zero/stage", code=r"averaged_gradients|flat_grad_partition\.to\("),
    _build_rule("update", code=r"_foreach_(?:sqrt|add|mul|div|norm)|exp_avg_sq\.sqrt|denom = "),
    _build_rule(
        "layer",
        path=r"modeling_|mlp|attn|attention|flash_|models/|moe|rms_norm|rope|swiglu|geglu|peft/tuners",
        code=r"(?:self_attn|attention|attn|mlp|gate_proj|up_proj|down_proj|q_proj|k_proj|v_proj|o_proj|dense|w[123]"
        r"|act_fn|softmax|matmul|norm|rotary\w*|lora_[AB]|embed_tokens|decoder_layer|layer_module|experts|mm_projector"
        r"|query|key_states|hidden_states)\b",
    ),
    _build_rule(
        "layer",
        r"apply_rotary_pos_emb|rotate_half|eager_attention_forward|scaled_dot_product_attention|repeat_kv"
        r"|sdpa_attention_forward|recompute_fn|unpack_hook|_attn|swiglu\w*|_flash_attn\w*|_flash_attention\w*"
        r"|\w*(?:causal|attention|attn)_mask\w*",
    ),
    _build_rule("layer", path=r"peft/tuners/lora|bitsandbytes/autograd"),
    _build_rule("weights", rf"{_LOADERS}|_configure_distributed_model"),
    _build_rule("weights", code=_LOADING_CODE),
    _build_rule("weights", "__init__", _TRAINER),
    _build_rule("weights", r"convert", r"torch/nn/modules/module"),
    _build_rule("weights", r"_(?:\w*_)?state_dict_hook|state_dict"),
)
"""Kinds of tensors; the innermost frame that matches any rule decides."""

_PASSES: Final = frozenset(("forward", "backward", "optimizer step"))
"""Phases in which the functions of weights handle other tensors: DeepSpeed flattens gradients as it does weights."""


def locate_allocation(frames: Sequence[Frame]) -> Place:
    """Return the place of an allocation from its traceback, which lists the outermost frame first."""
    place = Place()
    for rule in _PHASES:
        frame = next((frame for frame in reversed(frames) if rule.is_match(frame)), None)
        if frame is not None:
            place = _build_place(rule.value, None, frame)
            break
    is_inner = True
    for frame in reversed(frames):
        for rule in _PARTS:
            if not rule.is_match(frame) or (rule.value == "weights" and place.phase in _PASSES):
                continue
            if rule.is_inner and not is_inner:
                break
            return _build_place(place.phase, rule.value, frame)
        is_inner = is_inner and _HOOKS.search(frame.path) is not None
    return place


def _build_place(phase: str | None, part: Part | None, frame: Frame) -> Place:
    return Place(phase, part, frame.function or frame.code, frame.path)

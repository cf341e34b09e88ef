"""Trained elements of a model: all of them, those of some layers, or adapters on frozen weights."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.plan_reader import Reader
from cfglint_train.memory.ranks import Ranks
from cfglint_train.models.architecture import Architecture, Linear

OTHER_METHODS: Final = frozenset(
    ("adalora", "fourierft", "hra", "ia3", "ln_tuning", "loha", "miss", "oft", "prefix_tuning", "prompt_tuning", "vera")
)
"""PEFT methods other than LoRA; `adapters.py` has their formulas."""

# PEFT 0.19 (utils/transformers_weight_conversion.py): in these families, the names that the experts' matrices had
# before transformers 5 fused them now select the fused parameters instead of modules.
_EXPERT_NAMES: Final[dict[tuple[str, ...], tuple[str, str, str]]] = {
    ("minimax", "minimax_m2", "mixtral"): ("w1", "w3", "w2"),
    (
        "afmoe", "cohere2_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1", "ernie4_5_moe", "exaone_moe",
        "flex_olmo", "glm4_moe", "glm4_moe_lite", "glm4v_moe", "glm_moe_dsa", "hunyuan_v1_moe", "longcat_flash",
        "mellum", "olmoe", "qwen3_moe", "qwen3_next", "qwen3_omni_moe_text", "solar_open",
    ): ("gate_proj", "up_proj", "down_proj"),
}  # fmt: skip


class Trained(Frozen):
    """Trained and frozen elements of a model, with the facts that their gradients and activations depend on."""

    trained: int
    """Elements with a gradient; without FSDP, adapters of experts on other ranks are excluded."""
    frozen: int
    adapters: int
    """Trained elements that belong to adapters."""
    leaves: frozenset[str]
    experts: tuple[int, int]
    """Ranks of the fused experts' adapters: that of `gate_up_proj`, then that of `down_proj`; 0 without an adapter."""
    layers: int
    """Number of decoder layers that the backward pass runs through."""
    rank: int = 0
    """Rank of the adapters of matrices; 0 if there are none."""
    remote: int = 0
    """Trained elements of routed experts on other ranks that `trained` includes."""
    share: float = 1.0
    """Trained share of the weights of the layers that the backward pass runs through."""
    active: float = 1.0
    """Share of the trained elements that have gradients at the same time."""
    head_trained: bool = False
    trains_tower: bool = False
    trains_decoder: bool = True
    """True if the decoder's weights, or adapters on them, get gradients."""

    @property
    def computed(self) -> int:
        """Trained elements whose gradients the rank itself computes, without the experts on other ranks."""
        return self.trained - self.remote


def read_trained(reader: Reader, architecture: Architecture, tuning: str, ranks: Ranks) -> Trained | None:
    """Return the trained and the frozen elements of the rank's model, or None if the trained ones are unknown.

    If the result is None, the reader records the field that is missing. Under FSDP a rank holds a shard of every
    parameter, including the experts of other ranks.
    """
    total, layers, get = architecture.parameters, architecture.layers, reader.get
    if tuning in OTHER_METHODS:
        return _read_adapted(reader, architecture, tuning)
    if tuning not in ("full", "freeze"):
        lora_counts = _read_lora(reader, architecture)
        if lora_counts is None:
            return None
        adapter_elements, saved_elements, leaves, experts, routed = lora_counts
        remote = routed - routed // ranks.expert
        adapter_elements, remote = (adapter_elements, remote) if ranks.fsdp else (adapter_elements - remote, 0)
        held = architecture.expert_parameters // (1 if ranks.fsdp else ranks.expert)
        frozen = total - (held if get("model.host_experts") else 0)
        rank = get("method.lora_rank") or 0
        return Trained(
            adapter_elements + saved_elements, frozen, adapter_elements, leaves, experts, layers, rank, remote
        )
    patterns = get("method.unfrozen") if tuning == "freeze" else None
    if patterns:
        from cfglint_train.memory import unfrozen

        elements, followed_layers = unfrozen.count_trained(architecture, patterns) or (0, 0)
        if not elements:
            reader.missing.append("method.unfrozen")
            return None
        return Trained(elements, total - elements, 0, frozenset(), (0, 0), followed_layers)
    if tuning == "freeze":
        layers = min(layers, reader.require("method.trainable_layers") or 0)
        elements = layers * architecture.layer_parameters
        return Trained(elements, total - elements, 0, frozenset(), (0, 0), layers)
    tower, elements = architecture.tower, total
    if tower is not None:
        vision = 0 if get("model.frozen_vision") else tower.parameters
        projector = 0 if get("model.frozen_projector") else tower.projector_parameters
        language = 0 if get("model.frozen_language") else total - tower.parameters - tower.projector_parameters
        elements = vision + projector + language
    routed = architecture.expert_parameters if ranks.fsdp and not get("model.frozen_language") else 0
    remote = routed - routed // ranks.expert
    return Trained(elements, total - elements, 0, frozenset(), (0, 0), layers, remote=remote)


def _read_adapted(reader: Reader, architecture: Architecture, kind: str) -> Trained | None:
    """Return the trained elements for a PEFT method other than LoRA, or None if they are unknown."""
    from cfglint_train.memory import adapters  # few runs use another method than LoRA
    from cfglint_train.memory.targets import find_targets, get_target_field

    get = reader.get
    rank = (reader.require("method.lora_rank") or 0) if adapters.needs_rank(kind) else 0
    tokens = (reader.require("method.virtual_tokens") or 0) if kind in ("prompt_tuning", "prefix_tuning") else 0
    block, blocks = (get("method.block_size") or 0, get("method.blocks") or 0) if kind == "oft" else (0, 0)
    if kind == "oft" and not block and not blocks:
        reader.missing.append("method.block_size")
    size = adapters.AdapterSize(rank, block, blocks, tokens)
    linears = () if kind in ("prompt_tuning", "prefix_tuning", "ln_tuning") else find_targets(reader, architecture)
    if linears is None:
        return None
    adapter_elements = adapters.count_elements(kind, architecture, linears, size)
    saved = set(get("method.lora_modules_to_save") or ())
    saved_elements = sum(item.elements for item in architecture.linears if item.name in saved)
    if not adapter_elements and not saved_elements:
        reader.missing.append(get_target_field(reader))
        return None
    frozen = architecture.parameters + adapters.count_frozen_elements(kind, linears, size)
    leaves = frozenset(item.name for item in linears)
    return Trained(
        adapter_elements + saved_elements,
        frozen,
        adapter_elements,
        leaves,
        (0, 0),
        architecture.layers,
        adapters.find_rank(kind, size),
    )


def _read_lora(
    reader: Reader, architecture: Architecture
) -> tuple[int, int, frozenset[str], tuple[int, int], int] | None:
    """Return the sizes of LoRA adapters, or None if they are unknown.

    The sizes are the elements of the adapters, the elements of the modules that are trained in full as well, the
    leaf names with an adapter, the ranks of the fused experts' adapters, and the adapter elements of routed experts.
    LoRA of rank r adds r * (inputs + outputs) elements to each matrix; DoRA adds one more per output.
    """
    from cfglint_train.memory.targets import NO_MATRIX, find_targets, get_target_field  # only adapters have targets

    rank = reader.require_count("method.lora_rank")
    if rank is None:
        return None
    targets = reader.get("method.lora_targets") or ()
    target_parameters = reader.get("method.lora_target_parameters") or ()
    # axolotl passes PEFT an empty list if only parameters are named, so PEFT does not apply its default targets.
    has_targets = bool(targets or not target_parameters or reader.get("method.lora_target_pattern"))
    linears = find_targets(reader, architecture) if has_targets else ()
    if linears is None:
        return None
    ranks = _find_expert_ranks(architecture, linears, targets)
    if ranks:
        converted = {name for names in _EXPERT_NAMES.values() for name in names}
        linears = tuple(item for item in linears if item.name not in converted)
    dora = bool(reader.get("method.lora_dora"))
    adapters = sum(
        item.count * (rank * (item.inputs + item.outputs) + (item.outputs if dora else 0)) for item in linears
    )
    fused, routed = {"gate_up_proj": 0, "down_proj": 0}, 0
    for item in architecture.linears:
        if item.experts:
            rank_factor = ranks.get(item.name, 1 if any(name.endswith(item.name) for name in target_parameters) else 0)
            fused[item.name] = rank * rank_factor
            routed += item.count * item.experts * rank * rank_factor * (item.inputs + item.outputs)
    saved = set(reader.get("method.lora_modules_to_save") or ())
    saved_elements = sum(item.elements for item in architecture.linears if item.name in saved)
    leaves = frozenset(item.name for item in linears)
    if (
        not adapters and not routed and not saved_elements and targets != NO_MATRIX
    ):  # PEFT fails if nothing gets an adapter
        reader.missing.append(get_target_field(reader))
        return None
    return adapters + routed, saved_elements, leaves, (fused["gate_up_proj"], fused["down_proj"]), routed


def _find_expert_ranks(
    architecture: Architecture, linears: tuple[Linear, ...], targets: tuple[str, ...]
) -> dict[str, int]:
    """Return the fused expert parameters that PEFT adapts because their former names are targets.

    The result maps each parameter to the factor that multiplies its rank: 2 if it fuses two matrices.
    """
    if architecture.experts is None or not any(item.experts for item in architecture.linears):
        return {}
    targeted = {item.name for item in linears}.union(targets)
    for families, (gate, up, down) in _EXPERT_NAMES.items():
        if architecture.model_type in families:
            ranks = {"gate_up_proj": 2} if {gate, up} <= targeted else {}
            return {**ranks, "down_proj": 1} if down in targeted else ranks
    return {}


def restrict_to_one_layer(trained: Trained, architecture: Architecture) -> Trained:
    """Return `trained` with only one decoder layer trained at a time (BAdam)."""
    layer = architecture.layer_parameters
    return trained._replace(trained=layer, frozen=trained.frozen + trained.trained - layer)


def compute_shares(
    reader: Reader, architecture: Architecture, tuning: str, trained: Trained, partitioned: bool
) -> tuple[float, float]:
    """Return the trained share of the layers' weights, and the share of trained elements that have gradients at once.

    The first share covers only the layers that the backward pass runs through. `partitioned`: ZeRO shards the elements,
    so all of them have gradients.
    """
    share = 1.0
    if tuning == "freeze":
        followed_elements = trained.layers * architecture.layer_parameters
        share = min(1.0, trained.trained / followed_elements) if followed_elements else 1.0
    active = reader.get("method.active_layers") if tuning == "full" else None
    if not active or partitioned or active >= architecture.layers:
        return share, 1.0
    inactive = (architecture.layers - active) * architecture.layer_parameters
    return active / architecture.layers, max(0.0, 1 - inactive / trained.trained)

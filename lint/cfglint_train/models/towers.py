"""Vision towers: the shape of their blocks, and the number of patches per token."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

KINDS: Final[Mapping[str, str]] = {
    "siglip_vision_model": "siglip",
    "siglip2_vision_model": "siglip",
    "smolvlm_vision": "siglip",
    "idefics3_vision": "siglip",
    "clip_vision_model": "clip",
    "pixtral": "pixtral",
    "qwen2_vl": "qwen2_vl",
    "qwen2_vl_vision": "qwen2_vl",
    "qwen2_5_vl": "qwen2_5_vl",
    "qwen2_5_vl_vision": "qwen2_5_vl",
    "qwen3_vl": "qwen3_vl",
    "qwen3_vl_vision": "qwen3_vl",
    "qwen3_vl_moe": "qwen3_vl",
    "qwen3_vl_moe_vision": "qwen3_vl",
    "qwen3_5": "qwen3_vl",
    "qwen3_5_vision": "qwen3_vl",
    "qwen3_5_moe": "qwen3_vl",
    "qwen3_5_moe_vision": "qwen3_vl",
    "glm4v_vision": "glm4v",
    "glm4v_moe_vision": "glm4v",
    "kimi_k25_vision": "kimi_k25",
    "internvl_vision": "internvl",
    "llama4_vision_model": "llama4",
}
"""The tower's `model_type` -> the kind of its blocks (`vision:KIND` in `memory/layers/families.py`). Other types have
no formula.
"""

TILED: Final = frozenset({"llava_next", "llava_next_video", "llava_onevision"})
"""Models that split an image into tiles, whose number depends on the size of the image."""

_LAYERS: Final = ("num_hidden_layers", "depth")
_HEADS: Final = ("num_attention_heads", "num_heads")


class VisionBlocks(Frozen):
    """The blocks of a vision tower. Widths are elements."""

    kind: str
    layers: int
    hidden: int
    heads: int
    intermediate: int
    patches: float
    """Patches that the tower processes per image token of the sequence."""
    tokens: int | None
    """Tokens of one image, or None if the number differs between images."""
    patch: int
    """Side of a patch in pixels."""


def read_vision(config: Mapping[str, Any]) -> VisionBlocks | None:
    """Return the vision tower of a configuration, or None if it has none or there is no formula for it.

    The configuration must have every default written out.
    """
    tower = config.get("vision_config")
    if not isinstance(tower, Mapping):
        return None
    kind = KINDS.get(str(tower.get("model_type") or config.get("model_type")))
    hidden: Any = tower.get("embed_dim") if kind == "qwen2_vl" else tower.get("hidden_size")
    if kind == "internvl" and (tower.get("use_qk_norm") or tower.get("norm_type") == "rms_norm"):
        return None  # the 6B tower
    layers, heads = _get_first(tower, _LAYERS), _get_first(tower, _HEADS)
    width: Any = tower.get("out_hidden_size" if kind == "glm4v" else "intermediate_size")
    if width is None and isinstance(hidden, int) and isinstance(tower.get("mlp_ratio"), (int, float)):
        width = int(hidden * tower["mlp_ratio"])
    if kind is None or not all(isinstance(size, int) and size > 0 for size in (layers, hidden, heads, width)):
        return None
    grid, side = _count_grid_patches(tower), tower.get("patch_size")
    patch = side if isinstance(side, int) else 0
    fixed = config.get("mm_tokens_per_image")  # Gemma 3 pools every image to this number of tokens
    if isinstance(fixed, int) and fixed and grid:
        return VisionBlocks(kind, layers, hidden, heads, width, grid / fixed, fixed, patch)
    merge = _find_merge_size(tower, config)
    name = str(config.get("model_type"))
    resized = name == "paligemma" or (kind == "clip" and name not in TILED)
    tokens = int(grid / merge**2) if grid and resized else None
    return VisionBlocks(kind, layers, hidden, heads, width, float(merge**2), tokens, patch)


def _find_merge_size(tower: Mapping[str, Any], config: Mapping[str, Any]) -> float:
    """Return the merge factor: the number of patches per side that become one token."""
    merge_size: Any = tower.get("spatial_merge_size") or config.get("spatial_merge_size") or config.get("scale_factor")
    if merge_size is None and isinstance(tower.get("merge_kernel_size"), (list, tuple)):
        merge_size = next(iter(tower["merge_kernel_size"]), None)
    ratio: Any = tower.get("pixel_shuffle_ratio") or config.get("downsample_ratio")
    if merge_size is None and isinstance(ratio, float) and ratio > 0:
        merge_size = 1 / ratio
    return merge_size if isinstance(merge_size, (int, float)) and 1 <= merge_size <= 16 else 1


def _count_grid_patches(tower: Mapping[str, Any]) -> int | None:
    """Return the number of patches at the tower's own image size, or None if a size is missing or invalid."""
    size, patch = tower.get("image_size"), tower.get("patch_size")
    if isinstance(size, int) and isinstance(patch, int) and 0 < patch <= size:
        return (size // patch) ** 2
    return None


def _get_first(settings: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((settings[name] for name in names if settings.get(name) is not None), None)

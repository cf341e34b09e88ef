"""The matrices with an adapter: by leaf name, by the end of a path, by a pattern of full paths, or by PEFT's default.

Source: peft 0.21.2, tuners/tuners_utils.py (check_target_module_exists): a name in a list matches the whole path or its
end after a full stop; a single string must match the whole path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from cfglint_train.foundation.typed import Final
from cfglint_train.memory.layers.families import ALL_LINEAR
from cfglint_train.memory.plan_reader import Reader
from cfglint_train.models.architecture import Architecture, Linear
from cfglint_train.models.modules import get_module_paths
from cfglint_train.plan.fields import ALL
from cfglint_train.plan.names import Field

# PEFT's default targets, in the order in which they are tried for a family.
_DEFAULT_TARGETS: Final = (("q_proj", "v_proj"), ("query_key_value",), ("qkv_proj",), ("c_attn",))

# Path of the decoder in a model with a tower, now and before transformers 4.52.
_ROOT: Final = "model.language_model."
_OLD_ROOT: Final = "language_model.model."

# Modules that may hold the experts of a layer, and the present and former names of their matrices.
_BLOCKS: Final = ("mlp", "block_sparse_moe", "feed_forward")
_EXPERTS: Final = ("gate_proj", "up_proj", "down_proj", "gate_up_proj", "w1", "w2", "w3")

NO_MATRIX: Final = ("none",)
"""Targets of a run that trains something too small to be counted (litgpt's LLaMA-Adapter)."""

PathPredicate = Callable[[str], bool]
"""Predicate that selects paths."""


def find_targets(reader: Reader, architecture: Architecture) -> tuple[Linear, ...] | None:
    """Return the matrices with an adapter, or None if unknown; the reader then has the field as missing."""
    pattern = reader.get("method.lora_target_pattern")
    targets = reader.get("method.lora_targets") or ()
    if not pattern and (ALL_LINEAR in targets or ALL in targets):
        return architecture.list_linear_modules()
    if pattern or any("." in target for target in targets):
        matches = _find_by_path(architecture, pattern, targets)
        if matches is None:
            reader.missing.append(get_target_field(reader))
        return matches
    return _find_by_name(architecture, targets) if targets else _find_default(architecture)


def get_target_field(reader: Reader) -> Field:
    """Return the field that chooses the matrices."""
    return "method.lora_target_pattern" if reader.get("method.lora_target_pattern") else "method.lora_targets"


def _find_by_name(architecture: Architecture, targets: tuple[str, ...]) -> tuple[Linear, ...]:
    return architecture.list_linear_modules(*targets, parts=("decoder", "head", "embedding"))


def _find_default(architecture: Architecture) -> tuple[Linear, ...]:
    for names in _DEFAULT_TARGETS:
        matches = architecture.list_linear_modules(*names)
        if matches:
            return matches
    return ()


@lru_cache(maxsize=16)  # called again in every estimate of a run
def _find_by_path(
    architecture: Architecture, pattern: str | None, targets: tuple[str, ...]
) -> tuple[Linear, ...] | None:
    """Return the matrices whose paths match, or None if they cannot be determined.

    None if paths or the pattern are unknown, or if only some of the matrices of a name get an adapter. As with names,
    the matrices of a tower are not counted.
    """
    paths = get_module_paths(architecture.outer_type)
    if paths is None or not architecture.linears:
        return None
    if pattern is None:
        if architecture.experts is not None:
            # Adapters of shared experts alone are not counted: their matrices have the names of the routed ones. Four
            # published rows with them are 4 % too low to 1 % too high (axolotl's examples of Qwen3-Next and Llama 4).
            targets = tuple(name for name in targets if "." not in name or name.rpartition(".")[2] not in _EXPERTS)
        return _select_matrices(
            architecture, paths, lambda path: any(f".{path}".endswith(f".{target}") for target in targets)
        )
    from cfglint_train.foundation.patterns import UnsupportedPattern, compile_pattern

    try:
        fits = compile_pattern(pattern).fullmatch
    except UnsupportedPattern:
        return None
    matches = _select_matrices(architecture, paths, fits)
    if matches == () and any(path.startswith(_ROOT) for path in paths):
        # PEFT fails if nothing matches, so the pattern must be for a release with the other path.
        return _select_matrices(architecture, paths, lambda path: fits(path.replace(_ROOT, _OLD_ROOT, 1)))
    return matches


def _select_matrices(
    architecture: Architecture, paths: tuple[str, ...], is_selected: PathPredicate
) -> tuple[Linear, ...] | None:
    if architecture.experts is not None and any(
        map(is_selected, _number_paths(_list_expert_paths(paths), architecture.layers))
    ):
        return None
    matches = []
    for item in architecture.list_linear_modules(parts=("decoder", "head", "embedding")):
        module_paths = [path for path in paths if path.removesuffix(".*").rpartition(".")[2] == item.name]
        selections = {is_selected(path) for path in _number_paths(module_paths, architecture.layers)}
        if len(selections) != 1:
            return None
        if selections == {True}:
            matches.append(item)
    return tuple(matches)


def _number_paths(paths: Iterable[str], layers: int) -> Iterator[str]:
    """Yield the paths in every layer. Indices below the layer are replaced by 0."""
    for path in paths:
        for layer in range(layers) if "*" in path else (0,):
            yield path.replace("*", str(layer), 1).replace("*", "0")


def _list_expert_paths(paths: tuple[str, ...]) -> Iterator[str]:
    """Yield the present and former paths of routed experts, fused or separate."""
    for layer in sorted({path.partition("*")[0] + "*" for path in paths if "*" in path}):
        for block in _BLOCKS:
            for name in _EXPERTS:
                yield f"{layer}.{block}.experts.{name}"
                yield f"{layer}.{block}.experts.0.{name}"

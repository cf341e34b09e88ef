"""Matrices that get an adapter, selected by leaf name, path suffix, full-path pattern or PEFT's default targets.

Source: peft 0.21.2, tuners/tuners_utils.py (check_target_module_exists): a name in a list matches the whole path or its
end after a dot; a single string is a pattern that must match the whole path.
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

# PEFT's default targets, in the order in which cfglint tries them.
_DEFAULT_TARGETS: Final = (("q_proj", "v_proj"), ("query_key_value",), ("qkv_proj",), ("c_attn",))

# Path prefixes of the decoder in a model with a tower, from transformers 4.52 on and in older releases.
_ROOT: Final = "model.language_model."
_OLD_ROOT: Final = "language_model.model."

# Modules that may hold a layer's experts, and the current and former names of the experts' matrices.
_BLOCKS: Final = ("mlp", "block_sparse_moe", "feed_forward")
_EXPERTS: Final = ("gate_proj", "up_proj", "down_proj", "gate_up_proj", "w1", "w2", "w3")

NO_MATRIX: Final = ("none",)
"""Targets of a run whose only trained parameters are too few to count (litgpt's LLaMA-Adapter)."""

PathPredicate = Callable[[str], bool]
"""A predicate that selects module paths."""


def find_targets(reader: Reader, architecture: Architecture) -> tuple[Linear, ...] | None:
    """Return the matrices that get an adapter, or None if they are unknown.

    If a pattern or path cannot be resolved, the reader records the field as missing.
    """
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
    """Return the field that selects the matrices with an adapter."""
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

    They cannot be determined if the model's module paths are unknown, if the pattern is unsupported, if it selects
    routed experts, or if only some matrices of a name get an adapter. As in selection by name, the matrices of a
    tower are not counted.
    """
    paths = get_module_paths(architecture.outer_type)
    if paths is None or not architecture.linears:
        return None
    if pattern is None:
        if architecture.experts is not None:
            # Adapters that are only on shared experts are not counted, because routed experts have matrices of the same
            # names. The estimates of four published rows with such adapters are between 4 % too low and 1 % too high
            # (axolotl's examples of Qwen3-Next and Llama 4).
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
        # PEFT fails if nothing matches, so the pattern must be meant for a release with the old path.
        return _select_matrices(architecture, paths, lambda path: fits(path.replace(_ROOT, _OLD_ROOT, 1)))
    return matches


def _select_matrices(
    architecture: Architecture, paths: tuple[str, ...], is_selected: PathPredicate
) -> tuple[Linear, ...] | None:
    if architecture.experts is not None and any(
        map(is_selected, number_paths(_list_expert_paths(paths), architecture.layers))
    ):
        return None
    matches = []
    for item in architecture.list_linear_modules(parts=("decoder", "head", "embedding")):
        module_paths = [path for path in paths if path.removesuffix(".*").rpartition(".")[2] == item.name]
        selections = {is_selected(path) for path in number_paths(module_paths, architecture.layers)}
        if len(selections) != 1:
            return None
        if selections == {True}:
            matches.append(item)
    return tuple(matches)


def number_paths(paths: Iterable[str], layers: int) -> Iterator[str]:
    """Yield each path once per layer, with the layer's index inserted.

    The first `*` stands for the layer; every further `*` becomes 0.
    """
    for path in paths:
        for layer in range(layers) if "*" in path else (0,):
            yield path.replace("*", str(layer), 1).replace("*", "0")


def _list_expert_paths(paths: tuple[str, ...]) -> Iterator[str]:
    """Yield the current and former paths of routed experts, fused or separate."""
    for layer in sorted({path.partition("*")[0] + "*" for path in paths if "*" in path}):
        for block in _BLOCKS:
            for name in _EXPERTS:
                yield f"{layer}.{block}.experts.{name}"
                yield f"{layer}.{block}.experts.0.{name}"

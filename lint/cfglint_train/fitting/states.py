"""Advice on reducing the model and optimizer states of a run whose states alone do not fit."""

from __future__ import annotations

from cfglint_train.fitting import words
from cfglint_train.fitting.moves import find_move
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.plan.choices import FSDP
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run


def describe_smaller_states(run: Run) -> str:
    """Describe the ways to reduce the states that the run does not use yet; return an empty string if none is left."""
    parallel = run.plan.parallel
    sharded = parallel.zero_stage == 3 or (parallel.strategy in FSDP and parallel.sharding == "full_shard")
    offloads = {parallel.offload_params, parallel.offload_optimizer} - {None, "none"}
    ways = {
        "sharding": not sharded,
        "offloading": not offloads and (not sharded or run.find_owner("parallel.offload_params") is not None),
        "LoRA": run.plan.method.tuning == "full" and _has_effective_key(run, "method.tuning"),
    }
    bits = list_four_bit_settings(run)
    ways[f"4-bit weights (`{', '.join(bits)}`)"] = bool(bits)
    *others, last = [way for way, is_left in ways.items() if is_left] or [""]
    return f"reduce the states with {', '.join(others)}{' or ' if others else ''}{last}" if last else ""


def _has_effective_key(run: Run, field: Field) -> bool:
    """Return whether a config has a key for a field, and the program that reads the config passes it on."""
    owner = run.find_owner(field)
    keys = None if owner is None else frameworks.get_keys(owner[0])
    return owner is not None and (keys is None or run.spell_key(field) not in keys.list_unread_settings(owner[0]))


def list_four_bit_settings(run: Run) -> tuple[str, ...]:
    """Return the settings that quantize the base weights of an adapter to 4 bits; empty if no file can state them."""
    move = find_move(run, "method.quantization") or find_move(run, "method.quantized_experts")
    return () if move is None else words.format_settings(run, move.changes)

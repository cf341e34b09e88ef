"""Words: the values of text fields that a plan file or an axis accepts. Estimates distinguish each of them.

Configurations may have other values, such as an attention kernel from the Hub. As an axis, such values would only
repeat the numbers of the run or leave cells unknown.
"""

from __future__ import annotations

from collections.abc import Iterable

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.wording import suggest_name
from cfglint_train.plan.names import Field
from cfglint_train.plan.typed_values import get_field_type

_COUNTS: Final[frozenset[Field]] = frozenset((
    "batch.micro", "batch.accumulation", "batch.eval_micro", "batch.global_", "sequence.length", "sequence.eval_length",
    "launch.nodes", "launch.gpus_per_node",
))  # fmt: skip
"""Fields that must be at least 1 in any run."""


def check_axis(field: Field, values: Iterable[Any]) -> None:
    """Raise UsageError if a field or its values cannot be an axis.

    Invalid axes are words that no estimate distinguishes, free-text fields, and counts below 1.
    """
    from cfglint_train.plan.enumerations import list_choices

    values = tuple(values)
    if field in _COUNTS and any(isinstance(value, (int, float)) and value < 1 for value in values):
        raise UsageError(f"{field} must be at least 1")
    if get_field_type(field) == "str" and list_choices(field) is None and _list_words(field) is None:
        raise UsageError(f"{field} cannot be an axis: it is free text, which does not affect the estimate")
    check_values(field, values)


def check_values(field: Field, values: Iterable[Any]) -> None:
    """Raise UsageError for a value that no estimate distinguishes, unless the field is free text or not text."""
    allowed = _list_words(field)
    if allowed is None:
        return
    for value in values:
        if value is not None and value not in allowed:
            hint = suggest_name(str(value), allowed, f"known: {', '.join(allowed)}")
            raise UsageError(f"unknown value {str(value)!r} of {field}; {hint}")


def _list_words(field: Field) -> tuple[str, ...] | None:
    """Return the words that estimates distinguish for a field, or None if the field has no list of words."""
    from cfglint_train.memory.formats import QUANTIZED_BYTES
    from cfglint_train.memory.optimizers import RULES
    from cfglint_train.plan.enumerations import list_choices

    layerwise = (f"{name}_layerwise" for name, rule in RULES.items() if "projected" in rule.kind)
    words = {
        "method.stage": (
            "pretrain", "sft", "dpo", "kto", "orpo", "simpo", "ipo", "rm", "prm", "ppo", "grpo", "rloo", "reinforce",
            "ebft",
        ),
        "method.quantization": ("none", *QUANTIZED_BYTES),
        "optimizer.name": (*sorted(RULES), *layerwise),
        "activations.attention": ("eager", "sdpa", "flash", "flash3", "flex", "xformers", "sage"),
        "model.init_device": ("meta", "cpu", "cuda"),
        "parallel.communication": list_choices("precision.grads"),
    }  # fmt: skip
    return words.get(field)

"""XFL008 adapter-without-matrices: LoRA is set to adapt modules that the model does not have, so PEFT stops.

## What it does
Compares the target modules with the names of the model's modules. A list matches the ends of their paths. A single
string is a regular expression for whole paths; TRL's `ModelConfig` turns a list of one name into such a string.

## Why is this bad?
PEFT stops after the model is loaded: "Target modules ... not found in the base model".

## Example
    model_name_or_path: Qwen/Qwen2.5-7B
    lora_target_modules: [c_attn, c_proj]

## Use instead
    lora_target_modules: [q_proj, k_proj, v_proj, o_proj]

## When it does not apply
KEY006 reports a string of names, and a list of one name, which TRL turns into a string. Silent for mixtures of
experts, for models whose code comes from their own repository, and if some names match. For models with a vision or
audio tower, only patterns that begin with `model.layers` are checked: transformers 4.52 moved these layers to
`model.language_model.layers`.

## References
PEFT 0.4.0 and 0.21.2 `tuners/tuners_utils.py` (inject_adapter, check_target_module_exists); transformers 4.51.3 and
4.52.1 `models/qwen2_vl/modeling_qwen2_vl.py`; `lint/cfglint_train/models/modules.json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.patterns import UnsupportedPattern, compile_pattern
from cfglint_train.foundation.typed import Final
from cfglint_train.memory.layers.families import ALL_LINEAR
from cfglint_train.memory.targets import number_paths
from cfglint_train.models.architecture import Architecture
from cfglint_train.models.modules import get_module_paths
from cfglint_train.plan.fields import ALL
from cfglint_train.plan.names import Field
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "XFL008",
    "adapter-without-matrices",
    "error",
    needs={"method.tuning": ("lora", "adalora", "fourierft", "hra", "loha", "miss", "oft", "vera")},
)

_RENAMED: Final = frozenset(("phi",))
"""Families whose modules had other names in older releases, or in the code of their own repository."""
_OLD_LAYERS: Final = "model.layers."
_NEW_ROOT: Final = "model.language_model."
_MAX_NAMES: Final = 8
_WORDS: Final = r"[\w |,-]+"
"""A text of words, which KEY006 reports for every model."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report if no module of the model gets an adapter."""
    method, model = run.plan.method, run.architecture
    paths = None if model is None else get_module_paths(model.outer_type)
    if model is None or not paths or model.experts is not None or model.remote_code or method.lora_target_parameters:
        return
    pattern, targets = method.lora_target_pattern, method.lora_targets or ()
    field: Field = "method.lora_target_pattern" if pattern else "method.lora_targets"
    if model.outer_type in _RENAMED or not run.is_stated(field) or re.fullmatch(_WORDS, pattern or ""):
        return
    if not (_is_missed_by_pattern(run, model, paths, pattern) if pattern else _is_missed(model, paths, targets)):
        return
    names = sorted({path.rpartition(".")[2] for path in paths if "*" in path})
    yield Report(
        f"`{run.spell_key(field)}` matches no module of {model.id}: PEFT stops before training",
        run.find_place(field),
        help=f"name modules that the model has: {', '.join(names[:_MAX_NAMES])}"
        if pattern is None
        else f"match whole paths, such as `{next(path for path in paths if '*' in path).replace('*', '0')}`",
    )


def _is_missed(model: Architecture, paths: tuple[str, ...], targets: tuple[str, ...]) -> bool:
    """Return whether no path has a part with a target's name; a path's part may be a layer or a norm without matrix."""
    if not targets or model.tower is not None or ALL_LINEAR in targets or ALL in targets:
        return False
    return not any(
        "norm" in target or f".{target}." in f".{path}." for target in targets for path in number_paths(paths, 1)
    )


def _is_missed_by_pattern(run: Run, model: Architecture, paths: tuple[str, ...], pattern: str) -> bool:
    if "norm" in pattern:
        return False
    if model.tower is not None:
        is_moved = run.main.releases.is_certainly_at_least("transformers", "4.52") is True
        is_old = pattern.lstrip("^(").replace("\\", "").startswith(_OLD_LAYERS)
        return is_moved and is_old and all(path.startswith((_NEW_ROOT, "lm_head")) for path in paths)
    try:
        fits = compile_pattern(pattern).fullmatch
    except UnsupportedPattern:
        return False
    return not any(map(fits, number_paths(paths, model.layers)))

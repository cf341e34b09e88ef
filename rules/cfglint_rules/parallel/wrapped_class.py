"""PAR002 wrong-wrap-class: FSDP is set to wrap a layer class that the model does not have, so it stops.

## What it does
Compares the classes that FSDP is set to wrap with the classes of the model's layers. Names are compared with their
letter case: `LLaMADecoderLayer` is no class of transformers 4.28.0 or newer.

## Why is this bad?
accelerate looks for a module of each class after every rank has loaded the model. It stops with "Could not find the
transformer layer class ... in the model".

## Example
    base_model: meta-llama/Llama-3.1-8B
    fsdp_config:
      auto_wrap_policy: TRANSFORMER_BASED_WRAP
      transformer_layer_cls_to_wrap: Qwen2DecoderLayer

## Use instead
    transformer_layer_cls_to_wrap: LlamaDecoderLayer

## Fix safety
Safe: the run could not have started, and the key is meant for the model's own layers.

## When it does not apply
Silent for classes that no model in the catalogue has in any letter case, and for models whose code comes from their own
repository.

## References
accelerate 1.15.0 `utils/fsdp_utils.py` (fsdp2_prepare_auto_wrap_policy), `utils/dataclasses.py` (set_auto_wrap_policy);
PEFT 0.21.2 `utils/other.py` (fsdp_auto_wrap_policy). The class names are the same in transformers 4.41.2, 4.46.3,
4.57.3 and 5.23.0 (`lint/cfglint_train/models/blocks.json`).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.models.blocks import get_layer_classes, is_layer
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "PAR002",
    "wrong-wrap-class",
    "error",
    fix="safe",
    needs={"parallel.wrapped_classes": ()},
    writes=("parallel.wrapped_classes",),
)


def check(run: Run) -> Iterator[Report]:
    """Yield a report if FSDP is set to wrap a class of another model."""
    classes, model = run.plan.parallel.wrapped_classes, run.architecture
    blocks = None if model is None else get_layer_classes(model.model_type)
    if not classes or model is None or blocks is None:
        return
    model_classes = (*blocks.decoder, *blocks.encoders)
    wrong_classes = [name for name in classes if name not in model_classes and is_layer(name)]
    if not wrong_classes:
        return
    kept_classes = tuple(name for name in classes if name not in wrong_classes)
    new_classes = tuple(dict.fromkeys((*kept_classes, *blocks.decoder)))
    key = run.spell_key("parallel.wrapped_classes")
    yield Report(
        f"`{key}` names {', '.join(wrong_classes)}, which the model does not have: FSDP stops after loading",
        run.find_place("parallel.wrapped_classes"),
        notes=(f"the layers of {model.id} are {', '.join(blocks.decoder)}",),
        fix=Fix("safe", f"{key}: {','.join(new_classes)}", {"parallel.wrapped_classes": new_classes}),
    )

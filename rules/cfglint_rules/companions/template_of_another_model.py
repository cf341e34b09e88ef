"""XFL006 template-of-another-model: a chat model is tuned with the chat template of another model family.

## What it does
Compares the chat template with the template that the model was tuned with. The rule applies if both mark turns with
special tokens of their family (`<|start_header_id|>`, `<|im_start|>`, `<start_of_turn>`).

## Why is this bad?
The other family's tokens are plain text to this model, so it learns them as ordinary characters. It never sees the
end-of-turn token that the server expects. The model forgets its earlier tuning, and its answers do not end.

## Example
    model_name_or_path: Qwen/Qwen2.5-7B-Instruct
    template: llama3

## Use instead
    template: qwen

## Fix safety
Unsafe: the fix changes the format of the samples.

## When it does not apply
Silent for base models, because any template is fine for them. Silent for templates that mark turns with words (alpaca,
vicuna) or with commonly added tokens (chatml).

## References
LLaMA-Factory 0.9.5 `extras/constants.py` (the template of each model), `data/template.py`, README ("please use the
corresponding template for the instruct/chat models"); `lint/cfglint_train/frameworks/chat_templates.json`.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "XFL006",
    "template-of-another-model",
    "warning",
    fix="unsafe",
    needs={"data.template": ()},
    writes=("data.template",),
)


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the template and the model belong to different families."""
    template, model = run.plan.data.template, run.plan.model.id
    if template is None or model is None:
        return
    matching_template = run.framework.traits.suggest_template(model, template)
    if matching_template is None:
        return
    key = run.spell_key("data.template")
    yield Report(
        f"`{key}: {template}` writes special tokens that {model} was not trained on; its template is "
        f"`{matching_template}`",
        run.find_place("data.template"),
        fix=Fix("unsafe", f"set {key}: {matching_template}", {"data.template": matching_template}),
    )

"""XFL009 tied-module-saved: the adapter trains a copy of one matrix that the model uses as embedding and head.

## What it does
Reports `embed_tokens` and `lm_head` among the modules that are trained in full beside LoRA, if the model ties them.

## Why is this bad?
PEFT trains a copy of each named module, so the two uses of the matrix drift apart. A model that PEFT before 0.19
merges still says `tie_word_embeddings`: when it is loaded, the head becomes the embedding again, and its training is
lost. The copies and their optimizer states also take memory.

## Example
    base_model: meta-llama/Llama-3.2-1B
    adapter: lora
    lora_modules_to_save: [lm_head]

## Use instead
    base_model: meta-llama/Llama-3.2-1B
    adapter: lora

## When it does not apply
Silent if the configuration sets `ensure_weight_tying` (PEFT 0.18 and newer). PEFT 0.19 and newer correct the merged
model's configuration, so the finding is an info unless an older release is stated.

## References
PEFT 0.13.2, 0.18.1 and 0.21.2 `tuners/tuners_utils.py` (_check_tied_modules, _unload_and_optionally_merge);
huggingface/peft#2777; huggingface/transformers `config.json` (tie_word_embeddings).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule("XFL009", "tied-module-saved", "warning", needs={"method.lora_modules_to_save": ()})

_FIELD: Final = "method.lora_modules_to_save"
_TYING: Final = b"ensure_weight_tying"


def check(run: Run) -> Iterator[Report]:
    """Yield a report if an adapter trains copies of modules that share their weight."""
    model, saved = run.architecture, run.plan.method.lora_modules_to_save or ()
    if model is None or not model.tied or not run.is_stated(_FIELD) or _TYING in run.main.document.source:
        return
    tied_names = {item.name for item in model.linears if item.part in ("embedding", "head")}
    copies = [name for name in saved if name.rpartition(".")[2] in tied_names]
    if not copies:
        return
    is_lost = run.main.releases.is_certainly_at_least("peft", "0.19") is False
    outcome = "a merged model loses the training of its head" if is_lost else "a merged model is larger, and untied"
    yield Report(
        f"`{run.spell_key(_FIELD)}` trains copies of {', '.join(copies)}, which {model.id} ties: {outcome}",
        run.find_place(_FIELD),
        "warning" if is_lost else "info",
        help="leave them out, or set `ensure_weight_tying` (PEFT 0.18 and newer)",
    )

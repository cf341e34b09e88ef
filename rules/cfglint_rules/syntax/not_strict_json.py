"""SYN004 not-strict-json: a DeepSpeed file is not strict JSON, but the Trainer or accelerate reads it.

## What it does
Checks DeepSpeed JSON files that are named by a configuration for accelerate or the Hugging Face Trainer (axolotl,
LLaMA-Factory, TRL). Reports comments, trailing or missing commas, unquoted keys and similar syntax. The rule also
reports a YAML file that is named in place of a JSON file.

## Why is this bad?
DeepSpeed reads its configuration with hjson, which accepts all of that. The Trainer and accelerate read the same file
with `json.load` and stop with a JSONDecodeError. If the YAML file is a configuration for accelerate
(`deepspeed_config: ...`), pass it to `accelerate launch --config_file` instead.

## Example
    {
        "zero_optimization": {"stage": 3},   // sharded weights
    }

## When it does not apply
If no such configuration names the DeepSpeed file, cfglint reads it the way DeepSpeed does. A `.yaml` file that contains
JSON is fine. Duplicate keys are reported as SYN003.

## References
accelerate 0.21.0 and 1.14.0 `utils/deepspeed.py` (HfDeepSpeedConfig); deepspeed 0.19.8 `runtime/config.py`
(hjson.load).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.origin import Place
from cfglint_train.runs.run import Run

RULE: Final = Rule("SYN004", "not-strict-json", "error", inputs=("companions", "unresolved"))


def check(run: Run) -> Iterator[Report]:
    """Yield a report for every place that strict JSON rejects, and for every YAML file named in place of JSON."""
    if not run.framework.traits.strict_json:
        return
    for companion in run.companions:
        if companion.document.syntax == "json":
            for problem in companion.document.problems:
                message = f"{problem.message}: {run.framework.title} reads this file with `json.load` and stops"
                yield Report(message, Place(companion.document, problem.span))
    for unresolved in run.inputs.unresolved:
        if unresolved.problem == "YAML":
            yield Report(
                f"`{unresolved.path}` is YAML: {run.framework.title} reads this file with `json.load` and stops",
                unresolved.place or run.main.find_top(),
                help="write its settings as JSON; pass an accelerate file to `accelerate launch --config_file`",
            )

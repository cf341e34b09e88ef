"""SYN004 not-strict-json: a DeepSpeed file is no strict JSON, and the Trainer or accelerate opens it.

## What it does
Reports comments, trailing and missing commas, unquoted keys and the like in a DeepSpeed JSON that a configuration
for the Hugging Face Trainer (axolotl, LLaMA-Factory, TRL) or accelerate names, and a YAML file in its place.

## Why is this bad?
DeepSpeed opens its configuration with hjson, which takes all of that. The Trainer and accelerate open the same file
with `json.load` and stop with a JSONDecodeError. A file of accelerate (`deepspeed_config: ...`) belongs to
`accelerate launch --config_file`.

## Example
    {
        "zero_optimization": {"stage": 3},   // sharded weights
    }

## When it does not apply
A DeepSpeed file that no such configuration names is read as DeepSpeed reads it. A file called `.yaml` whose text is
JSON is read. Duplicate keys are reported as SYN003.

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

RULE: Final = Rule("SYN004", "not-strict-json", "error")


def check(run: Run) -> Iterator[Report]:
    """Yield a report for every place that strict JSON rejects, and for every YAML file."""
    if not run.framework.traits.strict_json:
        return
    for companion in run.companions:
        if companion.document.syntax == "json":
            for problem in companion.document.problems:
                message = f"{problem.message}: {run.framework.title}, which reads this file with `json.load`, stops"
                yield Report(message, Place(companion.document, problem.span))
    for unresolved in run.inputs.unresolved:
        if unresolved.is_yaml_refused:
            yield Report(
                f"`{unresolved.path}` is YAML: {run.framework.title}, which reads this file with `json.load`, stops",
                unresolved.place or run.main.find_top(),
                help="write its settings as JSON; a file of accelerate goes to `accelerate launch --config_file`",
            )

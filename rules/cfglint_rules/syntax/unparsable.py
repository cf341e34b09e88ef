"""SYN002 unparsable: the text is not the YAML, JSON or Python that its name says, or its framework refuses it.

## What it does
Reports the first place at which the text cannot be parsed: line and column, in one line. Only files that contain a
framework's own keys are reported; a template of something else is left alone.

Of YAML it also reports what cfglint can read and the framework's own loader refuses: a tab between tokens, a tag that
is not standard, an anchor that is given twice, a merge (`<<`) of something that is no mapping, a date that does not
exist, the value `=`, a list or mapping as a key, a comment right behind `|`. No fix is written into such a file.

## Why is this bad?
The launcher stops at the same place, after the job was scheduled.

## Example
    micro_batch_size: 2
     sequence_len: 2048      # one space too many

## When it does not apply
Never for files that are no training configuration. What only some of the loaders refuse that may read the file is a
warning: LLaMA-Factory uses PyYAML before 0.9.4 and OmegaConf since, and OmegaConf takes tabs since 2.4, as it reads
with libyaml then.

## References
PyYAML 6.0 `scanner.py`, `composer.py` and `constructor.py` (`yaml.safe_load`); omegaconf 2.3.0 `_utils.py` and 2.4.0
`_yaml.py` (get_yaml_loader).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.certainty import Ground
from cfglint_train.plan.origin import Place

RULE: Final = Rule("SYN002", "unparsable", "error", scope="config", reported_by_engine="syntax")


def check(config: Config) -> Iterator[Report]:
    """Yield a report if the framework's loader rejects the file; the engine reports files that no loader can parse."""
    if config.document.syntax != "yaml":
        return
    from cfglint_train.frameworks.refused_yaml import find_refusals  # needed only for YAML

    loader_refusals = find_refusals(config)
    actual_refusals = [refusal for refusal in loader_refusals if refusal is not None]
    if not actual_refusals:
        return
    last_refusal = actual_refusals[-1]
    grounds: tuple[Ground, ...] = ()
    fork = config.evidence.fork
    if fork is not None:
        grounds = (Ground("fork", str(fork), "assumed", f"upstream's loader: {fork}", fork.source),)
    is_certain = len(actual_refusals) == len(loader_refusals) and not grounds
    yield Report(
        f"{last_refusal.loader} refuses the file: {last_refusal.message}",
        Place(config.document, last_refusal.span),
        "error" if is_certain else "warning",
        grounds=grounds,
    )

"""SYN002 unparsable: the text is not valid YAML, JSON or Python, or the framework's loader rejects it.

## What it does
Reports the first place where the text cannot be parsed, with its line and column. A list, mapping or quote that is
never closed is reported where it starts. Only files that contain a framework's own keys are reported. Templates that
another tool fills in are not reported.

It also reports YAML that cfglint can read but the framework's own loader rejects:

- a tab between tokens, or a comment directly after `|`
- a non-standard tag, or an anchor that is defined twice
- a merge (`<<`) of something other than a mapping
- a date that does not exist, or the value `=`
- a list or mapping as a key

cfglint does not apply fixes to such a file.

## Why is this bad?
The launcher stops at the same place, after the job has been scheduled.

## Example
    micro_batch_size: 2
     sequence_len: 2048      # one space too many

## When it does not apply
Files that are not training configurations are never reported. If only some of the loaders that may read the file reject
it, the finding is a warning. For example, LLaMA-Factory used PyYAML before 0.9.4 and OmegaConf since then. OmegaConf
2.4 and newer accept tabs, because they use libyaml.

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
    """Yield a report if the framework's loader rejects the YAML of a config.

    The engine itself reports files that no loader can parse.
    """
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
        help=last_refusal.help,
        grounds=grounds,
    )

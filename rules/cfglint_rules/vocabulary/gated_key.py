"""KEY003 gated-key: a key has no effect without a plugin or another setting.

## What it does
Reports axolotl keys whose plugin is not in `plugins`. It also reports LLaMA-Factory keys that belong to a method, stage
or optimizer that the file does not select.

## Why is this bad?
axolotl drops the keys of a plugin that is not loaded, just like misspelled keys. For example,
`liger_fused_linear_cross_entropy: true` alone still keeps all logits in memory. In LLaMA-Factory, `quantization_method`
without `quantization_bit` quantizes nothing: the weights are loaded in 16 bits.

## Example
    liger_fused_linear_cross_entropy: true

## Use instead
    plugins:
      - axolotl.integrations.liger.LigerPlugin
    liger_fused_linear_cross_entropy: true

## Fix safety
Adding the Liger or Cut Cross-Entropy plugin is safe: the result is the same up to rounding. The plugin's package must
be installed. Any other plugin changes the training, so adding it is unsafe. Setting `quantization_bit` is unsafe too.

The fix is shown but not applied if axolotl would reject the key once the plugin is loaded. The same applies if two
kernels would then replace the same loss.

## When it does not apply
A key of a missing plugin that is off is only an info. A LLaMA-Factory key that is off or equals the default is not
reported.

Keys of plugins outside axolotl are not reported, because cfglint does not know them. Combinations that the framework
rejects are left to KEY006, combinations that it ignores to KEY005.

## References
docs/schemas.md; axolotl 0.18.0 `integrations/config.py` (merge_input_args); LLaMA-Factory 0.9.5 `hparams/`.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_rules.vocabulary.clauses import find_refused_keys, get_dotted_name
from cfglint_rules.vocabulary.effect_by_release import (
    build_release_grounds,
    find_effects,
    find_fact,
    is_true_for_all_releases,
)
from cfglint_rules.vocabulary.survey import KeyOccurrence, get_checked_keys, is_parser_default
from cfglint_rules.vocabulary.values import format_value
from cfglint_rules.vocabulary.verdicts import list_verdicts
from cfglint_schemas.status import Status, split_route
from cfglint_train.documents.document import Set
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.lens import Config, format_route

RULE: Final = Rule("KEY003", "gated-key", "warning", scope="config", fix="safe", rests_on_vocabulary=True)


def check(config: Config) -> Iterator[Report]:
    """Yield a report for every key that has no effect because a plugin or another setting is missing."""
    without_setting: list[tuple[KeyOccurrence, Status]] = []
    for verdict in list_verdicts(config, "gated"):
        occurrence, status = verdict.occurrence, verdict.status
        if status.plugins:
            yield _report_missing_plugin(occurrence, status)
        elif (
            _is_on(occurrence.value) and not _is_default(occurrence) and not is_parser_default(config, occurrence.route)
        ):
            without_setting.append((occurrence, status))
    occurrences = [occurrence for occurrence, _ in without_setting]
    reported = {*find_refused_keys(config, occurrences), *find_refused_keys(config, occurrences, "idle")}
    for occurrence, status in without_setting:
        if get_dotted_name(occurrence) not in reported:
            yield _report_missing_setting(occurrence, status)


def _report_missing_plugin(occurrence: KeyOccurrence, status: Status) -> Report:
    """Return the report on a key whose plugin is not loaded."""
    outcome, is_on = find_effects(occurrence), _is_on(occurrence.value)
    plugin_names = " or ".join(f"`{plugin.rpartition('.')[2]}`" for plugin in status.plugins[:2])
    fix = _build_plugin_fix(occurrence, status) if is_on else None
    if fix is not None:
        is_same_everywhere = is_true_for_all_releases(
            occurrence, lambda release: _has_same_plugins(occurrence, status, release)
        )
        fix = fix._replace(grounds=build_release_grounds(outcome.candidates, is_same_everywhere))
    return Report(
        f"`{occurrence.name}` needs the plugin {plugin_names}, which `plugins` does not list: {outcome.describe()}",
        occurrence.place,
        outcome.limit_severity("warning" if is_on else "info"),
        fix,
        grounds=outcome.grounds,
    )


def _has_same_plugins(occurrence: KeyOccurrence, status: Status, release: str) -> bool:
    """Return whether a release has the key and requires the same plugins for it."""
    fact = find_fact(occurrence, release)
    return fact is not None and fact.resolve_status().plugins == status.plugins


def _is_default(occurrence: KeyOccurrence) -> bool:
    """Return whether the value equals the framework's default."""
    return occurrence.fact is not None and occurrence.value == occurrence.fact.get_schema().get("default")


def _is_on(value: Any) -> bool:
    return value not in (None, False, 0, "", [], {})


def _build_plugin_fix(occurrence: KeyOccurrence, status: Status) -> Fix | None:
    """Return the fix that adds the plugin, or None if the launch sets the key or the plugin is ambiguous."""
    config, keys = occurrence.config, get_checked_keys(occurrence.config)
    rewrite = (
        None if keys is None or occurrence.is_overridden else keys.load_plugin(config, occurrence.route, status.plugins)
    )
    return None if rewrite is None else Fix(rewrite.applicability, rewrite.message, keys=((config, rewrite.changes),))


def _report_missing_setting(occurrence: KeyOccurrence, status: Status) -> Report:
    """Return the report on a key that has no effect without another setting."""
    needs = " and ".join(
        f"without `{format_route(split_route(name))}`"
        if value is True
        else f"unless `{format_route(split_route(name))}` is {' or '.join(map(format_value, value))}"
        for name, value in status.needs.items()
    )
    needs_bits = list(status.needs) == ["quantization_bit"] and not occurrence.is_overridden
    fix: Fix | None = None
    if needs_bits and occurrence.value != "eetq":
        config = occurrence.config
        changes = (Set((*config.root, "quantization_bit"), 4, (str(occurrence.route[0]),)),)
        fix = Fix("unsafe", "set quantization_bit: 4", keys=((config, changes),))
    outcome = find_effects(occurrence)
    return Report(
        f"`{occurrence.name}` has no effect {needs}",
        occurrence.place,
        outcome.limit_severity("warning" if needs_bits else "info"),
        fix,
        grounds=outcome.grounds,
    )

"""KEY003 gated-key: a key that works only beside a plugin or a flag that is not there.

## What it does
Reports keys whose plugin is not in axolotl's `plugins`, and keys of LLaMA-Factory that belong to a method, a stage or
an optimizer that the file does not choose.

## Why is this bad?
axolotl drops the keys of a plugin that is not loaded, exactly as it drops misspelled ones:
`liger_fused_linear_cross_entropy: true` alone leaves all the logits in memory.

## Example
    liger_fused_linear_cross_entropy: true

## Use instead
    plugins:
      - axolotl.integrations.liger.LigerPlugin
    liger_fused_linear_cross_entropy: true

`quantization_method` without `quantization_bit` quantises nothing in LLaMA-Factory: 16 bits per weight are loaded.

## Fix safety
Adding the plugin of Liger or of Cut Cross-Entropy is safe: it computes the same, up to rounding, and needs its package.
Any other plugin changes what is trained, and adding it is unsafe, as is `quantization_bit`. Where axolotl would refuse
the key once it works, or a second kernel would replace the same loss, the fix is only shown.

## When it does not apply
Silent for keys that are off, for plugins from outside axolotl, whose keys cfglint does not know, and for keys that are
refused beside the setting that they need (KEY006).

## References
docs/schemas.md; axolotl 0.18.0 `integrations/config.py` (merge_input_args); LLaMA-Factory 0.9.5 `hparams/`.
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_rules.vocabulary.clauses import dotted, refusals_of
from cfglint_rules.vocabulary.effect_by_release import everywhere, fact_at, fate, grounds
from cfglint_rules.vocabulary.survey import KeyOccurrence, is_parsers, keys_of
from cfglint_rules.vocabulary.values import shown
from cfglint_rules.vocabulary.verdicts import verdicts
from cfglint_schemas.status import Status, parts_of
from cfglint_train.documents.document import Set
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.lens import Config, spelled

RULE: Final = Rule("KEY003", "gated-key", "warning", scope="config", fix="safe", rests_on_vocabulary=True)


def check(config: Config) -> Iterator[Report]:
    """One report per key that has no effect for want of something else."""
    alone: list[tuple[KeyOccurrence, Status]] = []
    for one in verdicts(config, "gated"):
        sighting, status = one.sighting, one.status
        if status.plugins:
            yield _plugin(sighting, status)
        elif _on(sighting.value) and not _is_default(sighting) and not is_parsers(config, sighting.route):
            alone.append((sighting, status))
    found = [sighting for sighting, _ in alone]
    said = {*refusals_of(config, found), *refusals_of(config, found, "idle")}
    for sighting, status in alone:
        if dotted(sighting) not in said:
            yield _setting(sighting, status)


def _plugin(sighting: KeyOccurrence, status: Status) -> Report:
    """A key of a plugin that is not loaded."""
    outcome, wanted = fate(sighting), _on(sighting.value)
    named = " or ".join(status.plugins[:2])
    fix = _loading(sighting, status) if wanted else None
    if fix is not None:
        alike = everywhere(sighting, lambda release: _same(sighting, status, release))
        fix = fix._replace(grounds=grounds(outcome.window, alike))
    return Report(
        f"`{sighting.name}` needs the plugin {named}, which `plugins` does not list: {outcome.said()}",
        sighting.place,
        outcome.milder("warning" if wanted else "info"),
        fix,
        grounds=outcome.grounds,
    )


def _same(sighting: KeyOccurrence, status: Status, release: str) -> bool:
    """Whether a release has the key of the same plugins."""
    fact = fact_at(sighting, release)
    return fact is not None and fact.status().plugins == status.plugins


def _is_default(sighting: KeyOccurrence) -> bool:
    """Whether the value is what the framework takes anyway."""
    return sighting.fact is not None and sighting.value == sighting.fact.schema().get("default")


def _on(value: Any) -> bool:
    return value not in (None, False, 0, "", [], {})


def _loading(sighting: KeyOccurrence, status: Status) -> Fix | None:
    """The plugin added to the list."""
    config, keys = sighting.config, keys_of(sighting.config)
    found = None if keys is None or sighting.overridden else keys.loading(config, sighting.route, status.plugins)
    return None if found is None else Fix(found.applicability, found.message, keys=((config, found.changes),))


def _setting(sighting: KeyOccurrence, status: Status) -> Report:
    """A key that only means something beside another one."""
    needs = " and ".join(
        f"without `{spelled(parts_of(name))}`"
        if value is True
        else f"unless `{spelled(parts_of(name))}` is {' or '.join(map(shown, value))}"
        for name, value in status.needs.items()
    )
    bits = list(status.needs) == ["quantization_bit"] and not sighting.overridden
    fix: Fix | None = None
    if bits and sighting.value != "eetq":
        config = sighting.config
        changes = (Set((*config.root, "quantization_bit"), 4, (str(sighting.route[0]),)),)
        fix = Fix("unsafe", "quantization_bit: 4", keys=((config, changes),))
    outcome = fate(sighting)
    return Report(
        f"`{sighting.name}` has no effect {needs}",
        sighting.place,
        outcome.milder("warning" if bits else "info"),
        fix,
        grounds=outcome.grounds,
    )

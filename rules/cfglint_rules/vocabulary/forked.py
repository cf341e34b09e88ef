"""Configs of possible forks: a single info for all keys and enumeration values that upstream rejects."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.vocabulary.survey import KeyOccurrence, get_target_release
from cfglint_rules.vocabulary.verdicts import is_possibly_from_fork, list_judged_keys, list_verdicts
from cfglint_train.findings.finding import Related, Report
from cfglint_train.foundation.wording import join_names
from cfglint_train.frameworks.evidence import ForkEvidence
from cfglint_train.frameworks.lens import Config


def report_foreign_keys(config: Config, evidence: ForkEvidence) -> Iterator[Report]:
    """Yield one report for all keys and enumeration values that upstream rejects; none if it accepts them all."""
    foreign = (key for key in _list_foreign_keys(config) if not evidence.is_about(str(key.route[-1])))
    occurrences = sorted(foreign, key=lambda occurrence: occurrence.place.span.start)
    if not occurrences:
        return
    possible_source = "the changed class" if evidence.kind == "class" else "a fork"
    names = join_names([f"`{occurrence.name}`" for occurrence in occurrences])
    yield Report(
        f"upstream {get_target_release(config).name} does not accept {names}; {possible_source} may: {evidence}",
        occurrences[0].place,
        "info",
        related=tuple(
            Related(occurrence.place, f"upstream does not accept `{occurrence.name}` either")
            for occurrence in occurrences[1:]
        ),
        help=None
        if evidence.kind in ("tree", "namesake", "class")
        else "a copy of the fork in the repository is read as its vocabulary",
    )


def _list_foreign_keys(config: Config) -> Iterator[KeyOccurrence]:
    yield from list_judged_keys(config, "unknown")
    yield from (verdict.occurrence for verdict in list_verdicts(config, "gone") if verdict.effect != "mapped")
    yield from (verdict.occurrence for verdict in list_verdicts(config, "misfit") if is_possibly_from_fork(verdict))

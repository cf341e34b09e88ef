"""What upstream does not take of a configuration whose framework may be a fork: one report, which blames nothing."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.vocabulary.survey import KeyOccurrence, target
from cfglint_rules.vocabulary.verdicts import may_be_forks, sightings, verdicts
from cfglint_train.findings.finding import Related, Report
from cfglint_train.foundation.wording import some
from cfglint_train.frameworks.evidence import Evidence
from cfglint_train.frameworks.lens import Config


def folded(config: Config, doubt: Evidence) -> Iterator[Report]:
    """One report for all the keys and words that upstream does not take; none where it takes them all."""
    foreign = (one for one in _foreign(config) if not doubt.is_about(str(one.route[-1])))
    found = sorted(foreign, key=lambda sighting: sighting.place.span.start)
    if not found:
        return
    other = "the changed class" if doubt.kind == "class" else "a fork"
    names = some([f"`{sighting.name}`" for sighting in found])
    yield Report(
        f"upstream {target(config).name} does not take {names}; {other} may: {doubt}",
        found[0].place,
        "info",
        related=tuple(
            Related(sighting.place, f"upstream does not take `{sighting.name}` either") for sighting in found[1:]
        ),
        help=None
        if doubt.kind in ("tree", "namesake", "class")
        else "a copy of the fork in the repository is read as its vocabulary",
    )


def _foreign(config: Config) -> Iterator[KeyOccurrence]:
    yield from sightings(config, "unknown")
    yield from (one.sighting for one in verdicts(config, "gone") if one.effect != "mapped")
    yield from (one.sighting for one in verdicts(config, "misfit") if may_be_forks(one))

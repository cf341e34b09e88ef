"""Errors with which the YAML loaders of the candidate releases reject a configuration."""

from __future__ import annotations

from cfglint_train.documents.yaml.dialects import PYYAML
from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.foundation.typed import TYPE_CHECKING
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config

if TYPE_CHECKING:
    from cfglint_train.documents.yaml.refusals import Refusal


def find_refusals(config: Config) -> tuple[Refusal | None, ...]:
    """Return a `Refusal`, or None if the loader accepts the file, for each loader that may read a configuration.

    Return () if nothing in the text could make a loader reject it. Template marks do not count, because they are filled
    in before loading.
    """
    return config.compute_once(_compute_refusals)


def find_certain_refusal(config: Config) -> Refusal | None:
    """Return the last refusal if every loader that may read a configuration rejects it, or None."""
    reasons = find_refusals(config)
    return reasons[-1] if reasons and all(reasons) else None


def _compute_refusals(config: Config) -> tuple[Refusal | None, ...]:
    document = config.document
    if not isinstance(document, YamlDocument):
        return ()
    refusals = document.find_refusals(document.dialect)
    framework = frameworks.load(config.framework)
    since = framework.traits.refuses_duplicates_since  # OmegaConf reads the file from this release on
    if refusals and since and document.dialect is not PYYAML and config.evidence.vocabulary is None:
        releases = config.releases.find_candidates(framework.manifest.package).releases
        older = [release for release in releases if parse_release(release) < parse_release(since)]
        pyyaml_refusals = document.find_refusals(PYYAML) if older else ()
        older_refusals = tuple(
            refusal and refusal._replace(loader=f"{framework.title} before {since}") for refusal in pyyaml_refusals
        )
        refusals = older_refusals if len(older) == len(releases) else (*older_refusals, *refusals)
    return tuple(None if refusal is None or _is_template(document, refusal) else refusal for refusal in refusals)


def _is_template(document: YamlDocument, refusal: Refusal) -> bool:
    """Return whether a loader stops on a line with a template mark (`{{ lr }}`)."""
    start = document.source.rfind(b"\n", 0, refusal.span.start) + 1
    line = document.source[start : document.find_line_end(refusal.span.start)]
    return b"{{" in line or b"{%" in line

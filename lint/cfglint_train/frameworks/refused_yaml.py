"""Whether the loader of a framework takes a YAML configuration, at every candidate release."""

from __future__ import annotations

from cfglint_train.documents.yaml.dialects import PYYAML
from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.foundation.typed import TYPE_CHECKING
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config

if TYPE_CHECKING:
    from cfglint_train.documents.yaml.refusals import Refusal


def refusals(config: Config) -> tuple[Refusal | None, ...]:
    """Return why each loader that may read a configuration refuses it, or None for one that takes it.

    Empty if nothing in the text is in doubt, and for the marks of a template, which are filled in before.
    """
    return config.once(_refusals)


def certain_refusal(config: Config) -> Refusal | None:
    """Return why every loader that may read a configuration refuses it, or None if one takes it."""
    found = refusals(config)
    return found[-1] if found and all(found) else None


def _refusals(config: Config) -> tuple[Refusal | None, ...]:
    document = config.document
    if not isinstance(document, YamlDocument):
        return ()
    found = document.refusals(document.dialect)
    framework = frameworks.load(config.framework)
    since = framework.traits.refuses_duplicates  # from then on it reads with OmegaConf
    if found and since and document.dialect is not PYYAML and config.evidence.vocabulary is None:
        releases = config.releases.window(framework.listed.package).releases
        older = [release for release in releases if release_key(release) < release_key(since)]
        before = document.refusals(PYYAML) if older else ()
        named = tuple(one and one._replace(loader=f"{framework.title} before {since}") for one in before)
        found = named if len(older) == len(releases) else (*named, *found)
    return tuple(None if one is None or _is_template(document, one) else one for one in found)


def _is_template(document: YamlDocument, refusal: Refusal) -> bool:
    """Return whether a loader stops at a mark of a template (`{{ lr }}`)."""
    start = document.source.rfind(b"\n", 0, refusal.span.start) + 1
    line = document.source[start : document.line_end(refusal.span.start)]
    return b"{{" in line or b"{%" in line

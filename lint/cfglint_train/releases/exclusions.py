"""Exclusions: requirements of a repository that conflict with the framework's own requirements."""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_train.documents.lines import LinesDocument
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import TYPE_CHECKING
from cfglint_train.foundation.versions import Constraint, add_final_release
from cfglint_train.frameworks.framework import Framework
from cfglint_train.frameworks.requires import load_requirements
from cfglint_train.plan.origin import Place
from cfglint_train.plan.releases import Exclusion
from cfglint_train.releases.statements import ReleaseStatements

if TYPE_CHECKING:
    from cfglint_train.releases.pins.readers import Pin
    from cfglint_train.releases.pins.search import ResolvedPin


def find_exclusions(framework: Framework, statements: ReleaseStatements) -> Iterator[Exclusion]:
    """Yield the packages whose pins conflict with every release that the framework's own pin allows."""
    package = framework.manifest.package
    framework_pin = _get_binding_pin(statements, package)
    if framework_pin is None or framework.keys is None:
        return
    exact = framework_pin.constraint.exact_release
    candidates = framework.keys.vocabulary.releases if exact is None else add_final_release(exact)
    releases = [
        release for release in candidates if exact is not None or framework_pin.constraint.is_satisfied_by(release)
    ]
    for other in statements.pins:
        package_pin = _get_binding_pin(statements, other)
        if other == package or package_pin is None or _is_locked_together(framework_pin, package_pin):
            continue
        required = [load_requirements(framework.name, release).required.get(other) for release in releases]
        if required and all(
            constraint is not None and _is_exclusive(constraint, package_pin.constraint) for constraint in required
        ):
            yield Exclusion(
                other,
                str(package_pin.constraint),
                _build_place(package_pin.pins[0], statements),
                exact or releases[-1],
                str(required[-1]),
                _build_place(framework_pin.pins[0], statements),
            )


def _get_binding_pin(statements: ReleaseStatements, package: str) -> ResolvedPin | None:
    """Return the pin of a package, or None if it is not binding.

    A pin is not binding if it is optional, inconsistent, copied, of a fork (whose requirements are unknown), or
    replaced by a stated release.
    """
    from cfglint_train.releases.pins.readers import COPIED

    pin = statements.pins.get(package)
    if pin is None or pin.fork is not None or not pin.constraint.comparisons:
        return None
    if pin.pins[0].weight == COPIED:
        return None
    return pin if pin.is_consistent and not pin.is_optional and package not in statements.facts else None


def _is_locked_together(first: ResolvedPin, second: ResolvedPin) -> bool:
    """Return whether both pins come from a lock file, whose resolver has applied the user's overrides."""
    from cfglint_train.releases.pins.readers import LOCKED

    return first.pins[0].weight == second.pins[0].weight == LOCKED


def _is_exclusive(first: Constraint, second: Constraint) -> bool:
    return Constraint((*first.comparisons, *second.comparisons)).is_impossible


def _build_place(pin: Pin, statements: ReleaseStatements) -> Place:
    """Return the place of a pin: its line in the requirement file."""
    document = LinesDocument(statements.named(pin.path), regular_files.read(pin.path))
    return Place(document, document.find_line_span(pin.line))

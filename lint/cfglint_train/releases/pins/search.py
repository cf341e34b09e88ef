"""The requirement files of a folder, and what they say together about each package."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.roots import Roots
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import Constraint, covering
from cfglint_train.releases.pins.readers import OPTIONAL, REQUIRED, Pin, Read, forks_in, former_in, read

_NAME: Final = re.compile(
    r"(?:.*requirements?.*|reqs?|constraints.*)\.(?:txt|in)|pyproject\.toml|(?:uv|poetry|pdm)\.lock|pylock(?:\..+)?\.toml"
    r"|(?:environment|conda|env)\b.*\.ya?ml|(?:dockerfile|containerfile)(?:\..*)?|.*\.dockerfile"
    r"|setup\.(?:py|cfg)|pixi\.(?:toml|lock)|pipfile(?:\.lock)?|requirements.*\.lock",
    re.IGNORECASE,
)
_README: Final = re.compile(r"readme.*\.md", re.IGNORECASE)
_MAX_BYTES: Final = 4 * 2**20
"""Of all the files of a folder that are read for pins, those that they include too; large lock files have 3 MB."""
_MOST_PINS: Final = 1000
"""Of one file: what it says of the packages that matter."""
FOLDERS: Final = ("requirements", "docker")
"""Folders beside which a project's requirement files often lie."""


class ResolvedPin(Frozen):
    """What the requirement files of a folder say of a package."""

    constraint: Constraint
    pins: tuple[Pin, ...]
    """Where they say it."""
    optional: bool
    """Only extras and groups say it, and who installs them is not known."""
    agreed: bool
    """Some release satisfies them all; otherwise they describe several installations, and determine nothing."""
    fork: Pin | None = None
    """Where they install something else than upstream's."""
    unreleased: Pin | None = None
    """Where they install upstream's own repository at no release, and no release besides."""
    former: Pin | None = None
    """Where a read-me file leads to a repository that the package has left."""

    @property
    def is_told(self) -> bool:
        """Whether they say which releases, or which fork."""
        return bool(self.pins) or self.fork is not None or self.unreleased is not None


def pins_of(folder: str, names: Iterable[str]) -> Mapping[str, ResolvedPin]:
    """What the requirement files among the names in a folder say, by package."""
    found: list[Pin] = []
    folders, rooted = Roots().above(os.path.abspath(folder))
    root = folders[-1] if rooted else folder
    load = _Files(root)
    for name in sorted(names):
        path = os.path.join(folder, name)
        if _NAME.fullmatch(name):
            found += islice(read(path, load), _MOST_PINS)
        elif name in FOLDERS and regular_files.is_below(path, root):
            found += _inside(path, load, every_text=name == "requirements")
    told = {pin.package for pin in found}
    for name in sorted(names):
        if _README.fullmatch(name):
            path = os.path.join(folder, name)
            text = load(path)
            shown = chain(forks_in(path, text), former_in(path, text))
            found += [pin for pin in islice(shown, _MOST_PINS) if pin.package not in told]
    return settled(found)


def _inside(folder: str, load: Read, every_text: bool) -> list[Pin]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [
        pin
        for name in names
        if _NAME.fullmatch(name) or (every_text and name.endswith((".txt", ".in")))
        for pin in islice(read(os.path.join(folder, name), load), _MOST_PINS)
    ]


class _Files:
    """The texts of files of a repository, up to a size in all; a file of requirements may include any other."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._left = _MAX_BYTES

    def __call__(self, path: str) -> str:
        """The text of a file; none of one that is outside, unreadable or beyond the size."""
        try:
            source = regular_files.read(path) if regular_files.is_below(path, self._root) else b""
        except (OSError, ValueError):
            return ""
        if len(source) > self._left:
            return ""
        self._left -= len(source)
        return source.decode("utf-8-sig", "replace")


def settled(pins: Sequence[Pin]) -> Mapping[str, ResolvedPin]:
    """What several pins say together: lock files where there are any, else requirements, else extras."""
    by_package: dict[str, list[Pin]] = {}
    for pin in pins:
        by_package.setdefault(pin.package, []).append(pin)
    return {package: _with_fork(found) for package, found in by_package.items()}


def united(pins: Sequence[Pin]) -> Mapping[str, ResolvedPin]:
    """What several installations say, of which any may be the training's: where they contradict each other, the
    releases from the oldest to the newest of them.
    """
    found = dict(settled(pins))
    for package, one in found.items():
        if not one.agreed:
            between = covering(pin.constraint for pin in one.pins)
            found[package] = one._replace(constraint=between, agreed=bool(between.comparisons))
    return found


def opposed(files: Mapping[str, ResolvedPin], commands: Mapping[str, ResolvedPin]) -> Mapping[str, ResolvedPin]:
    """What requirement files say; nothing of a package of which the commands that install it say another release."""
    found = dict(files)
    for package, other in commands.items():
        one = files.get(package)
        if one is None or not one.agreed or not other.agreed or {pin.weight for pin in one.pins} != {REQUIRED}:
            continue
        if Constraint((*one.constraint.comparisons, *other.constraint.comparisons)).impossible:
            pins = (*one.pins, *other.pins)
            found[package] = ResolvedPin(Constraint(), pins, optional=False, agreed=False, fork=one.fork)
    return found


def _with_fork(pins: list[Pin]) -> ResolvedPin:
    """What pins say of a package, of which a fork may say no release."""
    released = [pin for pin in pins if pin.constraint.comparisons]
    together = _together(released) if released else ResolvedPin(Constraint(), (), optional=False, agreed=True)
    return together._replace(
        fork=next((pin for pin in pins if pin.fork), None),
        unreleased=None if released else next((pin for pin in pins if pin.unreleased), None),
        former=next((pin for pin in pins if pin.former), None),
    )


def _together(pins: list[Pin]) -> ResolvedPin:
    weight = min(pin.weight for pin in pins)
    heaviest = tuple(pin for pin in pins if pin.weight == weight)
    constraint = Constraint(tuple(dict.fromkeys(part for pin in heaviest for part in pin.constraint.comparisons)))
    optional = weight == OPTIONAL
    if constraint.impossible:
        return ResolvedPin(Constraint(), heaviest, optional, agreed=False)
    if constraint.exact is not None:
        naming = tuple(pin for pin in heaviest if pin.constraint.exact is not None)
        return ResolvedPin(Constraint((("==", constraint.exact),)), naming, optional, agreed=True)
    return ResolvedPin(constraint, heaviest, optional, agreed=True)

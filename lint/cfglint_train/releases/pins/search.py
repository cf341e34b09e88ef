"""Pin search: read the requirement files of a folder, and combine their pins by package."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice

from cfglint_train.foundation import filesystem, regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.roots import Roots
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import Constraint, cover_constraints
from cfglint_train.releases.pins.readers import (
    OPTIONAL,
    REQUIRED,
    Pin,
    ReadText,
    find_forks,
    find_former_repositories,
    read_pins,
)

_NAME: Final = compile_on_use(
    r"(?:.*requirements?.*|reqs?|constraints.*)\.(?:txt|in)|pyproject\.toml|(?:uv|poetry|pdm)\.lock|pylock(?:\..+)?\.toml"
    r"|(?:environment|conda|env)\b.*\.ya?ml|(?:dockerfile|containerfile)(?:\..*)?|.*\.dockerfile"
    r"|setup\.(?:py|cfg)|pixi\.(?:toml|lock)|pipfile(?:\.lock)?|requirements.*\.lock",
    re.IGNORECASE,
)
_README: Final = compile_on_use(r"readme.*\.md", re.IGNORECASE)
_MAX_BYTES: Final = 4 * 2**20
"""Total size limit in bytes of the files read for pins, including their includes; large lock files have 3 MB."""
_MAX_PINS: Final = 1000
"""Maximum number of pins of one file."""
_FOLDERS: Final = (
    "requirements", "docker", "install", "installation", "env", "envs", "environment", "environments",
)  # fmt: skip
"""Subfolders that often contain requirement files. Their pins are assumptions, because they may serve another job."""
_MAX_SUBFOLDERS: Final = 20
"""Maximum number of folders to read in such a subfolder."""


class ResolvedPin(Frozen):
    """The combined pins of a package in the requirement files of a folder."""

    constraint: Constraint
    pins: tuple[Pin, ...]
    """Pins that the constraint is based on."""
    is_optional: bool
    """True if only extras, dependency groups or files of a subfolder, which may not be installed, pin the package."""
    is_consistent: bool
    """True if some release satisfies all pins; otherwise the pins belong to different installations and are ignored."""
    fork: Pin | None = None
    """Pin that installs a fork instead of upstream."""
    unreleased: Pin | None = None
    """Pin that installs an unreleased revision of upstream's repository, if no pin names a release."""
    former_pin: Pin | None = None
    """README link to a former repository of the package."""

    @property
    def is_specified(self) -> bool:
        """True if the pins determine the releases or the fork."""
        return bool(self.pins) or self.fork is not None or self.unreleased is not None


def read_folder_pins(folder: str, names: Iterable[str]) -> Mapping[str, ResolvedPin]:
    """Return the combined pins, by package, of the requirement files among `names` in a folder.

    A README counts only for packages that no requirement file pins.
    """
    pins: list[Pin] = []
    folders, has_root = Roots().list_folders_above(os.path.abspath(folder))
    root = folders[-1] if has_root else folder
    load = _TextReader(root)
    for name in sorted(names):
        path = os.path.join(folder, name)
        if _NAME.fullmatch(name):
            pins += islice(read_pins(path, load), _MAX_PINS)
        elif name in _FOLDERS and regular_files.is_below(path, root):
            pins += _read_subfolder(path, load, every_text=name == "requirements")
    pinned_packages = {pin.package for pin in pins}
    for name in sorted(names):
        if _README.fullmatch(name):
            path = os.path.join(folder, name)
            text = load(path)
            readme_pins = chain(find_forks(path, text), find_former_repositories(path, text))
            pins += [pin for pin in islice(readme_pins, _MAX_PINS) if pin.package not in pinned_packages]
    return resolve_pins(pins)


def _read_subfolder(folder: str, load: ReadText, every_text: bool) -> list[Pin]:
    """Return the pins in a subfolder and in the folders directly below it, as optional ones."""
    below = (os.path.join(folder, name) for name in _list_names(folder))
    folders = (folder, *islice(filter(filesystem.is_folder, below), _MAX_SUBFOLDERS))
    return [
        pin._replace(weight=OPTIONAL, is_in_subfolder=True)
        for part in folders
        for name in _list_names(part)
        if _NAME.fullmatch(name) or (every_text and name.endswith((".txt", ".in")))
        for pin in islice(read_pins(os.path.join(part, name), load), _MAX_PINS)
    ]


def _list_names(folder: str) -> list[str]:
    """Return the names in a folder in order, or an empty list if it cannot be read."""
    try:
        return sorted(filesystem.list_names(folder))
    except OSError:
        return []


class _TextReader:
    """A file reader confined to a repository and a total size, because requirement files may include any file."""

    def __init__(self, root: str) -> None:
        """Create a reader of the files below `root`."""
        self._root = root
        self._left = _MAX_BYTES

    def __call__(self, path: str) -> str:
        """Return a file's text, or an empty string if it is outside the root, unreadable or beyond the size limit."""
        try:
            source = regular_files.read(path) if regular_files.is_below(path, self._root) else b""
        except (OSError, ValueError):
            return ""
        if len(source) > self._left:
            return ""
        self._left -= len(source)
        return source.decode("utf-8-sig", "replace")


def resolve_pins(pins: Sequence[Pin]) -> Mapping[str, ResolvedPin]:
    """Return the combined pins by package: lock files take precedence over requirements, requirements over extras."""
    by_package: dict[str, list[Pin]] = {}
    for pin in pins:
        by_package.setdefault(pin.package, []).append(pin)
    return {package: _resolve_package(package_pins) for package, package_pins in by_package.items()}


def merge_pins(pins: Sequence[Pin]) -> Mapping[str, ResolvedPin]:
    """Return the combined pins of several installations by package; any of them may be the one for training.

    If the pins of a package contradict each other, the constraint covers all releases from the oldest to the newest.
    """
    resolved = dict(resolve_pins(pins))
    for package, item in resolved.items():
        if not item.is_consistent:
            between = cover_constraints(pin.constraint for pin in item.pins)
            resolved[package] = item._replace(constraint=between, is_consistent=bool(between.comparisons))
    return resolved


def resolve_pin_conflicts(
    files: Mapping[str, ResolvedPin], commands: Mapping[str, ResolvedPin]
) -> Mapping[str, ResolvedPin]:
    """Return the pins of requirement files, each without its constraint if install commands contradict it."""
    resolved = dict(files)
    for package, installed in commands.items():
        pinned = files.get(package)
        if (
            pinned is None
            or not pinned.is_consistent
            or not installed.is_consistent
            or {pin.weight for pin in pinned.pins} != {REQUIRED}
        ):
            continue
        if Constraint((*pinned.constraint.comparisons, *installed.constraint.comparisons)).is_impossible:
            pins = (*pinned.pins, *installed.pins)
            resolved[package] = ResolvedPin(
                Constraint(), pins, is_optional=False, is_consistent=False, fork=pinned.fork
            )
    return resolved


def _resolve_package(pins: list[Pin]) -> ResolvedPin:
    """Return the combined pins of a package; a pin of a fork may name no release."""
    released = [pin for pin in pins if pin.constraint.comparisons]
    resolved = (
        _resolve_constraint(released)
        if released
        else ResolvedPin(Constraint(), (), is_optional=False, is_consistent=True)
    )
    return resolved._replace(
        fork=next((pin for pin in pins if pin.fork), None),
        unreleased=None if released else next((pin for pin in pins if pin.unreleased), None),
        former_pin=next((pin for pin in pins if pin.is_former), None),
    )


def _resolve_constraint(pins: list[Pin]) -> ResolvedPin:
    weight = min(pin.weight for pin in pins)
    heaviest = tuple(pin for pin in pins if pin.weight == weight)
    constraint = Constraint(tuple(dict.fromkeys(part for pin in heaviest for part in pin.constraint.comparisons)))
    optional = weight == OPTIONAL
    if constraint.is_impossible:
        return ResolvedPin(Constraint(), heaviest, optional, is_consistent=False)
    if constraint.exact_release is not None:
        exact_pins = tuple(pin for pin in heaviest if pin.constraint.exact_release is not None)
        return ResolvedPin(Constraint((("==", constraint.exact_release),)), exact_pins, optional, is_consistent=True)
    return ResolvedPin(constraint, heaviest, optional, is_consistent=True)

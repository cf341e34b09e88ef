"""Bump the patch version: `python -m tools.bump` writes it, dates the changelog entry and prints the version."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
_VERSION = re.compile(r'(?m)^__version__ = "(\d+)\.(\d+)\.(\d+)"$')
_HEADING = "## Unreleased\n"


def bump_version(root: Path, today: str) -> str:
    """Write the next patch version and the changelog's heading for `today` below `root`; return the version.

    Raises ValueError if the version's line or the changelog's heading is not as expected.
    """
    module = root / "lint" / "cfglint_train" / "__init__.py"
    source = module.read_text(encoding="utf-8")
    match = _VERSION.search(source)
    changelog = root / "CHANGELOG.md"
    changes = changelog.read_text(encoding="utf-8")
    if match is None:
        raise ValueError(f'{module}: expected a line __version__ = "X.Y.Z"')
    if changes.count(_HEADING) != 1:
        raise ValueError(f"{changelog}: expected one heading {_HEADING.strip()!r}")
    major, minor, patch = map(int, match.groups())
    version = f"{major}.{minor}.{patch + 1}"
    module.write_text(_VERSION.sub(f'__version__ = "{version}"', source), encoding="utf-8")
    changelog.write_text(changes.replace(_HEADING, f"{_HEADING}\n## {version} - {today}\n"), encoding="utf-8")
    return version


if __name__ == "__main__":
    print(bump_version(REPOSITORY, datetime.now(UTC).date().isoformat()))

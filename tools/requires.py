"""Makes frameworks/*/requires.json: which releases of other packages each release of a framework asks for.

`python -m tools.requires FRAMEWORK CHECKOUT` reads the tags of a git checkout (pyproject.toml, else requirements.txt
and setup.py), and for releases without a tag what pip says of their wheels. Running it again changes nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from json import dumps, loads
from pathlib import Path

from cfglint_schemas.vocabulary import load
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.registry import listed, packages
from cfglint_train.front import git
from cfglint_train.releases.pins import requirement

SOURCE: Final = (
    "pyproject.toml, or requirements.txt and setup.py, of the tags; Requires-Dist of wheels without a tag. A row is a "
    "release, what it requires and what its extras require, and holds until the next. tools/requires.py makes `rows` "
    "and keeps `newest`, which is stated by hand: the newest releases of ranges on the day of a release."
)
_QUOTED: Final = re.compile(r"[\"']([a-z][a-z0-9-]*[ \t]*[=<>!~][^\"';]*)[\"']")
_EXTRA: Final = re.compile(r"[\"']([a-z-]+)[\"'][ \t]*:[ \t]*\[")
_OLDER_PYTHON: Final = re.compile(r"python_version[ \t]*<")

Row = tuple[dict[str, str], dict[str, str]]
"""Package -> constraint: what a release requires, and what its extras do."""


def row(required: Iterable[str], extras: Iterable[str], own: Iterable[str] = ()) -> Row:
    """The known packages among requirements; `own` have an extra of their own name, which alone installs them."""
    stated, optional = _stated(required), _stated(extras)
    needed = {name: text for name, text in stated.items() if name not in own}
    return needed, {name: text for name, text in optional.items() if name not in needed}


def _stated(lines: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        text = line.partition("#")[0].strip()
        asked = requirement.of_pip(text) if text and not _OLDER_PYTHON.search(text) else None
        if asked is not None:
            found.setdefault(asked.package, str(asked.constraint))
    return dict(sorted(found.items()))


def of_tags(checkout: Path) -> Iterator[tuple[str, Row]]:
    """Release and row of every tag that is a release."""
    for tag in _git(checkout, "tag").split():
        try:
            release_key(tag)
        except ValueError:
            continue
        yield tag.removeprefix("v"), _of_tag(checkout, tag)


def _of_tag(checkout: Path, tag: str) -> Row:
    project = tomllib.loads(_shown(checkout, tag, "pyproject.toml")).get("project", {})
    if "dependencies" in project:
        extras = [one for extra in project.get("optional-dependencies", {}).values() for one in extra]
        return row(project["dependencies"], extras)
    lines, setup = _shown(checkout, tag, "requirements.txt").splitlines(), _shown(checkout, tag, "setup.py")
    return row(lines, _QUOTED.findall(setup), _EXTRA.findall(setup))


def _shown(checkout: Path, tag: str, path: str) -> str:
    return _git(checkout, "show", f"{tag}:{path}") if _git(checkout, "ls-tree", tag, path) else ""


def of_wheel(distribution: str, release: str) -> Row | None:
    """The row of a release by what pip says of its wheel; None where it has none."""
    words = ("--dry-run", "--no-deps", "--ignore-installed", "--ignore-requires-python", "--only-binary=:all:")
    command = (sys.executable, "-m", "pip", "install", "--quiet", *words, "--report=-", f"{distribution}=={release}")
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        return None
    stated = loads(answer.stdout)["install"][0]["metadata"].get("requires_dist", [])
    extras = [one.partition(";")[0] for one in stated if "extra ==" in one]
    return row((one for one in stated if "extra ==" not in one), extras)


def table(rows: Iterable[tuple[str, Row]], first: str, newest: Iterable[tuple[str, Mapping[str, str]]] = ()) -> str:
    """Return the data file: one row for each release that asks for something else than the release before.

    `newest` are the newest releases of ranges on the day of a release, which are stated by hand.
    """
    kept: list[str] = []
    last: Row | None = None
    for release, asked in sorted(rows, key=lambda one: release_key(one[0])):
        if release_key(release) >= release_key(first) and asked != last:
            kept.append(dumps([release, *asked], separators=(",", ":")))
            last = asked
    ranges = [dumps(one, separators=(",", ":")) for one in newest]
    stated = {"rows": kept, **({"newest": ranges} if ranges else {})}
    blocks = [f'"{name}":[\n' + ",\n".join(lines) + "\n]" for name, lines in stated.items()]
    return ",\n".join((f'{{"source":{dumps(SOURCE)}', *blocks)) + "}\n"


def _git(checkout: Path, *arguments: str) -> str:
    return git.run({"GIT_DIR": f"{checkout.resolve()}/.git"}, *arguments).decode()


def main(arguments: list[str]) -> None:
    """Write the file of one framework."""
    if len(arguments) != 2 or arguments[0] not in listed():
        raise SystemExit(__doc__)
    framework = listed()[arguments[0]]
    known = load(framework.vocabulary or "").releases
    rows = dict(of_tags(Path(arguments[1])))
    for release in known:
        asked = None if release in rows else of_wheel(packages()[framework.package].distributions[0], release)
        if asked is not None:
            rows[release] = asked
    path = Path(framework.folder, "requires.json")
    newest = loads(path.read_text(encoding="utf-8")).get("newest", ()) if path.exists() else ()
    path.write_text(table(rows.items(), known[0], newest), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

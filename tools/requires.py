"""Write frameworks/*/requires.json: the releases of other packages that each release of a framework requires.

`python -m tools.requires FRAMEWORK CHECKOUT` reads the tags of a git checkout (pyproject.toml, or else requirements.txt
and setup.py). For releases without a tag, it uses pip's metadata of their wheels. Running it again changes nothing.
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
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.registry import list_frameworks, list_packages
from cfglint_train.front import git
from cfglint_train.releases.pins import requirement

SOURCE: Final = (
    "pyproject.toml, or requirements.txt and setup.py, of the tags; Requires-Dist of wheels without a tag. A row is a "
    "release, what it requires and what its extras require, and holds until the next. tools/requires.py makes `rows` "
    "and keeps `newest`, which is stated by hand: the newest releases of ranges on the day of a release. `earlier`, "
    "also by hand, states what no release before the first row exceeds."
)
_QUOTED: Final = re.compile(r"[\"']([a-z][a-z0-9-]*[ \t]*[=<>!~][^\"';]*)[\"']")
_EXTRA: Final = re.compile(r"[\"']([a-z-]+)[\"'][ \t]*:[ \t]*\[")
_OLDER_PYTHON: Final = re.compile(r"python_version[ \t]*<")

_ALTERNATIVE_EXTRAS: Final = ("verl",)
"""Frameworks whose extras are alternatives (vLLM, SGLang) that pin the same packages otherwise; they are left out."""

Row = tuple[dict[str, str], dict[str, str]]
"""Requirements of a release and requirements of its extras, each as package -> constraint."""


def build_row(required: Iterable[str], extras: Iterable[str], optional_names: Iterable[str] = ()) -> Row:
    """Return the row for the requirements of a release and of its extras; unknown packages are left out.

    Packages in `optional_names` have an extra of the same name and are only installed with it.
    """
    constraints, extra_constraints = _parse_constraints(required), _parse_constraints(extras)
    required_constraints = {name: text for name, text in constraints.items() if name not in optional_names}
    return required_constraints, {
        name: text for name, text in extra_constraints.items() if name not in required_constraints
    }


def _parse_constraints(lines: Iterable[str]) -> dict[str, str]:
    constraints: dict[str, str] = {}
    for line in lines:
        text = line.partition("#")[0].strip()
        parsed = requirement.parse_pip_requirement(text) if text and not _OLDER_PYTHON.search(text) else None
        if parsed is not None:
            constraints.setdefault(parsed.package, str(parsed.constraint))
    return dict(sorted(constraints.items()))


def read_tags(checkout: Path) -> Iterator[tuple[str, Row]]:
    """Yield the release and the row of every tag whose name is a release."""
    for tag in _run_git(checkout, "tag").split():
        try:
            parse_release(tag)
        except ValueError:
            continue
        yield tag.removeprefix("v"), _read_tag(checkout, tag)


def _read_tag(checkout: Path, tag: str) -> Row:
    project = tomllib.loads(_read_file(checkout, tag, "pyproject.toml")).get("project", {})
    if "dependencies" in project:
        extras = [item for extra in project.get("optional-dependencies", {}).values() for item in extra]
        return build_row(project["dependencies"], extras)
    lines, setup = _read_file(checkout, tag, "requirements.txt").splitlines(), _read_file(checkout, tag, "setup.py")
    return build_row(lines, _QUOTED.findall(setup), _EXTRA.findall(setup))


def _read_file(checkout: Path, tag: str, path: str) -> str:
    return _run_git(checkout, "show", f"{tag}:{path}") if _run_git(checkout, "ls-tree", tag, path) else ""


def read_wheel(distribution: str, release: str) -> Row | None:
    """Return the row of a release from the metadata of its wheel, read with pip, or None if pip finds no wheel."""
    words = ("--dry-run", "--no-deps", "--ignore-installed", "--ignore-requires-python", "--only-binary=:all:")
    command = (sys.executable, "-m", "pip", "install", "--quiet", *words, "--report=-", f"{distribution}=={release}")
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        return None
    requirements = loads(answer.stdout)["install"][0]["metadata"].get("requires_dist", [])
    extras = [item.partition(";")[0] for item in requirements if "extra ==" in item]
    return build_row((item for item in requirements if "extra ==" not in item), extras)


def format_table(
    rows: Iterable[tuple[str, Row]],
    first_release: str,
    newest: Iterable[tuple[str, Mapping[str, str]]] = (),
    earlier: Mapping[str, str] | None = None,
) -> str:
    """Return the text of the data file, with a row for each release whose requirements differ from the previous ones.

    `newest` and `earlier` are copied. They state, by hand, the newest releases of ranges on the day of a release, and
    the bounds of all releases before the first.
    """
    changes: list[str] = []
    previous: Row | None = None
    for release, requirements in sorted(rows, key=lambda item: parse_release(item[0])):
        if parse_release(release) >= parse_release(first_release) and requirements != previous:
            changes.append(dumps([release, *requirements], separators=(",", ":")))
            previous = requirements
    ranges = [dumps(item, separators=(",", ":")) for item in newest]
    sections = {"rows": changes, **({"newest": ranges} if ranges else {})}
    blocks = [f'"{name}":[\n' + ",\n".join(lines) + "\n]" for name, lines in sections.items()]
    if earlier:
        blocks.append(f'"earlier":{dumps(earlier, separators=(",", ":"))}')
    return ",\n".join((f'{{"source":{dumps(SOURCE)}', *blocks)) + "}\n"


def _run_git(checkout: Path, *arguments: str) -> str:
    return git.run({"GIT_DIR": f"{checkout.resolve()}/.git"}, *arguments).decode()


def main(arguments: list[str]) -> None:
    """Write `requires.json` of a framework; exit with the usage if the arguments are wrong."""
    if len(arguments) != 2 or arguments[0] not in list_frameworks():
        raise SystemExit(__doc__)
    framework = list_frameworks()[arguments[0]]
    releases = load(framework.vocabulary or "").releases
    rows = dict(read_tags(Path(arguments[1])))
    for release in releases:
        requirements = (
            None if release in rows else read_wheel(list_packages()[framework.package].distributions[0], release)
        )
        if requirements is not None:
            rows[release] = requirements
    if framework.name in _ALTERNATIVE_EXTRAS:
        rows = {release: (required, {}) for release, (required, _) in rows.items()}
    path = Path(framework.folder, "requires.json")
    table = loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    text = format_table(rows.items(), releases[0], table.get("newest", ()), table.get("earlier"))
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

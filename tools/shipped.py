"""Write frameworks/NAME/shipped.json: the launcher files that a framework ships, with the first release of each.

`python -m tools.shipped NAME CHECKOUT [SDIST ...]` reads every tag of a git checkout, and source archives of releases
without a tag. `python -m tools.shipped NAME WHEEL ...` reads the wheels of a framework that installs the files. Another
run with the same sources changes nothing.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from json import dumps, loads
from pathlib import Path
from typing import Any

import yaml

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.front import git

FRAMEWORKS: Final = Path(__file__).resolve().parents[1] / "lint" / "cfglint_train" / "frameworks"

Files = Mapping[str, Any]
"""Path in the framework's repository, or bare name for a wheel -> parsed content of the file."""


class Shipper(Frozen):
    """Folder of the launcher files in a framework's repository (DeepSpeed) or wheels (accelerate); source."""

    folder: str
    source: str


SHIPPERS: Final = {
    "axolotl": Shipper("deepspeed_configs", "axolotl-ai-cloud/axolotl, Apache-2.0"),
    "llamafactory": Shipper("examples/deepspeed", "hiyouga/LLaMA-Factory, Apache-2.0"),
    "trl": Shipper("trl/accelerate_configs", "huggingface/trl, Apache-2.0"),
}


def read_tags(checkout: Path, folder: str) -> Iterator[tuple[str, Files]]:
    """Yield the release and the files of every tag that is a release and has JSON files in `folder`."""
    for tag in _run_git(checkout, "tag").split():
        try:
            parse_release(tag)
        except ValueError:
            continue
        names = _run_git(checkout, "ls-tree", "--name-only", tag, f"{folder}/").split()
        files = {name: loads(_run_git(checkout, "show", f"{tag}:{name}")) for name in names if name.endswith(".json")}
        if files:
            yield tag.removeprefix("v"), files


def read_archive(path: Path, folder: str) -> tuple[str, Files]:
    """Return the release and the JSON files of a source archive."""
    files: dict[str, Any] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            name = member.name.partition("/")[2]
            stream = archive.extractfile(member) if name.startswith(f"{folder}/") else None
            if stream is not None and name.endswith(".json"):
                files[name] = loads(stream.read())
    return path.name.removesuffix(".tar.gz").rpartition("-")[2], files


def read_wheel(path: Path, folder: str) -> tuple[str, Files]:
    """Return the release and the YAML files of a wheel, by the bare names that the framework's command accepts."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.startswith(f"{folder}/") and name.endswith(".yaml")]
        return path.name.split("-")[1], {Path(name).stem: yaml.safe_load(archive.read(name)) for name in names}


def format_table(releases: Iterable[tuple[str, Files]], source: str) -> str:
    """Return the text of the data file.

    Each path has a list of contents, each with the first release that has it; a content is null from the release on
    that removed the file.
    """
    contents_by_path: dict[str, list[tuple[str, Any]]] = {}
    for release, files in sorted(releases, key=lambda pair: parse_release(pair[0])):
        for name in {**contents_by_path, **files}:
            rows = contents_by_path.setdefault(name, [])
            content = files.get(name)
            if (rows[-1][1] if rows else None) != content:
                rows.append((release, content))
    lines = [
        f"    {dumps(name)}: [\n"
        + ",\n".join(f'      {{"since": "{release}", "content": {dumps(content)}}}' for release, content in rows)
        + "\n    ]"
        for name, rows in sorted(contents_by_path.items())
    ]
    source_note = f"{source}; a content holds until the next. Made by tools/shipped.py."
    return f'{{\n  "source": {dumps(source_note)},\n  "files": {{\n' + ",\n".join(lines) + "\n  }\n}\n"


def _run_git(checkout: Path, *words: str) -> str:
    return git.run({"GIT_DIR": f"{checkout.resolve()}/.git"}, *words).decode()


def main(name: str, *sources: str) -> None:
    """Write `shipped.json` of a framework from checkouts, source archives or wheels."""
    shipper = SHIPPERS[name]
    releases: list[tuple[str, Files]] = []
    for source in map(Path, sources):
        if source.is_dir():
            releases += read_tags(source, shipper.folder)
        else:
            read_release = read_wheel if source.suffix == ".whl" else read_archive
            releases.append(read_release(source, shipper.folder))
    releases = [(release, files) for release, files in releases if files]
    (FRAMEWORKS / name / "shipped.json").write_text(format_table(releases, shipper.source), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

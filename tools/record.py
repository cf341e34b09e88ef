"""Record the output of cfglint for many folders, and compare it with an earlier record.

    python -m tools.record --output before.jsonl.gz fixtures "$CFGLINT_CORPUS"
    python -m tools.record --compare before.jsonl.gz fixtures "$CFGLINT_CORPUS"

A record has one JSON object per line: a finding, a file that a fix changes, an estimate of one phase, or other output
of a command. Only public commands are run, each in a fresh copy of the folder: as a git repository, as a plain folder,
after `--fix` and after `--fix --unsafe-fixes`. A refactoring keeps the record as it is, or lists the changes.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import gzip
import io
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cfglint_train.front import git

CASE = "expect.json"
"""File that marks a folder as an acceptance case, which is recorded separately."""


class Unit(NamedTuple):
    """A folder that is copied and recorded on its own."""

    name: str
    source: Path

    @property
    def flags(self) -> list[str]:
        """Flags that the acceptance case states; empty for other folders."""
        case_file = self.source / CASE
        return json.loads(case_file.read_text()).get("args", []) if case_file.is_file() else []


class Answer(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


def find_units(folders: Iterable[Path]) -> Iterator[Unit]:
    """Yield the folders to record: acceptance cases, and direct subfolders that are and contain none."""
    for folder in folders:
        cases = sorted(path.parent for path in folder.rglob(CASE))
        yield from (Unit(case.relative_to(folder.parent).as_posix(), case) for case in cases)
        for child in sorted(path for path in folder.iterdir() if path.is_dir()):
            if not any(child in case.parents or child == case for case in cases):
                yield Unit(child.relative_to(folder.parent).as_posix(), child)


def record_unit(unit: Unit) -> list[str]:
    """Return the record of a folder: as a git repository, as a plain folder, and after both kinds of fixes."""
    with tempfile.TemporaryDirectory(prefix="cfglint-record-") as temporary:
        lines = []
        for form in ("git", "plain"):
            folder = Path(temporary) / form / unit.source.name
            shutil.copytree(unit.source, folder, symlinks=True)
            (folder / CASE).unlink(missing_ok=True)
            if form == "git":
                for command in (["init", "-q"], ["add", "-A", "-f", "."]):
                    git.run(
                        {"GIT_DIR": str(folder / ".git"), "GIT_WORK_TREE": str(folder)}, "-C", str(folder), *command
                    )
            lines += record_folder(unit, form, folder)
            if form == "git":
                lines += record_fix(unit, folder, "fix", ["--fix"])
                lines += record_fix(unit, folder, "unsafe", ["--fix", "--unsafe-fixes"])
        return [line.replace(temporary, "HOME") for line in lines]


def record_folder(unit: Unit, form: str, folder: Path) -> list[str]:
    """Return the lines for a lint of a folder and, in a git repository, for the estimates of its main configs."""
    answer = run_cfglint(folder, "--isolated", "--output-format", "json", "--exit-zero", *unit.flags, ".")
    lines = list(describe_report(unit.name, form, answer))
    if form == "git":
        report = json.loads(answer.out) if answer.out else {}
        main = [file["path"] for file in report.get("files", []) if file["role"] == "main"]
        for path in main:
            lines += describe_estimate(unit, path, run_estimate(unit, folder, path))
    return lines


def run_estimate(unit: Unit, folder: Path, path: str) -> Answer:
    """Run `cfglint estimate` on a configuration."""
    return run_cfglint(folder, "estimate", "--isolated", "--format", "json", *unit.flags, path)


def record_fix(unit: Unit, folder: Path, form: str, flags: list[str]) -> list[str]:
    """Return the lines for a run of fixes: a diff per changed file, then the findings; none if unchanged."""
    fixed = folder.parent.parent / form / folder.name
    shutil.copytree(folder, fixed, symlinks=True)
    run_cfglint(fixed, "--isolated", "--exit-zero", *flags, *unit.flags, ".")
    changed = list(find_differences(folder, fixed))
    if not changed:
        return []
    answer = run_cfglint(fixed, "--isolated", "--output-format", "json", "--exit-zero", *unit.flags, ".")
    lines = [format_line(unit.name, form, "diff", path=path, diff=difference) for path, difference in changed]
    return [*lines, *describe_report(unit.name, form, answer)]


def find_differences(before: Path, after: Path) -> Iterator[tuple[str, str]]:
    """Yield the path and the unified diff of each file that differs between two folders, except in `.git`."""
    paths = {path.relative_to(root) for root in (before, after) for path in root.rglob("*") if path.is_file()}
    for path in sorted(path for path in paths if path.parts[0] != ".git"):
        old, new = ((root / path).read_bytes() if (root / path).exists() else b"" for root in (before, after))
        if old != new:
            left, right = (content.decode("utf-8", "backslashreplace").splitlines() for content in (old, new))
            yield path.as_posix(), "\n".join(difflib.unified_diff(left, right, n=0, lineterm=""))


def describe_report(unit: str, form: str, answer: Answer) -> Iterator[str]:
    """Yield the lines for a JSON report: one per finding, one per other item, and the exit code."""
    report: dict[str, Any] = json.loads(answer.out) if answer.out.startswith("{") else {"said": answer.out}
    for finding in report.pop("findings", []):
        yield format_line(unit, form, "finding", **finding)
    for part, content in report.items():
        for item in content if isinstance(content, list) else [content]:
            yield format_line(unit, form, part, item=item)
    yield format_line(unit, form, "exit", code=answer.code, err=answer.err)


def describe_estimate(unit: Unit, path: str, answer: Answer) -> Iterator[str]:
    """Yield the lines for an estimate: one per run and one per phase, or the error output if it failed."""
    if not answer.out.startswith("{"):
        yield format_line(unit.name, "git", "estimate", path=path, said=answer.err)
        return
    for number, run in enumerate(json.loads(answer.out)["runs"]):
        phases = run.pop("phases", [])
        yield format_line(unit.name, "git", "run", path=path, number=number, run=run)
        for phase in phases:
            yield format_line(unit.name, "git", "phase", path=path, number=number, phase=phase)


def format_line(unit: str, form: str, kind: str, **values: Any) -> str:
    """Return one line of a record."""
    return json.dumps({"unit": unit, "form": form, "kind": kind, **values}, sort_keys=True, ensure_ascii=False)


def run_cfglint(folder: Path, *arguments: str) -> Answer:
    """Run cfglint in this process with `folder` as the working directory; a crash gives an answer with code -1."""
    from cfglint_train.front.cli import main

    streams = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        try:
            code = main(list(arguments))
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 2
        except Exception as error:
            return Answer(-1, "", f"{type(error).__name__}: {error}")
    return Answer(code, streams[0].getvalue(), streams[1].getvalue())


def record_all(units: list[Unit], jobs: int) -> Iterator[str]:
    """Yield the lines of all units in order; each unit is recorded in its own process."""
    os.environ |= {"COLUMNS": "120", "NO_COLOR": "1"}
    os.environ.pop("GITHUB_ACTIONS", None)
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs, maxtasksperchild=1) as pool:
        for lines in pool.imap(record_unit, units, chunksize=1):
            yield from lines


def compare(before: list[str], after: list[str]) -> list[str]:
    """Return the removed (-) and added (+) lines, sorted by unit."""
    old, new = set(before), set(after)
    changed = [f"- {line}" for line in before if line not in new] + [f"+ {line}" for line in after if line not in old]
    return sorted(changed, key=lambda line: (json.loads(line[2:])["unit"], line[2:], line[0]))


def main(arguments: list[str] | None = None) -> int:
    """Write a record, compare it with an earlier record, or both; return 1 if the records differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, help="output file (JSON Lines, gzip)")
    parser.add_argument("--compare", type=Path, help="an earlier record of the same folders")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    units = list(find_units(options.folders))
    lines = list(record_all(units, options.jobs))
    if options.output:
        with gzip.GzipFile(options.output, "wb", mtime=0) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
    if options.compare is None:
        return 0
    changed = compare(gzip.decompress(options.compare.read_bytes()).decode().splitlines(), lines)
    for line in changed:
        print(line)
    print(f"{len(lines)} lines, {len(changed)} differ", file=sys.stderr)
    return 1 if changed else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Writing of fixed files to disk: either all files that fixes changed together, or none of them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from cfglint_train.fixing.loop import FixOutcome, find_changed_together
from cfglint_train.foundation import atomic
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.judging import dispatch
from cfglint_train.judging.options import LintOptions
from cfglint_train.judging.result import Trouble


class UnwrittenFile(Frozen):
    """A file that could not be written and is unchanged."""

    path: str
    reason: str


def write_sources(fixed: FixOutcome) -> list[UnwrittenFile]:
    """Write the new contents, and return the files that could not be written.

    Files that a fix changed together are either all written or all left unchanged, unless replacing a later file of the
    group fails.
    """
    failures: list[UnwrittenFile] = []
    done: dict[str, bytes] = {}
    waiting = sorted(fixed.sources)
    while waiting:
        group = find_changed_together(waiting[:1], fixed.applied) & fixed.sources.keys()
        waiting = [path for path in waiting if path not in group]
        failures += _write_together({path: fixed.sources[path] for path in sorted(group)}, fixed.originals, done)
    return failures


def _write_together(
    sources: Mapping[str, bytes], originals: Mapping[str, bytes], done: dict[str, bytes]
) -> list[UnwrittenFile]:
    """Write a group of files, and return those that could not be written.

    All files are staged first, and nothing is replaced if staging fails. `done` holds the contents written so far, by
    real path; new contents are added to it.
    """
    staged: dict[str, atomic.StagedFile] = {}
    failure: UnwrittenFile | None = None
    for path, source in sources.items():
        try:
            target = os.path.realpath(path)
            if done.get(target) == source or any(other.target == target for other in staged.values()):
                continue  # the same file by another name
            staged[path] = atomic.stage(path, source, originals[path])
        except OSError as error:
            failure = UnwrittenFile(path, error.strerror or str(error))
            break
    for path, staged_file in staged.items():
        if failure is not None:
            atomic.discard(staged_file)
            continue
        try:
            atomic.commit(staged_file)
            done[staged_file.target] = sources[path]
        except OSError as error:
            failure = UnwrittenFile(path, error.strerror or str(error))
    if failure is None:
        return []
    unwritten = [path for path in sources if path != failure.path and done.get(os.path.realpath(path)) != sources[path]]
    return [failure, *(UnwrittenFile(path, f"it must be written together with {failure.path}") for path in unwritten)]


def write_fixes(fixed: FixOutcome, paths: list[str], options: LintOptions) -> FixOutcome:
    """Write the new contents, and return the outcome with only the files that could be written.

    If a file could not be written, lint again on the files on disk.
    """
    for folder in {os.path.dirname(path) for path in paths}:
        atomic.remove_stale_files(folder)  # remove the leftovers of killed writers, even if nothing is written now
    failures = write_sources(fixed)
    if not failures:
        return fixed
    unwritten = {failure.path for failure in failures}
    applied = tuple(fix for fix in fixed.applied if unwritten.isdisjoint(fix.files))
    sources = {path: source for path, source in fixed.sources.items() if path not in unwritten}
    result = dispatch.lint(dispatch.open_workspace(options), paths, options)
    troubles = (Trouble(failure.path, f"not written: {failure.reason}") for failure in failures)
    return fixed._replace(
        sources=sources, applied=applied, result=result._replace(troubles=(*result.troubles, *troubles))
    )

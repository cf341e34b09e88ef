"""`cfglint --write-baseline`: accept all current findings, or remove stale entries from an existing baseline."""

from __future__ import annotations

import os

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.typed import TYPE_CHECKING, Any
from cfglint_train.foundation.wording import format_count
from cfglint_train.front.commands.options import refuse_combination
from cfglint_train.front.commands.output import print_remarks

if TYPE_CHECKING:
    from cfglint_train.api import Options
    from cfglint_train.judging.result import Result
    from cfglint_train.settings.settings import Settings


def write_baseline(paths: list[str], lint_options: Options, options: Any, settings: Settings) -> Result:
    """Write the baseline, and return the result without accepted findings. Raise UsageError."""
    from cfglint_train import api
    from cfglint_train.settings.settings import BASELINE

    refuse_combination("--write-baseline", paths, options)
    if options.no_baseline:
        raise UsageError("--write-baseline contradicts --no-baseline")
    path = options.baseline or settings.baseline or os.path.join(settings.root, BASELINE)
    display_path = os.path.relpath(path)
    is_new = not os.path.lexists(path)
    try:
        result = api.accept(paths, lint_options.replace(jobs=options.jobs), baseline=path).raw
    except OSError as error:
        raise UsageError(f"{display_path}: cannot be written: {error.strerror or error}") from None
    accepted = result.accepted
    assert accepted is not None
    if is_new:
        print_remarks([f"wrote {display_path}: {format_count(len(accepted.accepted), 'accepted finding')}"])
    elif accepted.missing:
        print_remarks([f"wrote {display_path}: removed {format_count(accepted.missing, 'stale accepted finding')}"])
    elif accepted.has_renames:
        print_remarks([f"wrote {display_path}: renamed the files of accepted findings"])
    else:
        print_remarks([f"{display_path} unchanged: all accepted findings are still found"])
    if accepted.new:
        added = f"{format_count(len(accepted.new), 'new finding')} not accepted: {display_path} can only shrink"
        print_remarks([f"{added}; to accept them, delete it and write it again, or add comments with --add-ignore"])
    if settings.baseline is None and options.baseline is None:
        print_remarks(
            [f'set `baseline = "{BASELINE}"` in the settings, or pass `--baseline {display_path}`, to use it']
        )
    return result._replace(accepted=accepted._replace(stale=()))

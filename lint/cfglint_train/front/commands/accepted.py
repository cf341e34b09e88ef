"""`cfglint --write-baseline`: accept the findings of today, or drop the accepted ones that are gone."""

from __future__ import annotations

import os

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.typed import TYPE_CHECKING, Any
from cfglint_train.foundation.wording import counted
from cfglint_train.front.commands.options import refuse_beside
from cfglint_train.front.commands.output import complain

if TYPE_CHECKING:
    from cfglint_train.api import Options
    from cfglint_train.judging.result import Result
    from cfglint_train.settings.settings import Settings


def write_baseline(paths: list[str], wanted: Options, options: Any, settings: Settings) -> Result:
    """Write the baseline, and return what it does not accept. Raises UsageError."""
    from cfglint_train import api
    from cfglint_train.settings.settings import BASELINE

    refuse_beside("--write-baseline", paths, options)
    if options.no_baseline:
        raise UsageError("--write-baseline contradicts --no-baseline")
    path = options.baseline or settings.baseline or os.path.join(settings.root, BASELINE)
    shown = os.path.relpath(path)
    new = not os.path.lexists(path)
    try:
        result = api.accept(paths, wanted.replace(jobs=options.jobs), baseline=path).raw
    except OSError as error:
        raise UsageError(f"{shown}: cannot be written: {error.strerror or error}") from None
    accepted = result.accepted
    assert accepted is not None
    if new:
        complain([f"wrote {shown}: {counted(len(accepted.known), 'accepted finding')}"])
    elif accepted.gone:
        complain([f"wrote {shown}: removed {counted(accepted.gone, 'accepted finding')} no longer found"])
    elif accepted.moved:
        complain([f"wrote {shown}: accepted findings are listed under the new names of their files"])
    else:
        complain([f"{shown} is left as it is: no accepted finding is gone"])
    if accepted.new:
        added = f"{counted(len(accepted.new), 'new finding')} not accepted: {shown} can only shrink"
        complain([f"{added}; to accept more, delete it and write it again, or write comments with --add-ignore"])
    if settings.baseline is None and options.baseline is None:
        complain([f'set `baseline = "{BASELINE}"` in the settings, or pass `--baseline {shown}`, to use it'])
    return result._replace(accepted=accepted._replace(stale=()))

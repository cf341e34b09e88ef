"""`cfglint --add-ignore`: a comment at every finding of today."""

from __future__ import annotations

import json
import os
import re

from cfglint_rules.registry import OF_ENGINE
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.wording import counted
from cfglint_train.front.commands.options import refuse_beside
from cfglint_train.front.commands.output import complain, shown

if TYPE_CHECKING:
    from cfglint_train.api import Options
    from cfglint_train.fixing.loop import Fixed
    from cfglint_train.judging.result import Result

_UNUSED: Final = OF_ENGINE["suppression"].code
"""Comments that silence nothing: they are to be removed, not silenced."""


def write_ignores(paths: list[str], wanted: Options, options: Any) -> Result:
    """Write the comments, and return what they do not silence. Raises UsageError."""
    from cfglint_train import api

    refuse_beside("--add-ignore", paths, options)
    done = api.ignore(paths, wanted, write=True)
    fixed = done.raw
    if fixed.applied and not options.quiet:
        complain([f"ignored {counted(len(fixed.applied), 'finding')} in {counted(len(fixed.sources), 'file')}"])
    others = [one for one in fixed.refused if one.code == _UNUSED]
    complain([f"not ignored: {shown(one.path)}: {one.code}: {one.reason}" for one in others])
    complain(_settings(fixed))
    return fixed.result


def _settings(fixed: Fixed) -> list[str]:
    """The setting that ignores the findings in files that cannot hold a comment."""
    codes: dict[str, set[str]] = {}
    reasons: dict[str, None] = {}
    for one in fixed.refused:
        if one.code != _UNUSED:
            pattern = re.sub(r"[*?\[{]", r"[\g<0>]", os.path.relpath(one.path).replace(os.sep, "/"))
            codes.setdefault(pattern, set()).add(one.code)
            reasons[one.reason] = None
    if not codes:
        return []
    lines = [f"{json.dumps(path, ensure_ascii=False)} = {json.dumps(sorted(found))}" for path, found in codes.items()]
    head = f"{'; '.join(reasons)}: to ignore these findings, add to cfglint.toml"
    return [
        f"{head} (in pyproject.toml: [tool.cfglint.per-file-ignores]):",
        "[per-file-ignores]",
        *map(shown, sorted(lines)),
    ]

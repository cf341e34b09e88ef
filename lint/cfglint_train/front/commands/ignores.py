"""`cfglint --add-ignore`: add a comment that ignores each current finding."""

from __future__ import annotations

import json
import os
import re

from cfglint_rules.registry import ENGINE_RULES
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.wording import format_count
from cfglint_train.front.commands.options import refuse_combination
from cfglint_train.front.commands.output import print_remarks, sanitize

if TYPE_CHECKING:
    from cfglint_train.api import Options
    from cfglint_train.fixing.loop import FixOutcome
    from cfglint_train.judging.result import Result

_UNUSED: Final = ENGINE_RULES["suppression"].code
"""Code of the rule for unused suppressions, which should be removed rather than suppressed."""


def write_ignores(paths: list[str], lint_options: Options, options: Any) -> Result:
    """Write the comments, and return the result with the remaining findings. Raise UsageError."""
    from cfglint_train import api

    refuse_combination("--add-ignore", paths, options)
    outcome = api.ignore(paths, lint_options, write=True)
    fixed = outcome.raw
    if fixed.applied and not options.quiet:
        print_remarks(
            [f"ignored {format_count(len(fixed.applied), 'finding')} in {format_count(len(fixed.sources), 'file')}"]
        )
    unused = [refusal for refusal in fixed.refused if refusal.code == _UNUSED]
    print_remarks([f"not ignored: {sanitize(refusal.path)}: {refusal.code}: {refusal.reason}" for refusal in unused])
    print_remarks(_suggest_settings(fixed))
    return fixed.result


def _suggest_settings(fixed: FixOutcome) -> list[str]:
    """Return the lines of a setting that ignores findings in files that cannot contain comments."""
    codes: dict[str, set[str]] = {}
    reasons: dict[str, None] = {}
    for refusal in fixed.refused:
        if refusal.code != _UNUSED:
            pattern = re.sub(r"[*?\[{]", r"[\g<0>]", os.path.relpath(refusal.path).replace(os.sep, "/"))
            codes.setdefault(pattern, set()).add(refusal.code)
            reasons[refusal.reason] = None
    if not codes:
        return []
    lines = [
        f"{json.dumps(path, ensure_ascii=False)} = {json.dumps(sorted(path_codes))}"
        for path, path_codes in codes.items()
    ]
    head = f"{'; '.join(reasons)}: to ignore these findings, add to cfglint.toml"
    return [
        f"{head} (in pyproject.toml: [tool.cfglint.per-file-ignores]):",
        "[per-file-ignores]",
        *map(sanitize, sorted(lines)),
    ]

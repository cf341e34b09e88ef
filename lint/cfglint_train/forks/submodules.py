"""Git submodules that are forks of a framework, from `.gitmodules`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.releases.pins.requirement import find_upstream_package, format_repository, match_package_name

_SETTING: Final = compile_on_use(r"[ \t]*(path|url)[ \t]*=[ \t]*\"?([^\"#;\r\n]*?)\"?[ \t]*(?:[#;].*)?")


class Submodule(Frozen):
    """A submodule that is named after a known package but whose URL is not upstream's."""

    package: str
    repository: str
    line: int


def parse_submodules(path: str) -> Iterator[Submodule]:
    """Yield the submodules in a `.gitmodules` file that are forks of a framework; yield nothing if it is unreadable."""
    try:
        text = regular_files.read(path).decode("utf-8", "replace")
    except (OSError, ValueError):
        return
    for section in re.finditer(r"(?m)^[ \t]*\[submodule\b.*\n((?:(?![ \t]*\[).*(?:\n|$))*)", text):
        settings = map(_SETTING.fullmatch, section[1].splitlines())
        values = {setting[1]: setting[2] for setting in settings if setting is not None}
        url = values.get("url", "")
        package = match_package_name(format_repository(url)) or match_package_name(values.get("path", ""))
        if package is not None and find_upstream_package(url) is None:
            yield Submodule(package, format_repository(url), text.count("\n", 0, section.start()) + 1)

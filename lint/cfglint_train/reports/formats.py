"""The output formats: each a module of this package with a function that makes lines of a result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.judging.result import Result
from cfglint_train.reports.style import Style
from cfglint_train.runs.run import Run

Reporter = Callable[[Result, Style], Iterator[str]]

# Format -> module and function. `settings.FORMATS` names them where nothing may be imported yet.
_REPORTERS: Final[Mapping[str, tuple[str, str]]] = {
    "text": ("text", "full"),
    "concise": ("text", "concise"),
    "grouped": ("text", "grouped"),
    "json": ("json", "report"),
    "json-lines": ("json", "lines"),
    "github": ("github", "report"),
    "gitlab": ("gitlab", "report"),
    "html": ("html", "report"),
    "junit": ("junit", "report"),
    "markdown": ("markdown", "report"),
    "rdjson": ("rdjson", "report"),
    "sarif": ("sarif", "report"),
}


# What a format keeps of every run: module and function. Such a lint can be shared among processes.
_DIGESTS: Final[Mapping[str, tuple[str, str]]] = {"html": ("html", "summarised"), "markdown": ("markdown", "run_row")}


def find_digest(form: str) -> Callable[[Run], Any] | None:
    """The function that makes what a format keeps of every run; None where it keeps nothing, or takes the runs."""
    if form not in _DIGESTS:
        return None
    module, function = _DIGESTS[form]
    renderer: Callable[[Run], Any] = getattr(import_module(f"cfglint_train.reports.{module}"), function)
    return renderer


def find_reporter(form: str) -> Reporter:
    """The function that writes a format. Raises KeyError for an unknown one."""
    module, function = _REPORTERS[form]
    renderer: Reporter = getattr(import_module(f"cfglint_train.reports.{module}"), function)
    return renderer

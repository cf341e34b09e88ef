"""Output formats: each is a function in a module of this package that renders a result as lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from cfglint_train.foundation.modules import import_module
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.judging.result import Result
from cfglint_train.reports.style import Style
from cfglint_train.runs.run import Run

Reporter = Callable[[Result, Style], Iterator[str]]
Digest = Callable[[Sequence[Run]], Sequence[Any]]

# Module and function of each format. `settings.FORMATS` lists the formats for code that must not import anything.
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


# Module and function that summarize runs for a format. With summaries, several processes can share a lint.
_DIGESTS: Final[Mapping[str, tuple[str, str]]] = {
    "html": ("html", "summarize_runs"),
    "markdown": ("markdown", "summarize_runs"),
}


def find_digest(form: str) -> Digest | None:
    """Return the function that summarizes runs for a format, or None if the format has no run summaries."""
    if form not in _DIGESTS:
        return None
    module, function = _DIGESTS[form]
    summarize: Digest = getattr(import_module(f"cfglint_train.reports.{module}"), function)
    return summarize


def find_reporter(form: str) -> Reporter:
    """Return the function that renders a format, or raise `KeyError` for an unknown format."""
    module, function = _REPORTERS[form]
    renderer: Reporter = getattr(import_module(f"cfglint_train.reports.{module}"), function)
    return renderer

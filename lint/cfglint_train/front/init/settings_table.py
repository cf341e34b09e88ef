"""Settings suggested by a survey: an assignment if all files agree on the value, or else a comment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cfglint_train.foundation.wording import format_count, join_names
from cfglint_train.frameworks.registry import map_spellings
from cfglint_train.front.init.questions import Answers
from cfglint_train.front.init.survey import Survey, SurveyedRelease
from cfglint_train.reports.escape import escape_text
from cfglint_train.settings.settings import BASELINE

_FACTS: Final = ("gpu", "gpus-per-node", "nodes", "host-memory", "disk")
_NUMBERS: Final = ("gpus-per-node", "nodes")

# Fact -> an example value, and the consequence of leaving the fact out.
_EXAMPLES: Final = {
    "gpu": ("H100", "default: 80 GB per GPU"),
    "gpus-per-node": ("8", "default: 8"),
    "nodes": ("1", "default: 1"),
    "host-memory": ("1TB", "per node; if unset, host memory is not checked"),
    "disk": ("10TB", "for checkpoints; if unset, their size is not checked"),
}


def render_table(survey: Survey, prefix: str, answers: Answers) -> Iterator[str]:
    """Yield the lines of the table, with `prefix` before every header: `tool.cfglint`, or empty in a cfglint.toml."""
    if prefix:
        yield f"[{prefix}]"
    configurations = ", ".join(
        f"{title} ({count} file{'s' * (count != 1)})" for title, count in survey.frameworks.items()
    )
    yield f"# Found: {configurations or 'no training configurations yet'}."
    yield '# All rules are on (`cfglint rules` lists them). To turn off a rule or a family: ignore = ["PRF"]'
    yield f'fail-on = "{answers.fail_on}"  # the lowest severity that gives exit code 1'
    require_checked = str(answers.require_checked).lower()
    yield f"require-checked = {require_checked}  # true: a run without an estimate gives exit code 1"
    yield f"resumable = {str(answers.resumable).lower()}  # false: checkpoints may omit the optimizer state"
    yield f'# baseline = "{BASELINE}"  # findings accepted for now; `cfglint --write-baseline` writes the file'
    yield ""
    yield f"[{prefix}.hardware]" if prefix else "[hardware]"
    for fact in _FACTS:
        if fact in answers.facts:
            yield _format_assignment(fact, answers.facts[fact])
        else:
            yield from _render_fact(fact, survey)
    yield ""
    yield f"[{prefix}.releases]" if prefix else "[releases]"
    yield from _render_releases(survey)


def _render_fact(fact: str, survey: Survey) -> Iterator[str]:
    scripts = [script for script, facts in survey.launches.items() if fact in facts]
    if scripts:
        yield f"# {fact} is read from {_format_names(scripts)}, for the runs that it starts"
        return
    hints = [hint for hint in survey.hints if hint.fact == fact]
    values = dict.fromkeys(hint.value for hint in hints)
    if not values:
        example, consequence = _EXAMPLES[fact]
        yield f"# {_format_assignment(fact, example)}  # {consequence}"
        return
    is_unique = len(values) == 1
    if not is_unique:
        yield f"# {fact}: several values found; set one here, or one per path in [[overrides]]"
    for value in values:
        matching = [hint for hint in hints if hint.value == value]
        alternative = next((hint.alternative for hint in matching if hint.alternative is not None), None)
        is_certain = is_unique and alternative is None
        places = _format_names([f"{hint.path}:{hint.line}" for hint in matching])
        doubt = f'or "{alternative}": ' if alternative is not None else ""
        yield f"{'' if is_certain else '# '}{_format_assignment(fact, value)}  # {doubt}{places}"


def _format_assignment(fact: str, value: str) -> str:
    return f"{fact} = {value}" if fact in _NUMBERS else f'{fact} = "{value}"'


def _render_releases(survey: Survey) -> Iterator[str]:
    spelled = {name: spelling for spelling, name in reversed(tuple(map_spellings().items()))}
    if not survey.releases:
        yield '# torch = "2.8"  # if no requirements file pins it'
    for name, releases in survey.releases.items():
        for release in releases:
            if release.source is None:
                yield f'# {spelled[name]} = "{release.release}"  # nothing pins it: this release is assumed'
            else:
                yield f"# {spelled[name]} {release.release}: {describe_source(release)}"


def describe_source(release: SurveyedRelease) -> str:
    """Return the source of a release as text."""
    if release.source is None:
        return "assumed"
    return escape_text(release.source) + (f" and {format_count(release.more, 'more reason')}" if release.more else "")


def _format_names(names: list[str]) -> str:
    """Return the first few names for a comment."""
    return join_names(list(dict.fromkeys(map(escape_text, names))))

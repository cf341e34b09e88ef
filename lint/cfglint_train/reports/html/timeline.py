"""The timeline of a run as a table of bars: memory by kind, the capacity, and the same after the proposed change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Final
from cfglint_train.records import Moment
from cfglint_train.reports.html.markup import escape_html, format_span, render_badge, render_details, render_table
from cfglint_train.reports.timeline import KINDS, divide_bar, list_kinds, name_moment

_WIDTH: Final = 999
"""Width of a bar in units of its drawing, which is as wide as its cell."""


def render_timeline(
    moments: Sequence[Moment], after: Sequence[Moment], capacity: int | None, subject: str | None
) -> str:
    """Render the bars of a run, each with a thin bar for the run after the change if there is one.

    The numbers by kind are folded below the bars, in a region with the label `subject`; without one, they are left out.
    """
    if not moments:
        return ""
    after_by_name = {name_moment(moment): moment for moment in after}
    top = max(capacity or 0, *(moment.expected for moment in (*moments, *after)))
    steps = [moment.step for moment in moments]
    rows = "".join(
        _render_row(moment, after_by_name.get(name_moment(moment)), capacity, top, step != moment.step)
        for moment, step in zip(moments, [steps[0], *steps])
    )
    changed = '<th scope="col" class="n">after the change</th>' if after else ""
    legend = "".join(f'<li class="{KINDS[kind].letter}">{kind}</li>' for kind in list_kinds((*moments, *after)))
    limit = "" if capacity is None else f'<li class="limit">capacity {format_gib(capacity)}</li>'
    thin = '<li class="thin">thin bar: after the change</li>' if after else ""
    return (
        f'<ul class="legend">{legend}{limit}{thin}</ul>\n'
        f'<table class="time"><caption>One GPU, phase by phase</caption><thead><tr><th scope="col">phase</th>'
        f'<th scope="col" class="b">memory</th><th scope="col" class="n">expected</th>'
        f'<th scope="col" class="n">interval</th><th scope="col">verdict</th>{changed}</tr></thead>\n'
        f"<tbody>{rows}</tbody></table>\n{'' if subject is None else _render_numbers(moments, subject)}"
    )


def _render_numbers(moments: Sequence[Moment], subject: str) -> str:
    kinds = list_kinds(moments)
    rows = [
        (name_moment(moment), *(format_gib(moment.kinds[kind]) if kind in moment.kinds else "" for kind in kinds))
        for moment in moments
    ]
    head = ("Phase", *kinds)
    table = render_table("One GPU: kinds of memory", head, rows, tuple(range(1, len(head))), subject)
    return render_details("Numbers by kind of memory", table)


def _render_row(moment: Moment, after: Moment | None, capacity: int | None, top: int, is_new: bool) -> str:
    """Render a bar with its numbers; `is_new`: another step than that of the row above."""
    percent = "" if moment.percent is None else f" <small>{moment.percent:,}&#8239;%</small>"
    changed = "" if after is None else f'<td class="n">{format_gib(after.expected)} {render_badge(after.verdict)}</td>'
    thin = "" if after is None else _draw_bar(after, capacity, top, "thin")
    return (
        f'<tr{" class=new" if is_new else ""}><th scope="row">{escape_html(name_moment(moment))}</th>'
        f'<td class="b">{_draw_bar(moment, capacity, top, "bar")}{thin}</td>'
        f'<td class="n">{format_gib(moment.expected)}{percent}</td>'
        f'<td class="n i">{format_span(moment.low, moment.high)}</td>'
        f"<td>{render_badge(moment.verdict)}</td>{changed}</tr>\n"
    )


def _draw_bar(moment: Moment, capacity: int | None, top: int, kind: str) -> str:
    """Return the drawing of a bar, which is hidden from screen readers: the cells beside it have its numbers."""
    return (
        f'<svg class="{kind}" viewBox="0 0 {_WIDTH} 1" preserveAspectRatio="none" aria-hidden="true">'
        f"{''.join(_draw_parts(moment, top))}{_draw_capacity(capacity, top)}</svg>"
    )


def _draw_parts(moment: Moment, top: int) -> Iterator[str]:
    for kind, start, width in divide_bar(moment.kinds, top, _WIDTH):
        yield f'<path class="{KINDS[kind].letter}" d="M{start} 0h{width}v1H{start}z"/>'


def _draw_capacity(capacity: int | None, top: int) -> str:
    return "" if capacity is None else f'<path class="limit" d="M{round(_WIDTH * capacity / top)} 0v1"/>'


def list_colors() -> Iterator[str]:
    """Yield the style rule of each kind of memory."""
    for kind in KINDS.values():
        yield f".{kind.letter}{{fill:{kind.color};--k:{kind.color}}}"

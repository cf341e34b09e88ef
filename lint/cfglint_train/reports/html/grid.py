"""The what-if grid of a run: a small table per combination of all axes but the last two, one of them the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from cfglint_train.foundation.sizes import format_gib
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.records import RunEstimate
from cfglint_train.reports.answer import RESOURCE_NAMES
from cfglint_train.reports.commands import spell_command
from cfglint_train.reports.html.markup import escape_html, format_value, render_badge
from cfglint_train.reports.style import Style
from cfglint_train.whatif.grid import EVALUATION, Axis, Cell, find_idle_axes

_MARKS: Final[dict[str | None, str]] = {
    "fits": "✓",
    "tight": "≈",
    "probably does not fit": "✗?",
    "does not fit": "✗",
    None: "",
}
_NAMES: Final = {"gpu": "GPU", "micro_batch": "micro batch", "sequence": "sequence length"}


def render_grid(
    axes: Sequence[Axis], cells: Sequence[Cell], estimate: RunEstimate, subject: str, style: Style
) -> Iterator[str]:
    """Render the tables; a cell has the peak in GiB and a mark for its verdict, and the run's own is framed."""
    outer, rows, columns = axes[:-2], axes[-2] if len(axes) > 1 else None, axes[-1]
    stated = {setting.name: setting.value for setting in estimate.settings}
    across, down = (
        escape_html(_NAMES.get(axis.name, axis.name)) if axis is not None else "" for axis in (columns, rows)
    )
    yield (
        f'<p class="note">{f"Down: {down}. " if down else ""}Across: {across}. Peak of a step in GiB, or of the '
        "evaluation (e): ✓ fits, ≈ tight, ✗? probably does not fit, ✗ does not fit. The stated run is framed.</p>"
    )
    yield from _describe_gpus([cell for cell in cells if _is_stated(cell, stated, estimate, is_any_gpu=True)], estimate)
    yield '<div class="grids">'
    for label, group in groupby(cells, key=lambda cell: ", ".join(_format_axes(outer, cell))):
        yield _render_table(label, list(group), rows, columns, stated, estimate, subject)
    yield "</div>"
    command = escape_html(_spell_command(axes, estimate.path, style))
    yield f'<p class="note">Other values: <code class="copy">{command}</code></p>'
    for name in find_idle_axes(cells, axes):
        yield f'<p class="note"><code>{escape_html(_NAMES.get(name, name))}</code> has no effect on this estimate.</p>'


def _describe_gpus(cells: Sequence[Cell], estimate: RunEstimate) -> Iterator[str]:
    """Name the GPUs on which the run fits with its own values; `cells` have these, each on another GPU."""
    worst = estimate.worst
    is_elsewhere = worst is not None and worst.place != "gpu" and worst.expected > worst.capacity
    subject = "As it is, the run fits on" if not is_elsewhere else "As it is, the GPU memory is enough on"
    other = f"; the {RESOURCE_NAMES[worst.place]} is too small on each" if is_elsewhere and worst is not None else ""
    if any(cell.verdict is not None and "gpu" in cell.changes for cell in cells):
        fitting, tight = (
            ", ".join(escape_html(cell.changes["gpu"] or "the stated GPU") for cell in cells if cell.verdict == verdict)
            for verdict in ("fits", "tight")
        )
        beside = f", and is tight on <b>{tight}</b>" if tight else ""
        yield f"<p>{subject} <b>{fitting or 'none of these GPUs'}</b>{beside}{other}.</p>"


def _spell_command(axes: Sequence[Axis], path: str, style: Style) -> str:
    """Return the command that estimates the cells, which also reports them as JSON."""
    words = (
        f"{axis.name}={','.join(_spell_value(value) for value in axis.values if value is not None)}" for axis in axes
    )
    return spell_command("estimate", path, style, "--what-if", *words)


def _spell_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _format_axes(axes: Sequence[Axis], cell: Cell) -> Iterator[str]:
    for axis in axes:
        if axis.field is None:
            yield f"{cell.changes[axis.name] or 'stated GPU'}"
        else:
            yield f"{_NAMES.get(axis.name, axis.name)} {format_value(cell.changes[axis.name])}"


def _render_table(
    label: str,
    cells: Sequence[Cell],
    rows: Axis | None,
    columns: Axis,
    stated: dict[str, Any],
    estimate: RunEstimate,
    subject: str,
) -> str:
    heads = "".join(f'<th scope="col">{escape_html(format_value(value))}</th>' for value in columns.values)
    body = ""
    width = len(columns.values)
    for start in range(0, len(cells), width):
        row = cells[start : start + width]
        title = "" if rows is None else escape_html(format_value(row[0].changes[rows.name]))
        figures = "".join(_render_cell(cell, _is_stated(cell, stated, estimate)) for cell in row)
        body += f'<tr><th scope="row">{title}</th>{figures}</tr>\n'
    caption = escape_html(label) or "What if"
    stated_cells = (cell for cell in cells if _is_stated(cell, stated, estimate, is_any_gpu=True))
    stated_cell = next(stated_cells, None)
    badge = "" if stated_cell is None else render_badge(stated_cell.verdict)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{subject}, {caption}: what if">'
        f'<table class="grid"><caption><b>{caption}</b> {badge}</caption><thead><tr><td></td>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _is_stated(cell: Cell, stated: dict[str, Any], estimate: RunEstimate, is_any_gpu: bool = False) -> bool:
    """Return whether a cell has the run's own values on all axes, or on all but the GPU's."""
    gpu = cell.changes.get("gpu") if is_any_gpu else estimate.gpu
    values = {"gpu": gpu, "micro_batch": stated.get("micro batch"), "sequence": stated.get("sequence length")}
    return all(name in values and values[name] == value for name, value in cell.changes.items())


def _render_cell(cell: Cell, is_stated: bool) -> str:
    kind = (cell.verdict or "unknown").replace(" ", "-")
    frame = " own" if is_stated else ""
    if cell.budget is None:
        return f'<td class="{kind}{frame}">?</td>'
    size = format_gib(cell.budget.expected).removesuffix(" GiB")
    return f'<td class="{kind}{frame}">{"e " if cell.phase == EVALUATION else ""}{size} {_MARKS[cell.verdict]}</td>'

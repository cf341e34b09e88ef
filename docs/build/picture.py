"""Diagram of docs/architecture.md: parsed from its Mermaid block and drawn as SVG for the site.

GitHub renders Mermaid itself; the site would have to load a library for it, and it loads nothing from other hosts.
"""

from __future__ import annotations

import re
from html import escape
from typing import NamedTuple

MERMAID = re.compile(r"^```mermaid\n(?P<lines>.*?)^```$", re.MULTILINE | re.DOTALL)
_ROOM = re.compile(r'^\s*(\w+)\["([^"]*)"\]$')
_ARROW = re.compile(r"^\s*(\w+) (?:-->|-\. (.+) \.->) (\w+)$")

_WIDTH, _HEIGHT, _GAP, _LANE = 820, 50, 12, 150


class Arrow(NamedTuple):
    """An import within a floor (no label), or the data that one room passes to another."""

    source: str
    target: str
    label: str


class Picture(NamedTuple):
    """Floors from the top down, each with its rooms, and the arrows between them."""

    floors: list[list[str]]
    captions: dict[str, str]
    arrows: list[Arrow]

    @property
    def beside(self) -> set[tuple[str, str]]:
        """Imports between rooms of one floor."""
        return {(arrow.source, arrow.target) for arrow in self.arrows if not arrow.label}


def parse_picture(page: str) -> Picture:
    """Return the picture of a page.

    Raise ValueError if one of its lines is not understood.
    """
    block = MERMAID.search(page)
    if block is None:
        raise ValueError("the page has no Mermaid block")
    picture = Picture([], {}, [])
    for line in block["lines"].splitlines()[1:]:
        room, arrow = _ROOM.match(line), _ARROW.match(line)
        if line.strip().startswith("subgraph"):
            picture.floors.append([])
        elif room is not None:
            name, _, caption = room[2].partition("<br>")
            picture.floors[-1].append(room[1])
            picture.captions[room[1]] = caption
            if name != room[1]:
                raise ValueError(f"a room is called what it is: {line.strip()}")
        elif arrow is not None:
            picture.arrows.append(Arrow(arrow[1], arrow[3], arrow[2] or ""))
        elif line.strip() != "end":
            raise ValueError(f"not understood: {line.strip()}")
    return picture


def draw_svg(picture: Picture) -> str:
    """Return the picture as an SVG element: floors as rows, and data passed between floors at the right."""
    boxes: dict[str, tuple[float, float, float]] = {}
    parts = []
    for number, floor in enumerate(picture.floors):
        width = (_WIDTH - _LANE - _GAP * (len(floor) - 1)) / len(floor)
        for place, room in enumerate(floor):
            x, y = place * (width + _GAP), number * (_HEIGHT + _GAP)
            boxes[room] = x, y, width
            parts.append(
                f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{_HEIGHT}" rx="4"/>'
                f'<text x="{x + 10:.0f}" y="{y + 20}" class="room">{escape(room)}</text>'
                f'<text x="{x + 10:.0f}" y="{y + 38}">{escape(picture.captions[room])}</text>'
            )
    labelled = [arrow for arrow in picture.arrows if arrow.label]
    for number, arrow in enumerate(labelled):
        x = _WIDTH - _LANE + 14 + 16 * number
        start, end = (boxes[room][1] + _HEIGHT / 2 for room in (arrow.source, arrow.target))
        parts.append(
            f'<path d="M {x} {start:.0f} V {end:.0f}" marker-end="url(#tip)"/>'
            f'<text transform="translate({x + 4} {(start + end) / 2:.0f}) rotate(90)" text-anchor="middle" '
            f'class="label">{escape(arrow.label)}</text>'
        )
    height = len(picture.floors) * (_HEIGHT + _GAP)
    return (
        f'<svg class="picture" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="The rooms of cfglint by floor">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
        'orient="auto-start-reverse"><path d="M 0 0 L 8 4 L 0 8 z"/></marker></defs>' + "".join(parts) + "</svg>"
    )

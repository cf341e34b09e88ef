"""How a report for people is drawn: what the terminal can show, and where the rules are explained."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen


class Style(Frozen):
    """Colours, links, width. Reports for programs take only `pages` from it."""

    color: bool = False
    links: bool = False
    """Whether the terminal makes links of OSC 8."""
    width: int | None = None
    """Columns of the terminal; None: lines are as long as they are."""
    pages: str | None = None
    """The address of a rule's page, with `{code}` or `{name}` where those belong; None: not stated."""

    blocks: bool = False
    """Whether bars are drawn with block elements."""
    quiet: bool = False
    """Findings and errors alone, without a summary."""

    def get_page_lines(self, code: str, name: str) -> tuple[str, ...]:
        """The address of a rule's page as the last line of a text."""
        page = self.build_page_url(code, name)
        return () if page is None else (page,)

    def build_page_url(self, code: str, name: str) -> str | None:
        """The address of a rule's page."""
        return None if self.pages is None else self.pages.replace("{code}", code).replace("{name}", name)

    def paint(self, text: str, style: str) -> str:
        """Text in a style (the numbers of an SGR sequence)."""
        return f"\x1b[{style}m{text}\x1b[0m" if self.color else text

    def link(self, text: str, address: str | None) -> str:
        """Text that leads to an address."""
        if not self.links or address is None:
            return text
        from cfglint_train.reports.escape import escape_text

        return f"\x1b]8;;{escape_text(address)}\x1b\\{text}\x1b]8;;\x1b\\"


PLAIN = Style()

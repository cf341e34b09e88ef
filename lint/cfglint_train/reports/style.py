"""Style of text reports: the capabilities of the terminal, and the URLs of rule pages."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen


class Style(Frozen):
    """Colors, links and width of a report; machine-readable reports use only `pages`."""

    color: bool = False
    links: bool = False
    """True if the terminal supports OSC 8 links."""
    width: int | None = None
    """Columns of the terminal, or None if lines are not wrapped."""
    pages: str | None = None
    """URL template of rule pages, with `{code}` or `{name}` as placeholders; None if not configured."""

    blocks: bool = False
    """True if bars are drawn with block elements."""
    quiet: bool = False
    """True if only findings and errors are shown, without a summary."""
    fix_command: str = "--fix"
    """Words that apply the fixes."""
    flags: tuple[str, ...] = ()
    """Flags of the command line that decide what is checked; commands in a report repeat them."""
    subject: tuple[str, ...] | None = None
    """Words by which commands in a report name the run if no file holds it; None if they name the file."""

    def get_page_lines(self, code: str, name: str) -> tuple[str, ...]:
        """Return the URL of a rule's page as a tuple of one line, or an empty tuple if it is not configured."""
        page = self.build_page_url(code, name)
        return () if page is None else (page,)

    def build_page_url(self, code: str, name: str) -> str | None:
        """Return the URL of a rule's page, or None if it is not configured."""
        return None if self.pages is None else self.pages.replace("{code}", code).replace("{name}", name)

    def paint(self, text: str, style: str) -> str:
        """Return `text` in an SGR style, such as `31;1`, or unchanged if the terminal has no colors."""
        return f"\x1b[{style}m{text}\x1b[0m" if self.color else text

    def link(self, text: str, address: str | None) -> str:
        """Return `text` as a link to `address`, or unchanged without an address or terminal support."""
        if not self.links or address is None:
            return text
        from cfglint_train.reports.escape import escape_text

        return f"\x1b]8;;{escape_text(address)}\x1b\\{text}\x1b]8;;\x1b\\"


PLAIN = Style()

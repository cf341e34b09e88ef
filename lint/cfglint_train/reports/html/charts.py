"""Data for the charts of a page."""

from __future__ import annotations

from cfglint_train.foundation.typed import Any


class Charts:
    """Charts by name, collected while the page is built."""

    def __init__(self) -> None:
        """Create an empty collection."""
        self.components: dict[str, int] = {}
        self.charts: dict[str, Any] = {}

    def register_component(self, name: str) -> int:
        """Return the index by which charts refer to a component."""
        return self.components.setdefault(name, len(self.components))

    def build_document(self) -> dict[str, Any]:
        """Return the chart data as plain values for the page's script."""
        return {"components": list(self.components), "charts": self.charts}

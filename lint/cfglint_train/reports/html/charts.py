"""What the charts of a page are drawn from."""

from __future__ import annotations

from cfglint_train.foundation.typed import Any


class Charts:
    """Charts by name, while the page is made."""

    def __init__(self) -> None:
        self.components: dict[str, int] = {}
        self.charts: dict[str, Any] = {}

    def register_component(self, name: str) -> int:
        """The number of a component, by which the charts name it."""
        return self.components.setdefault(name, len(self.components))

    def build_document(self) -> dict[str, Any]:
        """Plain values for the page's script."""
        return {"components": list(self.components), "charts": self.charts}

"""Modules imported by name. `importlib` would also import `warnings`, which takes as long as five modules here."""

from __future__ import annotations

import sys

from cfglint_train.foundation.typed import Any


def import_module(name: str) -> Any:
    """Import a module by its full name and return it, like `importlib.import_module`."""
    __import__(name)
    return sys.modules[name]

"""Reasons to skip that are fine everywhere, and reasons that depend on what is installed."""

from __future__ import annotations

from typing import NoReturn

import pytest

NOT_APPLICABLE = "not applicable: "
NO_DATA = "no shared data: "
"""The recorded facts and upstream examples are next to the repository, not in it."""


def skip_inapplicable(reason: str) -> NoReturn:
    """Skip a case that does not exist, regardless of the installed packages."""
    pytest.skip(f"{NOT_APPLICABLE}{reason}")


def is_fine(reason: str) -> bool:
    """Return whether a skip with this reason is no gap."""
    return reason.startswith((NOT_APPLICABLE, NO_DATA))

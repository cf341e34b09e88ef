"""Skips that are fine everywhere, and those that only are where something is not installed."""

from __future__ import annotations

from typing import NoReturn

import pytest

NOT_APPLICABLE = "not applicable: "
NO_DATA = "no shared data: "
"""The recorded facts and upstream examples are beside the repository, not in it."""


def skip_inapplicable(reason: str) -> NoReturn:
    """Skip a case that does not exist, whatever is installed."""
    pytest.skip(f"{NOT_APPLICABLE}{reason}")


def is_fine(reason: str) -> bool:
    """Whether a skip with this reason is no gap."""
    return reason.startswith((NOT_APPLICABLE, NO_DATA))

"""Verdicts of the pinned axolotl on configurations, recorded or from a separate process."""

from __future__ import annotations

from typing import Any

from tests.support import oracle


def judge_configs(configs: list[Any]) -> list[dict[str, Any]]:
    """Return axolotl's verdict on each configuration: accepted, kept, why (`tests/oracles/axolotl_validation.py`)."""
    return oracle.judge_questions("axolotl_validation.py", configs)

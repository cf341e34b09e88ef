"""The pinned axolotl as the judge of configurations, recorded or in a process of its own."""

from __future__ import annotations

from typing import Any

from tests.support import oracle


def judge_configs(configs: list[Any]) -> list[dict[str, Any]]:
    """Axolotl's verdict on each configuration: accepted, kept, why (`tests/oracles/axolotl_validation.py`)."""
    return oracle.judge_questions("axolotl_validation.py", configs)

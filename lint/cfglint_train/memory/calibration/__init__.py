"""Coefficients that theory does not give, with the evidence that they rest on.

`coefficients.json` holds them, each with a low, an expected and a high value, its unit and conditions, and the ids of
evidence rows (or the kind, where all its rows are meant). The rows are in `cfglint_train/calibration/data/`.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

FOLDER: Final = os.path.dirname(os.path.abspath(__file__))


class Coefficient(Frozen):
    """One number with its range."""

    id: str
    low: float
    expected: float
    high: float
    evidence: tuple[str, ...]
    verified: tuple[str, ...]
    """Measured rows (`calibration/data/measured/`) it was held against; without one it is not verified on a GPU."""


class Residual(Frozen):
    """How far the truth has been from the estimate, as a share of it: `low` below (negative), `high` above."""

    id: str
    low: float
    high: float
    evidence: tuple[str, ...]


class CoefficientTable(Frozen):
    """Everything in `coefficients.json`."""

    coefficients: dict[str, Coefficient]
    residuals: dict[str, Residual]


@lru_cache(maxsize=1)
def load_table() -> CoefficientTable:
    """The coefficients, read once."""
    with open(os.path.join(FOLDER, "coefficients.json"), encoding="utf-8") as file:
        content = json.load(file)
    return CoefficientTable(
        {
            key: Coefficient(
                key, row["low"], row["expected"], row["high"], tuple(row["evidence"]), tuple(row["verified"])
            )
            for key, row in content["coefficients"].items()
        },
        {
            key: Residual(key, row["low"], row["high"], tuple(row["evidence"]))
            for key, row in content["residuals"].items()
        },
    )

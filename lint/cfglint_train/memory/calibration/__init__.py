"""Coefficients that cannot be derived, each with its evidence.

`coefficients.json` holds a low, an expected and a high value of each coefficient, its unit and conditions, and the ids
of evidence rows (or a kind of rows, for all rows of that kind). The rows are in `cfglint_train/calibration/data/`.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

FOLDER: Final = os.path.dirname(os.path.abspath(__file__))


class Coefficient(Frozen):
    """A calibrated number with its range and evidence."""

    id: str
    low: float
    expected: float
    high: float
    evidence: tuple[str, ...]
    verified: tuple[str, ...]
    """Measured rows (`calibration/data/measured/`) that confirm the number; empty if it was never verified on a GPU."""


class Residual(Frozen):
    """Observed errors of estimates, as shares of the estimate: `low` is negative, `high` positive."""

    id: str
    low: float
    high: float
    evidence: tuple[str, ...]
    frameworks: tuple[tuple[str, int], ...]
    """Number of these rows of each framework, the most frequent first; empty for parts of the model itself."""


class CoefficientTable(Frozen):
    """Contents of `coefficients.json`."""

    coefficients: dict[str, Coefficient]
    residuals: dict[str, Residual]


@lru_cache(maxsize=1)
def load_table() -> CoefficientTable:
    """Return the coefficients and residuals; the file is read only once."""
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
            key: Residual(
                key, row["low"], row["high"], tuple(row["evidence"]), tuple(row.get("frameworks", {}).items())
            )
            for key, row in content["residuals"].items()
        },
    )

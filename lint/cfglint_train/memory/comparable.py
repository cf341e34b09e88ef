"""Classes of measured jobs with which a job is compared, by strategy and kind of training.

The interval of an estimate uses the residuals of such jobs (`calibration/fit.py`). If a class has fewer
than three measured setups or only one framework, the next wider class is used: one GPU or several, then all.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.memory.calibration import Residual
from cfglint_train.memory.setup import Setup
from cfglint_train.plan.choices import FSDP

PREFIX = "published-"
ANY_CLASS = PREFIX + "any"
"""Class of all measurements, used if the narrower classes of a job contain too few."""


def classify(setup: Setup) -> str:
    """Return the class of a setup: single, ddp, fsdp or zero, with full, adapters or quantized."""
    strategy = "fsdp" if setup.ranks.strategy in FSDP else setup.ranks.strategy
    place = "single" if setup.ranks.world == 1 or strategy == "none" else strategy
    training = "quantized" if setup.mode.quantized else "adapters" if setup.weights.adapters else "full"
    return f"{PREFIX}{place}-{training}"


def list_classes(kind: str) -> tuple[str, str, str]:
    """Return a class and the wider ones, the narrowest first."""
    place = "single" if kind.startswith(f"{PREFIX}single") else "several"
    return kind, PREFIX + place, ANY_CLASS


def find_residual(setup: Setup, residuals: Mapping[str, Residual]) -> Residual:
    """Return the residual of the narrowest class of comparable jobs that has one."""
    return next(residuals[kind] for kind in list_classes(classify(setup)) if kind in residuals)

"""Conditions of axolotl's clauses that need code: the functions that `also` in `refusals.json` names."""

from __future__ import annotations

import re

from cfglint_train.documents.document import MISSING, Unknown
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.axolotl.settings import is_sharegpt
from cfglint_train.frameworks.lens import Lookup


def fsdp1(value: Lookup) -> bool:
    """Return whether FSDP version 1 is in use."""
    return _find_fsdp_version(value) == 1


def fsdp2(value: Lookup) -> bool:
    """Return whether FSDP version 2 is in use and `fsdp_config` is set."""
    return _find_fsdp_version(value) == 2 and bool(value("fsdp_config"))


def _find_fsdp_version(value: Lookup) -> int | None:
    """Return the FSDP version that axolotl uses, 1 or 2, or None if FSDP is off or the version is unknown."""
    names = ("fsdp_version", "fsdp_config.fsdp_version", "fsdp_config.version", "fsdp_config", "fsdp")
    values = [value(name) for name in names]
    release = parse_release(value("@release"))
    if any(isinstance(item, Unknown) for item in values):
        return None
    if not values[4] and (not values[3] or release < parse_release("0.12.0")):
        return None
    stated = next((item for item in values[:3] if item is not MISSING and item is not None), None)
    if stated is not None:
        return int(stated) if str(stated) in ("1", "2") else None
    return 2 if release >= parse_release("0.20.0") else 1


def has_sharegpt(value: Lookup) -> bool:
    """Return whether any data set has the type sharegpt."""
    return any(is_sharegpt(item) for item in value("datasets"))


def has_no_regex(value: Lookup) -> bool:
    """Return whether any LoRA target module is not a valid regular expression."""
    for pattern in value("lora_target_modules"):
        try:
            re.compile(pattern if isinstance(pattern, str) else "")
        except (re.error, RecursionError, OverflowError):
            return True
    return False


def is_saved_below_ray(value: Lookup) -> bool:
    """Return whether the output path is relative, so that a Ray worker saves below its own working folder."""
    path = value("output_dir")
    return isinstance(path, str) and not path.startswith(("/", "~", "$")) and "://" not in path

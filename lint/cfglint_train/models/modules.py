"""Module paths with a matrix, which patterns select (`modules.json`)."""

from __future__ import annotations

import json
import os
from functools import cache

from cfglint_train.foundation.typed import Final

PATH: Final = os.path.join(os.path.dirname(__file__), "modules.json")


def get_module_paths(model_type: str) -> tuple[str, ...] | None:
    """Return the module paths of models with this `model_type`, with `*` for every number, or None if unknown.

    The `model_type` is that at the top of the configuration. Towers and projectors are excluded.
    """
    paths = _load_families().get(model_type)
    return None if paths is None else tuple(paths)


@cache
def _load_families() -> dict[str, list[str]]:
    with open(PATH, encoding="utf-8") as file:
        families: dict[str, list[str]] = json.load(file)["families"]
    return families

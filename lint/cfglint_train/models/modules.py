"""Paths of the modules that hold a matrix, for patterns that select modules by path (`modules.json`)."""

from __future__ import annotations

import json
import os
from functools import cache

from cfglint_train.foundation.typed import Final

PATH: Final = os.path.join(os.path.dirname(__file__), "modules.json")


def get_module_paths(model_type: str) -> tuple[str, ...] | None:
    """Return the module paths of a model type, with `*` for every index, or None if they are unknown.

    `model_type` is the type at the top of the configuration. Towers and projectors are excluded.
    """
    paths = _load_families().get(model_type)
    return None if paths is None else tuple(paths)


@cache
def _load_families() -> dict[str, list[str]]:
    with open(PATH, encoding="utf-8") as file:
        families: dict[str, list[str]] = json.load(file)["families"]
    return families

"""The paths of the modules with a matrix, by which patterns choose them (`modules.json`)."""

from __future__ import annotations

import json
import os
from functools import cache

from cfglint_train.foundation.typed import Final

PATH: Final = os.path.join(os.path.dirname(__file__), "modules.json")


def get_module_paths(model_type: str) -> tuple[str, ...] | None:
    """The paths in models whose configuration has this `model_type` at its top, without towers and projectors; a `*`
    for every number. None where they are not known.
    """
    paths = _load_families().get(model_type)
    return None if paths is None else tuple(paths)


@cache
def _load_families() -> dict[str, list[str]]:
    with open(PATH, encoding="utf-8") as file:
        families: dict[str, list[str]] = json.load(file)["families"]
    return families

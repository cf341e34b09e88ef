"""Rebuild `models/modules.json`: the paths of the modules with a matrix, by which PEFT's patterns choose them.

Of each `model_type` the smallest catalogued model of every set of names is built on the meta device. A `*` replaces the
numbers in a path. Deterministic; `--check` writes nothing and ends with status 1 where the file would change.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import transformers

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models.families import FAMILIES
from cfglint_train.models.lookup import entry as catalogued
from cfglint_train.models.modules import PATH as FILE
from tools.models.__main__ import sources
from tools.models.derived import command
from tools.models.measure import build, matrices

PATH: Final = Path(FILE)

Paths = dict[str, set[str]]
"""A `model_type` -> the paths of the decoder, the embedding and the head."""


def paths() -> Paths:
    """The paths of every `model_type` that transformers has a class for."""
    found: Paths = {}
    for config in _smallest():
        own = found.setdefault(config["model_type"], set())
        for path, part in matrices(build(config)):
            if part not in ("tower", "projector"):
                own.add(".".join("*" if word.isdigit() else word for word in path.split(".")))
    return found


def _smallest() -> Iterator[Mapping[str, Any]]:
    """The smallest configuration of each `model_type` and set of names; none that needs a repository's own code."""
    chosen: dict[Any, tuple[int, Mapping[str, Any]]] = {}
    for file, models in sources().items():
        for name, entry in models.items():
            config, shape = entry["config"], catalogued(file, name)
            family = FAMILIES.get(config["model_type"])
            if shape.remote_code or (family is not None and family.remote):
                continue
            names = tuple(sorted((item.name, item.part, item.experts > 0) for item in shape.linears))
            known = chosen.get((config["model_type"], names))
            if known is None or shape.parameters < known[0]:
                chosen[config["model_type"], names] = shape.parameters, config
    yield from (config for _, config in chosen.values())


def text(found: Paths) -> str:
    """The file, one `model_type` to a line."""
    rows = [f"{json.dumps(family)}: {json.dumps(sorted(own))}" for family, own in sorted(found.items())]
    source = f"transformers {transformers.__version__}, built on the meta device; python -m tools.models.modules"
    return f'{{\n"source": {json.dumps(source)},\n"families": {{\n' + ",\n".join(rows) + "\n}\n}\n"


def main() -> int:
    """The command. Returns the exit status."""
    return command("tools.models.modules", __doc__, PATH, lambda: text(paths()))


if __name__ == "__main__":
    sys.exit(main())

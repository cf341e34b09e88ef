"""Rebuild `models/modules.json`: the paths of modules with a matrix, which PEFT's patterns select.

For each `model_type`, the smallest catalogued model with each set of names is built on the meta device. `*` replaces
the numbers in a path. Deterministic; `--check` writes nothing and exits with status 1 if the file would change.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import transformers

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models.families import FAMILIES
from cfglint_train.models.lookup import load_entry as catalogued
from cfglint_train.models.modules import PATH as FILE
from tools.models.__main__ import load_sources
from tools.models.derived import run_command
from tools.models.measure import build_model, list_matrices

PATH: Final = Path(FILE)

Paths = dict[str, set[str]]
"""`model_type` -> paths of the matrices in the decoder, the embedding and the head."""


def collect_paths() -> Paths:
    """Return the paths of the matrices for every catalogued `model_type` that needs no remote code."""
    paths_by_type: Paths = {}
    for config in _find_smallest():
        paths = paths_by_type.setdefault(config["model_type"], set())
        for path, part in list_matrices(build_model(config)):
            if part not in ("tower", "projector"):
                paths.add(".".join("*" if word.isdigit() else word for word in path.split(".")))
    return paths_by_type


def _find_smallest() -> Iterator[Mapping[str, Any]]:
    """Yield the configuration of the smallest model for each `model_type` and set of matrix names.

    Models that need remote code are left out.
    """
    smallest: dict[Any, tuple[int, Mapping[str, Any]]] = {}
    for file, models in load_sources().items():
        for name, entry in models.items():
            config, shape = entry["config"], catalogued(file, name)
            family = FAMILIES.get(config["model_type"])
            if shape.remote_code or (family is not None and family.remote):
                continue
            names = tuple(sorted((item.name, item.part, item.experts > 0) for item in shape.linears))
            current = smallest.get((config["model_type"], names))
            if current is None or shape.parameters < current[0]:
                smallest[config["model_type"], names] = shape.parameters, config
    yield from (config for _, config in smallest.values())


def format_paths(paths_by_type: Paths) -> str:
    """Return the text of the file, with one `model_type` per line."""
    rows = [f"{json.dumps(family)}: {json.dumps(sorted(paths))}" for family, paths in sorted(paths_by_type.items())]
    source = f"transformers {transformers.__version__}, built on the meta device; python -m tools.models.modules"
    return f'{{\n"source": {json.dumps(source)},\n"families": {{\n' + ",\n".join(rows) + "\n}\n}\n"


def main() -> int:
    """Run the command and return the exit status."""
    return run_command("tools.models.modules", __doc__, PATH, lambda: format_paths(collect_paths()))


if __name__ == "__main__":
    sys.exit(main())

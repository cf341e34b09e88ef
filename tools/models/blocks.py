"""Rebuild `models/blocks.json`, the layer classes of each model family.

Build the catalogued model with the fewest layers of each `model_type` on the meta device, and record the layer classes
in its module lists: those of the decoder and those of encoders beside it. Deterministic; `--check` writes nothing and
exits with status 1 if the file would change.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
import transformers

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models.blocks import PATH as FILE
from cfglint_train.models.dimensions import read_dimensions
from cfglint_train.models.families import FAMILIES
from tools.models.__main__ import load_sources
from tools.models.derived import run_command
from tools.models.measure import add_defaults, build_model

PATH: Final = Path(FILE)

# The name of a layer's class; module lists hold other modules too.
_LAYER: Final = re.compile(r"(Layer|Block)$")
# A module whose path contains one of these words belongs to an encoder beside the decoder.
_ENCODER: Final = re.compile(r"vision|visual|audio|tower")

Classes = dict[str, tuple[set[str], set[str]]]
"""Family -> the layer classes of its decoders, and those of encoders beside them."""


def collect_classes() -> Classes:
    """Return the layer classes of every catalogued family whose code is part of transformers."""
    classes_by_family: Classes = {}
    for config in _find_smallest():
        dimensions = read_dimensions(add_defaults(config))
        assert dimensions is not None, config["model_type"]
        decoder, encoders = classes_by_family.setdefault(dimensions.model_type, (set(), set()))
        for path, name in _list_layers(build_model(config)):
            (encoders if _ENCODER.search(path) else decoder).add(name)
    return classes_by_family


def _find_smallest() -> Iterator[Mapping[str, Any]]:
    """Yield the configuration with the fewest layers of each `model_type`, unless it needs a repository's own code."""
    smallest: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for models in load_sources().values():
        for entry in models.values():
            config = entry["config"]
            family = FAMILIES.get(config["model_type"])
            if family is not None and family.remote:
                continue
            dimensions = read_dimensions(add_defaults(config))
            if dimensions is not None:
                current = smallest.get(config["model_type"])
                if current is None or dimensions.layers < current[0]:
                    smallest[config["model_type"]] = (dimensions.layers, config)
    yield from (config for _, config in smallest.values())


def _list_layers(model: Any) -> Iterator[tuple[str, str]]:
    """Yield the path of the module list and the class name of each layer in a model's module lists."""
    for path, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList):
            for part in module:
                name = type(part).__name__
                if _LAYER.search(name) and type(part).__module__.startswith("transformers."):
                    yield path, name


def format_classes(classes_by_family: Classes) -> str:
    """Return the text of the file, one family per line."""
    rows = [
        f"{json.dumps(family)}: {json.dumps([sorted(decoder), sorted(encoders)])}"
        for family, (decoder, encoders) in sorted(classes_by_family.items())
    ]
    source = f"transformers {transformers.__version__}, built on the meta device; python -m tools.models.blocks"
    return f'{{\n"source": {json.dumps(source)},\n"families": {{\n' + ",\n".join(rows) + "\n}\n}\n"


def main() -> int:
    """Run the command and return the exit status."""
    return run_command("tools.models.blocks", __doc__, PATH, lambda: format_classes(collect_classes()))


if __name__ == "__main__":
    sys.exit(main())

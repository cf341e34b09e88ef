"""Rebuild the catalogue from `sources/`: build every model on the meta device and write the counts.

Deterministic: a second run changes nothing. With model ids as arguments, print the records of these models and write
nothing. `--check` writes nothing and exits with status 1 if a file would change.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator

import transformers

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.models.dimensions import read_dimensions
from cfglint_train.models.families import FAMILIES
from cfglint_train.models.lookup import FOLDER, build_shape_key
from tools.models.index import build_index, format_family, format_index, format_rows, index_shapes
from tools.models.measure import add_defaults
from tools.models.record import build_record

SOURCES: Final = os.path.join(os.path.dirname(__file__), "sources")


def load_sources() -> dict[str, dict[str, Any]]:
    """Return all source entries, by family and model id."""
    entries = {}
    for file in sorted(os.listdir(SOURCES)):
        if file.endswith(".json"):
            with open(os.path.join(SOURCES, file), encoding="utf-8") as stream:
                entries[file.removesuffix(".json")] = json.load(stream)
    return entries


def build_catalogue() -> dict[str, str]:
    """Return the text of every catalogue file, by file name."""
    entries = load_sources()
    files = {}
    for family, models in entries.items():
        files[f"{family}.json"] = format_family({model: build_record(model, entry) for model, entry in models.items()})
    names = build_index(entries)
    files["index.json"] = format_index(names)
    files["shapes.json"] = format_shapes(entries)
    return files


def format_shapes(entries: dict[str, dict[str, Any]]) -> str:
    """Return the text of the index of shapes."""
    return format_rows(index_shapes(sorted(entries), _list_shapes(entries))) + "\n"


def _list_shapes(entries: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Yield the family, id and shape of each model that may be found by shape, because its family has no closed form.

    Skip models with split experts or a classification head.
    """
    for family, models in entries.items():
        for model, entry in models.items():
            config = entry["config"]
            if config["model_type"] in FAMILIES or entry.get("split_experts") or "num_labels" in config:
                continue
            dimensions = read_dimensions(add_defaults(config))
            if dimensions:
                yield family, model, build_shape_key(dimensions)


def main() -> int:
    """Rebuild the catalogue, check it, or print the named records; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.models", description=__doc__)
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    if arguments.ids:
        entries = {model: entry for models in load_sources().values() for model, entry in models.items()}
        for model in arguments.ids:
            print(json.dumps({model: build_record(model, entries[model])}, indent=1))
        return 0
    stale = []
    files = build_catalogue()
    for file in sorted(set(os.listdir(FOLDER)) | set(files)):
        if not file.endswith(".json"):
            continue
        path = os.path.join(FOLDER, file)
        old_text = None
        if os.path.exists(path):
            with open(path, encoding="utf-8") as stream:
                old_text = stream.read()
        if old_text == files.get(file):
            continue
        stale.append(file)
        if not arguments.check and file in files:
            with open(path, "w", encoding="utf-8", newline="\n") as stream:
                stream.write(files[file])
        elif not arguments.check:
            os.remove(path)
    print(f"{len(files)} files, {len(stale)} {'stale' if arguments.check else 'written'}: {', '.join(stale) or 'none'}")
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

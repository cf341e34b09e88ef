"""Write lint/cfglint_train/models/model_types.json: the first transformers release with a class for each model type.

    python -m tools.model_types FOLDER      # FOLDER holds wheels: pip download --no-deps transformers==RELEASE

The wheels are only read, not installed. If FOLDER only has the first wheel of each minor release, a model type that a
patch release added is dated to the next minor release: possibly too late, but never too early.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from zipfile import ZipFile

from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import parse_release

TARGET: Final = Path(__file__).resolve().parents[1] / "lint/cfglint_train/models/model_types.json"
MEMBER: Final = "transformers/models/auto/modeling_auto.py"
TABLES: Final = frozenset(
    f"MODEL_FOR_{task}_MAPPING_NAMES"
    for task in ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "VISION_2_SEQ")
)
"""Tables in which training frameworks look up the class of a model."""


def list_model_types(source: str) -> Iterator[str]:
    """Yield the model types that have a class in `TABLES`, from the source of modeling_auto.py."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id in TABLES for target in node.targets
        ):
            for pair in ast.walk(node.value):
                if isinstance(pair, ast.Tuple) and len(pair.elts) == 2 and isinstance(pair.elts[0], ast.Constant):
                    yield str(pair.elts[0].value)


def find_first_releases(types_by_release: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return the first release that has each model type, given the model types of each release."""
    first_releases: dict[str, str] = {}
    for release in sorted(types_by_release, key=parse_release):
        for model_type in types_by_release[release]:
            first_releases.setdefault(model_type, release)
    return dict(sorted(first_releases.items()))


def main(folder: str) -> None:
    """Write the table from the wheels in a folder."""
    types_by_release = {}
    for wheel in Path(folder).glob("transformers-*.whl"):
        with ZipFile(wheel) as content:
            types_by_release[wheel.name.split("-")[1]] = set(list_model_types(content.read(MEMBER).decode()))
    releases = sorted(types_by_release, key=parse_release)
    table = {
        "about": "The first release of transformers that has a class for a model type, of the releases listed; what "
        "the oldest has may be older. Made by `python -m tools.model_types`; do not edit.",
        "source": f"{MEMBER} of the wheels",
        "releases": releases,
        "first": find_first_releases(types_by_release),
    }
    TARGET.write_text(json.dumps(table, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

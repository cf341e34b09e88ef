"""Build hook: add the catalogue of rules to the wheel. It is generated from the rules' modules and not tracked."""

import importlib.util
import json
import os
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = os.path.join("rules", "cfglint_rules")


class CatalogueHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hook for wheels; an editable installation reads the modules, which may change."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the catalogue to a temporary file that the wheel includes."""
        if version == "editable":
            return
        folder = os.path.join(self.root, FOLDER)
        # Load the file itself: an installed cfglint may be another release.
        spec = importlib.util.spec_from_file_location("catalogue", os.path.join(folder, "catalogue.py"))
        assert spec is not None
        assert spec.loader is not None
        catalogue = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(catalogue)
        self.temporary = tempfile.TemporaryDirectory()
        target = os.path.join(self.temporary.name, "catalogue.json")
        with open(target, "w", encoding="utf-8", newline="\n") as file:
            file.write("[\n" + ",\n".join(map(json.dumps, catalogue.read(folder))) + "\n]\n")
        build_data["force_include"][target] = "cfglint_rules/catalogue.json"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary file."""
        if version != "editable":
            self.temporary.cleanup()

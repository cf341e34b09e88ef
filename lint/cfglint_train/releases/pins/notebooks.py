"""Pins of notebooks: the packages that a notebook's own commands install."""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.documents.python.notebook import NotebookDocument
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.releases.pins.readers import find_command_pins
from cfglint_train.releases.pins.search import ResolvedPin, merge_pins

_ALL_REQUIREMENTS: Final = compile_on_use(r"\binstall\b.*[ \t](?:-r|--requirement|-e|--editable|\.)[ \t\n]")


def replace_pins(document: NotebookDocument, pins: Mapping[str, ResolvedPin]) -> Mapping[str, ResolvedPin]:
    """Return the pins that hold for a notebook, given those of the requirement files around it.

    The notebook's commands win. Requirement files are only an assumption about its kernel, unless it installs them.
    """
    commands = document.commands
    installed = merge_pins(list(find_command_pins(document.path, commands)))
    are_installed = _ALL_REQUIREMENTS.search(f"{commands}\n") is not None
    others = {package: resolved if are_installed else _weaken(resolved) for package, resolved in pins.items()}
    return {**others, **installed}


def _weaken(resolved: ResolvedPin) -> ResolvedPin:
    """Return the pins of a package as an assumption."""
    pins = tuple(pin._replace(is_in_subfolder=True) for pin in resolved.pins)
    return resolved._replace(pins=pins, is_optional=True)

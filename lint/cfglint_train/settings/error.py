"""Errors in settings files, with their line and column."""

from __future__ import annotations

import os
import re

from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING
from cfglint_train.settings.files import DISK, Files

if TYPE_CHECKING:
    from cfglint_train.settings.positions import SettingPosition


class SettingProblem(Frozen):
    """A problem at a position of a settings file."""

    path: str
    line: int
    column: int
    message: str


class SettingsError(UsageError):
    """An error in the settings. The message names the file and, if it is known, the line and column."""

    def __init__(self, message: str, frame: tuple[str, ...] = (), problem: SettingProblem | None = None) -> None:
        """Keep the lines of text that show the error, and its parts."""
        super().__init__(message)
        self.frame = frame
        """The line with the error and a marker line below it; empty if the position is unknown."""
        self.problem = problem
        """The parts of the message, or None if the position is unknown."""


def build_syntax_error(path: str, text: str, message: str) -> SettingsError:
    """Build the error about invalid TOML, with its position from the parser's message."""
    match = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message, re.S)
    if match is None:
        return SettingsError(f"{format_path(path)}: {message}")
    from cfglint_train.settings import positions

    return _build_placed_error(path, match[1], positions.build_position(text, int(match[2]), int(match[3])))


def build_setting_error(path: str, key: str, problem: str, files: Files = DISK) -> SettingsError:
    """Build the error about a setting, with its position if that can be found."""
    from cfglint_train.settings import positions

    try:
        text = files.read(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        place = None
    else:
        place = positions.find_key(text, key)
    if place is None:
        return SettingsError(f"{format_path(path)}: {problem}")
    return _build_placed_error(path, problem, place)


def _build_placed_error(path: str, message: str, place: SettingPosition) -> SettingsError:
    problem = SettingProblem(path, place.line, place.column, message)
    return SettingsError(f"{format_path(path)}:{place.line}:{place.column}: {message}", place.frame, problem)


def format_path(path: str) -> str:
    """Format a path for a message: relative if the file is below the working directory, else unchanged."""
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative

"""Errors in a settings file, with their line and column."""

from __future__ import annotations

import os
import re

from cfglint_train.foundation.errors import UsageError
from cfglint_train.settings.files import DISK, Files


class SettingsError(UsageError):
    """An error in the settings; the message names the file and the place."""

    def __init__(self, message: str, frame: tuple[str, ...] = ()) -> None:
        """Keep the lines that show the error."""
        super().__init__(message)
        self.frame = frame
        """The wrong line, with a marker below it."""


def build_syntax_error(path: str, text: str, message: str) -> SettingsError:
    """Build the error about invalid TOML at its place."""
    match = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message, re.S)
    if match is None:
        return SettingsError(f"{format_path(path)}: {message}")
    from cfglint_train.settings import positions

    place = positions.build_position(text, int(match[2]), int(match[3]))
    return SettingsError(f"{format_path(path)}:{place.line}:{place.column}: {match[1]}", place.frame)


def build_setting_error(path: str, key: str, problem: str, files: Files = DISK) -> SettingsError:
    """Build the error about a setting, with its place if that can be found."""
    from cfglint_train.settings import positions

    try:
        text = files.read(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        place = None
    else:
        place = positions.find_key(text, key)
    if place is None:
        return SettingsError(f"{format_path(path)}: {problem}")
    return SettingsError(f"{format_path(path)}:{place.line}:{place.column}: {problem}", place.frame)


def format_path(path: str) -> str:
    """Format a path for a message: relative if the file is below the working directory."""
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative

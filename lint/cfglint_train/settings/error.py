"""What is wrong with a settings file, at its line and column."""

from __future__ import annotations

import os
import re

from cfglint_train.foundation.errors import UsageError
from cfglint_train.settings.files import DISK, Files


class SettingsError(UsageError):
    """The settings cannot be used; the message names the file and the place."""

    def __init__(self, message: str, frame: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.frame = frame
        """The line that is wrong, with a mark below it."""


def build_syntax_error(path: str, text: str, message: str) -> SettingsError:
    """What is wrong with the TOML, at its place."""
    match = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message, re.S)
    if match is None:
        return SettingsError(f"{format_path(path)}: {message}")
    from cfglint_train.settings import positions

    place = positions.build_position(text, int(match[2]), int(match[3]))
    return SettingsError(f"{format_path(path)}:{place.line}:{place.column}: {match[1]}", place.frame)


def build_setting_error(path: str, key: str, problem: str, files: Files = DISK) -> SettingsError:
    """The error about a setting, with its place where that is found."""
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
    """The path for a message: from the working directory where the file is below it."""
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative

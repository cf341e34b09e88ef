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


def syntax_error(path: str, text: str, message: str) -> SettingsError:
    """What is wrong with the TOML, at its place."""
    found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message, re.S)
    if found is None:
        return SettingsError(f"{told(path)}: {message}")
    from cfglint_train.settings import positions

    place = positions.at(text, int(found[2]), int(found[3]))
    return SettingsError(f"{told(path)}:{place.line}:{place.column}: {found[1]}", place.frame)


def wrong(path: str, key: str, problem: str, files: Files = DISK) -> SettingsError:
    """The error about a setting, with its place where that is found."""
    from cfglint_train.settings import positions

    try:
        text = files.read(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        place = None
    else:
        place = positions.of_key(text, key)
    if place is None:
        return SettingsError(f"{told(path)}: {problem}")
    return SettingsError(f"{told(path)}:{place.line}:{place.column}: {problem}", place.frame)


def told(path: str) -> str:
    """The path for a message: from the working directory where the file is below it."""
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative

"""Files that Hydra composes: `--config-path FOLDER --config-name NAME` names `FOLDER/NAME.yaml`.

Hydra resolves a relative folder from the program's own file (hydra-core 1.3.2 `_internal/utils.py`,
compute_search_path_dir), so only a folder that starts at the root or with a variable is the repository's. Its options
(get_args_parser) may be abbreviated (CPython `argparse.py`: _parse_optional, _get_option_tuples).
"""

from __future__ import annotations

import os

from cfglint_train.documents.shell.script import Invocation, drop_prefix
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final

NAME_OPTIONS: Final = ("--config-name", "-cn")
_PATHS: Final = ("--config-path", "-cp")
"""Options of the folder that replaces the program's own; `--config-dir` adds one."""
_FOLDERS: Final = (*_PATHS, "--config-dir", "-cd")
SWITCHES: Final = (
    "--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r", "--multirun", "-m", "--shell-completion",
    "-sc",
)  # fmt: skip
OPTIONS: Final = (
    *SWITCHES, "--cfg", "-c", "--package", "-p", *_FOLDERS, *NAME_OPTIONS, "--experimental-rerun", "--info", "-i",
)  # fmt: skip
END: Final = "--"
"""Word after which everything is an override."""
_ENDINGS: Final = (".yaml", ".yml")


class ComposedFile(Frozen):
    """The file that a command composes."""

    word: Word
    """Word that names the file."""
    end: str
    """Known end of its path: `/conf/run.yaml`, or `run.yaml` if the folder is the program's own."""
    is_absolute: bool
    """True if `end` is the whole path."""

    @property
    def name(self) -> str:
        """Name of the file, with its ending."""
        return os.path.basename(self.end)


def find_composed_file(invocation: Invocation) -> ComposedFile | None:
    """Return the file that a command composes, or None if it names none."""
    word, folder = find_config_name(invocation), _find_value(invocation, _FOLDERS)
    if word is None or not word.is_known or not word.text:
        return None
    name = word.text if word.text.endswith(_ENDINGS) else f"{word.text}.yaml"
    if folder is None:
        return ComposedFile(word, name, False)
    if folder.is_known:
        is_absolute = folder.text.startswith("/")
        return ComposedFile(word, f"{folder.text.rstrip('/')}/{name}" if is_absolute else name, is_absolute)
    return ComposedFile(word, f"{folder.known_suffix.rstrip('/')}/{name}" if folder.known_suffix else name, False)


def find_config_name(invocation: Invocation) -> Word | None:
    """Return the name of the configuration that a command composes, as written, or None."""
    return _find_value(invocation, NAME_OPTIONS)


def names_config(invocation: Invocation) -> bool:
    """Return whether a command states the name or the folder of the configuration that it composes."""
    return _find_value(invocation, NAME_OPTIONS) is not None or has_config_folder(invocation)


def has_config_folder(invocation: Invocation) -> bool:
    """Return whether a command states a folder of configurations, which may hold files of groups, too."""
    return _find_value(invocation, _FOLDERS) is not None


def find_config_path(invocation: Invocation) -> Word | None:
    """Return the folder that a command states instead of the program's own, or None."""
    return _find_value(invocation, _PATHS)


def resolve_option(text: str) -> tuple[str, ...]:
    """Return the options that argparse takes a word for; several if the word abbreviates them."""
    name = text.partition("=")[0]
    if text in OPTIONS or name in OPTIONS:
        return (text if text in OPTIONS else name,)
    is_short = not text.startswith("--")
    return tuple(option for option in OPTIONS if option.startswith(name) or (is_short and option == text[:2]))


def _find_value(invocation: Invocation, options: tuple[str, ...]) -> Word | None:
    """Return the value of the first of the options that is passed."""
    for index, word in enumerate(invocation.words):
        if word.text == END:
            return None
        name, equals, _ = word.text.partition("=")
        resolved = resolve_option(word.text) if name.startswith("-") else ()
        if len(resolved) == 1 and resolved[0] in options:
            if equals:
                return drop_prefix(word, len(name) + 1)
            return invocation.words[index + 1] if index + 1 < len(invocation.words) else None
    return None


def names_file(invocation: Invocation, path: str) -> bool:
    """Return whether a command composes the file at an absolute path, as far as its words show."""
    composed = find_composed_file(invocation)
    if composed is None or composed.name != os.path.basename(path):
        return False
    return composed.end == path if composed.is_absolute else path.endswith(f"/{composed.end.lstrip('/')}")

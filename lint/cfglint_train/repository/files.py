"""Which files the arguments mean, and how a file is read. Opens files, and nothing but files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping

from cfglint_train.documents.document import Document
from cfglint_train.documents.limits import check_lines
from cfglint_train.foundation.regular_files import normalize_path, read_beginning
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import registry
from cfglint_train.settings.settings import Settings

SYNTAXES: Final[Mapping[str, str]] = {
    ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".jsonc": "json", ".hjson": "json", ".py": "python",
    ".sh": "shell", ".bash": "shell", ".slurm": "shell", ".sbatch": "shell", ".job": "shell", ".ipynb": "notebook",
    ".mk": "recipes",
}  # fmt: skip

CONFIGURATIONS: Final = (".yaml", ".yml", ".json")
"""Endings of the files that a program is given to configure it."""
MAKEFILES: Final = ("Makefile", "makefile", "GNUmakefile")
JUSTFILES: Final = ("justfile", "Justfile", ".justfile")
RECIPES: Final = (*MAKEFILES, *JUSTFILES)
"""Files with commands under names of their own."""

_LINES: Final = re.compile(
    r"(?:docker|container)file(?:\..*)?|pipfile|.*\.(?:cfg|dockerfile|in|toml|txt)", re.IGNORECASE
)
"""Names of files whose comments are lines that begin with `#`."""
_LOCK_FILE: Final = re.compile(r"pylock(?:\..+)?\.toml|conda-lock\.ya?ml", re.IGNORECASE)
"""Names of lock files, which the next lock writes anew, beside those that end in `.lock`."""

STDIN: Final = "-"
"""The name of standard input by default."""

_FIRST_LINE_BYTES: Final = 80
"""Bytes of a file in which its first line is looked for."""

_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")


def walk(
    folder: str, settings_for: Callable[[str], Settings], is_ignored: Callable[[str, bool], bool]
) -> Iterator[str]:
    """The files below a folder whose names imply a syntax, and shell scripts without an extension, without what the
    settings exclude, in order of their names. Of notebooks and recipes only what they start counts.

    `ignored(path, is_folder)`: what else is left out, where the settings want that.

    Links to folders are not followed; pipes, devices and links to nothing are no files.
    """
    pending = [folder]  # not `os.walk`, which calls itself for every level before Python 3.12
    while pending:
        parent = pending.pop()
        settings = settings_for(os.path.join(parent, "x"))
        folders: list[str] = []
        files: list[str] = []
        try:
            with os.scandir(parent) as entries:
                for entry in entries:
                    (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
        except OSError:  # it may not be read, or its path is too long
            continue
        for name in sorted(files):
            path = os.path.join(parent, name)
            extension = os.path.splitext(name)[1].lower()
            if (extension and extension not in SYNTAXES) or settings.is_skipped(path) or not os.path.isfile(path):
                continue
            wanted = bool(extension) or name in RECIPES or is_plain_script(path)
            if wanted and not (settings.respect_gitignore and is_ignored(path, False)):
                yield normalize_path(path)
        subfolders = (os.path.join(parent, name) for name in sorted(folders, reverse=True))
        included = [path for path in subfolders if not settings.is_skipped(path)]
        pending += [path for path in included if not (settings.respect_gitignore and is_ignored(path, True))]


def is_shell_script(path: str) -> bool:
    """Return whether a file is a shell script, by its name or its first line."""
    return SYNTAXES.get(os.path.splitext(path)[1]) == "shell" or (os.path.isfile(path) and is_plain_script(path))


def is_plain_script(path: str) -> bool:
    """Whether a regular file whose name has no extension is a shell script, by its first line (`#!/bin/bash`)."""
    name = os.path.basename(path)
    if name.startswith(".") or "." in name:
        return False
    try:
        return _detect_shebang(read_beginning(path, _FIRST_LINE_BYTES)) == "shell"
    except OSError:
        return False


def _detect_shebang(source: bytes) -> str | None:
    """The syntax that the first line of a script states; None where it states none."""
    first = source[:_FIRST_LINE_BYTES].split(b"\n", 1)[0]
    if not first.startswith(b"#!"):
        return None
    return "python" if b"python" in first else "shell" if b"sh" in first else None


def detect_syntax(path: str, source: bytes) -> str | None:
    """The syntax that a file's name implies, else its first line; a file without any extension may be YAML or JSON."""
    extension = os.path.splitext(path)[1].lower()
    if extension in SYNTAXES:
        return SYNTAXES[extension]
    if os.path.basename(path) in RECIPES:
        return "recipes"
    if source.startswith(b"#!"):
        return _detect_shebang(source)
    if extension:
        return None
    if source.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{":
        return "json"
    return "yaml" if path == STDIN or registry.is_probable_config(source, "yaml") else None


def decode_utf_16(source: bytes) -> bytes | None:
    """The text of a file in UTF-16 or UTF-32 as UTF-8: by its byte-order mark, or by the zeros of ASCII text in it.

    None for every other file.
    """
    if source.startswith(_UTF_16):
        encoding = "utf-32" if source.startswith(b"\xff\xfe\0\0") else "utf-16"
    elif source.startswith(b"\0\0\xfe\xff"):
        encoding = "utf-32"
    else:
        start = source[:64]
        zeros = tuple(place for place in range(4) if len(start) >= 8 and not any(start[place::4]))
        encodings = {(1, 3): "utf-16-le", (0, 2): "utf-16-be", (1, 2, 3): "utf-32-le", (0, 1, 2): "utf-32-be"}
        if zeros not in encodings:
            return None
        encoding = encodings[zeros]
    return source.decode(encoding, "replace").encode("utf-8", "replace")


def parse(path: str, source: bytes, syntax: str, load: Callable[[str], bytes | None] | None = None) -> Document:
    """Read a text by its syntax. `load` reads the scripts that a shell script sources. Raises DocumentError."""
    check_lines(source, syntax)
    if syntax == "yaml":
        from cfglint_train.documents.yaml.document import YamlDocument

        return YamlDocument(path, source)
    if syntax == "json":
        from cfglint_train.documents.json import JsonDocument

        return JsonDocument(path, source)
    if syntax == "shell":
        from cfglint_train.documents.shell.document import ShellDocument

        return ShellDocument(path, source, load)
    from cfglint_train.documents.python.document import PythonDocument

    return PythonDocument(path, source)


def is_makefile(path: str) -> bool:
    """Return whether a file is one of make's, by its name."""
    return os.path.basename(path) in MAKEFILES or path.endswith(".mk")


def parse_commented(path: str, source: bytes, load: Callable[[str], bytes | None] | None = None) -> Document | None:
    """Return a file as the text that its comments are in, or None if files of its kind have none.

    A Makefile or a read-me file is read as a script elsewhere, which is not the text that a person sees. Raises
    DocumentError.
    """
    from cfglint_train.documents.lines import LinesDocument, MarkdownDocument

    name = os.path.basename(path)
    syntax = None if _LINES.fullmatch(name) else detect_syntax(path, source)
    if name.endswith(".lock") or _LOCK_FILE.fullmatch(name) or syntax == "notebook":
        return None
    if syntax == "yaml":
        from cfglint_train.documents.yaml.stream import YamlStream

        check_lines(source, syntax)
        return YamlStream(path, source)
    if syntax not in (None, "recipes"):
        return parse(path, source, syntax, load)
    if name.lower().endswith(".md"):
        return MarkdownDocument(path, source)
    return LinesDocument(path, source) if syntax or _LINES.fullmatch(name) else None

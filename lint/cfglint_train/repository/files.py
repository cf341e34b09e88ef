"""Files: walk folders, detect the syntax of files, and parse them.

Only regular files are opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping

from cfglint_train.documents.document import Document
from cfglint_train.documents.limits import check_lines
from cfglint_train.foundation import filesystem
from cfglint_train.foundation.expressions import compile_on_use
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
"""Extensions of files that configure a program."""
MAKEFILES: Final = ("Makefile", "makefile", "GNUmakefile")
JUSTFILES: Final = ("justfile", "Justfile", ".justfile")
RECIPES: Final = (*MAKEFILES, *JUSTFILES)
"""Names of files with recipes: named groups of commands."""

_LINES: Final = compile_on_use(
    r"(?:docker|container)file(?:\..*)?|pipfile|.*\.(?:cfg|dockerfile|in|toml|txt)", re.IGNORECASE
)
"""Pattern for the names of files whose comments are lines that begin with `#`."""
_LOCK_FILE: Final = compile_on_use(r"pylock(?:\..+)?\.toml|conda-lock\.ya?ml", re.IGNORECASE)
"""Pattern for the names of lock files other than `*.lock`; the next lock overwrites comments in them."""

STDIN: Final = "-"
"""Name of standard input unless the user gives another."""

_FIRST_LINE_BYTES: Final = 80
"""Number of bytes read to find the first line of a file."""

_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")


def walk(
    folder: str, settings_for: Callable[[str], Settings], is_ignored: Callable[[str, bool], bool]
) -> Iterator[str]:
    """Walk a folder and yield the files that cfglint may check, sorted by name, except those that settings exclude.

    These are files whose names imply a syntax, and shell scripts without an extension. Notebooks and recipes matter
    only for the runs that they start. If the settings respect `.gitignore`, paths for which
    `is_ignored(path, is_folder)` returns True are omitted too.

    Links to folders are not followed; pipes, devices and broken links are skipped.
    """
    pending = [folder]  # not `os.walk`, which is recursive before Python 3.12
    while pending:
        parent = pending.pop()
        settings = settings_for(os.path.join(parent, "x"))
        folders: list[str] = []
        files: list[str] = []
        try:
            with filesystem.scan(parent) as entries:
                for entry in entries:
                    (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
        except OSError:  # unreadable, or its path is too long
            continue
        for name in sorted(files):
            path = os.path.join(parent, name)
            extension = os.path.splitext(name)[1].lower()
            if (extension and extension not in SYNTAXES) or settings.is_skipped(path) or not filesystem.is_file(path):
                continue
            wanted = bool(extension) or name in RECIPES or is_plain_script(path)
            if wanted and not (settings.respect_gitignore and is_ignored(path, False)):
                yield normalize_path(path)
        subfolders = (os.path.join(parent, name) for name in sorted(folders, reverse=True))
        included = [path for path in subfolders if not settings.is_skipped(path)]
        pending += [path for path in included if not (settings.respect_gitignore and is_ignored(path, True))]


def is_shell_script(path: str) -> bool:
    """Return whether a file is a shell script, by its name or its first line."""
    return SYNTAXES.get(os.path.splitext(path)[1]) == "shell" or (filesystem.is_file(path) and is_plain_script(path))


def may_launch(path: str) -> bool:
    """Return whether a file may start other files, by its name or its first line: a script, a job or a recipe."""
    syntax = "recipes" if os.path.basename(path) in RECIPES else SYNTAXES.get(os.path.splitext(path)[1].lower())
    return syntax in ("python", "yaml", "recipes") or is_shell_script(path)


def is_plain_script(path: str) -> bool:
    """Return whether a file without an extension is a shell script, by its first line (`#!/bin/bash`)."""
    name = os.path.basename(path)
    if name.startswith(".") or "." in name:
        return False
    try:
        return _detect_shebang(read_beginning(path, _FIRST_LINE_BYTES)) == "shell"
    except OSError:
        return False


def _detect_shebang(source: bytes) -> str | None:
    """Return the syntax that a script's first line names (`#!`), or None."""
    first = source[:_FIRST_LINE_BYTES].split(b"\n", 1)[0]
    if not first.startswith(b"#!"):
        return None
    return "python" if b"python" in first else "shell" if b"sh" in first else None


def detect_syntax(path: str, source: bytes) -> str | None:
    """Return a file's syntax by its name, or else by its first line, or None if it is unknown.

    A file without an extension may also be YAML or JSON, by its contents.
    """
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
    """Convert UTF-16 or UTF-32 to UTF-8; recognize either by its byte-order mark or the zeros in ASCII text.

    Return None for other encodings.
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


def parse(
    path: str,
    source: bytes,
    syntax: str,
    load: Callable[[str], bytes | None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Document:
    """Parse a text in a syntax, or raise `DocumentError` if it is invalid.

    `load` reads the scripts that a shell script sources; `environment` holds the variables that it inherits, if known.
    """
    check_lines(source, syntax)
    if syntax == "yaml":
        from cfglint_train.documents.yaml.document import YamlDocument

        return YamlDocument(path, source)
    if syntax == "json":
        from cfglint_train.documents.json import JsonDocument

        return JsonDocument(path, source)
    if syntax == "shell":
        from cfglint_train.documents.shell.document import ShellDocument

        return ShellDocument(path, source, load, environment)
    if syntax == "notebook":
        from cfglint_train.documents.python.notebook import NotebookDocument

        return NotebookDocument(path, source)
    from cfglint_train.documents.python.document import PythonDocument

    return PythonDocument(path, source)


def is_makefile(path: str) -> bool:
    """Return whether a file is a Makefile, by its name."""
    return os.path.basename(path) in MAKEFILES or path.endswith(".mk")


def parse_commented(path: str, source: bytes, load: Callable[[str], bytes | None] | None = None) -> Document | None:
    """Parse a file to read its comments, or return None if files of its kind have none that a user writes.

    The comments of a Makefile or README are those of the file itself, not those of the commands in it. Raise
    `DocumentError` if the text is invalid.
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

"""Clues: byte strings that mark files with facts about runs; each of these files contains at least one of them.

cfglint searches files for these bytes before it decodes or parses them.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfglint_train.foundation.typed import Final, Literal
from cfglint_train.frameworks.registry import PYTHON_STARTS
from cfglint_train.repository.files import JUSTFILES, RECIPES

Clues = Mapping[str, tuple[bytes, ...]]
"""Extension (empty for none) or file name, which takes precedence -> byte strings."""
Question = Literal["arguments", "commands", "installations", "jobs", "loops", "make", "variables"]
SCRIPT: Final = "script"
"""Question whether a file without an extension is a script, by its `#!`."""

_SHELL: Final = (".sh", ".bash", ".slurm", ".sbatch", ".job")
_YAML: Final = (".yaml", ".yml")
_INSTALL: Final = (b"install", b"git clone", b"docker", b"uv run", b"uvx")

WORDS: Final = (".yaml", ".yml", ".json", ".sh", ".py", "glob")
"""Parts of the words that cfglint most often searches for in scripts."""
CLUES: Final[Mapping[str, Clues]] = {
    **{f"shell:{word}": dict.fromkeys((*_SHELL, ""), (word.encode(),)) for word in WORDS},
    **{f"python:{word}": {".py": (word.encode(),)} for word in WORDS},
    SCRIPT: {"": (b"#!",)},
    "arguments": dict.fromkeys(_SHELL, (b"$1", b"${1", b"$@", b"${@", b"$*", b"$2", b"${2")),
    "commands": {
        ".md": (b"```",),
        ".mk": (b"\t",),
        "": (b"\t",),
        ".py": PYTHON_STARTS,
        **dict.fromkeys(JUSTFILES, (b"\n ", b"\n\t")),
        **dict.fromkeys(_YAML, (b"run:", b"command:", b"commands:", b"args:", b"entrypoint:")),
    },
    "installations": {
        **dict.fromkeys((".sh", ".bash", ".slurm", ".sbatch", ".md", ".mk", ".just", ""), _INSTALL),
        **dict.fromkeys(RECIPES, _INSTALL),
        **dict.fromkeys(_YAML, (b"install ", b"git clone", b"image:", b"image_id:", b"uv run", b"uvx")),
        ".ipynb": (b"install", b"git clone"),
        ".py": (b"pip_install", b"run_commands", b"from_registry"),
    },
    "jobs": {**dict.fromkeys(_YAML, (b"accelerators:", b"gpu:", b"nvidia.com/gpu")), ".py": (b"modal",)},
    "loops": dict.fromkeys(_SHELL, (b"for ",)),
    "make": dict.fromkeys((".md", ".mk", "", ".sh"), (b"make ",)),
    "variables": dict.fromkeys(_SHELL, (b".yaml", b".yml")),
}
"""Clues by question; a question about a word names the syntax of the searched files."""
TOGETHER: Final = (
    ("installations", "jobs"),
    ("arguments", "commands", "loops", "make", "variables"),
    (SCRIPT,),
    *(tuple(f"{syntax}:{word}" for word in WORDS) for syntax in ("shell", "python")),
)
"""Groups of questions that are answered in one search, because a run that asks one often asks the others."""

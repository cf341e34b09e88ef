"""The pre-commit hook, in a new file or as another repository entry in the existing file.

The hook is local, so that it can be installed from the source of the running cfglint.
"""

from __future__ import annotations

import re
from typing import Any, Final

from cfglint_train.documents.document import Append, CannotEdit, DocumentError, Edit, apply_edits
from cfglint_train.documents.writer import is_identical
from cfglint_train.documents.yaml.document import YamlDocument

NAME: Final = ".pre-commit-config.yaml"
_MARK: Final = "cfglint"


def build_entry(requirement: str) -> dict[str, Any]:
    """Build a repository entry with the same hook as `.pre-commit-hooks.yaml` (a test compares the two)."""
    hook = {
        "id": "cfglint",
        "name": "cfglint",
        "entry": "cfglint check --force-exclude",
        "language": "python",
        "additional_dependencies": [requirement],
        "files": r"\.(ya?ml|jsonc?|hjson|py|sh|bash|slurm|sbatch|job)$",
        "require_serial": True,
    }
    return {"repo": "local", "hooks": [hook]}


def create_config(requirement: str) -> bytes:
    """Return the content of a new file that has only the hook."""
    return ("repos:\n" + "".join(f"  {line}\n" for line in _render_block(build_entry(requirement)))).encode()


def has_hook(source: bytes) -> bool:
    """Return whether a file has a hook of cfglint. Raise CannotEdit if it has no `repos` list."""
    repositories = _parse_config(source)[1]["repos"]
    hooks = [hook for repo in repositories if isinstance(repo, dict) for hook in repo.get("hooks") or ()]
    return any(isinstance(hook, dict) and str(hook.get("id")).startswith("cfglint") for hook in hooks)


def append_hook(source: bytes, requirement: str) -> bytes:
    """Return the file with the hook appended to its repositories. Raise CannotEdit."""
    document, tree = _parse_config(source)
    hook_entry = build_entry(requirement)
    block = _render_block(hook_entry)
    after = apply_edits(
        source, [_replace_mark(edit, source, block) for edit in document.build_edits([Append(("repos",), _MARK)])]
    )
    if not is_identical(YamlDocument(NAME, after).get_value(), {**tree, "repos": [*tree["repos"], hook_entry]}):
        after = apply_edits(source, document.build_edits([Append(("repos",), hook_entry)]))
    return after


def _parse_config(source: bytes) -> tuple[YamlDocument, dict[str, Any]]:
    """Return the document of a file and its contents. Raise CannotEdit unless it is YAML with a `repos` list."""
    try:
        document = YamlDocument(NAME, source)
    except DocumentError as error:
        raise CannotEdit(f"not valid YAML: {error.message}") from None
    tree = document.get_value() if document.root is not None else None
    if not isinstance(tree, dict) or not isinstance(tree.get("repos"), list):
        raise CannotEdit("it has no `repos` list")
    return document, tree


def _replace_mark(edit: Edit, source: bytes, lines: list[str]) -> Edit:
    """Replace the mark in an appending edit with the entry's lines if the list is in block style."""
    match = re.search(rf"(?m)^([ \t]*)- {_MARK}", edit.text)
    if match is None:
        return edit
    newline = "\r\n" if b"\r\n" in source else "\n"
    block = newline.join(match.group(1) + line for line in lines)
    return edit._replace(text=edit.text[: match.start()] + block + edit.text[match.end() :])


# Formats of values that need quoting or another spelling.
_VALUE_FORMATS: Final = {"additional_dependencies": "['{0[0]}']", "files": "'{}'", "require_serial": "true"}


def _render_block(entry: dict[str, Any]) -> list[str]:
    """Render the entry in block style."""
    (hook,) = entry["hooks"]
    lines = [f"- repo: {entry['repo']}", "  hooks:"]
    for number, (key, value) in enumerate(hook.items()):
        start = "    - " if number == 0 else "      "
        lines.append(f"{start}{key}: {_VALUE_FORMATS.get(key, '{}').format(value)}")
    return lines

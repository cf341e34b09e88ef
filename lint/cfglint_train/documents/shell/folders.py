"""Working folders: the folder that a script changes to before a command."""

from __future__ import annotations

import os

from cfglint_train.documents.shell.programs import find_runtime_folder
from cfglint_train.documents.shell.script import Invocation, ShellScript
from cfglint_train.documents.shell.sourced import resolve_path_word
from cfglint_train.documents.shell.words import Chain
from cfglint_train.foundation.typed import Final

_CHANGES: Final = ("cd", "pushd")
_SUBMITTER: Final = "ray job submit"
_BACK: Final = ("popd",)


def resolve_working_folder(document: ShellScript, invocation: Invocation) -> str:
    """Return the working folder of an invocation: absolute, or relative to the folder where the script is started.

    Return "" if the folder is unknown or unchanged. A change of folder under a condition counts only for commands under
    the same condition.
    """
    chains = _collect_chains(invocation)
    submissions = {
        launcher.number for launcher in document.list_launchers(invocation) if launcher.program == _SUBMITTER
    }
    folder = ""
    for previous in document.find_programs((*_CHANGES, *_BACK, _SUBMITTER)):
        if previous.number >= invocation.number:
            break
        if previous.number in submissions:
            folder = os.path.normpath(os.path.join(folder, find_runtime_folder(previous.words, previous.flags) or "."))
            folder = "" if folder == "." else folder
            continue
        if previous.program not in (*_CHANGES, *_BACK) or previous.scope is None:
            continue
        chain = chains.get(id(previous.scope.script))
        if chain is None or not _has_run(previous.scope.chain, chain):
            continue
        words = [word for word in previous.words if word.text != "--"]
        target = _resolve_target(document, previous) if previous.program in _CHANGES and len(words) == 1 else None
        folder = "" if target is None else os.path.normpath(os.path.join(folder, target))
    return folder


def is_folder_unchanged(document: ShellScript, invocation: Invocation) -> bool:
    """Return whether no command before an invocation changes the working folder, under whatever condition."""
    return not any(item.number < invocation.number for item in document.find_programs((*_CHANGES, *_BACK)))


def _collect_chains(invocation: Invocation) -> dict[int, Chain]:
    """Return the scripts around an invocation by identity, each with the chain that leads to the invocation."""
    chains: dict[int, Chain] = {}
    if invocation.scope is not None:
        script, chain = invocation.scope.script, invocation.scope.chain
        chains[id(script)] = chain
        while script.parent is not None:
            script, _, chain = script.parent
            chains[id(script)] = chain
    return chains


def _has_run(chain: Chain, other: Chain) -> bool:
    """Return whether a command with `chain` has run before a later command with the chain `other`.

    The operands of `&&` are assumed to succeed.
    """
    steps = [step for step in chain if step[0] != "and"]
    return steps == [step for step in other if step[0] != "and"][: len(steps)]


def _resolve_target(document: ShellScript, change: Invocation) -> str | None:
    """Return the folder that a command changes to, or None if it cannot be determined."""
    word = change.words[-1]
    if word.is_known:
        return word.text if word.text not in ("", "-") and not word.text.startswith(("~", "+")) else None
    path = resolve_path_word(word.fragments)
    return None if path is None else os.path.join(os.path.dirname(os.path.abspath(document.path)), path)

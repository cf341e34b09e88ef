"""Where a command of a script runs: the folder that the script changes to before it."""

from __future__ import annotations

import os

from cfglint_train.documents.shell.script import Invocation, ShellScript
from cfglint_train.documents.shell.sourced import resolve_path_word
from cfglint_train.documents.shell.words import Chain
from cfglint_train.foundation.typed import Final

_CHANGES: Final = ("cd", "pushd")
_BACK: Final = ("popd",)


def resolve_working_folder(document: ShellScript, invocation: Invocation) -> str:
    """The folder of an invocation: absolute, or from where the script is started, which may be unknown as well ("").

    A folder that depends on a condition counts only for what depends on it, too.
    """
    chains = _collect_chains(invocation)
    folder = ""
    for previous in document.invocations[: invocation.number]:
        if previous.program not in (*_CHANGES, *_BACK) or previous.scope is None:
            continue
        chain = chains.get(id(previous.scope.script))
        if chain is None or not _has_run(previous.scope.chain, chain):
            continue
        words = [word for word in previous.words if word.text != "--"]
        target = _resolve_target(document, previous) if previous.program in _CHANGES and len(words) == 1 else None
        folder = "" if target is None else os.path.normpath(os.path.join(folder, target))
    return folder


def _collect_chains(invocation: Invocation) -> dict[int, Chain]:
    """The script of an invocation and those around it, by identity, each with the chain of steps that leads to it."""
    chains: dict[int, Chain] = {}
    if invocation.scope is not None:
        script, chain = invocation.scope.script, invocation.scope.chain
        chains[id(script)] = chain
        while script.parent is not None:
            script, _, chain = script.parent
            chains[id(script)] = chain
    return chains


def _has_run(chain: Chain, other: Chain) -> bool:
    """Whether a command has been run before one with another chain. What precedes `&&` is taken to succeed."""
    steps = [step for step in chain if step[0] != "and"]
    return steps == [step for step in other if step[0] != "and"][: len(steps)]


def _resolve_target(document: ShellScript, change: Invocation) -> str | None:
    """The folder that a command changes to; None where that cannot be determined."""
    word = change.words[-1]
    if word.is_known:
        return word.text if word.text not in ("", "-") and not word.text.startswith(("~", "+")) else None
    path = resolve_path_word(word.fragments)
    return None if path is None else os.path.join(os.path.dirname(os.path.abspath(document.path)), path)

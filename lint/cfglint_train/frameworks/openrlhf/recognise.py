"""Recognition of OpenRLHF's commands."""

from __future__ import annotations

from cfglint_train.documents.document import Document
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.frameworks.framework import RecognisedConfig
from cfglint_train.frameworks.openrlhf.flags import ENTRIES, HELP, compute_release_mask, find_entry, is_openrlhf_program


def recognise(document: Document) -> list[RecognisedConfig]:
    """Return the invocations of OpenRLHF's entry points.

    An entry point is recognized by its package, or by its name and flags (a fork, an old script file).
    """
    if not isinstance(document, ShellDocument):
        return []
    configs: list[RecognisedConfig] = []
    for invocation in document.invocations:
        entry = find_entry(invocation.program)
        if entry is None:
            continue
        if not is_openrlhf_program(invocation.program) and not _has_openrlhf_flags(invocation, entry):
            continue
        if any(item.name in (HELP, "-h") for item in invocation.entries):
            continue  # `--help` prints the flags and exits
        role = None if ENTRIES[entry] else "other"
        configs.append(RecognisedConfig((invocation.number,), 80, f"it starts {invocation.program}", role))
    return configs


def _has_openrlhf_flags(invocation: Invocation, entry: str) -> bool:
    """Return whether OpenRLHF has at least five of the flags, and at least two thirds of them.

    This excludes another project's `train_sft.py`.
    """
    names = {entry_.name or "" for entry_ in invocation.entries}
    known_names = [name for name in names if compute_release_mask(entry, name)]
    return len(known_names) >= 5 and len(known_names) * 3 >= len(names) * 2

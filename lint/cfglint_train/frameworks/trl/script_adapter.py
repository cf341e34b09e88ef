"""What a script hands to PEFT's `LoraConfig`, which refuses keywords that it does not have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

from cfglint_schemas.status import PRESENT, Context, Status
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.document import Entry, Rename
from cfglint_train.documents.python.script import callee
from cfglint_train.documents.python.tree import Record
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.keys import Handed, Rewrite
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trl.script_names import ADAPTER, LORA
from cfglint_train.plan.origin import Place

_PEFT: Final = "peft"
_LORA: Final = Context(entry="lora")
_MEANT: Final = {
    **{other: own for own, other in LORA.items()},
    "lora_rank": "r",
    "rank": "r",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
}
"""What TRL and others call an argument -> what `LoraConfig` does."""


def handed(config: Config) -> Iterator[Handed]:
    """Each keyword that not every known release has; none where the repository has a PEFT of its own."""
    node = config.node()
    made = node.parts[ADAPTER].entry if isinstance(node, Record) and ADAPTER in node.parts else None
    if made is None or not isinstance(made.value, Record) or made.value.call is None:
        return
    adapter, known = made.value, load(_PEFT)
    facts = [(entry, known.fact((str(entry.name),), known.newest, _LORA)) for entry in _keywords(adapter)]
    doubtful = [(entry, fact is None) for entry, fact in facts if fact is None or not fact.lasting]
    for entry, unknown in doubtful if doubtful and not _is_copied(config.document.path) else ():
        name = str(entry.name)
        near = _near(name) if unknown else ""
        free = near and adapter.get(near) is None
        change = Rename((*config.root, ADAPTER, name), near)
        rewrite = Rewrite("safe", f"rename {name} to {near}", (change,)) if free else None
        place = Place(config.document, entry.key.span)
        yield Handed(name, callee(made.value.call), place, partial(_status, name, near), rewrite, package=_PEFT)


_COPIES: Final = ("peft", "src/peft", "peft/src/peft")


def _is_copied(path: str) -> bool:
    """Whether the repository of a script has PEFT's code, which may take other arguments than the releases."""
    folder, above = os.path.dirname(os.path.abspath(path)), ""
    while folder != above:
        if any(os.path.isfile(os.path.join(folder, copy, "__init__.py")) for copy in _COPIES):
            return True
        if any(os.path.exists(os.path.join(folder, mark)) for mark in regular_files.MARKS):
            return False
        folder, above = os.path.dirname(folder), folder
    return False


def _keywords(adapter: Record) -> Iterator[Entry]:
    """The keywords of the call itself; attributes that are set afterwards may have any name."""
    for entry in adapter.entries:
        inside = adapter.span.start <= entry.key.span.start < adapter.span.end
        name = entry.name or "_"  # facts about the call have names with underscores around them
        if inside and not name.startswith("_") and name not in adapter.assigned:
            yield entry


def _status(name: str, near: str, release: str) -> Status:
    fact = load(_PEFT).fact((name,), release, _LORA)
    if fact is None:
        return Status("unknown", to=(near,) if near else (), effect="error")
    return Status(PRESENT) if fact.open else fact.status()


def _near(name: str) -> str:
    """The argument that an unknown one was probably meant to be; empty where there is none."""
    from cfglint_schemas.matches import closest  # few scripts have an unknown one

    known = load(_PEFT)
    return _MEANT.get(name) or next((str(one.route[-1]) for one in closest(known, (name,), known.newest, _LORA)), "")

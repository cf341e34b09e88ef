"""What a script hands to PEFT's `LoraConfig`, which refuses keywords that it does not have."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cfglint_schemas.status import PRESENT, Context, Status
from cfglint_schemas.vocabulary import Vocabulary, load
from cfglint_train.documents.document import Change, Entry, Rename
from cfglint_train.documents.python.syntax import callee
from cfglint_train.documents.python.tree import Record
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.keys import Arguments, CallArgument
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trainer_script.names import ADAPTER, LORA
from cfglint_train.plan.origin import Place

_PEFT: Final = "peft"
_LORA: Final = Context(entry="lora")
_SAME: Final = {
    **{other: own for own, other in LORA.items()},
    "lora_rank": "r",
    "rank": "r",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
}
"""What TRL and others call an argument -> what `LoraConfig` does."""


def handed(config: Config) -> Iterator[CallArgument]:
    """Each keyword that not every known release has, or that a copy of PEFT in the repository lacks; none where the
    copy cannot be read, or a fork is installed.
    """
    node = config.node()
    made = node.parts[ADAPTER].entry if isinstance(node, Record) and ADAPTER in node.parts else None
    if made is None or not isinstance(made.value, Record) or made.value.call is None:
        return
    evidence, adapter = config.evidence.copies.get(_PEFT), made.value
    if evidence is not None and evidence.fork is not None:
        return
    copy = None if evidence is None else evidence.vocabulary
    known, folder = copy or load(_PEFT), copy.folder if copy is not None else ""
    assumed = config.document.assumed((*config.root, ADAPTER))
    for entry in _keywords(adapter):
        name = str(entry.name)
        fact = known.fact((name,), known.newest, _LORA)
        if fact is not None and fact.lasting:
            continue
        value, same = config.document.plain(entry.value), _SAME.get(name)
        rename, is_sure = partial(_renamed, config, adapter, name), partial(_is_sure, value)
        arguments = Arguments(known, _LORA, value, None if same == name else same, rename, is_sure)
        place, status = Place(config.document, entry.key.span), partial(_status, known, name)
        call = callee(made.value.call)
        yield CallArgument(name, call, place, status, None, None, _PEFT, assumed, arguments, folder)


def _keywords(adapter: Record) -> Iterator[Entry]:
    """The keywords of the call itself; attributes that are set afterwards may have any name."""
    for entry in adapter.entries:
        inside = adapter.span.start <= entry.key.span.start < adapter.span.end
        name = entry.name or "_"  # facts about the call have names with underscores around them
        if inside and not name.startswith("_") and name not in adapter.assigned:
            yield entry


def _status(known: Vocabulary, name: str, release: str) -> Status:
    fact = known.fact((name,), release, _LORA)
    if fact is None:
        return Status("unknown", effect="error")
    return Status(PRESENT) if fact.open else fact.status()


def _renamed(config: Config, adapter: Record, name: str, new: str) -> Change | None:
    return Rename((*config.root, ADAPTER, name), new) if adapter.get(new) is None else None


def _is_sure(value: Any, written: str, meant: str, sure: bool) -> bool:
    """A switch is never sure: the names of methods differ by a letter (`use_qlora`)."""
    return sure and type(value) is not bool

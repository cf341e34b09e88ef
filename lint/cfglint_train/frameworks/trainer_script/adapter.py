"""Arguments that a script passes to PEFT's `LoraConfig`, which rejects unknown keywords."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cfglint_schemas.status import PRESENT, Context, Status
from cfglint_schemas.vocabulary import Vocabulary, load
from cfglint_train.documents.document import Change, Entry, Rename
from cfglint_train.documents.python.syntax import get_callee_name
from cfglint_train.documents.python.tree import Record
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.keys import CallArgument, CallParameters
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trainer_script.names import ADAPTER, LORA_ARGUMENTS
from cfglint_train.plan.origin import Place

_PACKAGE: Final = "peft"
_LORA_CONTEXT: Final = Context(entry="lora")
_EQUIVALENTS: Final = {
    **{argument: key for key, argument in LORA_ARGUMENTS.items()},
    "lora_rank": "r",
    "rank": "r",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
}
"""Names of an argument in TRL and elsewhere -> its name in `LoraConfig`."""


def find_adapter_arguments(config: Config) -> Iterator[CallArgument]:
    """Yield the keywords that some known release of PEFT, or the repository's copy of PEFT, lacks or has changed.

    Nothing is yielded if the copy cannot be read, or if a fork is installed.
    """
    node = config.get_node()
    adapter_entry = node.parts[ADAPTER].entry if isinstance(node, Record) and ADAPTER in node.parts else None
    if adapter_entry is None or not isinstance(adapter_entry.value, Record) or adapter_entry.value.call is None:
        return
    evidence, adapter = config.evidence.copies.get(_PACKAGE), adapter_entry.value
    if evidence is not None and evidence.fork is not None:
        return
    copy = None if evidence is None else evidence.vocabulary
    vocabulary, folder = copy or load(_PACKAGE), copy.folder if copy is not None else ""
    assumption = config.document.get_assumption((*config.root, ADAPTER))
    for entry in list_keywords(adapter):
        name = str(entry.name)
        fact = vocabulary.find_fact((name,), vocabulary.newest, _LORA_CONTEXT)
        if fact is not None and fact.is_unchanged:
            continue
        value, equivalent = config.document.build_value(entry.value), _EQUIVALENTS.get(name)
        rename, judge = partial(_rename_keyword, config, adapter, name), partial(is_confident, value)
        arguments = CallParameters(
            vocabulary, _LORA_CONTEXT, value, None if equivalent == name else equivalent, rename, judge
        )
        place, status = Place(*config.document.locate_key(entry)), partial(_find_status, vocabulary, name)
        call = get_callee_name(adapter_entry.value.call)
        yield CallArgument(name, call, place, status, None, None, _PACKAGE, assumption, arguments, folder)


def list_keywords(call: Record) -> Iterator[Entry]:
    """Yield the keywords of the call itself; attributes set after it may have any name and are left out."""
    for entry in call.entries:
        inside = call.span.start <= entry.key.span.start < call.span.end
        name = entry.name or "_"  # facts about the call have names with underscores around them
        if inside and not name.startswith("_") and name not in call.assigned_keys:
            yield entry


def _find_status(vocabulary: Vocabulary, name: str, release: str) -> Status:
    fact = vocabulary.find_fact((name,), release, _LORA_CONTEXT)
    if fact is None:
        return Status("unknown", effect="error")
    return Status(PRESENT) if fact.is_open else fact.resolve_status()


def _rename_keyword(config: Config, adapter: Record, name: str, new: str) -> Change | None:
    return Rename((*config.root, ADAPTER, name), new) if adapter.get(new) is None else None


def is_confident(value: Any, written: str, suggestion: str, is_close: bool) -> bool:
    """Return whether a keyword that is close to a known keyword is certainly a typo.

    A boolean keyword is never treated as a typo, because method names can differ by a single letter (`use_qlora`).
    """
    return is_close and type(value) is not bool

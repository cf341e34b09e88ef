"""What a script hands to PEFT's `LoraConfig`, which refuses keywords that it does not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from cfglint_schemas.kinds import Kind
from cfglint_schemas.status import PRESENT, Context, Status
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.document import Entry, Rename, Unknown
from cfglint_train.documents.python.script import callee
from cfglint_train.documents.python.tree import Record
from cfglint_train.foundation.typed import Any, Final
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
    """Each keyword that not every known release has; none where the repository has a PEFT of its own, which may take
    other arguments than the releases.
    """
    node = config.node()
    made = node.parts[ADAPTER].entry if isinstance(node, Record) and ADAPTER in node.parts else None
    if made is None or not isinstance(made.value, Record) or made.value.call is None:
        return
    adapter, known = made.value, load(_PEFT)
    facts = [(entry, known.fact((str(entry.name),), known.newest, _LORA)) for entry in _keywords(adapter)]
    doubtful = [(entry, fact is None) for entry, fact in facts if fact is None or not fact.lasting]
    for entry, unknown in doubtful if doubtful and not config.copied(_PEFT) else ():
        name = str(entry.name)
        near, sure = _near(name, config.document.plain(entry.value)) if unknown else ("", False)
        free = near and adapter.get(near) is None and _is_there(config, near)
        change = Rename((*config.root, ADAPTER, name), near)
        rewrite = Rewrite("safe" if sure else "unsafe", f"rename {name} to {near}", (change,)) if free else None
        place = Place(config.document, entry.key.span)
        assumed = config.document.assumed((*config.root, ADAPTER))
        status = partial(_status, name, near)
        yield Handed(name, callee(made.value.call), place, status, rewrite, package=_PEFT, assumed=assumed)


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


def _is_there(config: Config, name: str) -> bool:
    """Whether the release of PEFT has an argument, if one is stated."""
    stated = config.releases.get(_PEFT) if config.releases.stated(_PEFT) else None
    return stated is None or _status(name, "", stated).kind == PRESENT


def _near(name: str, value: Any) -> tuple[str, bool]:
    """The argument that an unknown one was probably meant to be, by its value too; whether that is sure.

    Empty where there is none. A switch is never sure: the names of methods differ by a letter (`use_qlora`).
    """
    from cfglint_schemas.matches import closest  # few scripts have an unknown one

    known, own = load(_PEFT), _MEANT.get(name)
    near = [(own,)] if own else [one.route for one in closest(known, (name,), known.newest, _LORA)]
    for route in near:
        fact = known.fact(route, known.newest, _LORA)
        takes = None if fact is None else _takes(fact.kinds(), value)
        if takes is not False:
            other = str(route[-1])
            return other, takes is True and (own is not None or (type(value) is not bool and _is_slip(name, other)))
    return "", False


def _is_slip(name: str, other: str) -> bool:
    """Whether one letter is missing, too many or another one."""
    pairs = enumerate(zip(name, other, strict=False))
    same = next((place for place, (left, right) in pairs if left != right), min(len(name), len(other)))
    rest, wanted = name[same:], other[same:]
    return rest[1:] == wanted or rest == wanted[1:] or rest[1:] == wanted[1:]


_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "list": (list,),
    "dict": (dict,),
    "null": (type(None),),
}


def _takes(kinds: tuple[Kind, ...], value: Any) -> bool | None:
    """Whether an argument takes a value, by its type; None where that is unknown."""
    if isinstance(value, Unknown):
        return None
    return any(
        value in kind.values if kind.name == "enum" else kind.name == "any" or type(value) in _TYPES[kind.name]
        for kind in kinds
        if not isinstance(value, list) or not kind.items or all(_takes(kind.items, item) is not False for item in value)
    )

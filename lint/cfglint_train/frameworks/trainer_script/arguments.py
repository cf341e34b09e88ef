"""Arguments of a script that its class of arguments does not take, or that only older trainers took themselves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from cfglint_schemas.status import PRESENT, Context, Status
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.document import Delete, Document, Node, Rename, Route, Set, Unknown
from cfglint_train.documents.python.syntax import callee
from cfglint_train.documents.python.tree import Record, Value
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import release_key
from cfglint_train.frameworks.key_usage import KeyUse, Refused, ReleaseHint
from cfglint_train.frameworks.keys import CallArgument, KeyRewrite
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trainer_script.names import HF_CONFIGS, KEYWORD, OLD_KEYWORDS, TRAINER
from cfglint_train.frameworks.trainer_script.reader import ScriptSettings
from cfglint_train.frameworks.trl.settings import context_of
from cfglint_train.plan.origin import Place

_RENAMED: Final = {"tokenizer": "processing_class"}
"""Keywords of trainers -> what newer ones call them."""


def handed(config: Config) -> tuple[CallArgument, ...]:
    """Each keyword with how the script says the same at the release that counts."""
    node = config.node()
    made = node.parts[TRAINER].entry if isinstance(node, Record) and TRAINER in node.parts else None
    if made is None or not isinstance(made.value, Record) or made.value.call is None:
        return ()
    trainer, found = made.value, []
    for use in keyword_uses(config.document, config.root):
        if use.entry is not None and trainer.call is not None:
            name = str(use.route[0])
            where = Place(config.document, use.entry.key.span)
            rewrite, advice = _rewrite(config, name, trainer)
            status = partial(_status, name, _old(node)[name])
            found.append(CallArgument(name, callee(trainer.call), where, status, rewrite, advice))
    return tuple(found)


def _old(node: Node | None) -> Mapping[str, str]:
    """The keywords that older trainers took of the package that the run's trainer is from."""
    return OLD_KEYWORDS["transformers" if isinstance(node, ScriptSettings) and node.plain else "trl"]


def _status(name: str, since: str, release: str) -> Status:
    if release_key(release) < release_key(since):
        return Status(PRESENT)
    new = _RENAMED.get(name)
    return Status("renamed" if new else "removed", since=f"{since}.0", to=(new,) if new else (), effect="error")


def _rewrite(config: Config, name: str, trainer: Record) -> tuple[KeyRewrite | None, str | None]:
    """Changes, and advice where there are none: a keyword by its new name, a setting where its class takes it."""
    here, new = (*config.root, TRAINER, name), _RENAMED.get(name)
    if new is not None:
        free = trainer.get(new) is None
        return (KeyRewrite("safe", f"rename {name} to {new}", (Rename(here, new),)) if free else None), None
    setting = _setting(config, name)
    if setting is None:
        return None, None
    node, entry = config.node(), trainer.get(name)
    call = node.call if isinstance(node, Record) else None
    taker = "" if call is None else callee(call)
    own = call is not None and taker not in HF_CONFIGS
    value = entry.value if entry is not None else None
    written = isinstance(value, Value) and value.value is not None and not isinstance(value.value, Unknown)
    if own and written and isinstance(value, Value) and not value.how and not config.has(setting):
        changes = (Delete(here), Set((*config.root, setting), value.value))
        return KeyRewrite("safe", f"give {setting} to {taker}", changes), None
    whole = taker if own else f"{callee(trainer.call).removesuffix('Trainer')}Config" if trainer.call else ""
    return None, f"`{whole}` takes it" + (f" as `{setting}`" if setting != name else "")


def _setting(config: Config, name: str) -> str | None:
    """What the class of arguments calls a setting at the release; None where it has none of the kind."""
    fact = load("trl").fact((name,), config.release, context_of(config))
    status = None if fact is None else fact.status()
    if status is None or status.kind == PRESENT:
        return None if status is None else name
    return status.to[0] if status.kind == "renamed" and len(status.to) == 1 else None


def keyword_uses(document: Document, root: Route) -> list[KeyUse]:
    """The settings that a script hands to its trainer, and that only older trainers took."""
    node = document.node(root)
    if not isinstance(node, Record):
        return []
    given = ((name, since, node.parts.get(name)) for name, since in _old(node).items())
    return [
        KeyUse((name,), part.entry, partial(_earlier, since))
        for name, since, part in given
        if part is not None and part.name == KEYWORD + name
    ]


def _earlier(until: str, releases: tuple[str, ...]) -> tuple[bool, ...]:
    return tuple(release_key(one) < release_key(until) for one in releases)


def with_keywords(found: ReleaseHint | None, document: Document, root: Route, release: str) -> ReleaseHint | None:
    """What the keys of a script show, together with the keywords of its trainer."""
    uses = keyword_uses(document, root)
    refused = [use for use in uses if not use.takes(release)]
    if not refused:
        return found
    old = _old(document.node(root))
    gone = tuple(
        Refused(use.route, use.entry, _status(name, old[name], release))
        for use in refused
        if use.entry is not None and (name := str(use.route[0]))
    )
    before = found.refused if found is not None else ()

    def takes(other: str) -> bool:
        return all(use.takes(other) for use in uses) and (found is None or found.takes(other))

    return ReleaseHint((*gone, *before), takes)


_OTHER_CLASSES: Final = ("ModelConfig", "ScriptArguments")
"""Classes of a recipe's keys that no trainer gets as its `args`."""


def untaken(config: Config, name: str) -> str:
    """Why a new argument cannot be added to the call; empty where it can, or where nothing is added to that call."""
    node = config.node()
    if not isinstance(node, ScriptSettings) or not node.arguments or name in node.parts or node.get(name) is not None:
        return ""
    if node.arguments in HF_CONFIGS:
        known = load("transformers")
        release = config.releases.get("transformers") or known.newest
        fact = known.fact((name,), release, Context(entry=node.entry))
        title = f"transformers {release}"
    else:
        fact = (config.evidence.vocabulary or load("trl")).fact((name,), config.release, context_of(config))
        title = f"TRL {config.release}"
    if fact is not None and fact.status().kind == PRESENT and not fact.definition.endswith(_OTHER_CLASSES):
        return ""
    return f"`{node.arguments}` of {title} has no `{name}`"

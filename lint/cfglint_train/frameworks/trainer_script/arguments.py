"""A script's trainer and config arguments that a release does not accept."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from cfglint_schemas.status import PRESENT, Context, Status
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.document import Delete, Document, Node, Rename, Route, Set, Unknown
from cfglint_train.documents.python.syntax import get_callee_name
from cfglint_train.documents.python.tree import Record, Value
from cfglint_train.foundation.typed import Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.key_usage import KeyUse, RefusedKey, ReleaseHint, is_unconditional
from cfglint_train.frameworks.keys import CallArgument, KeyRewrite
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trainer_script.names import HF_CONFIGS, KEYWORD_PREFIX, OLD_KEYWORDS, TRAINER
from cfglint_train.frameworks.trainer_script.reader import ScriptSettings
from cfglint_train.frameworks.trl.settings import build_context
from cfglint_train.plan.origin import Place

_NEW_KEYWORDS: Final = {"tokenizer": "processing_class"}
"""Keywords of trainers -> their names in newer trainers."""


def find_trainer_arguments(config: Config) -> tuple[CallArgument, ...]:
    """Return the trainer's keywords that only older releases accept, each with its replacement in the script."""
    node = config.get_node()
    trainer_entry = node.parts[TRAINER].entry if isinstance(node, Record) and TRAINER in node.parts else None
    if trainer_entry is None or not isinstance(trainer_entry.value, Record) or trainer_entry.value.call is None:
        return ()
    trainer, arguments = trainer_entry.value, []
    for use in find_keyword_uses(config.document, config.root):
        if use.entry is not None and trainer.call is not None:
            name = str(use.route[0])
            place = Place(*config.document.locate_key(use.entry))
            rewrite, advice = _rewrite_keyword(config, name, trainer)
            status = partial(_find_status, name, _list_old_keywords(node)[name])
            arguments.append(CallArgument(name, get_callee_name(trainer.call), place, status, rewrite, advice))
    return tuple(arguments)


def _list_old_keywords(node: Node | None) -> Mapping[str, str]:
    """Return the keywords that newer trainers of the run's package lack, each with the first release that lacks it."""
    return OLD_KEYWORDS["transformers" if isinstance(node, ScriptSettings) and node.is_hf_trainer else "trl"]


def _find_status(name: str, since: str, release: str) -> Status:
    if parse_release(release) < parse_release(since):
        return Status(PRESENT)
    new = _NEW_KEYWORDS.get(name)
    return Status("renamed" if new else "removed", since=f"{since}.0", new_names=(new,) if new else (), effect="error")


def _rewrite_keyword(config: Config, name: str, trainer: Record) -> tuple[KeyRewrite | None, str | None]:
    """Return the rewrite of a keyword, or advice if it cannot be rewritten; both may be None.

    A renamed keyword gets its new name. A setting moves to the argument class.
    """
    route, new = (*config.root, TRAINER, name), _NEW_KEYWORDS.get(name)
    if new is not None:
        is_free = trainer.get(new) is None
        return (KeyRewrite("safe", f"rename {name} to {new}", (Rename(route, new),)) if is_free else None), None
    setting = _find_setting(config, name)
    if setting is None:
        return None, None
    node, entry = config.get_node(), trainer.get(name)
    call = node.call if isinstance(node, Record) else None
    config_class = "" if call is None else get_callee_name(call)
    is_user_class = call is not None and config_class not in HF_CONFIGS
    value = entry.value if entry is not None else None
    is_literal = isinstance(value, Value) and value.value is not None and not isinstance(value.value, Unknown)
    if is_user_class and is_literal and isinstance(value, Value) and not value.how and not config.has(setting):
        changes = (Delete(route), Set((*config.root, setting), value.value))
        return KeyRewrite("safe", f"pass {setting} to {config_class}", changes), None
    class_name = (
        config_class
        if is_user_class
        else f"{get_callee_name(trainer.call).removesuffix('Trainer')}Config"
        if trainer.call
        else ""
    )
    return None, f"`{class_name}` accepts it" + (f" as `{setting}`" if setting != name else "")


def _find_setting(config: Config, name: str) -> str | None:
    """Return the setting's name in the argument class of the target release, or None if the class lacks it."""
    fact = load("trl").find_fact((name,), config.release, build_context(config))
    status = None if fact is None else fact.resolve_status()
    if status is None or status.kind == PRESENT:
        return None if status is None else name
    return status.new_names[0] if status.kind == "renamed" and len(status.new_names) == 1 else None


def find_keyword_uses(document: Document, root: Route) -> list[KeyUse]:
    """Return the keywords that a script passes to its trainer and that only older trainers accept."""
    node = document.find_node(root)
    if not isinstance(node, Record):
        return []
    candidates = ((name, since, node.parts.get(name)) for name, since in _list_old_keywords(node).items())
    return [
        KeyUse((name,), part.entry, partial(_compare_releases, since))
        for name, since, part in candidates
        if part is not None
        and part.name == KEYWORD_PREFIX + name
        and (part.entry is None or is_unconditional(part.entry, document))
    ]


def _compare_releases(limit: str, releases: tuple[str, ...]) -> tuple[bool, ...]:
    return tuple(parse_release(release) < parse_release(limit) for release in releases)


def add_keywords(hint: ReleaseHint | None, document: Document, root: Route, release: str) -> ReleaseHint | None:
    """Return the hint of a script's keys, extended with the trainer keywords that `release` rejects."""
    uses = find_keyword_uses(document, root)
    refused_uses = [use for use in uses if not use.is_accepted_by(release)]
    if not refused_uses:
        return hint
    old_keywords = _list_old_keywords(document.find_node(root))
    refused_keywords = tuple(
        RefusedKey(use.route, use.entry, _find_status(name, old_keywords[name], release))
        for use in refused_uses
        if use.entry is not None and (name := str(use.route[0]))
    )
    refused_keys = hint.refused_keys if hint is not None else ()

    def is_accepted(candidate: str) -> bool:
        return all(use.is_accepted_by(candidate) for use in uses) and (hint is None or hint.accepts(candidate))

    return ReleaseHint((*refused_keywords, *refused_keys), is_accepted)


_OTHER_CLASSES: Final = ("ModelConfig", "ScriptArguments")
"""Classes that a recipe's keys belong to, but that no trainer receives as its `args`."""


def explain_refused_argument(config: Config, name: str) -> str:
    """Return the reason why an argument cannot be added to the call of the argument class, or "".

    The text is empty if the class accepts the argument, if the script already sets it, or if the setting belongs to
    another call.
    """
    node = config.get_node()
    if (
        not isinstance(node, ScriptSettings)
        or not node.config_class
        or name in node.parts
        or node.get(name) is not None
    ):
        return ""
    if node.config_class in HF_CONFIGS:
        vocabulary = load("transformers")
        release = config.releases.get("transformers") or vocabulary.newest
        fact = vocabulary.find_fact((name,), release, Context(entry=node.entry))
        title = f"transformers {release}"
    else:
        fact = (config.evidence.vocabulary or load("trl")).find_fact((name,), config.release, build_context(config))
        title = f"TRL {config.release}"
    if fact is not None and fact.resolve_status().kind == PRESENT and not fact.definition.endswith(_OTHER_CLASSES):
        return ""
    return f"`{node.config_class}` of {title} has no `{name}`"

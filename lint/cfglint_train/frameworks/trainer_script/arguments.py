"""A script's trainer and config arguments, and its imports, that a release does not accept.

The vocabularies `trl_api` and `transformers_api` have the parameters of each trainer and the names of each module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import partial

from cfglint_schemas.fact import KeyFact
from cfglint_schemas.status import PRESENT, Context, Status
from cfglint_schemas.vocabulary import Vocabulary, load
from cfglint_train.documents.document import Delete, Document, Entry, Node, Rename, Route, Set, Unknown
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.python.guards import is_guarded
from cfglint_train.documents.python.syntax import get_callee_name
from cfglint_train.documents.python.tree import Record, Value
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.key_usage import KeyUse, RefusedKey, ReleaseHint
from cfglint_train.frameworks.keys import CallArgument, CallParameters, KeyRewrite
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trainer_script.adapter import is_confident, list_keywords
from cfglint_train.frameworks.trainer_script.facts import build_entry, get_class
from cfglint_train.frameworks.trainer_script.names import HF_CONFIGS, TRAINER
from cfglint_train.frameworks.trainer_script.reader import ScriptSettings
from cfglint_train.frameworks.trl.settings import build_context
from cfglint_train.plan.origin import Place

_PACKAGES: Final = ("trl", "transformers")
_NEW_KEYWORDS: Final = {"tokenizer": "processing_class"}
"""Keywords of trainers -> their names in newer trainers."""


class _Use(Frozen):
    """A name that a script passes to a trainer, or imports from a module."""

    package: str
    owner: str
    """Trainer or module."""
    name: str
    entry: Entry

    @property
    def vocabulary(self) -> Vocabulary:
        """Parameters and exported names of the package."""
        return load(f"{self.package}_api")

    def find_status(self, release: str) -> Status:
        """Return the status of the name at a release; present if the release has no such trainer."""
        vocabulary, context = self.vocabulary, Context(entry=self.owner)
        if self.is_import:
            return self._find_import_status(release)
        if not vocabulary.has_entry(self.owner, release):
            return Status(PRESENT)
        fact = vocabulary.find_fact((self.name,), release, context)
        if fact is None or fact.is_open:
            effect = vocabulary.find_effect((), release, context)
            return Status(PRESENT) if effect == "kept" else Status("unknown", effect="error")
        status = fact.resolve_status()
        new = _NEW_KEYWORDS.get(self.name)
        if status.effect == "kept":
            return Status(PRESENT)
        return status._replace(kind="renamed", new_names=(new,)) if status.kind == "removed" and new else status

    def _find_import_status(self, release: str) -> Status:
        fact = self.vocabulary.find_fact((self.name,), release, Context(entry=self.owner))
        if fact is None:
            return Status(PRESENT)
        status = fact.resolve_status()
        is_first = status.kind == "not yet" and status.since == self.vocabulary.releases[0]
        return Status(PRESENT) if is_first else status._replace(effect="error")

    @property
    def is_import(self) -> bool:
        """True if the script imports the name; modules, unlike trainers, begin with the name of the package."""
        return self.owner.partition(".")[0] == self.package

    @property
    def _fact(self) -> KeyFact | None:
        return self.vocabulary.find_fact((self.name,), self.vocabulary.newest, Context(entry=self.owner))

    @property
    def spans(self) -> list[Mapping[str, Any]]:
        """Spans of releases that have the name."""
        return [] if self._fact is None else self._fact.spans

    @property
    def is_lasting(self) -> bool:
        """True if every known release has the name, or none has it in this module."""
        return self._fact.is_unchanged if self._fact is not None else self.is_import


def find_call_arguments(config: Config) -> Iterator[CallArgument]:
    """Yield the trainer's keywords and the imports that only some releases accept, each with its replacement."""
    own_package, evidence = _get_package(config.get_node()), config.evidence
    copied = {own_package} if evidence.vocabulary is not None else set()
    copied |= set(_PACKAGES).intersection(evidence.copies)  # a copy has names and parameters of its own
    imports: dict[tuple[object, ...], list[_Use]] = {}
    for use in _list_uses(config.document, config.root, _PACKAGES if config.root == (0,) else ()):
        if use.package in copied:
            continue
        if use.is_import:
            imports.setdefault((use.owner, *map(str, use.spans)), []).append(use)
            continue
        place, package = Place(config.document, use.entry.key.span), None if use.package == own_package else use.package
        trainer = _find_trainer(config.get_node())
        assert trainer is not None
        rewrite, advice = (
            (_rewrite_new_keyword(config, use, trainer), None)
            if use.find_status(config.release).kind == "not yet"
            else _rewrite_keyword(config, use.name, trainer)
        )
        value = config.document.build_value(use.entry.value)
        rename = partial(_rename_keyword, config, trainer, use.name)
        parameters = CallParameters(
            use.vocabulary, Context(entry=use.owner), value, None, rename, partial(is_confident, value)
        )
        yield CallArgument(use.name, use.owner, place, use.find_status, rewrite, advice, package, parameters=parameters)
    for first, *others in imports.values():
        package = None if first.package == own_package else first.package
        names = "`, `".join(dict.fromkeys(use.name for use in (first, *others)))
        yield CallArgument(
            names,
            first.owner,
            Place(config.document, first.entry.key.span),
            first.find_status,
            help=_find_other_module(first, config.release) if package is None else None,
            package=package,
            is_import=True,
        )


def _get_package(node: Node | None) -> str:
    return "transformers" if isinstance(node, ScriptSettings) and node.is_hf_trainer else "trl"


def _find_trainer(node: Node | None) -> Record | None:
    """Return the call that creates the run's trainer, or None if it is not a class of the package itself."""
    entry = node.parts[TRAINER].entry if isinstance(node, Record) and TRAINER in node.parts else None
    trainer = None if entry is None else entry.value
    return trainer if isinstance(trainer, Record) and trainer.call is not None else None


def _list_uses(document: Document, root: Route, packages: tuple[str, ...]) -> Iterator[_Use]:
    """Yield the keywords of the run's trainer, and the script's imports from `packages`, that some release lacks."""
    node = document.find_node(root)
    trainer = _find_trainer(node)
    if trainer is not None and isinstance(document, PythonDocument):
        package, owner = _get_package(node), get_class(trainer).rpartition(".")[2]
        vocabulary = load(f"{package}_api")
        if owner in vocabulary.entries:
            parameters = {fact.name for fact in vocabulary.list_facts(owner, vocabulary.newest)}
            for entry in _list_keywords(trainer, parameters):
                use = _Use(package, owner, str(entry.name), entry)
                if not use.is_lasting and not is_guarded(document, entry.key.span):
                    yield use
    if isinstance(document, PythonDocument):
        for package in packages:
            yield from (use for use in _list_imports(document, package) if not use.is_lasting)


def _list_keywords(trainer: Record, parameters: set[str]) -> Iterator[Entry]:
    """Yield the keywords of a trainer's call, and those of `parameters` in a dictionary that the call unpacks."""
    keywords = list(list_keywords(trainer))
    yield from keywords
    for entry in trainer.entries:
        if entry.name in parameters and entry.name not in trainer.assigned_keys and entry not in keywords:
            yield entry


def _list_imports(document: PythonDocument, package: str) -> Iterator[_Use]:
    """Yield the names that a script imports from a package, except those that it can do without."""
    modules = load(f"{package}_api").entries
    imports = [
        node for node in document.list_nodes(ast.ImportFrom)
        if not node.level and (node.module or "").partition(".")[0] == package and node.module in modules
    ]  # fmt: skip
    optional = _list_optional_code(document) if imports else []
    for node in imports:
        for alias in () if any(_is_inside(node, item) for item in optional) else node.names:
            span = document.find_span(alias)
            if not is_guarded(document, span):
                yield _Use(package, node.module or "", alias.name, build_entry(alias.name, Value(span, True)))


def _list_optional_code(document: PythonDocument) -> list[ast.stmt]:
    """Return the statements whose imports may not run: `try`, `if TYPE_CHECKING` and functions that nothing calls."""
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = [
        *document.list_nodes(ast.FunctionDef),
        *document.list_nodes(ast.AsyncFunctionDef),
    ]
    called = set(map(get_callee_name, document.list_nodes(ast.Call)))
    return [
        *document.list_nodes(ast.Try),
        *(item for item in document.list_nodes(ast.If) if "TYPE_CHECKING" in ast.dump(item.test)),
        *(item for item in functions if item.name not in called),
    ]


def _is_inside(node: ast.stmt, outer: ast.stmt) -> bool:
    return outer.lineno <= node.lineno <= (outer.end_lineno or 0)


def _find_other_module(use: _Use, release: str) -> str | None:
    """Return advice to import a name from the module that has it at a release, or None if none has it."""
    vocabulary = use.vocabulary
    modules = [module for module in vocabulary.entries if "." in module and vocabulary.has_entry(module, release)]
    for module in sorted(modules, key=lambda name: (name.count("."), name)):
        fact = vocabulary.find_fact((use.name,), release, Context(entry=module))
        if fact is not None and fact.resolve_status().kind == PRESENT:
            return f"import it from `{module}`"
    return None


def _rename_keyword(config: Config, trainer: Record, name: str, new: str) -> Rename | None:
    return Rename((*config.root, TRAINER, name), new) if trainer.get(new) is None else None


def _rewrite_new_keyword(config: Config, use: _Use, trainer: Record) -> KeyRewrite | None:
    """Return the rewrite of a keyword to the name that it has at an older release, or None if it has none."""
    old = next((old for old, new in _NEW_KEYWORDS.items() if new == use.name), None)
    if old is None or trainer.get(old) is not None:
        return None
    if _Use(use.package, use.owner, old, use.entry).find_status(config.release).kind != PRESENT:
        return None
    change = Rename((*config.root, TRAINER, use.name), old)
    return KeyRewrite("safe", f"rename {use.name} to {old}", (change,))


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
    """Return the keywords of the trainer and the imports that only some releases of the run's package accept."""
    package = _get_package(document.find_node(root))
    return [
        KeyUse((use.name,), use.entry, partial(_check_releases, use)) for use in _list_uses(document, root, (package,))
    ]


def _check_releases(use: _Use, releases: tuple[str, ...]) -> tuple[bool, ...]:
    return tuple(use.find_status(release).kind in (PRESENT, "unknown") for release in releases)


def add_keywords(hint: ReleaseHint | None, document: Document, root: Route, release: str) -> ReleaseHint | None:
    """Return the hint of a script's keys, extended with the keywords and imports that `release` rejects."""
    uses = list(_list_uses(document, root, (_get_package(document.find_node(root)),)))
    statuses = [use.find_status(release) for use in uses]
    refused = tuple(
        RefusedKey((use.name,), use.entry, status)
        for use, status in zip(uses, statuses, strict=True)
        if status.kind not in (PRESENT, "unknown")
    )
    if not refused:
        return hint
    refused_keys = hint.refused_keys if hint is not None else ()

    def is_accepted(candidate: str) -> bool:
        return all(_check_releases(use, (candidate,))[0] for use in uses) and (hint is None or hint.accepts(candidate))

    return ReleaseHint((*refused, *refused_keys), is_accepted)


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

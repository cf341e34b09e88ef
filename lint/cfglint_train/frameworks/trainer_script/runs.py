"""Which Python scripts train with TRL, and what a launch of one lays over its settings."""

from __future__ import annotations

from collections.abc import Collection

from cfglint_train.documents.document import MISSING, Document, Node, Route, Sequence, Span, Unknown
from cfglint_train.documents.python.class_variables import calls_by_variable
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.python.syntax import callee, last_name
from cfglint_train.documents.python.tree import Record, Value
from cfglint_train.foundation.typed import TYPE_CHECKING, Any
from cfglint_train.frameworks.framework import Found
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import listed
from cfglint_train.frameworks.trainer_script.names import TRAINERS

if TYPE_CHECKING:
    import ast

    from cfglint_train.frameworks.trainer_script.reader import ScriptSettings


def scripts(document: Document) -> list[Found]:
    """Each trainer that a script makes. One whose settings cannot be determined is named with the reason."""
    assert isinstance(document, PythonDocument)
    modules = packages(document)
    if "trl" not in modules or "olmo_core" in modules:
        return []
    if not makes_trainer(document, TRAINERS):
        other = _other_trainer(document)
        if not other:
            return []
        return [Found((), 60, f"no rule covers TRL's {other}", "unread", document.span(document.calls(other)[0]))]
    replacing = replaced_by(modules, "trl")
    if replacing is not None:
        return [Found((), 60, f"{replacing} replaces TRL's trainers", "other")]
    found = prepare(document)
    if not found:
        return unreached(document, TRAINERS, 60)
    return [
        Found((number,), 60, one.refused or "it makes a trainer of TRL", role_of(one), one.span)
        for number, one in enumerate(found)
    ]


def role_of(run: ScriptSettings) -> str | None:
    """What a run of a script is to cfglint (`Found.role`)."""
    return "program" if run.launched else "unread" if run.refused else None


def unreached(document: PythonDocument, trainers: Collection[str], score: int) -> list[Found]:
    """The first trainer that is made where no walk over the script comes by, as in a method of a class; none where the
    script makes none itself.
    """
    calls = made(document, trainers)
    if calls:
        why = f"no call that can be followed makes its `{callee(calls[0])}`"
        return [Found((), score, why, "unread", document.span(calls[0]))]
    calls = calls_by_variable(document, trainers)[:1]
    return [Found((), score, undetermined(document, call), "unread", document.span(call)) for call in calls]


def undetermined(document: PythonDocument, call: ast.Call) -> str:
    """Why the run of a trainer is not read that is called by a variable."""
    return f"which trainer its `{document.cut(document.span(call.func))}` is cannot be determined without running it"


def packages(document: PythonDocument) -> set[str]:
    """The packages that a script imports from."""
    return {name.partition(".")[0] for name in document.imports()}


def replaced_by(modules: set[str], framework: str) -> str | None:
    """The package among some that replaces the trainers of a framework."""
    return next((name for name in listed()[framework].replaced_by if name in modules), None)


def prepare(document: Document, plain: bool = False) -> list[ScriptSettings]:
    """Read the runs of a script, and show them as a list. `plain`: those of the Trainer of transformers itself."""
    from cfglint_train.frameworks.trainer_script.reader import ScriptSettings, runs

    assert isinstance(document, PythonDocument)
    if document.root is None:
        found = runs(document, plain=plain)
        if found:
            document.show(Sequence(Span(0, len(document.source)), [*found], True), doubts=_doubts)
    shown = document.root.items if isinstance(document.root, Sequence) else []
    return [one for one in shown if isinstance(one, ScriptSettings)]


def _other_trainer(document: PythonDocument) -> str:
    """A trainer of TRL that a script imports and calls, and that is not read; empty where there is none."""
    import ast

    imports = (node for node in document.nodes(ast.ImportFrom) if not node.level)
    ours = [node for node in imports if (node.module or "").partition(".")[0] == "trl"]
    names = sorted({one.name for node in ours for one in node.names if one.name.endswith("Trainer") and not one.asname})
    return next((name for name in names if document.calls(name)), "")


def makes_trainer(document: PythonDocument, trainers: Collection[str]) -> bool:
    """Whether a class of one of these names is called, by itself or by a variable, or a class is made from one."""
    if not any(name.encode() in document.source for name in trainers):
        return False
    if document.calls(*trainers) or calls_by_variable(document, trainers):
        return True
    return bool(_classes_from(document, trainers))


def made(document: PythonDocument, trainers: Collection[str]) -> list[ast.Call]:
    """The calls of some trainers, and of classes that the script makes from one."""
    return document.calls(*trainers, *_classes_from(document, trainers)) if trainers else []


def _classes_from(document: PythonDocument, trainers: Collection[str]) -> list[str]:
    """The classes that the script makes from one of some names."""
    import ast

    return [node.name for node in document.nodes(ast.ClassDef) for base in node.bases if last_name(base) in trainers]


def _doubts(document: Document, node: Node) -> str:
    """What a value rests on: a condition that cannot be determined, or the default of an option of the script."""
    for step in node.how if isinstance(node, (Value, Record)) else ():
        if step.kind == "depends":
            line = document.position(step.span.start).line
            return f"one outcome of the condition in line {line} ({step.text})"
    for step in node.how if isinstance(node, (Value, Record)) else ():
        if step.kind == "option":
            return f"the default of `{step.text}` counts, which a launch may replace"
    return ""


def trailing(config: Config, words: list[str]) -> dict[Route, Any]:
    """The settings that the words behind a script's path make, by the options that the script declares."""
    from cfglint_train.frameworks.trainer_script.launch import given, line_of
    from cfglint_train.frameworks.trainer_script.reader import ScriptSettings, runs

    document, number = config.document, config.root[0]
    assert isinstance(document, PythonDocument)
    values, line = given(document, words), line_of(document, words)
    before = document.node(config.root)
    plain = isinstance(before, ScriptSettings) and before.plain
    after = runs(document, values, line, plain) if values or line is not None else []
    if not isinstance(before, Record) or not isinstance(number, int) or number >= len(after):
        return {}
    made = after[number]
    if made.refused:
        return {}
    old, new = _settings(document, before), _settings(document, made)
    return {
        (name,): new.get(name, None if line is None else MISSING)
        for name in {**old, **new}
        if name not in old or name not in new or not _same(old[name], new[name])
    }


def recipes(config: Config) -> tuple[str, ...]:
    """The files that the launches of a script give its parser, as written; none where one of them gives none that can
    be determined.
    """
    if config.document.syntax != "python" or not config.launched:
        return ()
    from cfglint_train.frameworks.trainer_script.line import RECIPE

    given = [one.value for route, one in config.launched if route == (RECIPE,)]
    named = tuple(one for one in given if isinstance(one, str))
    return named if config.override((RECIPE,)) is not None and len(named) == len(given) else ()


def takes_recipe(document: Document, option: str) -> bool:
    """Whether a script takes a recipe by an option (trl 0.9.6 to 1.16.0 `scripts/utils.py`, TrlParser)."""
    return option == "--config" and isinstance(document, PythonDocument) and bool(document.calls("TrlParser"))


def _settings(document: PythonDocument, record: Record) -> dict[str, Any]:
    """Every setting of a run by its name, those of other calls included."""
    entries = {entry.name or "": entry for entry in record.entries}
    entries.update({name: part.entry for name, part in record.parts.items() if part.entry is not None})
    return {name: document.plain(entry.value) for name, entry in entries.items()}


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, Unknown) and isinstance(right, Unknown):
        return left.why == right.why
    return type(left) is type(right) and bool(left == right)

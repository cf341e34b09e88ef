"""Recognition of Python scripts that train with TRL, and the settings that their launches override."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache

from cfglint_train.documents.document import MISSING, Document, Node, Route, Sequence, Span, Unknown
from cfglint_train.documents.python.class_variables import find_calls_by_variable
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.python.syntax import get_callee_name, get_last_name
from cfglint_train.documents.python.tree import Record, Value
from cfglint_train.foundation.regular_files import is_python_test
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.frameworks.framework import RecognisedConfig
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.frameworks.trainer_script.names import TRAINERS

if TYPE_CHECKING:
    import ast

    from cfglint_train.frameworks.trainer_script.reader import ScriptSettings


_SETTINGS_FILES: Final = (".yaml", ".yml", ".json", ".toml")


def recognise_scripts(document: Document) -> list[RecognisedConfig]:
    """Return a config for each TRL trainer that a script creates.

    If cfglint cannot read the settings of a trainer, the config has a role and a reason that says why.
    """
    assert isinstance(document, PythonDocument)
    modules = list_packages(document)
    if "trl" not in modules or "olmo_core" in modules or is_python_test(document.path):
        return []
    trainers = (*TRAINERS, *list_derived_trainers(document, "trl", TRAINERS))
    if not has_trainer(document, trainers):
        other_trainer = _find_other_trainer(document)
        if not other_trainer:
            return []
        return [
            RecognisedConfig(
                (),
                60,
                f"no rule covers TRL's {other_trainer}",
                "unread",
                document.find_span(document.find_calls(other_trainer)[0]),
            )
        ]
    replacement = find_replacement(modules, "trl")
    if replacement is not None:
        return [RecognisedConfig((), 60, f"{replacement} replaces TRL's trainers", "other")]
    runs = show_runs(document)
    if not runs:
        return find_unreached_trainer(document, trainers, 60)
    configs = [
        RecognisedConfig((number,), 60, run.refusal or "it creates a TRL trainer", get_role(run), run.span)
        for number, run in enumerate(runs)
    ]
    return drop_repeated([*configs, *list_gaps(runs, configs)])


def list_gaps(runs: Iterable[ScriptSettings], configs: Iterable[RecognisedConfig]) -> list[RecognisedConfig]:
    """Return an unread config for each run that is read, but of which only a part can be checked."""
    return [
        RecognisedConfig(config.root, config.score, run.gap, "unread", run.gap_span)
        for run, config in zip(runs, configs)
        if config.role is None and run.gap
    ]


def drop_repeated(configs: list[RecognisedConfig]) -> list[RecognisedConfig]:
    """Return the configs without further ones that cannot be read because of the same call."""
    unread = {config.span: config for config in reversed(configs) if config.role is not None}
    return [config for config in configs if config.role is None or unread[config.span] is config]


def get_role(run: ScriptSettings) -> str | None:
    """Return the role of a script's run (`RecognisedConfig.role`), or None if its settings can be read."""
    return "program" if run.is_unread_command_line else "unread" if run.refusal else None


def find_unreached_trainer(document: PythonDocument, trainers: Collection[str], score: int) -> list[RecognisedConfig]:
    """Return the first trainer that is created in code outside the walk, such as in a method.

    Return an empty list if the script creates no trainer itself.
    """
    calls = find_trainer_calls(document, trainers)
    if calls:
        reason = f"no call that can be followed makes its `{get_callee_name(calls[0])}`"
        return [RecognisedConfig((), score, reason, "unread", document.find_span(calls[0]))]
    calls = find_calls_by_variable(document, trainers)[:1]
    return [
        RecognisedConfig((), score, explain_undetermined_trainer(document, call), "unread", document.find_span(call))
        for call in calls
    ]


def explain_undetermined_trainer(document: PythonDocument, call: ast.Call) -> str:
    """Return why a trainer that the script calls through a variable cannot be read."""
    return (
        f"which trainer its `{document.get_short_text(document.find_span(call.func))}` is cannot be determined "
        "without running it"
    )


def list_packages(document: PythonDocument) -> set[str]:
    """Return the top-level packages that a script imports."""
    return {name.partition(".")[0] for name in document.list_imports()}


def list_derived_trainers(document: PythonDocument, package: str, trainers: Collection[str]) -> list[str]:
    """Return the imported classes that other modules of the repository derive from a package's trainers."""
    import ast

    from cfglint_train.frameworks.trainer_script.class_sources import find_class, find_package_class

    names = sorted(name for name in list_imported_trainers(document) - {*trainers} if document.find_calls(name))
    sources = {name: find_class(document, ast.Name(name, ast.Load())) for name in names}
    return [
        name
        for name, source in sources.items()
        if source is not None and source.definition is not None and find_package_class(source, {package: trainers})
    ]


def list_imported_trainers(document: PythonDocument) -> set[str]:
    """Return the names of imported trainers; after `import *`, those that the script calls but does not define."""
    import ast

    names = [alias for node in document.list_nodes(ast.ImportFrom) for alias in node.names]
    trainers = {alias.asname or alias.name for alias in names if "Trainer" in alias.name}
    if any(alias.name == "*" for alias in names):
        own_classes = {node.name for node in document.list_nodes(ast.ClassDef)}
        callee_names = map(get_callee_name, document.list_nodes(ast.Call))
        trainers |= {name for name in callee_names if name.endswith("Trainer") and name not in own_classes}
    return trainers


def find_replacement(modules: set[str], framework: str) -> str | None:
    """Return the imported module that replaces the trainers of a framework, or None."""
    return next((name for name in list_frameworks()[framework].replaced_by if name in modules), None)


def show_runs(document: Document, is_hf_trainer: bool = False) -> list[ScriptSettings]:
    """Return the runs of a script; the first call reads them and attaches them to the document as its tree.

    `is_hf_trainer`: read the runs of transformers' own Trainer instead of TRL's trainers.
    """
    from cfglint_train.frameworks.trainer_script.reader import ScriptSettings, read_runs

    assert isinstance(document, PythonDocument)
    if document.root is None:
        settings = []
        for words in document.launches or ((),):
            launched_runs = (
                _read_launched_runs(document, words, is_hf_trainer)
                if words
                else read_runs(document, is_hf_trainer=is_hf_trainer)
            )
            for number, run in enumerate(launched_runs):
                run.launch = words, number
            settings += launched_runs
        if settings:
            document.attach_tree(Sequence(Span(0, len(document.source)), [*settings], True), doubts=_find_assumption)
    shown = document.root.items if isinstance(document.root, Sequence) else []
    return [item for item in shown if isinstance(item, ScriptSettings)]


@lru_cache(maxsize=32)
def _read_launched_runs(document: PythonDocument, words: tuple[str, ...], is_hf_trainer: bool) -> list[ScriptSettings]:
    """Return the runs of a script under a launch with these words."""
    from cfglint_train.frameworks.trainer_script.launch import read_command_line, read_options
    from cfglint_train.frameworks.trainer_script.reader import read_runs

    listed = list(words)
    values, line = read_options(document, listed), read_command_line(document, listed)
    return read_runs(document, values, line, is_hf_trainer, words)


def list_settings_files(document: PythonDocument, words: Iterable[str]) -> frozenset[str]:
    """Return the settings files that the words of a launch name."""
    from cfglint_train.frameworks.trainer_script.launch import read_options

    values = [value.value for value in read_options(document, list(words)).values()]
    return frozenset(value for value in values if isinstance(value, str) and value.endswith(_SETTINGS_FILES))


def _find_other_trainer(document: PythonDocument) -> str:
    """Return a TRL trainer that a script imports and calls, or an empty string if there is none.

    The caller has already ruled out the trainers that cfglint reads.
    """
    import ast

    imports = (node for node in document.list_nodes(ast.ImportFrom) if not node.level)
    trl_imports = [node for node in imports if (node.module or "").partition(".")[0] == "trl"]
    names = sorted(
        {
            alias.name
            for node in trl_imports
            for alias in node.names
            if alias.name.endswith("Trainer") and not alias.asname
        }
    )
    return next((name for name in names if document.find_calls(name)), "")


def has_trainer(document: PythonDocument, trainers: Collection[str]) -> bool:
    """Return whether a script calls a trainer, directly or through a variable, or derives a class from a trainer."""
    if not any(name.encode() in document.source for name in trainers):
        return False
    names = _list_local_names(document, trainers)
    if document.find_calls(*names) or find_calls_by_variable(document, names):
        return True
    return bool(_find_subclasses(document, names))


def find_trainer_calls(document: PythonDocument, trainers: Collection[str]) -> list[ast.Call]:
    """Return the calls of `trainers` and of classes that the script derives from them."""
    names = _list_local_names(document, trainers)
    return document.find_calls(*names, *_find_subclasses(document, names)) if trainers else []


def _list_local_names(document: PythonDocument, trainers: Collection[str]) -> tuple[str, ...]:
    """Return the names of trainers, and those that the script gives them (`from trl import SFTTrainer as Trainer`)."""
    import ast

    aliases = (alias for node in document.list_nodes(ast.ImportFrom) for alias in node.names)
    return (*trainers, *(alias.asname for alias in aliases if alias.asname and alias.name in trainers))


def _find_subclasses(document: PythonDocument, trainers: Collection[str]) -> list[str]:
    """Return the names of the classes that the script derives from `trainers`."""
    import ast

    return [
        node.name
        for node in document.list_nodes(ast.ClassDef)
        for base in node.bases
        if get_last_name(base) in trainers
    ]


def _find_assumption(document: Document, node: Node) -> str:
    """Return the assumption behind a value, or an empty string if there is none.

    The assumption is one outcome of an undetermined condition, or the default of a script option.
    """
    for step in node.how if isinstance(node, (Value, Record)) else ():
        if step.kind == "depends":
            line = document.locate(step.span.start).line
            return f"one outcome of the condition in line {line} ({step.text})"
    for step in node.how if isinstance(node, (Value, Record)) else ():
        if step.kind == "option":
            return f"the default of `{step.text}` is used, which a launch may override"
    return ""


def parse_trailing(config: Config, words: list[str]) -> dict[Route, Any]:
    """Return the settings that a launch changes with the words after the script's path.

    A setting that the launch removes is `MISSING` if the script has a parser, and None otherwise.
    """
    from cfglint_train.frameworks.trainer_script.launch import read_command_line, read_options
    from cfglint_train.frameworks.trainer_script.reader import ScriptSettings

    document = config.document
    assert isinstance(document, PythonDocument)
    settings = document.find_node(config.root)
    if not isinstance(settings, ScriptSettings):
        return {}
    base_words, number = settings.launch
    if base_words and list_settings_files(document, base_words) != list_settings_files(document, words):
        return {}  # this launch starts the run of another file
    line = read_command_line(document, words)
    reads_words = any(name in document.source for name in (b"hydra", b"from_cli"))
    is_changed = read_options(document, words) or line is not None or (words and reads_words)
    launched_runs = _read_launched_runs(document, tuple(words), settings.is_hf_trainer) if is_changed else []
    if number >= len(launched_runs):
        return {}
    launched_settings = launched_runs[number]
    if launched_settings.refusal:
        return {}
    old_values, new_values = _collect_settings(document, settings), _collect_settings(document, launched_settings)
    return {
        (name,): new_values.get(name, None if line is None else MISSING)
        for name in {**old_values, **new_values}
        if name not in old_values or name not in new_values or not _is_same(old_values[name], new_values[name])
    }


def list_recipes(config: Config) -> tuple[str, ...]:
    """Return the recipes that the launches of a script pass to its parser, as written.

    Return an empty tuple if any launch passes no recipe, or one that cannot be determined.
    """
    if config.document.syntax != "python" or not config.launch_overrides:
        return ()
    from cfglint_train.frameworks.trainer_script.line import RECIPE

    recipes = [value.value for route, value in config.launch_overrides if route == (RECIPE,)]
    paths = tuple(value for value in recipes if isinstance(value, str))
    return paths if config.find_override((RECIPE,)) is not None and len(paths) == len(recipes) else ()


def is_recipe_option(document: Document, option: str) -> bool:
    """Return whether `option` passes a recipe to a script (trl 0.9.6 to 1.16.0 `scripts/utils.py`, TrlParser)."""
    return option == "--config" and isinstance(document, PythonDocument) and bool(document.find_calls("TrlParser"))


def _collect_settings(document: PythonDocument, record: Record) -> dict[str, Any]:
    """Return every setting of a run by name, including the settings of other calls."""
    entries = {entry.name or "": entry for entry in record.entries}
    entries.update({name: part.entry for name, part in record.parts.items() if part.entry is not None})
    return {name: document.build_value(entry.value) for name, entry in entries.items()}


def _is_same(left: Any, right: Any) -> bool:
    if isinstance(left, Unknown) and isinstance(right, Unknown):
        return left.reason == right.reason
    return type(left) is type(right) and bool(left == right)

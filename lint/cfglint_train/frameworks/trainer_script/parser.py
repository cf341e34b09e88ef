"""Options of a script's dataclass parser if all its classes are known: `HfArgumentParser((Own, SFTConfig))`.

Sources: transformers 4.57.1 and 5.8.0 `hf_argparser.py` (one option per field of the dataclasses; `aliases` of a field;
parse_args_into_dataclasses raises for leftovers, unless return_remaining_strings); trl 0.9.6 to 1.16.0
`scripts/utils.py` (TrlParser, with `--config`).
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from functools import lru_cache, partial

from cfglint_schemas.matches import find_similar
from cfglint_schemas.status import PRESENT, Context, Status
from cfglint_schemas.vocabulary import Vocabulary, load
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.static.shape import parse_shape
from cfglint_train.documents.python.syntax import get_callee_name, get_last_name
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.framework import load as load_framework
from cfglint_train.frameworks.keys import CallArgument, UnparsedOption
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trainer_script.class_sources import PACKAGES, ClassSource, find_class, walk_bases
from cfglint_train.frameworks.trainer_script.facts import count_targets, find_full_name
from cfglint_train.frameworks.trainer_script.names import CONFIG_CLASSES, HF_CONFIGS, PARSERS
from cfglint_train.frameworks.trl.clues import ANY_TRAINER
from cfglint_train.plan.origin import Place

_PARSE_METHODS: Final = ("parse_args_into_dataclasses", "parse_args_and_config")
_SETTINGS_METHODS: Final = ("parse_json_file", "parse_yaml_file")
_FILE_METHODS: Final = (*_SETTINGS_METHODS, "parse_dict")
_IGNORES_UNKNOWN: Final = ("fail_with_unknown_args", False)
_READ_ARGUMENTS: Final = frozenset(
    (("return_remaining_strings", False), ("fail_with_unknown_args", True), _IGNORES_UNKNOWN)
)
"""Arguments of the parse methods whose effect is known. Any other argument or value may make the parser read words
other than the command line, or return unknown options to the program.
"""
_OTHER_PARSERS: Final = ("ArgumentParser", "parse_known_args", "add_argument", "add_argument_group")
_OPEN_METHODS: Final = ("parse_known_args", "parse_intermixed_args", "add_subparsers", "add_cli_args", "_add_action")
_CHANGES_ARGUMENTS: Final = compile_on_use(
    rb"sys\.argv(?:\[[^\]\n]*\])?\s*(?:\+?=(?!=)|\.(?:append|clear|extend|insert|pop|remove)\b)|del\s+sys\.argv"
    rb"|from\s+sys\s+import[^\n]*\bargv"
)
_OPTION: Final = compile_on_use(r"--[A-Za-z][\w-]*")
MAX_CACHED_PROGRAMS: Final = 64
"""Maximum number of programs whose parsers and trainers are kept: many configurations share a program."""
_KNOWN_DECORATORS: Final = ("dataclass", "add_start_docstrings")


class ParserOptions(Frozen):
    """The options of a parser's dataclasses: fields that the repository declares, and definitions of packages."""

    own_names: frozenset[str] = frozenset()
    definitions: frozenset[tuple[str, str]] = frozenset()
    """Definitions of the packages' vocabularies, each with its package."""
    is_strict: bool = True
    """True if the parser rejects options that no dataclass has."""

    def __or__(self, other: ParserOptions) -> ParserOptions:
        """Return the options of both parsers."""
        return ParserOptions(
            self.own_names | other.own_names, self.definitions | other.definitions, self.is_strict and other.is_strict
        )

    def build_context(self, package: str) -> Context:
        """Return the context in which a package's vocabulary has the options of its classes and no others."""
        return Context(definitions=tuple(sorted(name for owner, name in self.definitions if owner == package)))

    def has(self, name: str) -> bool:
        """Return whether a class has an option in any release."""
        return name in self.own_names or any(
            vocabulary.find_fact((name,), vocabulary.newest, context) is not None
            for vocabulary, context in self.list_vocabularies()
        )

    def list_vocabularies(self) -> list[tuple[Vocabulary, Context]]:
        """Return the vocabularies of the packages' classes, each with its context."""
        return [
            (load(package), self.build_context(package)) for package in sorted({item[0] for item in self.definitions})
        ]


def find_unparsed_options(config: Config) -> Iterator[UnparsedOption]:
    """Yield the options in the script's launches that neither its parser nor a dataclass of its parser has.

    Yield nothing if some options of the parser are unknown.
    """
    document = config.document
    assert isinstance(document, PythonScript)
    has_fields = bool(document.find_calls(*_PARSE_METHODS))
    options = find_options(config) if has_fields else read_declared_options(document)
    if options is None or not options.is_strict:
        return
    program = os.path.basename(document.path)
    for option, place in _list_launched_options(config):
        spelling = option[2:].replace("-", "_") if has_fields else option[2:]  # argparse distinguishes - and _
        if not _is_accepted(options, spelling):
            yield UnparsedOption(option, program, place, _suggest_option(options, spelling))


def find_launch_arguments(config: Config) -> Iterator[CallArgument]:
    """Yield the options in the script's launches that only some releases of its dataclasses' packages have.

    Yield nothing if the parser may accept other options, and no option that a class of the repository declares.
    """
    document = config.document
    assert isinstance(document, PythonScript)
    options = find_options(config) if config.launches and document.find_calls(*_PARSE_METHODS) else None
    if options is None or not options.is_strict:
        return
    framework_package = load_framework(config.framework).manifest.package
    for option, place in _list_launched_options(config):
        name = option[2:].replace("-", "_")
        if any(own_name.startswith(name) for own_name in options.own_names):
            continue
        facts = [
            (package, fact)
            for package, vocabulary, context in _list_vocabularies(options, config)
            if (fact := vocabulary.find_fact((name,), _find_release(config, package), context)) is not None
        ]
        if len(facts) == 1:
            ((owner, fact),) = facts
            package = fact.package or owner
            find_status = partial(_find_option_status, options, config, owner, package, name)
            yield CallArgument(
                option,
                fact.definition,
                place,
                find_status,
                package=None if package == framework_package else package,
            )


def _list_vocabularies(options: ParserOptions, config: Config) -> Iterator[tuple[str, Vocabulary, Context]]:
    """Yield the packages of a parser's classes, each with its vocabulary and the context of the releases in use."""
    for package in sorted({package for package, _ in options.definitions}):
        context = options.build_context(package)._replace(
            releases={name: release.version for name, release in config.releases.by_package.items()}
        )
        yield package, load(package), context


def _find_option_status(
    options: ParserOptions, config: Config, owner: str, package: str, name: str, release: str
) -> Status:
    """Return the status of an option at a release of `package`, which defines it for a class of `owner`."""
    vocabulary, context = load(owner), options.build_context(owner)
    host_release = release if package == owner else _find_release(config, owner)
    if package != owner:
        context = context._replace(releases={package: release})
    if _has_prefix(vocabulary, context, host_release, name.removeprefix("no_")):
        return Status(PRESENT)
    fact = vocabulary.find_fact((name,), host_release, context)
    status = Status(PRESENT) if fact is None else fact.resolve_status()
    return status if status.effect == "error" else Status(PRESENT)


def _find_release(config: Config, package: str) -> str:
    return config.releases.get(package) or load(package).newest


def _list_launched_options(config: Config) -> Iterator[tuple[str, Place]]:
    """Yield the options that the script's launches write, each with its place."""
    name = os.path.basename(config.document.path)
    for script, number in config.launches:
        invocation = script.invocations[number] if isinstance(script, ShellDocument) else None
        if invocation is None or name not in (
            os.path.basename(invocation.program),
            f"{invocation.program.rpartition('.')[2]}.py",
        ):
            continue  # an unknown launcher, with options of its own
        for entry in invocation.entries:
            if entry.name and _OPTION.fullmatch(entry.name):
                yield entry.name, Place(script, entry.key.span)


def find_options(config: Config) -> ParserOptions | None:
    """Return the options of a script's parser, or None if it may accept others (fork, outdated release)."""
    return config.compute_once(_find_options)


def _find_options(config: Config) -> ParserOptions | None:
    document = config.document
    if not isinstance(document, PythonScript) or not config.evidence.is_upstream:
        return None
    return None if config.releases.outdated_packages else read_parser_options(document)


@lru_cache(maxsize=MAX_CACHED_PROGRAMS)
def read_parser_options(document: PythonScript) -> ParserOptions | None:
    """Return the options of a script's only parser, or None if the parser may accept other options."""
    calls = document.find_calls(*PARSERS)
    if len(calls) != 1 or document.find_calls(*_OTHER_PARSERS) or _CHANGES_ARGUMENTS.search(document.source):
        return None
    (parser_call,) = calls
    package, _, name = find_full_name(document, parser_call.func).partition(".")
    is_strict = _is_strict(document, parser_call)
    if package not in PACKAGES or is_strict is None:
        return None
    own_names = ("config", "env", "help") if name.endswith(PARSERS[0]) else ("help",)
    options = ParserOptions(frozenset(own_names), is_strict=is_strict)
    classes = _list_classes(parser_call)
    for expression in classes:
        class_options = _read_class(find_class(document, expression))
        if class_options is None:
            return None
        options |= class_options
    calls = document.find_calls(*_PARSE_METHODS, *_FILE_METHODS)
    counts = {count_targets(document, call) for call in calls} - {0}
    is_hidden = any(node.value in calls for node in document.list_nodes(ast.Starred))  # how many objects are expected
    return options if classes and counts <= {len(classes)} and not is_hidden else None


@lru_cache(maxsize=MAX_CACHED_PROGRAMS)
def read_declared_options(document: PythonScript) -> ParserOptions | None:
    """Return the options of a script's only argparse parser, or None if the parser may accept other options.

    Source: Python 3.8 to 3.14 argparse.py (parse_args: 'unrecognized arguments').
    """
    parsers = document.find_calls("ArgumentParser")
    if len(parsers) != 1 or document.find_calls(*PARSERS, *_OPEN_METHODS) or _CHANGES_ARGUMENTS.search(document.source):
        return None
    parses = document.find_calls("parse_args")
    is_extended = any(keyword.arg in (None, "parents", "argument_default") for keyword in parsers[0].keywords)
    if is_extended or len(parses) != 1 or parses[0].args or parses[0].keywords:
        return None
    if _is_parser_passed_on(document) or _has_other_uses(document):
        return None
    names = {"help"}
    for call in document.find_calls("add_argument"):
        for item in call.args:
            if not isinstance(item, ast.Constant) or not isinstance(item.value, str):
                return None
            names.add(item.value.removeprefix("--"))
    return ParserOptions(frozenset(names))


_MAKERS: Final = ("ArgumentParser", "add_argument_group", "add_mutually_exclusive_group")
"""Functions that return a parser or a group of its options."""


def _is_parser_passed_on(document: PythonScript) -> bool:
    """Return whether a function, which may add options, receives a parser or a group of its options."""
    makers = set(_MAKERS)
    makers.update(
        node.name
        for node in document.list_nodes(ast.FunctionDef)
        if any(isinstance(inner, ast.Call) and get_callee_name(inner) in makers for inner in ast.walk(node))
    )
    names = {
        target.id
        for node in document.list_nodes(ast.Assign)
        if isinstance(node.value, ast.Call) and get_callee_name(node.value) in makers
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    arguments = (
        item
        for call in document.list_nodes(ast.Call)
        for item in (*call.args, *(keyword.value for keyword in call.keywords))
    )
    return any(
        (isinstance(item, ast.Name) and item.id in names)
        or (isinstance(item, ast.Call) and get_callee_name(item) in makers)
        for item in arguments
    )


def _has_other_uses(document: PythonScript) -> bool:
    """Return whether a script does more with a parser than to name it, to call its methods and to return it.

    Then other code may add options: `add_options(self.parser)`, `add = parser.add_argument`.
    """
    calls = document.list_nodes(ast.Call)
    made = {id(call) for call in calls if get_callee_name(call) in _MAKERS}
    assignments = [(node.targets, node.value) for node in document.list_nodes(ast.Assign)]
    assignments += [
        ([node.target], node.value) for node in document.list_nodes(ast.AnnAssign) if node.value is not None
    ]
    targets = [target for items, value in assignments if id(value) in made for target in items]
    names = {get_last_name(target) for target in targets if isinstance(target, (ast.Name, ast.Attribute))}
    permitted = {id(call.func.value) for call in calls if isinstance(call.func, ast.Attribute)}
    permitted |= {id(node.value) for node in document.list_nodes(ast.Return)}
    loads: list[ast.Name | ast.Attribute] = [*document.list_nodes(ast.Name), *document.list_nodes(ast.Attribute)]
    uses = {id(node) for node in loads if get_last_name(node) in names and isinstance(node.ctx, ast.Load)}
    named = {id(value) for _, value in assignments}
    return not (
        uses <= permitted
        and made <= permitted | named
        and all(isinstance(item, (ast.Name, ast.Attribute)) for item in targets)
    )


@lru_cache(maxsize=MAX_CACHED_PROGRAMS)
def read_file_options(document: PythonScript) -> ParserOptions | None:
    """Return the keys of the settings file that a script's parser reads from its first word, or None if unknown.

    Every release rejects other keys unless the script passes `allow_extra_keys` (transformers 4.26.1 to 5.23.0
    hf_argparser.py, parse_dict).
    """
    calls = document.find_calls(*_SETTINGS_METHODS)
    if not calls or not all(any(map(_is_first_word, ast.walk(call))) for call in calls):
        return None
    options = read_parser_options(document)
    keywords = [keyword for call in calls for keyword in call.keywords if keyword.arg not in ("json_file", "yaml_file")]
    is_extensible = any(len(call.args) > 1 for call in calls) or any(
        not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False) for keyword in keywords
    )
    return None if options is None else options._replace(is_strict=not is_extensible)


def list_parsed_objects(document: PythonScript) -> list[tuple[str, ast.expr]]:
    """Return the names to which a script assigns the objects of its only parser, each with the class's expression.

    Return [] if the script has several parsers, or assigns the objects in different ways.
    """
    parser_calls, calls = document.find_calls(*PARSERS), document.find_calls(*_PARSE_METHODS, *_FILE_METHODS)
    classes = _list_classes(parser_calls[0]) if len(parser_calls) == 1 else []
    targets = {
        tuple(name.id if isinstance(name, ast.Name) else "" for name in getattr(target, "elts", ()))
        for node in document.list_nodes(ast.Assign)
        if node.value in calls
        for target in node.targets
    }
    names = targets.pop() if len(targets) == 1 else ()
    return list(zip(names, classes, strict=True)) if classes and len(names) == len(classes) and all(names) else []


def _is_first_word(node: ast.AST) -> bool:
    """Return whether an expression is `sys.argv[1]`."""
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "argv"
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == 1
    )


def _is_strict(document: PythonScript, parser_call: ast.Call) -> bool | None:
    """Return whether a parser rejects unknown options, or None if a use of it is hidden or reads other words."""
    names = {
        target.id
        for node in document.list_nodes(ast.Assign)
        if node.value is parser_call
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    owners = [node for node in document.list_nodes(ast.Name) if node.id in names and isinstance(node.ctx, ast.Load)]
    uses = [node for node in document.list_nodes(ast.Attribute) if node.value is parser_call or node.value in owners]
    calls = [node for node in document.list_nodes(ast.Call) if node.func in uses]
    if len(uses) < max(1, len(owners)) or len(calls) != len(uses):
        return None  # it is passed on or stored
    parses = [call for call in calls if get_callee_name(call) in _PARSE_METHODS]
    names = {get_callee_name(call) for call in calls}
    if names.isdisjoint((*_PARSE_METHODS, *_SETTINGS_METHODS)) or not names.issubset((*_PARSE_METHODS, *_FILE_METHODS)):
        return None
    arguments = [
        (keyword.arg, keyword.value.value if isinstance(keyword.value, ast.Constant) else None)
        for call in parses
        for keyword in call.keywords
    ]
    if any(call.args for call in parses) or not _READ_ARGUMENTS.issuperset(arguments):
        return None
    return _IGNORES_UNKNOWN not in arguments


def _list_classes(parser_call: ast.Call) -> list[ast.expr]:
    """Return the expressions of the dataclasses that a parser is created with, or [] if they cannot be determined."""
    arguments = [
        *parser_call.args[:1],
        *(keyword.value for keyword in parser_call.keywords if keyword.arg == "dataclass_types"),
    ]
    if len(arguments) != 1 or any(keyword.arg is None for keyword in parser_call.keywords):
        return []
    return list(arguments[0].elts) if isinstance(arguments[0], (ast.Tuple, ast.List)) else arguments


def _read_class(source: ClassSource | None) -> ParserOptions | None:
    """Return the options of a dataclass with its bases, or None if they cannot be determined."""
    options = ParserOptions()
    for item in walk_bases(source):
        if item is None:
            return None
        if item.definition is not None:
            names = _list_fields(item.definition)
            if names is None:
                return None
            options |= ParserOptions(frozenset(names))
            continue
        definitions = _list_definitions(item)
        if not definitions:
            return None
        options |= ParserOptions(definitions=frozenset((item.package, name) for name in definitions))
    return options


def _list_fields(node: ast.ClassDef) -> tuple[str, ...] | None:
    """Return the fields of a dataclass and their aliases, or None if a decorator or metaclass may add others."""
    decorators = (item.func if isinstance(item, ast.Call) else item for item in node.decorator_list)
    if any(get_last_name(item) not in _KNOWN_DECORATORS for item in decorators) or node.keywords:
        return None
    aliases = (item.value for item in ast.walk(node) if isinstance(item, ast.Constant) and isinstance(item.value, str))
    return (
        *parse_shape(node).fields,
        *(item.lstrip("-").replace("-", "_") for item in aliases if item.startswith("-")),
    )


def _list_definitions(source: ClassSource) -> tuple[str, ...]:
    """Return the definitions with the fields of a package's class; empty if the class is unknown."""
    if source.package == "transformers":
        return {HF_CONFIGS[0]: HF_CONFIGS[:1], HF_CONFIGS[1]: HF_CONFIGS}.get(source.name, ())
    if source.name not in _list_trl_classes():
        return ()
    return (source.name, HF_CONFIGS[0]) if source.name in CONFIG_CLASSES else (source.name,)


def _list_trl_classes() -> frozenset[str]:
    """Return the classes of TRL whose fields are known."""
    spans = load("trl").entries[ANY_TRAINER]
    return frozenset(definition.rpartition(".")[2] for span in spans for definition in span["definitions"])


def _is_accepted(options: ParserOptions, name: str) -> bool:
    """Return whether a parser may accept an option: by its name, by a prefix, or as the negation of a switch."""
    if any(option.startswith(name) for option in options.own_names) or any(
        _is_known(vocabulary, context, name) for vocabulary, context in options.list_vocabularies()
    ):
        return True
    return name.startswith(("no_", "no-")) and _is_accepted(options, name[3:])


def _is_known(vocabulary: Vocabulary, context: Context, name: str) -> bool:
    """Return whether classes have a field in any release, or a field with this prefix in the newest."""
    if _has_prefix(vocabulary, context, vocabulary.newest, name):
        return True
    return any(vocabulary.find_fact((name,), release, context) is not None for release in vocabulary.releases)


def _has_prefix(vocabulary: Vocabulary, context: Context, release: str, name: str) -> bool:
    """Return whether a release has a field with this prefix, which argparse takes for the field."""
    return any(key.startswith(name) for key in vocabulary.list_names((), release, context))


def _suggest_option(options: ParserOptions, name: str) -> str:
    """Return the most similar option, or an empty string if none is similar."""
    names = [*options.own_names]
    for vocabulary, context in options.list_vocabularies():
        names += vocabulary.list_names((), vocabulary.newest, context)
    matches = find_similar(name, tuple(sorted({*names})))
    return f"--{matches[0][0]}" if matches else ""

"""Options of a script's dataclass parser if all its classes are known: `HfArgumentParser((Own, SFTConfig))`.

Sources: transformers 4.57.1 and 5.8.0 `hf_argparser.py` (one option per field of the dataclasses; `aliases` of a field;
parse_args_into_dataclasses raises for leftovers, unless return_remaining_strings); trl 0.9.6 to 1.16.0
`scripts/utils.py` (TrlParser, with `--config`).
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator

from cfglint_schemas.matches import find_similar
from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.static.modules import find_imports, find_module
from cfglint_train.documents.python.static.shape import parse_shape
from cfglint_train.documents.python.syntax import get_callee_name, get_last_name
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.keys import UnparsedOption
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trainer_script.facts import find_full_name
from cfglint_train.frameworks.trainer_script.names import HF_CONFIGS, PARSERS
from cfglint_train.frameworks.trl.clues import ANY_TRAINER
from cfglint_train.plan.origin import Place

_PARSE_METHODS: Final = ("parse_args_into_dataclasses", "parse_args_and_config")
_FILE_METHODS: Final = ("parse_json_file", "parse_yaml_file", "parse_dict")
_NEUTRAL_ARGUMENTS: Final = {"return_remaining_strings": False, "fail_with_unknown_args": True}
"""Arguments of the parse methods, with the values that keep the default behavior. Any other argument or value may
make the parser read words other than the command line, or return or ignore unknown options.
"""
_OTHER_PARSERS: Final = ("ArgumentParser", "parse_known_args", "add_argument", "add_argument_group")
_CHANGES_ARGUMENTS: Final = re.compile(
    rb"sys\.argv(?:\[[^\]\n]*\])?\s*(?:\+?=(?!=)|\.(?:append|clear|extend|insert|pop|remove)\b)|del\s+sys\.argv"
    rb"|from\s+sys\s+import[^\n]*\bargv"
)
_OPTION: Final = re.compile(r"--[A-Za-z][\w-]*")
_KNOWN_DECORATORS: Final = ("dataclass", "add_start_docstrings")
_MAX_DEPTH: Final = 5
"""Maximum number of base classes and imports to follow from a parser's class to a package's class."""


class ParserOptions(Frozen):
    """The options of a parser's dataclasses: names that the script defines, and vocabulary entries of packages."""

    own_names: frozenset[str] = frozenset()
    package_entries: frozenset[tuple[str, str]] = frozenset()

    def __or__(self, other: ParserOptions) -> ParserOptions:
        """Return the options of both parsers."""
        return ParserOptions(self.own_names | other.own_names, self.package_entries | other.package_entries)

    def has_from_other_package(self, package: str, name: str) -> bool:
        """Return whether a class of a package other than `package` has the option in any release."""
        return any(_is_known(entry, name) for entry in self.package_entries if entry[0] != package)


def find_unparsed_options(config: Config) -> Iterator[UnparsedOption]:
    """Yield the options in the script's launches that no dataclass of its parser has.

    Yield nothing if some options of the parser are unknown.
    """
    options = find_options(config)
    if options is None:
        return
    name = os.path.basename(config.document.path)
    for script, number in config.launches:
        invocation = script.invocations[number] if isinstance(script, ShellDocument) else None
        if invocation is None or name not in (
            os.path.basename(invocation.program),
            f"{invocation.program.rpartition('.')[2]}.py",
        ):
            continue  # an unknown launcher, with options of its own
        for entry in invocation.entries:
            option = entry.name or ""
            if _OPTION.fullmatch(option) and not _is_accepted(options, option[2:].replace("-", "_")):
                suggestion = _suggest_option(options, option[2:].replace("-", "_"))
                yield UnparsedOption(option, name, Place(script, entry.key.span), suggestion)


def find_options(config: Config) -> ParserOptions | None:
    """Return the options of a script's parser, or None if it may accept others (fork, outdated release)."""
    return config.compute_once(_find_options)


def _find_options(config: Config) -> ParserOptions | None:
    document = config.document
    if not isinstance(document, PythonScript) or not config.evidence.is_upstream:
        return None
    return None if config.releases.outdated_packages else read_parser_options(document)


def read_parser_options(document: PythonScript) -> ParserOptions | None:
    """Return the options of a script's only parser, or None if the parser may accept other options."""
    calls = document.find_calls(*PARSERS)
    if len(calls) != 1 or document.find_calls(*_OTHER_PARSERS) or _CHANGES_ARGUMENTS.search(document.source):
        return None
    (parser_call,) = calls
    package, _, name = find_full_name(document, parser_call.func).partition(".")
    if package not in ("transformers", "trl") or not _is_closed(document, parser_call):
        return None
    options = ParserOptions(frozenset(("config", "help")) if name.endswith(PARSERS[0]) else frozenset(("help",)))
    classes = _list_classes(parser_call)
    for expression in classes:
        class_options = _read_class(document, expression, _MAX_DEPTH)
        if class_options is None:
            return None
        options |= class_options
    return options if classes else None


def _is_closed(document: PythonScript, parser_call: ast.Call) -> bool:
    """Return whether a parser reads the command line and every use of it is visible."""
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
        return False  # it is passed on or stored
    parses = [call for call in calls if get_callee_name(call) in _PARSE_METHODS]
    is_neutral = all(not call.args and all(map(_is_neutral, call.keywords)) for call in parses)
    return (
        bool(parses)
        and is_neutral
        and all(get_callee_name(call) in (*_PARSE_METHODS, *_FILE_METHODS) for call in calls)
    )


def _is_neutral(keyword: ast.keyword) -> bool:
    return isinstance(keyword.value, ast.Constant) and _NEUTRAL_ARGUMENTS.get(keyword.arg or "") is keyword.value.value


def _list_classes(parser_call: ast.Call) -> list[ast.expr]:
    """Return the expressions of the dataclasses that a parser is created with, or [] if they cannot be determined."""
    arguments = [
        *parser_call.args[:1],
        *(keyword.value for keyword in parser_call.keywords if keyword.arg == "dataclass_types"),
    ]
    if len(arguments) != 1 or any(keyword.arg is None for keyword in parser_call.keywords):
        return []
    return list(arguments[0].elts) if isinstance(arguments[0], (ast.Tuple, ast.List)) else arguments


def _read_class(document: PythonScript, node: ast.expr, depth: int) -> ParserOptions | None:
    """Return the options of the class that an expression names, or None if they cannot be determined."""
    definitions = document.find_classes(node.id) if isinstance(node, ast.Name) else []
    if definitions:
        return _read_definition(document, definitions[0], depth) if len(definitions) == 1 and depth else None
    package, _, name = find_full_name(document, node).partition(".")
    name = name.rpartition(".")[2]
    if package == "transformers" and name in HF_CONFIGS:
        return ParserOptions(
            package_entries=frozenset((("transformers", "seq2seq" if name == HF_CONFIGS[1] else "trainer"),))
        )
    if package == "trl":
        return (
            ParserOptions(package_entries=frozenset((("trl", ANY_TRAINER),))) if name in _list_trl_classes() else None
        )
    if isinstance(node, ast.Name) and depth:
        for module, original in find_imports(document, node.id):
            other = find_module(document, module)
            if other is not None:
                return _read_class(other, ast.Name(original, ast.Load()), depth - 1)
    return None


def _read_definition(document: PythonScript, node: ast.ClassDef, depth: int) -> ParserOptions | None:
    decorators = (item.func if isinstance(item, ast.Call) else item for item in node.decorator_list)
    if any(get_last_name(item) not in _KNOWN_DECORATORS for item in decorators) or node.keywords:
        return None
    aliases = (item.value for item in ast.walk(node) if isinstance(item, ast.Constant) and isinstance(item.value, str))
    names = (
        *parse_shape(node).fields,
        *(item.lstrip("-").replace("-", "_") for item in aliases if item.startswith("-")),
    )
    options = ParserOptions(frozenset(names))
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in ("object", "ABC"):
            continue
        base_options = _read_class(document, base, depth - 1)
        if base_options is None:
            return None
        options |= base_options
    return options


def _list_trl_classes() -> frozenset[str]:
    """Return the classes of TRL whose fields are known."""
    spans = load("trl").entries[ANY_TRAINER]
    return frozenset(definition.rpartition(".")[2] for span in spans for definition in span["definitions"])


def _is_accepted(options: ParserOptions, name: str) -> bool:
    """Return whether a parser may accept an option: by its name, by a prefix, or as the negation of a switch."""
    if any(option.startswith(name) for option in options.own_names) or any(
        _is_known(package, name) for package in options.package_entries
    ):
        return True
    return name.startswith("no_") and _is_accepted(options, name.removeprefix("no_"))


def _is_known(package: tuple[str, str], name: str) -> bool:
    """Return whether a package's class has a field in any release, or a field with this prefix in the newest."""
    vocabulary, context = load(package[0]), Context(entry=package[1])
    if any(key.startswith(name) for key in vocabulary.list_names((), vocabulary.newest, context)):
        return True
    return any(vocabulary.find_fact((name,), release, context) is not None for release in vocabulary.releases)


def _suggest_option(options: ParserOptions, name: str) -> str:
    """Return the most similar option, or an empty string if none is similar."""
    names = [*options.own_names]
    for package, entry in options.package_entries:
        vocabulary = load(package)
        names += vocabulary.list_names((), vocabulary.newest, Context(entry=entry))
    matches = find_similar(name, tuple(sorted({*names})))
    return f"--{matches[0][0]}" if matches else ""

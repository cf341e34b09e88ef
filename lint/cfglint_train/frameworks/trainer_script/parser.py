"""Which options the parser of a script takes whose dataclasses are all known: `HfArgumentParser((Own, SFTConfig))`.

Sources: transformers 4.57.1 and 5.8.0 `hf_argparser.py` (one option per field of the dataclasses; `aliases` of a field;
parse_args_into_dataclasses raises for what is left, unless return_remaining_strings); trl 0.9.6 to 1.16.0
`scripts/utils.py` (TrlParser, with `--config`).
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator

from cfglint_schemas.matches import similar
from cfglint_schemas.status import Context
from cfglint_schemas.vocabulary import load
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.static.modules import imports, module_of
from cfglint_train.documents.python.static.shape import shape_of
from cfglint_train.documents.python.syntax import callee, last_name
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.keys import Unparsed
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.trainer_script.facts import in_full
from cfglint_train.frameworks.trainer_script.names import HF_CONFIGS, PARSERS
from cfglint_train.frameworks.trl.clues import ANY
from cfglint_train.plan.origin import Place

_PARSES: Final = ("parse_args_into_dataclasses", "parse_args_and_config")
_FROM_FILES: Final = ("parse_json_file", "parse_yaml_file", "parse_dict")
_PLAIN: Final = {"return_remaining_strings": False, "fail_with_unknown_args": True}
"""Arguments of a parser with the values that leave it as it is; others have it read other words than the launch's, hand
back what it does not know, or skip that.
"""
_OTHER_PARSERS: Final = ("ArgumentParser", "parse_known_args", "add_argument", "add_argument_group")
_CHANGES_ARGUMENTS: Final = re.compile(
    rb"sys\.argv(?:\[[^\]\n]*\])?\s*(?:\+?=(?!=)|\.(?:append|clear|extend|insert|pop|remove)\b)|del\s+sys\.argv"
    rb"|from\s+sys\s+import[^\n]*\bargv"
)
_OPTION: Final = re.compile(r"--[A-Za-z][\w-]*")
_DECORATORS: Final = ("dataclass", "add_start_docstrings")
_DEEPEST: Final = 5
"""Classes and modules between a parser's class and one of a package."""


class Fields(Frozen):
    """The options of some dataclasses: names of the script's own, and the entry points of the packages' classes."""

    own: frozenset[str] = frozenset()
    packages: frozenset[tuple[str, str]] = frozenset()

    def __or__(self, other: Fields) -> Fields:
        return Fields(self.own | other.own, self.packages | other.packages)

    def has_beside(self, package: str, name: str) -> bool:
        """Whether a class of another package than some has an option, at some release."""
        return any(_known(one, name) for one in self.packages if one[0] != package)


def unparsed(config: Config) -> Iterator[Unparsed]:
    """The options of a script's launches that no dataclass of its parser has, each place once; none where not all that
    the parser takes is known.
    """
    fields = parsed_by(config)
    if fields is None:
        return
    name = os.path.basename(config.document.path)
    for script, number in config.starts:
        given = script.invocations[number] if isinstance(script, ShellDocument) else None
        if given is None or name not in (os.path.basename(given.program), f"{given.program.rpartition('.')[2]}.py"):
            continue  # a launcher that is not known, with options of its own
        for entry in given.entries:
            option = entry.name or ""
            if _OPTION.fullmatch(option) and not _takes(fields, option[2:].replace("-", "_")):
                near = _near(fields, option[2:].replace("-", "_"))
                yield Unparsed(option, name, Place(script, entry.key.span), near)


def parsed_by(config: Config) -> Fields | None:
    """What the parser of a script takes; None where more may be taken, or by another release or a fork."""
    return config.once(_parsed_by)


def _parsed_by(config: Config) -> Fields | None:
    document = config.document
    if not isinstance(document, PythonScript) or not config.evidence.is_upstream:
        return None
    return None if config.releases.older else fields_of_parser(document)


def fields_of_parser(document: PythonScript) -> Fields | None:
    """What the one parser of a script takes; None where more may be taken, or what it does not know is."""
    calls = document.calls(*PARSERS)
    if len(calls) != 1 or document.calls(*_OTHER_PARSERS) or _CHANGES_ARGUMENTS.search(document.source):
        return None
    (made,) = calls
    package, _, name = in_full(document, made.func).partition(".")
    if package not in ("transformers", "trl") or not _is_closed(document, made):
        return None
    found = Fields(frozenset(("config", "help")) if name.endswith(PARSERS[0]) else frozenset(("help",)))
    classes = _classes(made)
    for one in classes:
        fields = _of_class(document, one, _DEEPEST)
        if fields is None:
            return None
        found |= fields
    return found if classes else None


def _is_closed(document: PythonScript, made: ast.Call) -> bool:
    """Whether a parser reads the launch's words, and all that is done with it is in sight."""
    names = {
        target.id
        for node in document.nodes(ast.Assign)
        if node.value is made
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    owners = [node for node in document.nodes(ast.Name) if node.id in names and isinstance(node.ctx, ast.Load)]
    uses = [node for node in document.nodes(ast.Attribute) if node.value is made or node.value in owners]
    calls = [node for node in document.nodes(ast.Call) if node.func in uses]
    if len(uses) < max(1, len(owners)) or len(calls) != len(uses):
        return False  # it is handed on, or kept
    parses = [call for call in calls if callee(call) in _PARSES]
    is_plain = all(not call.args and all(map(_is_plain, call.keywords)) for call in parses)
    return bool(parses) and is_plain and all(callee(call) in (*_PARSES, *_FROM_FILES) for call in calls)


def _is_plain(given: ast.keyword) -> bool:
    return isinstance(given.value, ast.Constant) and _PLAIN.get(given.arg or "") is given.value.value


def _classes(made: ast.Call) -> list[ast.expr]:
    """The expressions of the classes that a parser is made with."""
    given = [*made.args[:1], *(one.value for one in made.keywords if one.arg == "dataclass_types")]
    if len(given) != 1 or any(one.arg is None for one in made.keywords):
        return []
    return list(given[0].elts) if isinstance(given[0], (ast.Tuple, ast.List)) else given


def _of_class(document: PythonScript, node: ast.expr, depth: int) -> Fields | None:
    """The fields of a class as a script calls it; None where they cannot be determined."""
    own = document.classes(node.id) if isinstance(node, ast.Name) else []
    if own:
        return _of_definition(document, own[0], depth) if len(own) == 1 and depth else None
    package, _, name = in_full(document, node).partition(".")
    name = name.rpartition(".")[2]
    if package == "transformers" and name in HF_CONFIGS:
        return Fields(packages=frozenset((("transformers", "seq2seq" if name == HF_CONFIGS[1] else "trainer"),)))
    if package == "trl":
        return Fields(packages=frozenset((("trl", ANY),))) if name in _of_trl() else None
    if isinstance(node, ast.Name) and depth:
        for module, original in imports(document, node.id):
            other = module_of(document, module)
            if other is not None:
                return _of_class(other, ast.Name(original, ast.Load()), depth - 1)
    return None


def _of_definition(document: PythonScript, node: ast.ClassDef, depth: int) -> Fields | None:
    decorators = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
    if any(last_name(one) not in _DECORATORS for one in decorators) or node.keywords:
        return None
    aliases = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))
    names = (*shape_of(node).fields, *(one.lstrip("-").replace("-", "_") for one in aliases if one.startswith("-")))
    found = Fields(frozenset(names))
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in ("object", "ABC"):
            continue
        above = _of_class(document, base, depth - 1)
        if above is None:
            return None
        found |= above
    return found


def _of_trl() -> frozenset[str]:
    """The classes of TRL whose fields are known."""
    spans = load("trl").entries[ANY]
    return frozenset(one.rpartition(".")[2] for span in spans for one in span["definitions"])


def _takes(fields: Fields, name: str) -> bool:
    """Whether a parser may take an option: by its name, a beginning of it, or as the negation of a switch."""
    if any(one.startswith(name) for one in fields.own) or any(_known(package, name) for package in fields.packages):
        return True
    return name.startswith("no_") and _takes(fields, name.removeprefix("no_"))


def _known(package: tuple[str, str], name: str) -> bool:
    """Whether a class of a package has a field at some release, or one that begins so."""
    known, about = load(package[0]), Context(entry=package[1])
    if any(one.startswith(name) for one in known.names((), known.newest, about)):
        return True
    return any(known.fact((name,), release, about) is not None for release in known.releases)


def _near(fields: Fields, name: str) -> str:
    """The option that an unknown one was probably meant to be; empty where none is near."""
    names = [*fields.own]
    for package, entry in fields.packages:
        known = load(package)
        names += known.names((), known.newest, Context(entry=entry))
    near = similar(name, tuple(sorted({*names})))
    return f"--{near[0][0]}" if near else ""

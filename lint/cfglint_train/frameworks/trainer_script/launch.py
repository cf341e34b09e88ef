"""Values that a launch passes to the options that a script declares with argparse."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

from cfglint_train.documents.document import Span, Unknown
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.python.static.modules import find_settings_file
from cfglint_train.documents.python.static.shape import parse_shape
from cfglint_train.documents.python.tree import Value
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.trainer_script.line import CommandLine
from cfglint_train.frameworks.trainer_script.names import PARSERS
from cfglint_train.frameworks.trainer_script.parser import read_parser_options

_UNKNOWN_VALUE: Final = "the launch's settings"
_ANY_NUMBER: Final = ("*", "+")


class _DeclaredOption(Frozen):
    """An option of a script, with its target, its conversion, and the number of words that it takes."""

    target: str
    span: Span
    word_count: int | str | None
    """Words that the option takes: 0 for a switch, None or `?` for a single word, a number, `*` or `+` for a list."""
    value: Any
    """Value that a switch sets, or None if it cannot be determined."""
    convert: Callable[[str], Any] | None
    """Conversion of a word, or None if a function of the script converts it."""
    negatable: bool


def read_options(document: PythonDocument, words: list[str]) -> dict[str, Value]:
    """Return the values of a script's argparse options, by destination, from the words after the script's path."""
    options: dict[str, _DeclaredOption] = {}
    for call in document.find_calls("add_argument"):
        options.update(_parse_declaration(document, call))
    values: dict[str, Value] = {}
    positional = _list_positional(document)
    index = 0
    while index < len(words):
        name, sign, text = words[index].partition("=")
        index += 1
        option = options.get(name) or _find_abbreviated(options, name)
        if option is None:
            if positional and not _is_option(words[index - 1]):
                target, span = positional.pop(0)
                values[target] = Value(span, words[index - 1])
            elif _is_option(words[index - 1]):
                positional = []  # the option is declared elsewhere and may take the following words
            continue
        if option.word_count == 0:
            switch_value = False if option.negatable and name.startswith("--no-") else option.value
            values[option.target] = Value(
                option.span, Unknown(_UNKNOWN_VALUE) if switch_value is None else switch_value
            )
            continue
        arguments = [text] if sign else []
        while (
            not sign
            and index < len(words)
            and not _is_option(words[index])
            and _needs_more_words(option, len(arguments))
        ):
            arguments.append(words[index])
            index += 1
        values[option.target] = Value(option.span, _convert_words(option, arguments))
    return values


def _list_positional(document: PythonDocument) -> list[tuple[str, Span]]:
    """Return the targets of a script's positional arguments in order, if each of them takes one word as text."""
    arguments = []
    for call in document.find_calls("add_argument"):
        name = _get_constant(call.args[0]) if call.args else None
        if isinstance(name, str) and not name.startswith("-"):
            if any(keyword.arg in ("nargs", "action", "type") for keyword in call.keywords):
                return []
            arguments.append((name, document.find_span(call)))
    return arguments


def read_command_line(document: PythonDocument, words: list[str]) -> CommandLine | None:
    """Return the settings that a command line passes to a script's dataclass parser, or None if it has no such parser.

    `words` are the words after the script's path. The settings are complete if an option or the script's own default
    names the model, or if no option can, and no word names a settings file. If a JSON or YAML file is the only word and
    the script reads it with its parser, the settings are those of the file, and complete if the file names the model.
    """
    from cfglint_train.frameworks.trl.commands import parse_trailing

    if not document.find_calls(*PARSERS):
        return None
    shapes = [parse_shape(node) for node in document.list_nodes(ast.ClassDef)]
    fields = {name for shape in shapes for name in shape.fields}
    models = {
        name for shape in shapes for name in _MODEL_OPTIONS & {*shape.fields} if _is_text(shape.members.get(name))
    }
    values = {str(route[0]): value for route, value in parse_trailing(words, fields).items()}
    names_file = bool(words) and words[0].endswith(_SETTINGS_SUFFIXES)
    method = "parse_json_file" if names_file and words[0].endswith(".json") else "parse_yaml_file"
    if names_file and len(words) == 1 and document.find_calls(method):
        file_settings = _read_file_settings(document, words[0])
        return CommandLine(file_settings, bool(_MODEL_OPTIONS & file_settings.keys()))
    has_only_options = bool(words) and words[0].startswith("-") and (bool(models) or not _has_model_option(document))
    return CommandLine(
        values, (has_only_options or bool(_MODEL_OPTIONS & values.keys())) and "config" not in values and not names_file
    )


def _has_model_option(document: PythonDocument) -> bool:
    """Return whether the command line may name the model; False if no dataclass of the script's parser has a field."""
    options = read_parser_options(document)
    return options is None or any(options.has(name) for name in _MODEL_OPTIONS)


def _read_file_settings(document: PythonDocument, path: str) -> dict[str, Any]:
    """Return the settings of a JSON or YAML file; the values of sections and lists are unknown.

    Empty if the file cannot be read or has a DeepSpeed section.
    Source: transformers 4.57 hf_argparser.py, parse_json_file and parse_yaml_file.
    """
    settings_file = find_settings_file(document, path)
    settings = (
        None if settings_file is None or settings_file.root is None else settings_file.build_value(settings_file.root)
    )
    if not isinstance(settings, dict) or isinstance(settings.get("deepspeed"), dict):
        return {}
    return {
        str(name): Unknown(_UNKNOWN_VALUE) if isinstance(value, (dict, list)) else value
        for name, value in settings.items()
    }


def _is_text(default: object) -> bool:
    """Return whether the default of a field is a string: `"gpt2"`, `field(default="gpt2")`."""
    if isinstance(default, ast.Call):
        default = next((keyword.value for keyword in default.keywords if keyword.arg == "default"), None)
    return isinstance(default, ast.Constant) and isinstance(default.value, str)


_MODEL_OPTIONS: Final = frozenset(
    ("model_name_or_path", "model_name", "model_id", "model", "model_path", "model_name_or_id")
)
_SETTINGS_SUFFIXES: Final = (".yaml", ".yml", ".json")


def _find_abbreviated(options: Mapping[str, _DeclaredOption], name: str) -> _DeclaredOption | None:
    """Return the only option that a word abbreviates (argparse's `allow_abbrev`), or None."""
    if not name.startswith("--") or len(name) < 3:
        return None
    matches = [option for spelling, option in options.items() if spelling.startswith(name)]
    return matches[0] if len(matches) == 1 else None


def _is_option(word: str) -> bool:
    if not word.startswith("-") or len(word) < 2:
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False


def _needs_more_words(option: _DeclaredOption, count: int) -> bool:
    if option.word_count in _ANY_NUMBER:
        return True
    return count < (option.word_count if isinstance(option.word_count, int) else 1)


def _convert_words(option: _DeclaredOption, words: list[str]) -> Any:
    """Return the value of an option's words; Unknown for a list, for the script's own conversion and for errors."""
    if not words or option.convert is None:
        return Unknown(_UNKNOWN_VALUE)
    if option.word_count is not None and option.word_count != "?":
        return Unknown(_UNKNOWN_VALUE)  # a list
    try:
        return option.convert(words[0])
    except ValueError:
        return Unknown(_UNKNOWN_VALUE)


_TYPES: Final[Mapping[str, Callable[[str], Any]]] = {"int": int, "float": float, "str": str, "bool": bool, "Path": str}


def _parse_declaration(document: PythonDocument, call: ast.Call) -> Iterator[tuple[str, _DeclaredOption]]:
    """Yield the option that a call of `add_argument` declares, once per spelling."""
    names = [item.value for item in call.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    spellings = [name for name in names if name.startswith("-")]
    if not spellings:
        return
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    long = [name for name in spellings if name.startswith("--")]
    target = _get_constant(keywords.get("dest")) or (long or spellings)[0].lstrip("-").replace("-", "_")
    action, count = keywords.get("action"), _get_constant(keywords.get("nargs"))
    value: Any = None
    negatable = False
    convert: Callable[[str], Any] | None = str
    kind = keywords.get("type")
    if kind is not None:
        convert = _TYPES.get(kind.id) if isinstance(kind, ast.Name) else None
    if action is not None:
        word = _get_constant(action)
        negatable = isinstance(action, (ast.Attribute, ast.Name)) and "BooleanOptionalAction" in ast.dump(action)
        count = 0 if negatable or word in ("store_true", "store_false", "store_const") else count
        value = True if negatable or word == "store_true" else False if word == "store_false" else None
        if word not in (None, "store", "store_true", "store_false", "store_const"):
            convert = None
    option = _DeclaredOption(str(target), document.find_span(call), count, value, convert, negatable)
    for name in spellings:
        yield name, option
    if negatable:
        for name in long:
            yield f"--no-{name[2:]}", option


def _get_constant(node: ast.expr | None) -> Any:
    return node.value if isinstance(node, ast.Constant) else None

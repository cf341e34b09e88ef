"""What a launch gives the options that a script declares with argparse."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

from cfglint_train.documents.document import Span, Unknown
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.python.static.modules import file_of
from cfglint_train.documents.python.static.shape import shape_of
from cfglint_train.documents.python.tree import Value
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.trainer_script.line import Line
from cfglint_train.frameworks.trainer_script.names import PARSERS

_UNTOLD: Final = "what the launch gives"
_MANY: Final = ("*", "+")


class _Option(Frozen):
    """An option of a script: where its value goes, what a word makes of it, and how many words it takes."""

    target: str
    span: Span
    words: int | str | None
    """0 for a switch, None for one word, a number or `*` and `+` for a list."""
    value: Any
    """What a switch gives; None where it cannot be determined."""
    convert: Callable[[str], Any] | None
    """None: a function of the script."""
    negatable: bool


def given(document: PythonDocument, words: list[str]) -> dict[str, Value]:
    """The values of a script's own options that the words behind its path give, by the option's name."""
    options: dict[str, _Option] = {}
    for call in document.calls("add_argument"):
        options.update(_option(document, call))
    found: dict[str, Value] = {}
    index = 0
    while index < len(words):
        name, sign, text = words[index].partition("=")
        index += 1
        option = options.get(name) or _abbreviated(options, name)
        if option is None:
            continue
        if option.words == 0:
            told = False if option.negatable and name.startswith("--no-") else option.value
            found[option.target] = Value(option.span, Unknown(_UNTOLD) if told is None else told)
            continue
        values = [text] if sign else []
        while not sign and index < len(words) and not _is_option(words[index]) and _takes(option, len(values)):
            values.append(words[index])
            index += 1
        found[option.target] = Value(option.span, _converted(option, values))
    return found


def line_of(document: PythonDocument, words: list[str]) -> Line | None:
    """What the words behind a script's path give its parser of dataclasses; None where it has none.

    Where no option names the model, or one names a file of settings, more is given elsewhere; where the script's own
    default names it, options are all that is given. A JSON file alone is all that is given where the script has its
    parser read it.
    """
    from cfglint_train.frameworks.trl.commands import trailing

    if not document.calls(*PARSERS):
        return None
    shapes = [shape_of(node) for node in document.nodes(ast.ClassDef)]
    fields = {name for shape in shapes for name in shape.fields}
    models = {name for shape in shapes for name in _MODELS & {*shape.fields} if _is_text(shape.members.get(name))}
    values = {str(route[0]): value for route, value in trailing(words, fields).items()}
    file = bool(words) and words[0].endswith(_FILES)
    if file and len(words) == 1 and document.calls("parse_json_file"):
        stated = _of_file(document, words[0])
        return Line(stated, bool(_MODELS & stated.keys()))
    plain = bool(models and words) and words[0].startswith("-")
    return Line(values, (plain or bool(_MODELS & values.keys())) and "config" not in values and not file)


def _of_file(document: PythonDocument, path: str) -> dict[str, Any]:
    """The settings of a JSON file; a section is unknown, and all are where that is DeepSpeed's configuration.

    Source: transformers 4.57 hf_argparser.py, parse_json_file.
    """
    read = file_of(document, path)
    stated = None if read is None or read.root is None else read.plain(read.root)
    if not isinstance(stated, dict) or isinstance(stated.get("deepspeed"), dict):
        return {}
    return {str(name): Unknown(_UNTOLD) if isinstance(one, (dict, list)) else one for name, one in stated.items()}


def _is_text(default: object) -> bool:
    """Whether the default of a field is a text: `"gpt2"`, `field(default="gpt2")`."""
    if isinstance(default, ast.Call):
        default = next((one.value for one in default.keywords if one.arg == "default"), None)
    return isinstance(default, ast.Constant) and isinstance(default.value, str)


_MODELS: Final = frozenset(("model_name_or_path", "model_name", "model_id", "model", "model_path", "model_name_or_id"))
_FILES: Final = (".yaml", ".yml", ".json")


def _abbreviated(options: Mapping[str, _Option], name: str) -> _Option | None:
    """The one option that a word begins (argparse's `allow_abbrev`)."""
    if not name.startswith("--") or len(name) < 3:
        return None
    found = [option for spelling, option in options.items() if spelling.startswith(name)]
    return found[0] if len(found) == 1 else None


def _is_option(word: str) -> bool:
    if not word.startswith("-") or len(word) < 2:
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False


def _takes(option: _Option, count: int) -> bool:
    if option.words in _MANY:
        return True
    return count < (option.words if isinstance(option.words, int) else 1)


def _converted(option: _Option, words: list[str]) -> Any:
    """The value that words make; Unknown where the script converts them itself, or does not take them."""
    if not words or option.convert is None:
        return Unknown(_UNTOLD)
    if option.words is not None and option.words != "?":
        return Unknown(_UNTOLD)  # a list
    try:
        return option.convert(words[0])
    except ValueError:
        return Unknown(_UNTOLD)


_TYPES: Final[Mapping[str, Callable[[str], Any]]] = {"int": int, "float": float, "str": str, "bool": bool}


def _option(document: PythonDocument, call: ast.Call) -> Iterator[tuple[str, _Option]]:
    """The option that a call of `add_argument` declares, by each of its spellings."""
    names = [item.value for item in call.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    spelled = [name for name in names if name.startswith("-")]
    if not spelled:
        return
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    long = [name for name in spelled if name.startswith("--")]
    target = _constant(keywords.get("dest")) or (long or spelled)[0].lstrip("-").replace("-", "_")
    action, count = keywords.get("action"), _constant(keywords.get("nargs"))
    value: Any = None
    negatable = False
    convert: Callable[[str], Any] | None = str
    kind = keywords.get("type")
    if kind is not None:
        convert = _TYPES.get(kind.id) if isinstance(kind, ast.Name) else None
    if action is not None:
        word = _constant(action)
        negatable = isinstance(action, (ast.Attribute, ast.Name)) and "BooleanOptionalAction" in ast.dump(action)
        count = 0 if negatable or word in ("store_true", "store_false", "store_const") else count
        value = True if negatable or word == "store_true" else False if word == "store_false" else None
        if word not in (None, "store", "store_true", "store_false", "store_const"):
            convert = None
    option = _Option(str(target), document.span(call), count, value, convert, negatable)
    for name in spelled:
        yield name, option
    if negatable:
        for name in long:
            yield f"--no-{name[2:]}", option


def _constant(node: ast.expr | None) -> Any:
    return node.value if isinstance(node, ast.Constant) else None

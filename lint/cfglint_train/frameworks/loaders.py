"""Loaders: conversion of the scalars in a framework's files to the declared types.

Each way of loading has its own `Loader`. Lenses read values with it, KEY004 checks values against it, and the schema
for editors lists the values that it accepts, so all three agree.

Sources: pydantic 2.14 (lax mode), omegaconf 2.3 and 2.4 (`nodes.py`, values merged into a structured configuration),
Python's argparse (`type=int`, `type=float`, `store_true`), transformers 5.8.0 `hf_argparser.py` (`parse_dict`, which
converts nothing), accelerate 1.15.0 `utils/environment.py` and `utils/launch.py` (text in environment variables),
DeepSpeed 0.19.8 `runtime/config.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec, UnreadableError

Json = dict[str, Any]
_NO_SCHEMAS: Final[Mapping[str, Json]] = {}


class Loader(Frozen):
    """Rules for loading scalars: a codec per declared type, which raises UnreadableError for rejected values."""

    integer: Codec
    number: Codec
    boolean: Codec
    string: Codec
    is_member: Callable[[Any, tuple[Any, ...]], bool]
    """Function that returns whether a value is accepted as a member of an enumeration."""
    accepted_schemas: Mapping[str, Json] = _NO_SCHEMAS
    """Declared type -> JSON Schema of the values accepted for it; a type without an entry accepts only its own values.
    """
    placeholder: Json | None = None
    """JSON Schema of placeholders that stand for a value of any type and are filled in later."""
    checks_types: bool = True
    """True if values are checked against their declared types while files are loaded; enumerations always are."""
    reserved_keys: tuple[str, ...] = ()
    """Keys at the top of a file that are for the loader itself, not for the framework."""

    def can_load(self, kind: str, value: Any) -> bool:
        """Return whether a scalar can be loaded as a type (`integer`, `number`, `boolean`, `string`)."""
        try:
            getattr(self, kind).read(value)
        except UnreadableError:
            return False
        return True


# Words for booleans; matching ignores case.
_TRUTH_WORDS: Final[Mapping[str, bool]] = {
    "1": True, "on": True, "t": True, "true": True, "y": True, "yes": True,
    "0": False, "off": False, "f": False, "false": False, "n": False, "no": False,
}  # fmt: skip
_LONG_TRUTH_WORDS: Final = {word: truth for word, truth in _TRUTH_WORDS.items() if word not in ("1", "0", "t", "f")}


def _parse_truth(text: str, words: Mapping[str, bool]) -> bool:
    try:
        return words[text.lower()]
    except KeyError:
        raise UnreadableError from None


def _read_string(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise UnreadableError


def _is_exact_member(value: Any, members: tuple[Any, ...]) -> bool:
    return any(value == member and isinstance(value, bool) == isinstance(member, bool) for member in members)


_STRING: Final = Codec(_read_string)

# JSON Schema patterns for integers, numbers and truth values in strings.
_DIGITS: Final = r"[+-]?[0-9]+(_[0-9]+)*"
_WHOLE: Final = rf"^\s*{_DIGITS}\s*$"
_NUMBER: Final = (
    r"^\s*[+-]?([0-9]+(_[0-9]+)*(\.([0-9]+(_[0-9]+)*)?)?|\.[0-9]+(_[0-9]+)*)([eE][+-]?[0-9]+(_[0-9]+)*)?\s*$"
    r"|^\s*[+-]?([iI][nN][fF]([iI][nN][iI][tT][yY])?|[nN][aA][nN])\s*$"
)
_YES_NO: Final = r"[tT][rR][uU][eE]|[yY]([eE][sS])?|[oO][nN]|[oO][fF][fF]|[fF][aA][lL][sS][eE]|[nN][oO]?"

# pydantic rejects floats of 2**63 and above as integers.
_LARGEST: Final = 9223372036854775808.0


def _read_pydantic_integer(value: Any) -> int:
    if isinstance(value, str):
        text = value.strip()
        if re.fullmatch(_DIGITS + r"(\.0+)?", text) is not None:
            try:
                return int(text.partition(".")[0])
            except ValueError:  # more digits than Python converts
                pass
    elif isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST):
        return int(value)
    raise UnreadableError


def _read_pydantic_number(value: Any) -> float:
    if isinstance(value, str):
        text = value.strip()
        # pydantic ignores single underscores inside a number.
        if text.isascii() and "__" not in text and not text.startswith("_") and not text.endswith("_"):
            try:
                return float(text.replace("_", ""))
            except ValueError:
                pass
    elif isinstance(value, (int, float)):
        return float(value)
    raise UnreadableError


def _read_pydantic_boolean(value: Any) -> bool:
    if isinstance(value, str):
        return _parse_truth(value, _TRUTH_WORDS)
    if isinstance(value, (int, float)) and value in (0, 1):
        return bool(value)
    raise UnreadableError


def _is_pydantic_member(value: Any, members: tuple[Any, ...]) -> bool:
    """Return whether a value is a member; an enumeration of integers also accepts values that pydantic converts."""
    if _is_exact_member(value, members):
        return True
    if not members or not all(isinstance(member, int) for member in members):
        return False
    try:
        return _read_pydantic_integer(value) in members
    except UnreadableError:
        return False


PYDANTIC: Final = Loader(
    Codec(_read_pydantic_integer),
    Codec(_read_pydantic_number),
    Codec(_read_pydantic_boolean),
    _STRING,
    _is_pydantic_member,
    {
        "integer": {"type": ["integer", "boolean", "string"], "pattern": rf"^\s*{_DIGITS}(\.0+)?\s*$"},
        "number": {"type": ["number", "boolean", "string"], "pattern": _NUMBER},
        "boolean": {
            "type": ["boolean", "integer", "string"],
            "pattern": f"^({_YES_NO}|[tTfF01])$",
            "minimum": 0,
            "maximum": 1,
        },
    },
)
"""pydantic in lax mode: numbers may be strings, and booleans may be words (axolotl, DeepSpeed's sections)."""


def _read_python_integer(value: Any) -> int:
    """Convert an integer or a string with `int`."""
    if type(value) in (int, str):
        try:
            return int(value)
        except ValueError:
            pass
    raise UnreadableError


def _read_python_number(value: Any) -> float:
    """Convert a number or a string with `float`."""
    if type(value) in (int, float, str):
        try:
            return float(value)
        except ValueError:
            pass
    raise UnreadableError


def _read_omegaconf_boolean(value: Any) -> bool:
    if isinstance(value, str):
        try:
            return bool(int(value))
        except ValueError:
            return _parse_truth(value, _LONG_TRUTH_WORDS)
    if isinstance(value, int):
        return bool(value)
    raise UnreadableError


def _read_omegaconf_string(value: Any) -> str:
    if isinstance(value, (str, int, float)):
        return str(value)
    raise UnreadableError


def _is_omegaconf_member(value: Any, members: tuple[Any, ...]) -> bool:
    """Return whether a value is a member by its name, by class and name, or by its number.

    Every integer counts, because the members' numbers are not known.
    """
    name = value.rpartition(".")[2] if isinstance(value, str) else value
    return _is_exact_member(name, members) or type(value) is int


OMEGACONF: Final = Loader(
    Codec(_read_python_integer),
    Codec(_read_python_number),
    Codec(_read_omegaconf_boolean),
    Codec(_read_omegaconf_string),
    _is_omegaconf_member,
    {
        "integer": {"type": ["integer", "string"], "pattern": _WHOLE},
        "number": {"type": ["number", "string"], "pattern": _NUMBER},
        "boolean": {"type": ["boolean", "integer", "string"], "pattern": rf"^({_YES_NO})$|{_WHOLE}"},
        "string": {"type": ["string", "number", "boolean"]},
    },
    {"type": "string", "pattern": r"\$\{"},
)
"""Loader for OmegaConf's structured configurations; interpolations are resolved first (OLMo)."""


def _read_flag(value: Any) -> bool:
    if value is True:
        return True
    raise UnreadableError


def _format_word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


ARGPARSE: Final = Loader(
    Codec(_read_python_integer, _format_word),
    Codec(_read_python_number, _format_word),
    Codec(_read_flag),
    Codec(_read_string, _format_word),
    _is_exact_member,
)
"""Loader for words of a command line; a boolean is a flag without a value (OpenRLHF)."""


def _read_plain_integer(value: Any) -> int:
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    raise UnreadableError


def _read_plain_number(value: Any) -> float:
    if isinstance(value, (int, float)):
        return float(value)
    raise UnreadableError


def _read_plain_boolean(value: Any) -> bool:
    if isinstance(value, (int, float)):
        return bool(value)
    raise UnreadableError


PLAIN: Final = Loader(
    Codec(_read_plain_integer),
    Codec(_read_plain_number),
    Codec(_read_plain_boolean),
    _STRING,
    _is_exact_member,
    {
        "integer": {"type": ["integer", "boolean"]},
        "number": {"type": ["number", "boolean"]},
        "boolean": {"type": ["boolean", "number"]},
    },
)
"""Loader without conversion; every Python number is accepted as a number (OLMo-core)."""

PARSE_DICT: Final = PLAIN._replace(
    accepted_schemas={**PLAIN.accepted_schemas, "string": {"type": ["string", "number", "array"]}}
)
"""Loader of HfArgumentParser's `parse_dict`: it checks no types, and code that splits texts takes lists (LLaMA-Factory
0.7.1 to 0.9.5 `hparams/finetuning_args.py`: split_arg). A truth value in place of a text is a bare `no` or `yes`."""

HYDRA: Final = PLAIN._replace(reserved_keys=("defaults", "hydra"))
"""Loader of the files that Hydra composes (verl; hydra-core 1.3.2 `core/default_element.py`, `conf/__init__.py`)."""


def _read_environment_integer(value: Any) -> int:
    return _read_python_integer(str(value))


def _read_environment_boolean(value: Any) -> bool:
    return _parse_truth(str(value), _TRUTH_WORDS)


def _is_environment_member(value: Any, members: tuple[Any, ...]) -> bool:
    return str(value).lower() in (str(member).lower() for member in members)


ACCELERATE: Final = Loader(
    Codec(_read_environment_integer),
    Codec(lambda value: _read_python_number(str(value))),
    Codec(_read_environment_boolean),
    Codec(_read_omegaconf_string),
    _is_environment_member,
    checks_types=False,
)
"""Loader for values passed in environment variables and converted by the code that reads them (accelerate)."""

DEEPSPEED: Final = PYDANTIC._replace(placeholder={"const": "auto"})
"""Loader for DeepSpeed's sections: pydantic, with the placeholder "auto" that the launcher fills in."""

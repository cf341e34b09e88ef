"""Loader for YAML values that TrlParser sets as defaults of HfArgumentParser.

`set_defaults_with_config` turns the values into argparse defaults. argparse converts a string default to the
declared type of its argument and keeps any other default unchanged.
Sources: trl 0.9.2 to 1.16.0 `scripts/utils.py`; transformers 5.8.0 `hf_argparser.py` (`string_to_bool`); Python's
argparse (`parse_known_args`).
"""

from __future__ import annotations

from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.codec import Codec, UnreadableError
from cfglint_train.frameworks.loaders import PLAIN, Loader

SWITCH_WORDS: Final = {"yes": True, "true": True, "t": True, "y": True, "1": True} | {
    "no": False, "false": False, "f": False, "n": False, "0": False,
}  # fmt: skip


def _parse_integer(value: Any) -> int:
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            raise UnreadableError from None
    number: int = PLAIN.integer.read(value)
    return number


def _parse_number(value: Any) -> float:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise UnreadableError from None
    number: float = PLAIN.number.read(value)
    return number


def _parse_boolean(value: Any) -> bool:
    if isinstance(value, str):
        try:
            return SWITCH_WORDS[value.lower()]
        except KeyError:
            raise UnreadableError from None
    truth: bool = PLAIN.boolean.read(value)
    return truth


_INTEGER_PATTERN: Final = r"^\s*[+-]?[0-9]+(_[0-9]+)*\s*$"
_NUMBER_PATTERN: Final = (
    r"^\s*[+-]?([0-9]+(_[0-9]+)*(\.([0-9]+(_[0-9]+)*)?)?|\.[0-9]+(_[0-9]+)*)([eE][+-]?[0-9]+(_[0-9]+)*)?\s*$"
    r"|^\s*[+-]?([iI][nN][fF]([iI][nN][iI][tT][yY])?|[nN][aA][nN])\s*$"
)
_BOOLEAN_PATTERN: Final = r"^([yY]([eE][sS])?|[tT]([rR][uU][eE])?|[nN][oO]?|[fF]([aA][lL][sS][eE])?|[01])$"

HF_ARGPARSER: Final = Loader(
    Codec(_parse_integer),
    Codec(_parse_number),
    Codec(_parse_boolean),
    PLAIN.string,
    PLAIN.is_member,
    {
        "integer": {"type": ["number", "boolean", "string", "array", "object"], "pattern": _INTEGER_PATTERN},
        "number": {"type": ["number", "boolean", "string", "array", "object"], "pattern": _NUMBER_PATTERN},
        "boolean": {"type": ["number", "boolean", "string", "array", "object"], "pattern": _BOOLEAN_PATTERN},
        "string": {"type": ["string", "number", "boolean", "array", "object"]},
    },
)
"""Loader that converts strings to the declared type and checks nothing else."""

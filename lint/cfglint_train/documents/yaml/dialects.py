"""How loaders of YAML type plain scalars: `1e-4` is a string to one framework and a float to another.

What most scalars are (words, integers, decimal fractions) is decided here; the rest by PyYAML (`resolved.py`), whose
import takes longer than a lint.
"""

from __future__ import annotations

import re

from cfglint_train.documents.document import Scalar, Unknown
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final

_WORDS: Final = {
    "": None,
    "~": None,
    **{
        spelling: value
        for word, value in (
            ("yes", True), ("true", True), ("on", True), ("no", False), ("false", False), ("off", False), ("null", None)
        )
        for spelling in (word, word.title(), word.upper())
    },
}  # fmt: skip
_NUMBER: Final = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+][0-9]+)?")
_SURE_DIGITS: Final = 18
_SIGNS: Final = "+-."
_IN_NUMBERS: Final = frozenset("0123456789iInN")
"""What may follow the signs of a number or a date: digits, infinity, or no number."""


class Dialect(Frozen):
    """How a loader types plain scalars."""

    name: str
    has_exponents: bool
    """Whether a number with an exponent needs no point."""


PYYAML: Final = Dialect("PyYAML", False)
OMEGACONF: Final = Dialect("OmegaConf", True)
"""OmegaConf's loader, which LLaMA-Factory and OLMo read with."""


def typed(scalar: Scalar, dialect: Dialect) -> Any:
    """The value that a dialect's loader makes of a scalar."""
    text, tag = scalar.text, scalar.tag
    if tag is None:
        if scalar.style:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if text[0] == "{":  # no plain scalar begins so: it is a template's mark
            return Unknown(text)
        unsigned = text.lstrip(_SIGNS)
        if text[0].isalpha() or unsigned[:1] not in _IN_NUMBERS:
            return text
        number = _NUMBER.fullmatch(text)
        if number is not None:
            point, exponent = number.groups()
            if point is not None or (exponent and dialect.has_exponents):
                return float(text)
            if exponent:
                return text
            if text == "0" or (unsigned[0] != "0" and len(text) <= _SURE_DIGITS):
                return int(text)
    from cfglint_train.documents.yaml.resolved import resolved

    return resolved(text, tag, dialect.has_exponents)

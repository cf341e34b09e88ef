"""The formula of a component with its values written in, held to the component's bytes.

A formula is a sum of products: terms with ` + ` between them, factors with ` x ` and ` / `, one number in each factor,
remarks after a semicolon. One that does not come to the bytes is not shown; the words of the component's row are.
"""

from __future__ import annotations

import re

from cfglint_train.foundation.typed import Final
from cfglint_train.memory.component import Component
from cfglint_train.memory.quantities import Quantities

# Shown numbers have seven digits, and up to three of them are multiplied; sizes are cut to whole bytes.
_ROUNDING: Final = 2e-6
_SLACK: Final = 8

_NUMBER: Final = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?!\w)")
_IDLE: Final = re.compile(r"1 (?!B\b|checkpoint)")
_OPERATION: Final = re.compile(r" (x|/) ")


def formula(component: Component, size: int, quantities: Quantities) -> str:
    """Return the first of the component's formulas that comes to `size` bytes, else its words."""
    for template in component.formulas:
        text = _tidied(template.format_map(quantities))
        found = value(text)
        if found is not None and abs(found - size) <= _ROUNDING * size + _SLACK:
            return text
    return component.words.format_map(quantities)


def value(text: str) -> float | None:
    """Multiply out a shown formula, in bytes; None for words."""
    total = 0.0
    for term in text.partition(";")[0].split(" + "):
        product = _product(term)
        if product is None:
            return None
        total += product
    return total


def _product(term: str) -> float | None:
    """Bytes of one term; None where a factor has no number, or none of them counts bytes."""
    if not re.search(r"\d B\b", term):
        return None
    pieces = _OPERATION.split(f" x {term}")
    product = 1.0
    for operation, factor in zip(pieces[1::2], pieces[2::2]):
        numbers = _NUMBER.findall(factor)
        if len(numbers) != 1:
            return None
        number = float(numbers[0].replace(",", ""))
        product = product * number if operation == "x" else product / (number or 1.0)
    return product


def _tidied(text: str) -> str:
    """Drop terms of 0 bytes and factors of 1, but for the number of checkpoints."""
    terms, semicolon, remark = text.partition(";")
    kept = []
    for term in terms.split(" + "):
        if _product(term) != 0:
            pieces = _OPERATION.split(f" x {term}")
            pairs = zip(pieces[1::2], pieces[2::2])
            left = [f" {operation} {factor}" for operation, factor in pairs if not _IDLE.match(factor)]
            kept.append("".join(left).removeprefix(" x "))
    return re.sub(r"(?<![\d,])1 checkpoints ", "1 checkpoint ", " + ".join(kept)) + semicolon + remark

"""Redaction: the layer through which all output passes, to keep credentials out of it.

Known credentials (`Result.secrets`) are masked everywhere. Texts that look like a credential are masked too, wherever
they come from: a settings file, a path, an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from cfglint_train.foundation.credentials import mask
from cfglint_train.foundation.typed import Final

Redact = Callable[[str], str]


def build_redaction(secrets: Iterable[str]) -> Redact:
    """Build a function that replaces credentials in a text by as many asterisks, so that columns stay the same."""
    longest_first = sorted(filter(None, secrets), key=len, reverse=True)

    def redact(text: str) -> str:
        for secret in longest_first:
            if secret in text:
                text = text.replace(secret, "*" * len(secret))
        if longest_first and "..." in text:
            text = _mask_fragments(text, longest_first)
        return mask(text)

    return redact


def _mask_fragments(text: str, secrets: list[str]) -> str:
    """Mask parts of credentials next to an omission (`...`)."""
    for mark in re.finditer(r" ?\[?\.\.\.\]? ?", text):
        first, last = mark.span()
        for secret in secrets:
            for size in range(len(secret) - 1, _MAX_SHARED_PREFIX, -1):
                if text.startswith(secret[:size], first - size) and first >= size:
                    text = f"{text[: first - size]}{'*' * size}{text[first:]}"
                if text.startswith(secret[-size:], last):
                    text = f"{text[:last]}{'*' * size}{text[last + size :]}"
    return text


_MAX_SHARED_PREFIX: Final = 3
"""Number of characters that are no evidence of a credential because many words begin with them."""

"""Redaction: the layer that keeps credentials out of all output.

Credentials that were found (`Result.secrets`) are masked everywhere. Text that looks like a credential is masked too,
whether it comes from a settings file, a path or an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from cfglint_train.foundation.credentials import mask
from cfglint_train.foundation.typed import Final

Redact = Callable[[str], str]


def build_redaction(secrets: Iterable[str]) -> Redact:
    """Build a function that replaces each character of a credential with an asterisk, so that columns stay the same."""
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
    """Mask the beginnings and ends of credentials that an omission (`...`) cuts, if longer than 3 characters."""
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
"""Maximum length of a fragment that is not masked, because ordinary words may match a fragment this short."""

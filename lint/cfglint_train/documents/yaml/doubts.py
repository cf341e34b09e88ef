"""Doubtful YAML: byte patterns that a loader may reject although libyaml accepts them."""

from __future__ import annotations

import re

from cfglint_train.documents.document import BOM
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final

_SIGNS: Final = (
    *(b"\t", b"?", b"&", b"!", b"<<"),  # tabs, complex keys, anchors, tags, merges
    *(b"0b_", b"0x_", b"._"),  # numbers without a digit
    *(b" :", b"\n:", b"\r:", b"{:", b",:", b"]:", b"}:", b"~:", b"ull:", b"ULL:"),  # keys that are not strings
    *(b"\n%", b"\n...", b"\r%", b"\r..."),  # directives, ends of documents
    *(b"%c#" % sign for sign in b"|>+-0123456789"),  # a comment directly after a block scalar header
    *(b"\\'", b"\\u", b"\\U"),  # escapes
    *(b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9"),  # non-ASCII line breaks
)
_FORMS: Final = (
    compile_on_use(rb"=(?:$|[\s,\]}:])", re.M),  # `=`, for which YAML 1.1 has a type of its own
    compile_on_use(rb"-(?:(?<=[\s\[{,:-][0-9]{4}-)|(?<=\A[0-9]{4}-))[0-9][0-9]?-[0-9]"),  # dates
    compile_on_use(rb"[{,]\s*[\[{]"),  # lists and mappings as keys
)
_COMMENT: Final = compile_on_use(rb"(?:^| )#[ !#-&(-\[\]-~]*$", re.M)
"""A comment of printable ASCII. It has neither quotes nor escapes, so it is harmless even if it is part of a scalar."""
_LONG_NUMBER: Final = compile_on_use(rb"[0-9:_.]{300}")
"""Pattern found in every number that is too long for PyYAML: 4,300 digits, or 173 parts in base 60."""


def is_doubtful(source: bytes) -> bool:
    """Return whether a text that libyaml accepts contains a construct that another loader may reject.

    `tests/fuzz/test_yaml_loaders.py` tests this.
    """
    return _has_sign(source) and _has_sign(_COMMENT.sub(b"", source))


def _has_sign(source: bytes) -> bool:
    characters = set(source)  # search for a sign only if all of its bytes occur
    return (
        any(characters.issuperset(sign) and sign in source for sign in _SIGNS)
        or source.startswith((b"%", b"...", b":"))
        or source.find(BOM, 1) > 0  # libyaml skips a byte order mark at the start of any line
        or any(form.search(source) for form in _FORMS)
        or any(len(line) > 300 and _LONG_NUMBER.search(line) for line in source.split(b"\n"))
    )

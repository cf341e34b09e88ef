"""Pieces of text: a character at the border of two reads stays whole."""

from __future__ import annotations

from io import BytesIO

from cfglint_train.foundation import regular_files


def test_no_character_is_cut() -> None:
    text = "x" * (2**20 - 1) + "训练🚀" * 3
    assert "".join(regular_files.decode_pieces(BytesIO(text.encode()).read)) == text
    assert "".join(regular_files.decode_pieces(BytesIO(b"a\xff").read)) == "a\ufffd"

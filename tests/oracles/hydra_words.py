"""Write random words with the type and the value that Hydra's parser gives them, or null if it refuses them.

    python tests/oracles/hydra_words.py     # writes tests/oracles/hydra_words.json.xz

Floats and mappings are marked, because JSON does not keep them apart; a sweep or a function is "unknown".
"""

from __future__ import annotations

import json
import lzma
import random
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, IntervalSweep, QuotedString, RangeSweep
from hydra.errors import HydraException

COUNT = 4000
HEADS = ("a", "+a.b", "++a.b.c", "~a", "a.0.b", "a/b", "a@b")
ATOMS = (
    "1", "1e-6", "-3", "1_0", "0", ".5", "1.", "true", "False", "null", "NULL", "inf", "abc", "a-b", "_x", "${a.b}",
    "${oc.env:X}", "'q w'", '"d"', "\\,", "\\\\", " ", "  ", ",", "[", "]", "{", "}", ":", "/", "-", "+", ".", "$", "%",
    "*", "@", "?", "|", "(", ")", "=", "a:1", "x", "[1, 2]", "{a: b}", "'", '"', "\\", "\\'", "\u00e9", "<", "\t", "01",
    "1e6x", "choice(1,2)",
)  # fmt: skip


def to_plain(value: Any) -> Any:
    if isinstance(value, (ChoiceSweep, RangeSweep, Glob, IntervalSweep)):
        return {"unknown": 1}
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, dict):
        return {"d": [[to_plain(key), to_plain(item)] for key, item in value.items()]}
    if isinstance(value, list):
        return [to_plain(item) for item in value]
    return {"f": repr(value)} if isinstance(value, float) else value


def main() -> None:
    dice, parser = random.Random("hydra words"), OverridesParser.create()
    answers: dict[str, Any] = {}
    while len(answers) < COUNT:
        pieces = [dice.choice(ATOMS) for _ in range(dice.choice((0, 1, 1, 2, 2, 3, 4, 5)))]
        word = dice.choice(HEADS) + dice.choice(("=", "=", "=", "=", "")) + "".join(pieces)
        try:
            override = parser.parse_override(word)
            answers[word] = [override.type.name, to_plain(override._value)]
        except HydraException:
            answers[word] = None
    path = Path(__file__).with_suffix(".json.xz")
    path.write_bytes(lzma.compress(json.dumps(sorted(answers.items())).encode(), preset=6))


if __name__ == "__main__":
    main()

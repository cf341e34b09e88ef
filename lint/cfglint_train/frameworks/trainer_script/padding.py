"""Padding of a script's samples: a pad token that is the end of text, and collators that mask all pad tokens.

Source: transformers 4.26.0 and 5.23.0 data/data_collator.py (DataCollatorForLanguageModeling); trl 0.9.6 and 0.19.1
trainer/utils.py (DataCollatorForCompletionOnlyLM).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cfglint_train.documents.document import Entry
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.python.tree import OtherCallSetting, Record, Value
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.trainer_script.facts import build_fact, get_class

_OTHER_PADDING: Final = compile_on_use(rb"[\"']pad_token[\"']|[(,]\s*pad_token\s*=")
"""Evidence of another pad token: `add_special_tokens({"pad_token": ...})`, `from_pretrained(..., pad_token=...)`."""
_MASKING: Final = {"transformers": "DataCollatorForLanguageModeling", "trl": "DataCollatorForCompletionOnlyLM"}
"""Package -> its collator that masks every pad token in the labels."""


def list_padding_facts(script: PythonScript, collator: Entry | None) -> Iterator[tuple[str, OtherCallSetting]]:
    """Yield facts about the pad token, and about the collator that a trainer gets."""
    padding = _find_padding(script)
    if padding is not None:
        node, when = padding
        yield "_PAD_IS_EOS_", build_fact("pad_token", Value(script.find_span(node), when))
    if collator is None or (isinstance(collator.value, Value) and collator.value.value is None):
        return
    yield "_COLLATOR_", build_fact("data_collator", Value(collator.key.span, True))
    if isinstance(collator.value, Record):
        package, _, name = get_class(collator.value).rpartition(".")
        is_masking = _MASKING.get(package.partition(".")[0]) == name
        if is_masking and (package.startswith("trl") or _is_causal(collator.value)):
            yield "_MASKS_PAD_", build_fact("data_collator", Value(collator.key.span, True))


def _is_causal(collator: Record) -> bool:
    """Return whether a collator of transformers does not mask tokens of the input."""
    entry = collator.get("mlm")
    value = entry.value if entry is not None else None
    return not collator.open and isinstance(value, Value) and value.value is False


def _find_padding(script: PythonScript) -> tuple[ast.expr, str] | None:
    """Return where a script pads with the end of text, and whether it does "always" or only "without" a pad token.

    Return None if it sets another pad token as well, or sets it under another condition.
    """
    if _OTHER_PADDING.search(script.source) is not None:
        return None
    places = []
    for node in script.list_nodes(ast.Assign):
        target = node.targets[0]
        if not isinstance(target, ast.Attribute) or target.attr not in ("pad_token", "pad_token_id"):
            continue
        if "config" in ast.unparse(target.value):
            continue
        if not isinstance(node.value, ast.Attribute) or node.value.attr not in ("eos_token", "eos_token_id"):
            return None
        tests = [
            ast.unparse(item.test)
            for item in script.list_nodes(ast.If)
            if item.lineno <= node.lineno <= (item.end_lineno or 0) and "__name__" not in ast.unparse(item.test)
        ]
        if any("pad_token" not in test for test in tests):
            return None
        places.append((target, "without" if tests else "always"))
    return places[0] if places else None

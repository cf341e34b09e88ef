"""SYN006 malformed-pragma: a cfglint comment is not valid and has no effect.

## What it does
Reports `# cfglint: ...` comments that are neither facts (`nodes=64 gpu=A100-80GB torch=2.2`) nor suppressions
(`ignore[CODE]`, `file-ignore[CODE]`). It also reports unknown facts, and suppressions with unknown codes.

## Why is this bad?
cfglint ignores a fact that it does not understand. The estimate then rests on an assumption instead. A malformed
suppression silences nothing.

## Example
    # cfglint: node=64              # the fact is called nodes
    # cfglint: ignore MEM001        # the code is in brackets

## Use instead
    # cfglint: nodes=64
    # cfglint: ignore[MEM001]
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cfglint_rules import registry
from cfglint_rules.rule import Rule
from cfglint_train.documents.document import Document
from cfglint_train.findings.finding import Report
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.origin import Place
from cfglint_train.settings import cluster_facts, pragmas

RULE: Final = Rule("SYN006", "malformed-pragma", "warning", scope="file", reported_by_engine="pragma")


def check(document: Document) -> Iterator[Report]:
    """Yield a report for every invalid comment, unknown fact and unknown code."""
    pragmas_found = pragmas.read_pragmas(document)
    for comment in pragmas_found.malformed:
        yield Report(
            "unknown cfglint comment: it has no effect",
            Place(document, comment.span),
            help=_suggest_form(comment.text),
        )
    for fact in pragmas_found.facts:
        if cluster_facts.find_canonical_name(fact.name) is None:
            yield Report(
                f"unknown fact `{fact.name}` in a cfglint comment",
                Place(document, fact.span),
                help=_suggest_fact(fact.name),
            )
    for suppression in pragmas_found.suppressions:
        for code, span in suppression.codes:
            if not registry.match_selector(code):
                yield Report(
                    f"unknown rule {code} in a cfglint comment",
                    Place(document, span),
                    help=registry.describe_unknown(code).partition("; ")[2],
                )


def _suggest_form(text: str) -> str:
    """Return the form that a comment was probably meant to have, or all valid forms if cfglint cannot guess it."""
    codes = [code for code in re.findall(r"[A-Z]{3}\d{0,3}\b", text) if registry.match_selector(code)]
    kind = "file-ignore" if "file" in text else "ignore"
    if codes:
        return f"did you mean `# cfglint: {kind}[{', '.join(codes)}]`?"
    return (
        "valid forms: `# cfglint: ignore[CODE]` (this line, or the next one), `# cfglint: file-ignore[CODE]`, "
        "`# cfglint: nodes=4 gpu=H100`"
    )


def _suggest_fact(name: str) -> str:
    from difflib import get_close_matches

    completions = [fact for fact in cluster_facts.list_spellings() if fact.startswith(name.lower())]
    suggestions = completions or get_close_matches(name.lower().replace("_", "-"), cluster_facts.list_spellings(), 1)
    return (
        f"did you mean {suggestions[0]}?"
        if suggestions
        else f"known facts: {', '.join(cluster_facts.list_spellings())}"
    )

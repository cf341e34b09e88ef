"""SYN005 unused-suppression: a comment suppresses a finding that does not occur.

## What it does
Reports each code in an `ignore[...]` or `file-ignore[...]` comment that suppresses nothing.

## Why is this bad?
A suppression that is no longer needed hides the next finding of the same rule.

## Example
    micro_batch_size: 1   # cfglint: ignore[MEM001]   (the step has fit since the batch size was reduced)

## Fix safety
Safe: no setting changes. The fix removes the code, or the whole comment if it has no other code.

## When it does not apply
Unknown codes are reported as malformed-pragma (SYN006) instead. A code is not reported if its rule is switched off or
could not check the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from cfglint_rules import registry
from cfglint_rules.rule import Rule
from cfglint_train.documents.document import BOM, Document, Edit, Span
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.plan.origin import Place
from cfglint_train.settings import pragmas

RULE: Final = Rule(
    "SYN005",
    "unused-suppression",
    "warning",
    scope="file",
    fix="safe",
    reported_by_engine="suppression",
    tag="unnecessary",
)


def reports(
    document: Document,
    suppressions: Iterable[pragmas.Suppression],
    used: Collection[tuple[str, Span]],
    enabled: Collection[str],
) -> Iterator[Report]:
    """Yield a report for every code in a comment that suppressed no finding of the document.

    `used` contains the path and span of each code that suppressed a finding. Codes of rules that are not in `enabled`
    are skipped, because those rules did not run.
    """
    for suppression in suppressions:
        for code, span in suppression.codes:
            rules = registry.match_selector(code)
            if rules and rules.issubset(enabled) and (document.path, span) not in used:
                message = f"remove {code} from the comment" if len(suppression.codes) > 1 else "remove the comment"
                fix = Fix("safe", message, texts=((document, _build_removal(document, suppression, span)),))
                yield Report(f"unused suppression: no {code} finding here", Place(document, span), fix=fix)


def _build_removal(document: Document, suppression: pragmas.Suppression, span: Span) -> Edit:
    """Return the edit that removes a code from a comment, or the whole comment if it has no other code."""
    spans = [code_span for _, code_span in suppression.codes]
    number = spans.index(span)
    if len(spans) > 1:
        is_last = number == len(spans) - 1
        return Edit(Span(spans[number - 1].end, span.end) if is_last else Span(span.start, spans[number + 1].start), "")
    source, comment = document.source, suppression.comment
    start, end = pragmas.find_pragma_start(comment), comment.span.end
    line = source.rfind(b"\n", 0, start) + 1
    if not source[line:start].removeprefix(BOM).strip():  # the comment is alone on its line, so remove the line
        newline = source.find(b"\n", end)
        start, end = line + (len(BOM) if source[line:].startswith(BOM) else 0), newline + 1 or len(source)
    else:
        start -= len(source[line:start]) - len(source[line:start].rstrip())
    return Edit(Span(start, end), "")

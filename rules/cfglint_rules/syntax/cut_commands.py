"""Cut commands: find commands that bash does not run as intended, for SYN007."""

from __future__ import annotations

import re
from collections.abc import Iterator
from json import loads

from cfglint_train.documents.document import Edit, Span
from cfglint_train.documents.shell.cuts import (
    find_detached_options,
    find_detached_setting,
    find_line_above,
    find_space_after_backslash,
    find_swallowed_word,
    find_trailing_backslash,
    has_comment_after_backslash,
    is_continued,
)
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.findings.finding import Applicability, Fix, Related, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.origin import Place

_HELP_FOR_OTHER_SCRIPT: Final = "end the line before it with a backslash, in the script that has it"
_SCRIPT_EXTENSIONS: Final = (".sh", ".bash", ".slurm", ".sbatch", ".job")


def report_cut_commands(config: Config) -> Iterator[Report]:
    """Yield a report for every cut command, stray word and literal quote, and one per script for carriage returns."""
    document = config.document
    if not isinstance(document, ShellDocument):
        for script, number in config.launches:  # commands in other files, such as a README, are examples
            if isinstance(script, ShellDocument) and script.path.endswith(_SCRIPT_EXTENSIONS):
                yield from _report_ends(config, script, script.invocations[number])
        return
    invocation = document.invocations[int(config.root[0])]
    if b"\r\n" in document.source and frameworks.recognise(config.framework, document)[0].root == config.root:
        yield _report_carriage_return(document)
    title = frameworks.load(config.framework).title
    for word in _list_leftovers(config, invocation):
        message = f"`{word.text}` belongs to no setting: {title} stops"
        yield Report(message, Place(document, word.span), help="join it with its setting or its value, or remove it")
    yield from _report_ends(config, document, invocation)
    if not invocation.nests and not any(outer.nests for outer in document.list_launchers(invocation)):
        yield from _report_quotes(config, document, invocation)


def _report_carriage_return(document: ShellDocument) -> Report:
    start = document.source.index(b"\r\n")
    return Report(
        "the lines of this script end in a carriage return: bash reads it as part of the last word",
        Place(document, Span(start, start + 1)),
        help="convert it with dos2unix, and add `*.sh text eol=lf` to .gitattributes",
    )


def _list_leftovers(config: Config, invocation: Invocation) -> Iterator[Word]:
    """Yield the first word of each sequence of words that the framework's parser rejects."""
    keys = frameworks.get_keys(config)
    refused = set() if keys is None else {id(word) for word in keys.find_leftovers(config)}
    known_ids = {id(word) for word in keys.find_switch_values(config)} if keys is not None and refused else set()
    was_leftover = False
    for word in invocation.words:
        is_leftover = id(word) in refused
        if is_leftover and not was_leftover and id(word) not in known_ids and not word.text.isspace():
            yield word
        was_leftover = is_leftover


def _report_ends(config: Config, document: ShellDocument, invocation: Invocation) -> Iterator[Report]:
    """Yield a report for every place where a command ends too early.

    White space after a backslash is reported if it stops the framework. Unless that white space ends the command, the
    lines that bash cuts off after the command are reported too.
    """
    swallowed = find_swallowed_word(document, invocation)
    if swallowed is not None:
        backslash, word_span = swallowed
        yield Report(
            f"bash reads this `{document.get_text(word_span)}` as a word of the command above, and rejects the script",
            Place(document, word_span),
            fix=Fix("safe", "remove the backslash above", texts=((document, Edit(backslash, "")),)),
        )
    keys = frameworks.get_keys(config)
    blanks = [
        word
        for index, word in enumerate(invocation.words)
        if document.is_lost_blank(word) and keys is not None and keys.is_blank_fatal(config, invocation, index)
    ]
    for word in blanks:
        yield _report_blank(config, document, word, invocation)
    if any(word.span.start >= invocation.span.start for word in blanks):
        return  # the cut is reported at its cause
    cuts = list(_report_cuts(document, invocation))
    if cuts:
        yield _merge_cuts(cuts)
    setting = find_detached_setting(document, invocation)
    if setting is None or not _is_setting(config, setting[0]):
        return
    name, span = setting
    if all(
        find_line_above(document, report.place.span.start) != find_line_above(document, span.start) for report in cuts
    ):
        effect = f"sets a variable `{name}`" if name.isidentifier() else f"runs `{name}=...` as a separate command"
        yield Report(
            f"bash {effect}: the command above has ended, and trains without it",
            Place(document, span),
            fix=_build_joining_fix(document, find_line_above(document, span.start), "unsafe"),
            help=_explain_cause(document, span.start),
        )


def _is_setting(config: Config, name: str) -> bool:
    """Return whether a name at the start of a line is an option or a setting of the framework.

    A name without dashes counts only if the config is a command, or its launches pass settings in this form.
    """
    keys = frameworks.get_keys(config)
    if name.startswith("--") or keys is None:
        return name.startswith("--")
    if config.document.syntax != "shell" and not any(
        override.argument is not None and override.argument.prefix for _, override in config.launch_overrides
    ):
        return False
    route = tuple(name.lstrip("+").split("."))
    return (
        keys.get_vocabulary(config).find_fact(route, keys.get_release(config), keys.build_context(config)) is not None
    )


def _is_continued(config: Config, document: ShellDocument, word: Word, invocation: Invocation) -> bool | None:
    """Return whether the next line continues the command with an option or setting, or None if that is unknown."""
    setting = find_detached_setting(document, invocation)
    if setting is not None and find_line_above(document, setting[1].start).start <= word.span.start < setting[1].start:
        return _is_setting(config, setting[0])
    return is_continued(document, invocation, word.span.start)


def _report_blank(config: Config, document: ShellDocument, word: Word, invocation: Invocation) -> Report:
    """Return the report on white space after a backslash, which ends a command; inside an array, it becomes a word."""
    consequence = "the command ends here, and" if word.span.start >= invocation.span.start else "it becomes a word, and"
    rest = Span(word.span.start, document.find_line_end(word.span.start))
    removable = (
        "the comment" if has_comment_after_backslash(document, Span(rest.start - 1, rest.end)) else "the white space"
    )
    help_text = f"remove {removable}; a backslash continues a line only as its last character"
    is_continued = _is_continued(config, document, word, invocation)
    fix = _build_joining_fix(document, rest, "safe") if is_continued else None
    if is_continued is False:
        fix = _build_ending_fix(document, Span(document.source.rfind(b"\n", 0, rest.start) + 1, rest.end))
        help_text = "remove the backslash: the next line does not continue the command"
    title = frameworks.load(config.framework).title
    message = f"white space follows this backslash: {consequence} {title} stops"
    return Report(message, Place(document, word.span), fix=fix, help=help_text)


def _build_ending_fix(document: ShellDocument, line: Span) -> Fix | None:
    """Return the fix that removes the backslash at the end of a command, or None if a comment follows it."""
    end = find_trailing_backslash(document, line)
    if end is None:
        return None
    return Fix("safe", "remove the trailing backslash", texts=((document, Edit(end, "")),))


def _build_joining_fix(document: ShellDocument, line: Span, applicability: Applicability) -> Fix | None:
    """Return the fix that removes the white space after a backslash, or None if no white space follows it."""
    space = find_space_after_backslash(document, line)
    if space is None:
        return None
    return Fix(applicability, "remove the white space after the backslash", texts=((document, Edit(space, "")),))


def _merge_cuts(cuts: list[Report]) -> Report:
    """Return the report on the first cut of a command, with the other cuts as related places."""
    first, *others = cuts
    fixes = [report.fix for report in cuts if report.fix is not None]
    is_fixed = len(fixes) == len(cuts)
    return first._replace(
        fix=fixes[0]._replace(texts=tuple(text for fix in fixes for text in fix.texts)) if is_fixed else None,
        related=tuple(Related(report.place, "the command is cut again here") for report in others),
    )


def _report_cuts(document: ShellDocument, invocation: Invocation) -> Iterator[Report]:
    """Yield a report for every flag after a command that bash runs as a command of its own."""
    has_blank = any(document.is_lost_blank(word) for word in invocation.words)  # most parsers reject that word
    consequence = "and gets a word of white space" if has_blank else "and trains without it"
    for command in find_detached_options(document, invocation):
        name = command.head[0]
        fix = _build_joining_fix(document, find_line_above(document, name.span.start), "unsafe")
        yield Report(
            f"bash runs `{name.text}` as a separate command: the command above has ended, {consequence}",
            Place(document, name.span),
            fix=fix,
            help=_explain_cause(document, name.span.start)
            if _is_written_here(document, name)
            else _HELP_FOR_OTHER_SCRIPT,
        )


def _is_written_here(document: ShellDocument, word: Word) -> bool:
    """Return whether an option is written at the reported place, and not in another script that this script sources."""
    start = word.span.start
    return document.source[start : start + 2].lstrip(b"\"'")[:1] == b"-"


def _explain_cause(document: ShellDocument, start: int) -> str:
    """Return the advice for the reason why the command above a place ends."""
    line = find_line_above(document, start)
    line_above_text = document.source[line.start : line.end]
    reason = "a backslash continues a line only as its last character"
    if has_comment_after_backslash(document, line):
        return f"remove the comment after the backslash above: {reason}"
    if find_space_after_backslash(document, line) is not None:
        return f"remove the white space after the backslash above: {reason}"
    if not line_above_text.strip():
        return "remove the empty line: it ends the command"
    if line_above_text.lstrip().startswith(b"#"):
        return "move the comment above the command: here it ends the command"
    return "end the line above with a backslash"


def _is_json(text: str) -> bool:
    """Return whether a word is a JSON object or list, in which quotes are intended."""
    try:
        return text[:1] in ("{", "[") and isinstance(loads(text), (dict, list))
    except (ValueError, RecursionError):
        return False


def _report_quotes(config: Config, document: ShellDocument, invocation: Invocation) -> Iterator[Report]:
    """Yield a report for every word with quotes from a variable or heredoc, which bash passes on as characters."""
    title, keys = frameworks.load(config.framework).title, frameworks.get_keys(config)
    flag = ""
    for word in invocation.words:
        is_quoted = word.is_known and any(part.names and re.search(b"[\"']", part.text) for part in word.fragments)
        if (
            is_quoted
            and not _is_json(word.text)
            and not (keys is not None and keys.is_value_corrected(config, flag, word.text))
        ):
            yield Report(
                f"{title} receives these quotes as characters: bash does not interpret quotes in a variable or heredoc",
                Place(document, word.span),
                help="remove them, or keep the flags in an array",
            )
        flag = word.text

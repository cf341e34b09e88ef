"""Commands that bash does not run as they were meant: what SYN007 reports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from json import loads

from cfglint_train.documents.document import Edit, Span
from cfglint_train.documents.shell.cuts import (
    backslash_at_the_end,
    comment_behind_backslash,
    cut_off,
    cut_setting,
    follows,
    line_above,
    space_behind_backslash,
)
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.findings.finding import Applicability, Fix, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.lens import Config
from cfglint_train.plan.origin import Place

_ELSEWHERE: Final = "end the line before it with a backslash, in the script that has it"
_SCRIPTS: Final = (".sh", ".bash", ".slurm", ".sbatch", ".job")


def reports(config: Config) -> Iterator[Report]:
    """One report per cut-off command, word and quoted text; one per script for its line ends."""
    document = config.document
    if not isinstance(document, ShellDocument):
        for script, number in config.starts:  # what other texts show is an example
            if isinstance(script, ShellDocument) and script.path.endswith(_SCRIPTS):
                yield from _ends(config, script, script.invocations[number])
        return
    invocation = document.invocations[int(config.root[0])]
    if b"\r\n" in document.source and frameworks.recognise(config.framework, document)[0].root == config.root:
        yield _carriage_return(document)
    title = frameworks.load(config.framework).title
    for word in _strays(config, invocation):
        yield Report(f"`{word.text}` is not the value of any flag: {title} stops", Place(document, word.span))
    yield from _ends(config, document, invocation)
    if not invocation.nests and not any(one.nests for one in document.enclosing(invocation)):
        yield from _quotes(config, document, invocation)


def _carriage_return(document: ShellDocument) -> Report:
    at = document.source.index(b"\r\n")
    return Report(
        "the lines of this script end in a carriage return: bash reads it as part of the last word",
        Place(document, Span(at, at + 1)),
        help="convert it with dos2unix, and add `*.sh text eol=lf` to .gitattributes",
    )


def _strays(config: Config, invocation: Invocation) -> Iterator[Word]:
    """The first of each row of words that the framework's parser refuses."""
    keys = frameworks.keys_of(config)
    refused = set() if keys is None else {id(word) for word in keys.strays(config)}
    told = {id(word) for word in keys.given_to_switches(config)} if keys is not None and refused else set()
    before = False
    for word in invocation.words:
        stray = id(word) in refused
        if stray and not before and id(word) not in told and not word.text.isspace():
            yield word
        before = stray


def _ends(config: Config, document: ShellDocument, invocation: Invocation) -> Iterator[Report]:
    """Where a command ends before it was meant to: at white space that the framework refuses, else by what follows."""
    keys = frameworks.keys_of(config)
    blanks = [
        word
        for index, word in enumerate(invocation.words)
        if document.is_lost(word) and keys is not None and keys.refuses_blank(config, invocation, index)
    ]
    for word in blanks:
        yield _blank(config, document, word, invocation)
    if any(word.span.start >= invocation.span.start for word in blanks):
        return  # the cut is reported where it happens
    cuts = list(_cuts(document, invocation))
    yield from cuts
    setting = cut_setting(document, invocation)
    if setting is None or not _is_setting(config, setting[0]):
        return
    name, span = setting
    if all(line_above(document, one.place.span.start) != line_above(document, span.start) for one in cuts):
        does = f"sets a variable `{name}`" if name.isidentifier() else f"runs `{name}=...` as a separate command"
        yield Report(
            f"bash {does}: the command above has ended, and trains without it",
            Place(document, span),
            fix=_joined(document, line_above(document, span.start), "unsafe"),
            help=_cause(document, span.start),
        )


def _is_setting(config: Config, name: str) -> bool:
    """Whether a name on a line of its own is that of an option, or of a setting of a framework whose launches give
    settings in that way.
    """
    keys = frameworks.keys_of(config)
    if name.startswith("--") or keys is None:
        return name.startswith("--")
    if not any(override.given is not None and override.given.prefix for _, override in config.launched):
        return False
    route = tuple(name.split("."))
    return keys.vocabulary_of(config).fact(route, keys.release(config), keys.context(config)) is not None


def _goes_on(config: Config, document: ShellDocument, word: Word, invocation: Invocation) -> bool | None:
    """Whether the next line goes on with the command, as an option or a setting; None where that is not known."""
    setting = cut_setting(document, invocation)
    if setting is not None and line_above(document, setting[1].start).start <= word.span.start < setting[1].start:
        return _is_setting(config, setting[0])
    return follows(document, invocation, word.span.start)


def _blank(config: Config, document: ShellDocument, word: Word, invocation: Invocation) -> Report:
    """White space behind a backslash: in the command itself it also ends it, in an array it does not."""
    then = "the command ends here, and" if word.span.start >= invocation.span.start else "it becomes a word, and"
    rest = Span(word.span.start, document.line_end(word.span.start))
    what = "the comment" if comment_behind_backslash(document, Span(rest.start - 1, rest.end)) else "the white space"
    help_ = f"remove {what}; a backslash continues a line only as its last character"
    goes_on = _goes_on(config, document, word, invocation)
    fix = _joined(document, rest, "safe") if goes_on else None
    if goes_on is False:
        fix = _ended(document, Span(document.source.rfind(b"\n", 0, rest.start) + 1, rest.end))
        help_ = "remove the backslash: the next line does not continue the command"
    title = frameworks.load(config.framework).title
    message = f"white space follows this backslash: {then} {title} stops"
    return Report(message, Place(document, word.span), fix=fix, help=help_)


def _ended(document: ShellDocument, line: Span) -> Fix | None:
    """The fix that lets a command end at its line; None where a comment follows the backslash."""
    end = backslash_at_the_end(document, line)
    if end is None:
        return None
    return Fix("safe", "remove the backslash, which continues nothing", texts=((document, Edit(end, "")),))


def _joined(document: ShellDocument, line: Span, applicability: Applicability) -> Fix | None:
    """The fix that lets a backslash end its line; None where no white space follows one there."""
    space = space_behind_backslash(document, line)
    if space is None:
        return None
    return Fix(applicability, "remove the white space behind the backslash", texts=((document, Edit(space, "")),))


def _cuts(document: ShellDocument, invocation: Invocation) -> Iterator[Report]:
    """Flags behind the command that bash takes for commands of their own."""
    blank = any(document.is_lost(word) for word in invocation.words)  # most parsers refuse that word
    ends = "and gets a word of white space" if blank else "and trains without it"
    for one in cut_off(document, invocation):
        name = one.head[0]
        fix = _joined(document, line_above(document, name.span.start), "unsafe")
        yield Report(
            f"bash runs `{name.text}` as a separate command: the command above has ended, {ends}",
            Place(document, name.span),
            fix=fix,
            help=_cause(document, name.span.start) if _is_own(document, name) else _ELSEWHERE,
        )


def _is_own(document: ShellDocument, word: Word) -> bool:
    """Whether an option is written where it is reported, and not in a script that is read there."""
    start = word.span.start
    return document.source[start : start + 2].lstrip(b"\"'")[:1] == b"-"


def _cause(document: ShellDocument, start: int) -> str:
    """What ended the command above a place."""
    line = line_above(document, start)
    above = document.source[line.start : line.end]
    if comment_behind_backslash(document, line):
        return "remove the comment behind the backslash above: only as the last character it continues a line"
    if space_behind_backslash(document, line) is not None:
        return "remove the white space behind the backslash above: only as the last character it continues a line"
    if not above.strip():
        return "remove the empty line, which ends the command"
    if above.lstrip().startswith(b"#"):
        return "move the comment above the command, which it ends"
    return "end the line above with a backslash"


def _is_json(text: str) -> bool:
    """Whether a word is a JSON object or list, whose quotes are meant to be characters."""
    try:
        return text[:1] in ("{", "[") and isinstance(loads(text), (dict, list))
    except (ValueError, RecursionError):
        return False


def _quotes(config: Config, document: ShellDocument, invocation: Invocation) -> Iterator[Report]:
    """Words whose quotes came out of a variable or heredoc, where bash takes them for characters."""
    title, keys = frameworks.load(config.framework).title, frameworks.keys_of(config)
    flag = ""
    for word in invocation.words:
        quoted = word.known and any(part.names and re.search(b"[\"']", part.text) for part in word.fragments)
        if quoted and not _is_json(word.text) and not (keys is not None and keys.puts_right(config, flag, word.text)):
            yield Report(
                f"{title} receives these quotes as characters: bash does not interpret quotes in a variable or heredoc",
                Place(document, word.span),
                help="remove them, or keep the flags in an array",
            )
        flag = word.text

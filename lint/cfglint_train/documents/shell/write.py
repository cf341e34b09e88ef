"""Edits of shell scripts: options set, inserted, removed and renamed where they are.

The text that a shell reads twice (a heredoc in a variable, the string of `bash -c`) is too easily broken to be trusted:
only words that need no quotes are written, and every set of edits is read back. Where another program of the script
would change too, or the words come out other than meant, nothing is written (CannotEdit).
"""

from __future__ import annotations

import re
from bisect import bisect_left

from cfglint_train.documents.document import (
    Append,
    CannotEdit,
    Change,
    Delete,
    DocumentError,
    Edit,
    Rename,
    Route,
    Set,
    Span,
    apply,
    ordered,
)
from cfglint_train.documents.shell.programs import Flag
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation, ShellScript

# A word that starts with `=` is plain to bash, an expansion to zsh and an operator to the grammar.
_SAFE: Final = re.compile(r"(?!=)[A-Za-z0-9_./:=,@%+-]+")
_NUMBER: Final = re.compile(r"-\.?[0-9].*")
_NAME: Final = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]*")
_CONTINUED: Final = re.compile(rb"[ \t]*\\\r?\n")
_COMMENT: Final = re.compile(rb"(?:^|[ \t\n])#")
# Texts whose lines are words anyway; elsewhere a line ends the command unless a backslash continues it.
# What only prints its words may print others.
_PRINTERS: Final = ("echo", "printf", ":")
_LINES_ARE_WORDS: Final = ("array", "heredoc", "variable")


class ShellWriter:
    """Turns changes of one script into edits."""

    def __init__(self, document: ShellScript) -> None:
        self.document = document
        self.source = document.source
        self.deleted: set[tuple[int, int]] = set()
        # By invocation and word: what is there afterwards, and what is added behind it (-1: in front of all).
        self.replaced: dict[tuple[int, int], list[str]] = {}
        self.added: dict[tuple[int, int], list[str]] = {}
        self.removed: list[Span] = []
        self._spans: list[Span] | None = None

    def write(self, changes: list[Change]) -> list[Edit]:
        """The edits of all changes, ordered and read back. Raises CannotEdit where one cannot be made."""
        changes = [self._as_option(change) for change in changes]
        for change in changes:
            if isinstance(change, Delete):
                invocation = self._invocation(change.route)
                for number in self._entries(invocation, change.route):
                    self.deleted.add((invocation.number, number))
        edits: list[Edit] = self._deletions()
        self.removed = [edit.span for edit in edits]
        for change in changes:
            if isinstance(change, Set):
                edits += self.set(change)
            elif isinstance(change, Append):
                edits += self.append(change)
            elif isinstance(change, Rename):
                edits += self.rename(change)
        edits = ordered(edits)
        if edits:
            self._verify(edits)
        return edits

    def _as_option(self, change: Change) -> Change:
        """A change of a key as one of the option that gives it, where options are read as keys."""
        number = change.route[0] if change.route else None
        options = self.document.keyed.get(number) if isinstance(number, int) else None
        return change if options is None else options.written(change, self._invocation(change.route))

    def set(self, change: Set) -> list[Edit]:
        """Give an option a value, or add the option."""
        invocation = self._invocation(change.route)
        if isinstance(change.route[1], int):
            return self._set_word(invocation, change.route[1], change.value)
        if len(change.route) == 3:
            return self._set_item(invocation, change)
        texts = _texts(change.value)
        standing = [number for number in self._entries(invocation, change.route) if not self._gone(invocation, number)]
        if not standing:
            return self._insert(invocation, str(change.route[1]), texts, change.beside)
        flag = invocation.flags[standing[-1]]
        if flag.joined:
            return self._set_joined(invocation, standing[-1], texts)
        words = [invocation.words[index] for index in flag.values]
        if [word.text for word in words if word.known] == texts and all(word.known for word in words):
            return []
        edits: list[Edit] = []
        for index, text in zip(flag.values, texts):
            edits += self._replace(invocation, index, text)
        if len(texts) > len(words):
            last = flag.values[-1] if flag.values else flag.word
            new = texts[len(words) :]
            self.added.setdefault((invocation.number, last), [])[:0] = new
            at = self._end(invocation.words[last])
            edits.append(Edit(Span(at, at), "".join(f" {text}" for text in new)))
        elif len(texts) < len(words):
            surplus = flag.values[len(texts) :]
            before = flag.values[len(texts) - 1] if texts else flag.word
            for index in surplus:
                self._own(invocation.words[index])
                self.replaced[invocation.number, index] = []
            edits.append(self._cut(invocation.words[before], invocation.words[surplus[-1]]))
        return edits

    def append(self, change: Append) -> list[Edit]:
        """Add a word behind the values of an option."""
        invocation = self._invocation(change.route)
        texts = _texts([change.value])
        standing = self._entries(invocation, change.route)
        if not standing:
            return self._insert(invocation, str(change.route[1]), texts, change.beside)
        flag = invocation.flags[standing[-1]]
        last = flag.values[-1] if flag.values else flag.word
        self.added.setdefault((invocation.number, last), []).extend(texts)
        at = self._end(invocation.words[last])
        return [Edit(Span(at, at), f" {texts[0]}")]

    def rename(self, change: Rename) -> list[Edit]:
        """Give an option another name, wherever it is."""
        if _NAME.fullmatch(change.key) is None:
            raise CannotEdit(f"{change.key!r} is not an option name")
        invocation = self._invocation(change.route)
        edits: list[Edit] = []
        for number in self._entries(invocation, change.route):
            flag = invocation.flags[number]
            if not flag.joined:
                edits += self._replace(invocation, flag.word, change.key)
                continue
            word, key = invocation.words[flag.word], invocation.entries[number].key.span
            if self.document.text(key) != flag.name:
                raise CannotEdit("its name is put together from several places")
            self.replaced[invocation.number, flag.word] = [change.key + word.text[len(flag.name) :]]
            edits.append(Edit(key, change.key))
        return edits

    def _set_word(self, invocation: Invocation, index: int, value: Any) -> list[Edit]:
        """Replace one word of a program that is no option."""
        texts = _texts(value)
        if len(texts) != 1 or not 0 <= index < len(invocation.words):
            raise CannotEdit("there is no such word")
        return self._replace(invocation, index, texts[0])

    def _set_item(self, invocation: Invocation, change: Set) -> list[Edit]:
        numbers = self._entries(invocation, change.route)
        texts = _texts(change.value)
        flag = invocation.flags[numbers[-1]] if numbers else None
        item = change.route[2]
        if flag is None or not isinstance(item, int) or not 0 <= item < len(flag.values) or len(texts) != 1:
            raise CannotEdit("there is no such value")
        return self._replace(invocation, flag.values[item], texts[0])

    def _set_joined(self, invocation: Invocation, number: int, texts: list[str]) -> list[Edit]:
        """`--option=value`."""
        from cfglint_train.documents.shell.script import behind

        flag = invocation.flags[number]
        word = invocation.words[flag.word]
        value = behind(word, flag.joined)
        if len(texts) != 1:
            raise CannotEdit(f"{flag.name} has its value after an equals sign, which takes one word")
        if value.known and value.text == texts[0]:
            return []
        target = self._target(value)
        self.replaced[invocation.number, flag.word] = [word.text[: flag.joined] + texts[0]]
        return [Edit(target, texts[0])]

    def _replace(self, invocation: Invocation, index: int, text: str) -> list[Edit]:
        word = invocation.words[index]
        if word.known and word.text == text:
            return []
        target = self._target(word)
        self.replaced[invocation.number, index] = [text]
        return [Edit(target, text)]

    def _target(self, word: Word) -> Span:
        """The bytes that decide a word. Raises CannotEdit where a new text there would do more, or less."""
        if word.why:
            raise CannotEdit(f"it depends on {word.why}")
        if word.assumed:
            raise CannotEdit(f"it depends on how the script is started: {word.assumed}")
        if word.target is None:
            raise CannotEdit("it is computed, or put together from several places")
        for name in word.names:
            assignments = self.document.script.assignments.get(name, [])
            if any(one.start <= word.span.start and word.span.end <= one.end for one in assignments):
                continue  # the variable holds the option as a whole, name and value
            if len(assignments) != 1:
                raise CannotEdit(f"it comes from {name}, which is not set in one place")
            if self.document.uses(name) != 1:
                raise CannotEdit(f"it comes from {name}, which is used elsewhere too")
        return word.target

    def _own(self, word: Word) -> None:
        """Raise CannotEdit where a word has no place of its own."""
        at = bisect_left(self._places, word.span)
        if self._places[at + 1 : at + 2] == [word.span]:
            raise CannotEdit("its text is also used for something else")

    @property
    def _places(self) -> list[Span]:
        if self._spans is None:
            self._spans = sorted(
                word.span
                for invocation in self.document.invocations
                if invocation.program not in _PRINTERS
                for word in (*invocation.head, *invocation.words)
            )
        return self._spans

    def _end(self, word: Word) -> int:
        """The place behind a word; in a string within the script, behind the quotes that close it there."""
        at = word.span.end
        kind, region = self.document.around(word.span)
        if kind not in ("string", "variable"):
            return at
        while at < region.end - 1:
            if self.source[at : at + 2] in (b'\\"', b"\\'"):
                at += 2
            elif self.source[at : at + 1] in (b'"', b"'"):
                at += 1
            else:
                break
        return at

    def _cut(self, before: Word, last: Word) -> Edit:
        """Remove everything behind one word up to the end of another."""
        start, end = self._end(before), self._end(last)
        if not start <= end or self.document.around(before.span) != self.document.around(last.span):
            raise CannotEdit("its words are in different places")
        if _COMMENT.search(self.source[start:end]):
            raise CannotEdit("there is a comment next to it")
        return Edit(Span(start, end), "")

    def _insert(self, invocation: Invocation, name: str, texts: list[str], beside: tuple[str, ...]) -> list[Edit]:
        if _NAME.fullmatch(name) is None:
            raise CannotEdit(f"{name!r} is not an option name")
        text = " ".join((name, *texts))
        anchor = self._anchor(invocation, beside)
        if anchor is None:
            word = (*invocation.head, *invocation.words)[-1]
            self.added.setdefault((invocation.number, len(invocation.words) - 1), []).extend((name, *texts))
            at = self._end(word)
            return [Edit(Span(at, at), f" {text}")]
        first = invocation.words[anchor.word]
        last = max((anchor.word, *anchor.values))
        self.added.setdefault((invocation.number, last), []).extend((name, *texts))
        return [self._line(first, self._end(invocation.words[last]), text)]

    def _anchor(self, invocation: Invocation, beside: tuple[str, ...]) -> Flag | None:
        """The option behind which a new one goes: one whose words stand together."""
        standing = [
            flag
            for number, flag in enumerate(invocation.flags)
            if not self._gone(invocation, number) and self._together(invocation, flag)
        ]
        for name in beside:
            for flag in reversed(standing):
                if flag.name == name:
                    return flag
        return standing[-1] if standing else None

    def _together(self, invocation: Invocation, flag: Flag) -> bool:
        """Whether an option and its values are in one text, in this order."""
        spans = [invocation.words[index].span for index in (flag.word, *flag.values)]
        region = self._region(spans[0])
        return spans == sorted(spans) and all(self._region(span) == region for span in spans)

    def _line(self, first: Word, at: int, text: str) -> Edit:
        """A new option behind the one that begins with `first` and ends at `at`, laid out as that one is."""
        source = self.source
        start = first.span.start
        line = source.rfind(b"\n", 0, start) + 1
        indent = source[line:start]
        here = Span(at, at)
        if indent.strip():
            return Edit(here, f" {text}")
        lead = indent.decode("ascii", "replace")
        newline = self.document.newline
        kind, region = self.document.around(first.span)
        rest = source[at : self.document.line_end(at)].strip()
        continued = _CONTINUED.match(source, at)
        if continued is not None and not any(
            span.start < continued.end() and at < span.end and continued.end() != span.start for span in self.removed
        ):
            tail = source[at : continued.end()].decode("ascii", "replace")
            return Edit(Span(continued.end(), continued.end()), f"{lead}{text}{tail}")
        if kind == "array" and rest.startswith(b"#"):
            end = self.document.line_end(at)
            return Edit(Span(end, end), f"{newline}{lead}{text}")
        if rest.startswith(b"#"):
            return Edit(here, f" {text}")
        if kind == "array" or (kind in _LINES_ARE_WORDS and not self._backslashed(line, region)):
            return Edit(here, f"{newline}{lead}{text}")
        return Edit(here, f" \\{newline}{lead}{text}")

    def _backslashed(self, line: int, region: Span) -> bool:
        """Whether the line above ends in a backslash."""
        return line - 1 > region.start and self.source[region.start : line].rstrip(b"\r\n").endswith(b"\\")

    def _deletions(self) -> list[Edit]:
        doomed: dict[Span, None] = {}
        ends: dict[Span, int] = {}
        for index, number in sorted(self.deleted):
            invocation = self.document.invocations[index]
            flag = invocation.flags[number]
            if not self._together(invocation, flag):
                raise CannotEdit("its words are in different places")
            for at in (flag.word, *flag.values):
                word = invocation.words[at]
                self._own(word)
                doomed[word.span] = None
                ends[word.span] = self._end(word)
                self.replaced[index, at] = []
        edits: list[Edit] = []
        places = self._places
        run: list[Span] = []
        for span in sorted(doomed):
            if run and (places.index(span) != places.index(run[-1]) + 1 or self._region(run[-1]) != self._region(span)):
                edits.append(self._delete(run, ends))
                run = []
            run.append(span)
        if run:
            edits.append(self._delete(run, ends))
        return edits

    def _region(self, span: Span) -> Span:
        return self.document.around(span)[1]

    def _delete(self, run: list[Span], ends: dict[Span, int]) -> Edit:
        """Remove words that follow each other: whole lines where they fill them."""
        source, places = self.source, self._places
        kind, region = self.document.around(run[0])
        start, end = run[0].start, ends[run[-1]]
        index = places.index(run[0])
        before = places[index - 1] if index and region.start <= places[index - 1].start else None
        after = next((span for span in places[places.index(run[-1]) + 1 :][:1] if span.end <= region.end), None)
        line = source.rfind(b"\n", 0, start) + 1
        tail = source[end : self.document.line_end(end)]
        if _COMMENT.search(source[start:end]) or _COMMENT.search(tail if kind == "array" else b""):
            raise CannotEdit("there is a comment next to it")
        fills = not source[line:start].strip() and tail.strip() in (b"", b"\\")
        behind = source.find(b"\n", end) + 1 or len(source)
        if before is None:
            if fills and after is not None:
                return Edit(Span(line, behind), "")
            return Edit(Span(start, after.start if after is not None else end), "")
        edge = self._edge(before)
        between = source[edge:start]
        if fills and (after is not None or (kind in _LINES_ARE_WORDS and b"\\" not in between)):
            return Edit(Span(line, behind), "")
        if _COMMENT.search(between):
            raise CannotEdit("there is a comment next to it")
        if b"\n" in between and after is not None and b"\n" not in source[end : after.start]:
            return Edit(Span(start, after.start), "")
        return Edit(Span(edge, end), "")

    def _edge(self, span: Span) -> int:
        """The end of the word at a span."""
        for invocation in self.document.invocations:
            for word in (*invocation.head, *invocation.words):
                if word.span == span:
                    return self._end(word)
        return span.end

    def _verify(self, edits: list[Edit]) -> None:
        """Read the changed script and compare every program's words with what is meant."""
        old = self.document
        try:
            new = type(old)(old.path, apply(self.source, edits), old.load)
        except DocumentError as error:
            raise CannotEdit(f"the script could not be read any more ({error.message})") from None
        same_count = len(new.invocations) == len(old.invocations)
        if not same_count or len(new.script.errors) > len(old.script.errors):
            raise CannotEdit("bash would read other commands than before")
        for before, after in zip(old.invocations, new.invocations):
            if before.program in _PRINTERS:
                continue
            meant, found = self._meant(before), _told(after)
            if found != meant or before.program != after.program or before.environment != after.environment:
                if any(number == before.number for number, _ in (*self.replaced, *self.added)):
                    raise CannotEdit("bash would not read it as meant there")
                raise CannotEdit(f"the text is shared with another command ({before.program})")

    def _meant(self, invocation: Invocation) -> list[tuple[str, bool]]:
        index = invocation.number
        if invocation.nests:
            return _told(invocation)
        result = [(text, True) for text in self.added.get((index, -1), ())]
        for number, word in enumerate(invocation.words):
            key = (index, number)
            if key in self.replaced:
                result += [(text, True) for text in self.replaced[key]]
            else:
                result.append((word.text, word.known))
            result += [(text, True) for text in self.added.get(key, ())]
        return result

    def _invocation(self, route: Route) -> Invocation:
        if len(route) not in (2, 3) or not isinstance(route[0], int):
            raise CannotEdit("only the options of a program can be changed")
        if not 0 <= route[0] < len(self.document.invocations):
            raise CannotEdit("the script starts no such program")
        invocation = self.document.invocations[route[0]]
        if invocation.is_directive:
            raise CannotEdit("it is in a comment")
        return invocation

    def _entries(self, invocation: Invocation, route: Route) -> list[int]:
        return [number for number, flag in enumerate(invocation.flags) if flag.name == route[1]]

    def _gone(self, invocation: Invocation, number: int) -> bool:
        return (invocation.number, number) in self.deleted


def _told(invocation: Invocation) -> list[tuple[str, bool]]:
    """The words of a program; of a shell, whose script is compared command by command, only how many there are."""
    if invocation.nests:
        return [("", True)] * len(invocation.words)
    return [(word.text, word.known) for word in invocation.words]


def _texts(value: Any) -> list[str]:
    """The words of a value. Raises CannotEdit for one that would need quotes or would be read as an option."""
    if value is True:
        return []
    values = value if isinstance(value, (list, tuple)) else [value]
    texts: list[str] = []
    for one in values:
        if isinstance(one, float):
            texts.append(str(int(one)) if one.is_integer() and abs(one) < 1e16 else repr(one))
        elif isinstance(one, (str, int)) and not isinstance(one, bool):
            texts.append(str(one))
        else:
            raise CannotEdit(f"{one!r} is not a word of a command line")
    for text in texts:
        if _SAFE.fullmatch(text) is None:
            raise CannotEdit(f"{text!r} needs quotes, which may not be possible there")
        if text.startswith("-") and _NUMBER.fullmatch(text) is None:
            raise CannotEdit(f"{text!r} would be read as an option")
    return texts

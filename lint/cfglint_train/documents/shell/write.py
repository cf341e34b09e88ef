"""Edits of shell scripts: set, insert, remove and rename options in place.

Text that is parsed twice (a heredoc in a variable, the string of `bash -c`) is fragile. Therefore only words that need
no quotes are written, and the edited script is parsed again. If the edits also change another program, or if a program
does not receive the intended words, `CannotEdit` is raised.
"""

from __future__ import annotations

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
    apply_edits,
    sort_edits,
)
from cfglint_train.documents.shell.programs import PRINTERS, CommandFlag
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cfglint_train.documents.shell.script import Invocation, ShellScript

# A word that starts with `=` is plain to bash, an expansion to zsh and an operator to the grammar.
_SAFE: Final = compile_on_use(r"(?!=)[A-Za-z0-9_./:=,@%+-]+")
_NUMBER: Final = compile_on_use(r"-\.?[0-9].*")
# `a.b`, with the signs of Hydra, is joined with its value by an equals sign.
_NAME: Final = compile_on_use(r"--?[A-Za-z][A-Za-z0-9_.-]*|\+{0,2}[A-Za-z_][A-Za-z0-9_.-]*")
_CONTINUATION: Final = compile_on_use(rb"[ \t]*\\\r?\n")
_COMMENT: Final = compile_on_use(rb"(?:^|[ \t\n])#")
# Edits may change the words of programs that only print them. In the containers of `_LINES_ARE_WORDS`, a line break is
# white space; elsewhere it ends the command unless a backslash continues it.
_PRINTERS: Final = (*PRINTERS, ":")
_LINES_ARE_WORDS: Final = ("array", "heredoc", "variable")


class ShellWriter:
    """Conversion of the changes of a shell script into edits."""

    def __init__(self, document: ShellScript) -> None:
        """Store the document."""
        self.document = document
        self.source = document.source
        self.deleted: set[tuple[int, int]] = set()
        # By invocation and word: the words that replace a word, and the words inserted after it (-1: before all words).
        self.replaced: dict[tuple[int, int], list[str]] = {}
        self.added: dict[tuple[int, int], list[str]] = {}
        self.removed: list[Span] = []
        self._spans: list[Span] | None = None

    def write(self, changes: list[Change]) -> list[Edit]:
        """Return the edits of all changes, sorted and verified on the edited script.

        Raise `CannotEdit` if a change cannot be made.
        """
        changes = [self._translate_change(change) for change in changes]
        for change in changes:
            if isinstance(change, Delete):
                invocation = self._get_invocation(change.route)
                for number in self._find_entries(invocation, change.route):
                    self.deleted.add((invocation.number, number))
        edits: list[Edit] = self._build_deletions()
        self.removed = [edit.span for edit in edits]
        for change in changes:
            if isinstance(change, Set):
                edits += self.set(change)
            elif isinstance(change, Append):
                edits += self.append(change)
            elif isinstance(change, Rename):
                edits += self.rename(change)
        edits = sort_edits(edits)
        if edits:
            self._verify(edits)
        return edits

    def _translate_change(self, change: Change) -> Change:
        """Return a change of a key as a change of its option if the options of the invocation are read as keys."""
        number = change.route[0] if change.route else None
        options = self.document.translators.get(number) if isinstance(number, int) else None
        if options is None or not isinstance(number, int):
            return change
        return options.translate_change(change, self.document.invocations[number])

    def set(self, change: Set) -> list[Edit]:
        """Return the edits that set the value of an option or add the option."""
        invocation = self._get_invocation(change.route)
        if isinstance(change.route[1], int):
            return self._set_word(invocation, change.route[1], change.value)
        if len(change.route) == 3:
            return self._set_item(invocation, change)
        texts = _format_words(change.value)
        remaining = [
            number
            for number in self._find_entries(invocation, change.route)
            if not self._is_deleted(invocation, number)
        ]
        if not remaining:
            return self._insert(invocation, str(change.route[1]), texts, change.beside)
        flag = invocation.flags[remaining[-1]]
        if flag.value_offset:
            return self._set_joined(invocation, remaining[-1], texts)
        words = [invocation.words[index] for index in flag.values]
        if [word.text for word in words if word.is_known] == texts and all(word.is_known for word in words):
            return []
        edits: list[Edit] = []
        for index, text in zip(flag.values, texts):
            edits += self._replace(invocation, index, text)
        if len(texts) > len(words):
            last = flag.values[-1] if flag.values else flag.word
            added_texts = texts[len(words) :]
            self.added.setdefault((invocation.number, last), [])[:0] = added_texts
            at = self._find_end(invocation.words[last])
            edits.append(Edit(Span(at, at), "".join(f" {text}" for text in added_texts)))
        elif len(texts) < len(words):
            surplus = flag.values[len(texts) :]
            kept_index = flag.values[len(texts) - 1] if texts else flag.word
            for index in surplus:
                self._require_unique_place(invocation.words[index])
                self.replaced[invocation.number, index] = []
            edits.append(self._cut(invocation.words[kept_index], invocation.words[surplus[-1]]))
        return edits

    def append(self, change: Append) -> list[Edit]:
        """Return the edits that append a word to the values of an option."""
        invocation = self._get_invocation(change.route)
        texts = _format_words([change.value])
        existing = self._find_entries(invocation, change.route)
        if not existing:
            return self._insert(invocation, str(change.route[1]), texts, change.beside)
        flag = invocation.flags[existing[-1]]
        last = flag.values[-1] if flag.values else flag.word
        self.added.setdefault((invocation.number, last), []).extend(texts)
        at = self._find_end(invocation.words[last])
        return [Edit(Span(at, at), f" {texts[0]}")]

    def rename(self, change: Rename) -> list[Edit]:
        """Return the edits that rename all occurrences of an option."""
        if _NAME.fullmatch(change.key) is None:
            raise CannotEdit(f"{change.key!r} is not an option name")
        invocation = self._get_invocation(change.route)
        edits: list[Edit] = []
        for number in self._find_entries(invocation, change.route):
            flag = invocation.flags[number]
            if not flag.value_offset:
                edits += self._replace(invocation, flag.word, change.key)
                continue
            word, key = invocation.words[flag.word], invocation.entries[number].key.span
            if self.document.get_text(key) != flag.name:
                raise CannotEdit("its name is assembled from several places")
            self.replaced[invocation.number, flag.word] = [change.key + word.text[len(flag.name) :]]
            edits.append(Edit(key, change.key))
        return edits

    def _set_word(self, invocation: Invocation, index: int, value: Any) -> list[Edit]:
        """Return the edits that replace the word of a program at `index`, such as a positional argument."""
        texts = _format_words(value)
        if len(texts) != 1 or not 0 <= index < len(invocation.words):
            raise CannotEdit("the word does not exist")
        return self._replace(invocation, index, texts[0])

    def _set_item(self, invocation: Invocation, change: Set) -> list[Edit]:
        numbers = self._find_entries(invocation, change.route)
        texts = _format_words(change.value)
        flag = invocation.flags[numbers[-1]] if numbers else None
        item = change.route[2]
        if flag is None or not isinstance(item, int) or not 0 <= item < len(flag.values) or len(texts) != 1:
            raise CannotEdit("the value does not exist")
        return self._replace(invocation, flag.values[item], texts[0])

    def _set_joined(self, invocation: Invocation, number: int, texts: list[str]) -> list[Edit]:
        """Return the edits that set the value of an option written as `--option=value`."""
        from cfglint_train.documents.shell.script import drop_prefix

        flag = invocation.flags[number]
        word = invocation.words[flag.word]
        value = drop_prefix(word, flag.value_offset)
        if len(texts) != 1:
            raise CannotEdit(f"{flag.name} uses an equals sign, which allows only one word")
        if value.is_known and value.text == texts[0]:
            return []
        target = self._find_target(value)
        self.replaced[invocation.number, flag.word] = [word.text[: flag.value_offset] + texts[0]]
        return [Edit(target, texts[0])]

    def _replace(self, invocation: Invocation, index: int, text: str) -> list[Edit]:
        word = invocation.words[index]
        if word.is_known and word.text == text:
            return []
        target = self._find_target(word)
        self.replaced[invocation.number, index] = [text]
        return [Edit(target, text)]

    def _find_target(self, word: Word) -> Span:
        """Return the bytes that determine a word.

        Raise `CannotEdit` if changing them would not change the word, or would change more than this word.
        """
        if word.why:
            raise CannotEdit(f"it depends on {word.why}")
        if word.assumption:
            raise CannotEdit(f"it depends on how the script is started: {word.assumption}")
        if word.target is None:
            raise CannotEdit("it is computed or assembled from several places")
        for name in word.names:
            assignments = self.document.script.assignments.get(name, [])
            if any(
                assignment.start <= word.span.start and word.span.end <= assignment.end for assignment in assignments
            ):
                continue  # the variable holds the whole option, name and value
            if len(assignments) != 1:
                raise CannotEdit(f"it comes from {name}, which is not set in one place")
            if self.document.count_uses(name) != 1:
                raise CannotEdit(f"it comes from {name}, which is used elsewhere too")
        return word.target

    def _require_unique_place(self, word: Word) -> None:
        """Raise `CannotEdit` if a word shares its place with another word."""
        at = bisect_left(self._word_places, word.span)
        if self._word_places[at + 1 : at + 2] == [word.span]:
            raise CannotEdit("its text is also used elsewhere")

    @property
    def _word_places(self) -> list[Span]:
        if self._spans is None:
            self._spans = sorted(
                word.span
                for invocation in self.document.invocations
                if invocation.program not in _PRINTERS
                for word in (*invocation.head, *invocation.words)
            )
        return self._spans

    def _find_end(self, word: Word) -> int:
        """Return the offset after a word, or after its closing quotes if it is in a string of the script."""
        at = word.span.end
        kind, region = self.document.find_container(word.span)
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
        """Return the edit that removes the text after the word `before` up to the end of the word `last`."""
        start, end = self._find_end(before), self._find_end(last)
        if not start <= end or self.document.find_container(before.span) != self.document.find_container(last.span):
            raise CannotEdit("its words are in different places")
        if _COMMENT.search(self.source[start:end]):
            raise CannotEdit("a comment is next to it")
        return Edit(Span(start, end), "")

    def _insert(self, invocation: Invocation, name: str, texts: list[str], beside: tuple[str, ...]) -> list[Edit]:
        if _NAME.fullmatch(name) is None:
            raise CannotEdit(f"{name!r} is not an option name")
        if not name.startswith("-") and len(texts) != 1:
            raise CannotEdit(f"{name} uses an equals sign, which allows only one word")
        words = (name, *texts) if name.startswith("-") else (f"{name}={texts[0]}",)
        text = " ".join(words)
        anchor = self._find_anchor(invocation, beside)
        if anchor is None:
            word = (*invocation.head, *invocation.words)[-1]
            self.added.setdefault((invocation.number, len(invocation.words) - 1), []).extend(words)
            at = self._find_end(word)
            return [Edit(Span(at, at), f" {text}")]
        first = invocation.words[anchor.word]
        last = max((anchor.word, *anchor.values))
        self.added.setdefault((invocation.number, last), []).extend(words)
        return [self._insert_line(first, self._find_end(invocation.words[last]), text)]

    def _find_anchor(self, invocation: Invocation, beside: tuple[str, ...]) -> CommandFlag | None:
        """Return the option after which a new option is inserted; its words are in one text, in order."""
        remaining = [
            flag
            for number, flag in enumerate(invocation.flags)
            if not self._is_deleted(invocation, number) and self._is_together(invocation, flag)
        ]
        for name in beside:
            for flag in reversed(remaining):
                if flag.name == name:
                    return flag
        return remaining[-1] if remaining else None

    def _is_together(self, invocation: Invocation, flag: CommandFlag) -> bool:
        """Return whether an option and its values are in the same text, in this order."""
        spans = [invocation.words[index].span for index in (flag.word, *flag.values)]
        region = self._find_region(spans[0])
        return spans == sorted(spans) and all(self._find_region(span) == region for span in spans)

    def _insert_line(self, first: Word, at: int, text: str) -> Edit:
        """Return the edit that inserts an option in the layout of the option from `first` to `at`."""
        source = self.source
        start = first.span.start
        line = source.rfind(b"\n", 0, start) + 1
        indent = source[line:start]
        insertion = Span(at, at)
        if indent.strip():
            return Edit(insertion, f" {text}")
        lead = indent.decode("ascii", "replace")
        newline = self.document.newline
        kind, region = self.document.find_container(first.span)
        rest_of_line = source[at : self.document.find_line_end(at)].strip()
        continued = _CONTINUATION.match(source, at)
        if continued is not None and not any(
            span.start < continued.end() and at < span.end and continued.end() != span.start for span in self.removed
        ):
            tail = source[at : continued.end()].decode("ascii", "replace")
            return Edit(Span(continued.end(), continued.end()), f"{lead}{text}{tail}")
        if kind == "array" and rest_of_line.startswith(b"#"):
            end = self.document.find_line_end(at)
            return Edit(Span(end, end), f"{newline}{lead}{text}")
        if rest_of_line.startswith(b"#"):
            return Edit(insertion, f" {text}")
        if kind == "array" or (kind in _LINES_ARE_WORDS and not self._is_continuation(line, region)):
            return Edit(insertion, f"{newline}{lead}{text}")
        return Edit(insertion, f" \\{newline}{lead}{text}")

    def _is_continuation(self, line: int, region: Span) -> bool:
        """Return whether the line above ends in a backslash."""
        return line - 1 > region.start and self.source[region.start : line].rstrip(b"\r\n").endswith(b"\\")

    def _build_deletions(self) -> list[Edit]:
        deleted_spans: dict[Span, None] = {}
        ends: dict[Span, int] = {}
        for index, number in sorted(self.deleted):
            invocation = self.document.invocations[index]
            flag = invocation.flags[number]
            if not self._is_together(invocation, flag):
                raise CannotEdit("its words are in different places")
            for at in (flag.word, *flag.values):
                word = invocation.words[at]
                self._require_unique_place(word)
                deleted_spans[word.span] = None
                ends[word.span] = self._find_end(word)
                self.replaced[index, at] = []
        edits: list[Edit] = []
        places = self._word_places
        run: list[Span] = []
        for span in sorted(deleted_spans):
            if run and (
                places.index(span) != places.index(run[-1]) + 1 or self._find_region(run[-1]) != self._find_region(span)
            ):
                edits.append(self._delete(run, ends))
                run = []
            run.append(span)
        if run:
            edits.append(self._delete(run, ends))
        return edits

    def _find_region(self, span: Span) -> Span:
        return self.document.find_container(span)[1]

    def _delete(self, run: list[Span], ends: dict[Span, int]) -> Edit:
        """Return the edit that deletes a run of words, including the lines that contain nothing else."""
        source, places = self.source, self._word_places
        kind, region = self.document.find_container(run[0])
        start, end = run[0].start, ends[run[-1]]
        index = places.index(run[0])
        previous = places[index - 1] if index and region.start <= places[index - 1].start else None
        following = next((span for span in places[places.index(run[-1]) + 1 :][:1] if span.end <= region.end), None)
        line = source.rfind(b"\n", 0, start) + 1
        tail = source[end : self.document.find_line_end(end)]
        if _COMMENT.search(source[start:end]) or _COMMENT.search(tail if kind == "array" else b""):
            raise CannotEdit("a comment is next to it")
        fills = not source[line:start].strip() and tail.strip() in (b"", b"\\")
        next_line = source.find(b"\n", end) + 1 or len(source)
        if previous is None:
            if fills and following is not None:
                return Edit(Span(line, next_line), "")
            return Edit(Span(start, following.start if following is not None else end), "")
        edge = self._find_word_end(previous)
        between = source[edge:start]
        if fills and (following is not None or (kind in _LINES_ARE_WORDS and b"\\" not in between)):
            return Edit(Span(line, next_line), "")
        if _COMMENT.search(between):
            raise CannotEdit("a comment is next to it")
        if b"\n" in between and following is not None and b"\n" not in source[end : following.start]:
            return Edit(Span(start, following.start), "")
        return Edit(Span(edge, end), "")

    def _find_word_end(self, span: Span) -> int:
        """Return the offset after the word at a span, including closing quotes."""
        for invocation in self.document.invocations:
            for word in (*invocation.head, *invocation.words):
                if word.span == span:
                    return self._find_end(word)
        return span.end

    def _verify(self, edits: list[Edit]) -> None:
        """Raise `CannotEdit` unless every program in the edited script receives the expected words."""
        old = self.document
        try:
            new = type(old)(old.path, apply_edits(self.source, edits), old.load)
        except DocumentError as error:
            raise CannotEdit(f"the script would become unreadable ({error.message})") from None
        same_count = len(new.invocations) == len(old.invocations)
        if not same_count or len(new.script.errors) > len(old.script.errors):
            raise CannotEdit("bash would run different commands")
        for before, after in zip(old.invocations, new.invocations):
            if before.program in _PRINTERS:
                continue
            expected, actual = self._list_expected_words(before), _list_words(after)
            settings = [
                [setting[:2] for setting in item.environment] for item in (before, after)
            ]  # without their spans
            if actual != expected or before.program != after.program or settings[0] != settings[1]:
                if any(number == before.number for number, _ in (*self.replaced, *self.added)):
                    raise CannotEdit("bash would not read it as intended there")
                raise CannotEdit(f"the text is shared with another command ({before.program})")

    def _list_expected_words(self, invocation: Invocation) -> list[tuple[str, bool]]:
        index = invocation.number
        if invocation.nests:
            return _list_words(invocation)
        result = [(text, True) for text in self.added.get((index, -1), ())]
        for number, word in enumerate(invocation.words):
            key = (index, number)
            if key in self.replaced:
                result += [(text, True) for text in self.replaced[key]]
            else:
                result.append((word.text, word.is_known))
            result += [(text, True) for text in self.added.get(key, ())]
        return result

    def _get_invocation(self, route: Route) -> Invocation:
        if len(route) not in (2, 3) or not isinstance(route[0], int):
            raise CannotEdit("only the options of a program can be changed")
        if not 0 <= route[0] < len(self.document.invocations):
            raise CannotEdit("the script does not start this program")
        invocation = self.document.invocations[route[0]]
        if invocation.is_directive:
            raise CannotEdit("it is in a comment")
        return invocation

    def _find_entries(self, invocation: Invocation, route: Route) -> list[int]:
        return [number for number, flag in enumerate(invocation.flags) if flag.name == route[1]]

    def _is_deleted(self, invocation: Invocation, number: int) -> bool:
        return (invocation.number, number) in self.deleted


def _list_words(invocation: Invocation) -> list[tuple[str, bool]]:
    """Return the words of a program, each with whether it is known.

    For a shell that runs a script, only the number of words counts, because that script's commands are compared
    separately.
    """
    if invocation.nests:
        return [("", True)] * len(invocation.words)
    return [(word.text, word.is_known) for word in invocation.words]


def _format_words(value: Any) -> list[str]:
    """Return the words of a value. Raise `CannotEdit` if a word needs quotes or would be read as an option."""
    if value is True:
        return []
    values = value if isinstance(value, (list, tuple)) else [value]
    texts: list[str] = []
    for item in values:
        if isinstance(item, float):
            texts.append(str(int(item)) if item.is_integer() and abs(item) < 1e16 else repr(item))
        elif isinstance(item, (str, int)) and not isinstance(item, bool):
            texts.append(str(item))
        else:
            raise CannotEdit(f"{item!r} is not a word of a command line")
    for text in texts:
        if _SAFE.fullmatch(text) is None:
            raise CannotEdit(f"{text!r} needs quotes, which may be impossible there")
        if text.startswith("-") and _NUMBER.fullmatch(text) is None:
            raise CannotEdit(f"{text!r} would be read as an option")
    return texts

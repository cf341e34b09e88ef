"""Index of a repository: find its files by name and by the words in them. Files are listed on first use.

Contents are searched as bytes; callers decode and parse the files that match. The index omits files that the settings
of the root exclude or that git ignores, and follows no links. Limits keep linting fast in a huge repository; the report
names a limit that was reached.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate

from cfglint_train.foundation import deadline, filesystem, regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.roots import Roots
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, TypeVar
from cfglint_train.repository import files
from cfglint_train.repository.clues import CLUES, SCRIPT, TOGETHER, WORDS, Clues, Question
from cfglint_train.repository.listing import Listing, list_files
from cfglint_train.repository.texts import Texts
from cfglint_train.settings.settings import Settings

if TYPE_CHECKING:
    from cfglint_train.repository.gitignore import GitIgnore
    from cfglint_train.repository.known_facts import KnownFacts

MAX_READ: Final = 512 * 2**20
"""Maximum number of bytes that one search reads in a repository."""
MAX_TABLE: Final = 64 * 2**20
"""Maximum number of bytes in the files of one syntax for which a table of words is built."""
MAX_SEARCHES: Final = 8
"""Maximum number of words that are searched one by one; beyond it, a table of all words is faster."""

# Depth of the walk for a file outside any repository: its folder and that folder's subfolders.
_DEPTH_ALONE: Final = 1

_WORD: Final = compile_on_use(rb"[A-Za-z0-9_.@+\x80-\xff-]+")
_PART: Final = compile_on_use(rb"[A-Za-z0-9_\x80-\xff]+")

MIN_FILES_TO_CACHE: Final = 500
"""Minimum number of files for which facts are cached; reading fewer files is faster than looking them up."""

_EXTENSIONS: Final = frozenset(kind for clues in CLUES.values() for kind in clues if kind) | files.SYNTAXES.keys()
"""Extensions that also count if they are the whole name of a file, such as `.py`."""

_MAX_JOINED: Final = 2**18
"""Size in bytes of the texts that are searched together; the last text may exceed it."""

_Signs = tuple[tuple[bytes, int], ...]
"""Byte strings to search, each with the bits of the questions that it answers."""

Outcome = TypeVar("Outcome")


class RepositoryIndex:
    """The files below a root. Paths are absolute, with forward slashes; results are sorted."""

    def __init__(
        self,
        root: str,
        settings_for: Callable[[str], Settings],
        texts: Texts,
        depth: int | None = None,
        folders_with_new_files: Iterable[str] = (),
        cache: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Prepare to index `root`; files are listed on first use.

        `depth` is the number of nested folder levels to walk, or None for all. Files that git does not track are
        included only from `folders_with_new_files`. `cache` returns the cache folder, or None.
        """
        self.root = regular_files.normalize_path(os.path.abspath(root))
        self._settings_for = settings_for
        self._settings: Settings | None = None
        # Number of folder levels below the root to walk, or None for all.
        self._depth = depth
        self._folders_with_new_files = frozenset(map(regular_files.normalize_path, folders_with_new_files))
        self._cache = cache
        self._listing: Listing | None = None
        self._joined = ""
        self._answers: dict[str, list[str]] = {}
        self._known_facts: KnownFacts | None = None
        self._paths_by_kind: dict[str, list[str]] | None = None
        self._results: dict[Callable[[RepositoryIndex], Any], Any] = {}
        self._texts = texts
        self._words: dict[str, _Words] = {}
        self._outside: dict[str, bool] = {}
        self._ignored: GitIgnore | None = None
        self.limits_reached: list[str] = []
        """Messages about the limits that were reached."""

    def find_by_name(self, basename: str) -> tuple[str, ...]:
        """Return the files with this name; `basename` may also be the last components of a path."""
        text, end, at, paths = self._join_paths(), f"/{basename}\0", 0, []
        while (at := text.find(end, at)) >= 0:
            paths.append(text[text.rfind("\0", 0, at) + 1 : at + len(end) - 1])
            at += len(end) - 1
        return self._filter_paths(path for path in paths if filesystem.is_file(path) and not filesystem.is_link(path))

    def find_by_extension(self, extensions: tuple[str, ...]) -> tuple[str, ...]:
        """Return the files with any of these extensions."""
        paths = (path for path in self._get_listing().files if path.endswith(extensions))
        return self._filter_paths(path for path in paths if filesystem.is_file(path) and not filesystem.is_link(path))

    def find_by_suffix(self, path: str, referring_file: str) -> str | None:
        """Return the file that a path on another machine refers to, or None if no file or several files match."""
        paths = self.list_by_suffix(path, referring_file)
        return paths[0] if len(paths) == 1 else None

    def list_by_suffix(self, target: str, referring_file: str) -> tuple[str, ...]:
        """Return the files that share the longest path suffix with `target`, a path on another machine.

        At least two components must agree, or one if `target` is absolute. Of several matches with two or more
        components, only those nearest to `referring_file`, the file that contains the path, are returned.
        """
        steps = _split_steps(regular_files.normalize_path(target))
        same_name = self.find_by_name(steps[-1]) if steps else ()
        if not same_name:
            return ()
        referring_path = regular_files.normalize_path(os.path.abspath(referring_file))
        candidates = [path for path in same_name if path != referring_path]
        tails = {path: _count_common(reversed(_split_steps(path)), reversed(steps)) for path in candidates}
        length = max(tails.values(), default=0)
        best = [path for path in candidates if tails[path] == length]
        if length < 2:
            return tuple(best) if target.startswith("/") else ()
        near = {path: _count_common(_split_steps(path), _split_steps(referring_path)) for path in best}
        return tuple(path for path in best if near[path] == max(near.values()))

    def find_scripts_naming(self, basename: str) -> tuple[str, ...]:
        """Return the shell scripts that contain a file name."""
        return self._find_naming("shell", basename)

    @property
    def is_repository(self) -> bool:
        """True for a repository, False for the folder of a file outside any repository."""
        return self._depth is None

    @property
    def has_scripts(self) -> bool:
        """True if the repository has a shell script."""
        return bool(self._get_words("shell").paths)

    def find_python_naming(self, basename: str) -> tuple[str, ...]:
        """Return the Python files that contain a file name."""
        return self._find_naming("python", basename)

    def find_python_using(self, words: Iterable[str], name: str) -> tuple[str, ...]:
        """Return the Python files that contain any of `words` and also `name`, which may be dotted (`config.name`)."""
        python, parts = self._get_words("python"), _PART.findall(name.encode("utf-8", "surrogatepass"))
        paths = dict.fromkeys(path for word in words for path in python.find(word.encode()))
        return self._filter_paths(path for path in paths if _has_parts(self._texts.read_small(path), parts))

    def read_texts(self, question: Question) -> Iterator[tuple[str, str]]:
        """Yield the path and text of every file that contains a clue to a question."""
        for path in self._filter_paths(self._find_answer(question)):
            yield path, self._texts.read_small(path).decode("utf-8-sig", "replace")

    def find_with_clues(self, clues: Clues) -> tuple[str, ...]:
        """Return the files that contain any of the clues for their extension or name."""
        return self._filter_paths(deadline.run_untimed(lambda: self._search(((1, clues),), None)[1]))

    def has_reference(self, path: str, other: str) -> bool:
        """Return whether a file contains `folder/name` of another file, or only the name for a file at the root."""
        relative_path = os.path.relpath(os.path.abspath(other), self.root).replace(os.sep, "/")
        return os.fsencode("/".join(relative_path.split("/")[-2:])) in self._texts.read_small(path)

    def compute_once(self, work: Callable[[RepositoryIndex], Outcome]) -> Outcome:
        """Return the cached result of `work` on this repository, which is computed on the first call."""
        if work not in self._results:
            self._results[work] = work(self)
        result: Outcome = self._results[work]
        return result

    def find_parent_folders(self, *names: str) -> tuple[str, ...]:
        """Return the folders that contain a folder with any of these names."""
        listing, text = self._get_listing(), self._join_paths()
        folders = {path for path in listing.folders if path[path.rfind("/") + 1 :] in names}
        for step in (f"/{name}/" for name in names):
            if step in text:
                overlapping = re.compile(f"(?={re.escape(step)})")  # `verl/verl/` shares a slash
                folders |= {
                    path[: at.start() + len(step) - 1] for path in listing.files for at in overlapping.finditer(path)
                }
        existing = (path for path in folders if filesystem.is_folder(path) and not filesystem.is_link(path))
        return tuple(sorted({os.path.dirname(path) for path in self._filter_paths(existing)}))

    def is_ignored(self, path: str) -> bool:
        """Return whether git ignores a new file or folder.

        Nothing counts as ignored in an ignored parent without tracked files: it is listed only if the user named it.
        """
        if self._ignored is None:
            from cfglint_train.repository.gitignore import GitIgnore  # a clean checkout has no new files

            self._ignored = GitIgnore(self.root)
        return self._ignored.build_filter(os.path.dirname(path))(path, filesystem.is_folder(path))

    def _find_naming(self, syntax: str, basename: str) -> tuple[str, ...]:
        words = _WORD.findall(os.fsencode(basename))
        return self._filter_paths(self._get_words(syntax).find(words[-1])) if words else ()

    def _filter_paths(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the paths that are neither excluded by the settings nor ignored by git, sorted."""
        return tuple(sorted(path for path in paths if not self._is_left_out(path)))

    def _is_left_out(self, path: str) -> bool:
        is_outside = self._outside.get(path)
        if is_outside is None:
            is_outside = self._outside[path] = self._is_excluded(path) or (
                path in self._get_listing().new and self.is_ignored(path)
            )
        return is_outside

    def _is_excluded(self, path: str) -> bool:
        if self._settings is None:
            self._settings = self._settings_for(os.path.join(self.root, "x"))
        return self._settings.is_skipped(path)

    def _get_listing(self) -> Listing:
        if self._listing is None:
            self._listing = deadline.run_untimed(
                lambda: list_files(self.root, self._depth, self._folders_with_new_files, self._is_excluded, self._cache)
            )
            if self._listing.limit:
                self.limits_reached.append(f"only {self._listing.limit:,} files of the repository are considered")
        return self._listing

    def _join_paths(self) -> str:
        """Join all paths into one text, with a null character before and after each path."""
        if not self._joined:
            self._joined = "\0".join(("", *self._get_listing().files, ""))
        return self._joined

    def _find_answer(self, question: str) -> list[str]:
        """Return the files with a clue to a question; a search answers the questions of its group together."""
        if question not in self._answers:
            group = next(group for group in TOGETHER if question in group)
            names_by_bit = {1 << number: name for number, name in enumerate(CLUES) if name in group}
            questions = [(bit, CLUES[name]) for bit, name in names_by_bit.items()]
            paths_by_bit = deadline.run_untimed(lambda: self._search(questions, self._get_known_facts()))
            self._answers |= {names_by_bit[bit]: paths for bit, paths in paths_by_bit.items()}
        return self._answers[question]

    def _get_known_facts(self) -> KnownFacts | None:
        """Return the facts of earlier runs, or None in a small repository or without a cache."""
        if self._known_facts is None and len(self._get_listing().files) >= MIN_FILES_TO_CACHE:
            folder = self._cache()
            if folder is not None:
                from cfglint_train.repository.known_facts import KnownFacts  # not needed in small repositories

                self._known_facts = KnownFacts(folder, self.root, repr(CLUES), self._group_paths())
        return self._known_facts

    def _search(
        self, questions: Sequence[tuple[int, Clues]], known_facts: KnownFacts | None
    ) -> Mapping[int, list[str]]:
        """Return the files with a clue to each question, which is a bit; `known_facts` has results of earlier runs."""
        paths_by_bit: dict[int, list[str]] = {bit: [] for bit, _ in questions}
        bytes_left = MAX_READ
        kinds = tuple(self._list_by_signs(questions))
        filesystem.expect_answers(sum(len(self._group_paths()[kind]) for kind, _ in kinds))
        for kind, signs in kinds:
            paths, all_bits, hits, done = self._group_paths()[kind], _join_bits(signs), list[tuple[str, int]](), 0
            if known_facts is not None:
                hits, unknown = known_facts.look_up(kind, all_bits)
                hits = [hit for hit in hits if self._texts.is_inside(hit[0])]
                paths = [paths[number] for number in unknown] if unknown else []
            for names, texts in self._read_together(paths, None if known_facts is None else known_facts.statuses):
                bytes_left -= sum(map(len, texts))
                if bytes_left < 0:
                    break
                facts = _find_facts(texts, signs)
                hits += zip(names, facts, strict=True)
                if known_facts is not None:
                    known_facts.record(kind, unknown[done : done + len(names)], facts, all_bits)
                    done += len(names)
            for path, fact in hits:
                if fact:
                    for bit, paths_with_clue in paths_by_bit.items():
                        if fact & bit:
                            paths_with_clue.append(path)
            if bytes_left < 0:
                limit = f"only {MAX_READ >> 20} MiB of the repository are searched"
                if limit not in self.limits_reached:
                    self.limits_reached.append(limit)
                return paths_by_bit
        if known_facts is not None:
            known_facts.save()
        return paths_by_bit

    def _list_by_signs(self, questions: Sequence[tuple[int, Clues]]) -> Iterator[tuple[str, _Signs]]:
        """Yield the kinds of files to search, each with the signs to search in them."""
        signs_by_kind = _group_by_kind(questions)
        for kind in self._group_paths():
            usual = kind if kind[:1] == "." else ""
            if signs := signs_by_kind.get(kind) or signs_by_kind.get(usual):
                yield kind, signs

    def _group_paths(self) -> Mapping[str, list[str]]:
        """Return the files by kind: the name of a recipe, the extension, or empty without an extension."""
        if self._paths_by_kind is None:
            paths_by_ending: defaultdict[str, list[str]] = defaultdict(list)
            for path in self._get_listing().files:
                paths_by_ending[path[path.rfind(".") :]].append(path)
            self._paths_by_kind = {}
            for ending, paths in paths_by_ending.items():
                if ending[0] == "." and "/" not in ending and not _has_file_named(paths, ending):
                    self._paths_by_kind[ending] = paths
                    continue
                for path in paths:
                    name = path[path.rfind("/") + 1 :]
                    kind = ending if ending in _EXTENSIONS or "." in name[1:] else ""
                    self._paths_by_kind.setdefault(name if name in files.RECIPES else kind, []).append(path)
        return self._paths_by_kind

    def _read_together(
        self, paths: Iterable[str], statuses: dict[str, os.stat_result | None] | None
    ) -> Iterator[tuple[list[str], list[bytes]]]:
        """Yield some files with their contents until all are read; add the status of each file to `statuses`."""
        names, texts, size = list[str](), list[bytes](), 0
        for path in paths:
            names.append(path)
            texts.append(self._texts.read_small(path, statuses))
            size += len(texts[-1])
            if size > _MAX_JOINED:
                yield names, texts
                names, texts, size = [], [], 0
        if names:
            yield names, texts

    def _get_words(self, syntax: str) -> _Words:
        if syntax not in self._words:
            endings = tuple(ending for ending, file_syntax in files.SYNTAXES.items() if file_syntax == syntax)
            paths = [path for path in self._get_listing().files if path.endswith(endings)]
            if syntax == "shell":
                paths += [path for path in self._find_answer(SCRIPT) if files.is_plain_script(path)]
            else:
                paths = [path for path in paths if not regular_files.PYTHON_TESTS.search(path, len(self.root))]
            self._words[syntax] = _Words(paths, self._texts, lambda part: self._find_answer(f"{syntax}:{part}"))
        return self._words[syntax]


class _Words:
    """A search for words in the files of one syntax, which builds a table of all words after a few searches."""

    __slots__ = ("_find_part", "_own_paths", "_paths_by_word", "_search_count", "_table", "_texts", "paths")

    def __init__(self, paths: list[str], texts: Texts, find_part: Callable[[str], list[str]]) -> None:
        """Prepare to search `paths`; `find_part` returns the files that contain one of `WORDS`."""
        self.paths = paths
        self._own_paths = frozenset(paths)
        self._find_part = find_part
        self._texts = texts
        self._search_count = 0
        self._paths_by_word: dict[bytes, list[str]] = {}
        self._table: dict[bytes, list[str]] | None = None

    def find(self, word: bytes) -> Iterable[str]:
        """Return the files that contain a word."""
        if word not in self._paths_by_word and self._table is None:
            self._search_count += 1
            if self._search_count > MAX_SEARCHES:
                self._table = deadline.run_untimed(self._build_table)
        if self._table:
            return self._table.get(word, ())
        if word not in self._paths_by_word:
            self._paths_by_word[word] = deadline.run_untimed(lambda: list(self._search(word)))
        return self._paths_by_word[word]

    def _search(self, word: bytes) -> Iterator[str]:
        bytes_left = MAX_READ
        part = next((part for part in WORDS if part.encode() in word), None)
        paths = self.paths if part is None else [path for path in self._find_part(part) if path in self._own_paths]
        for path in paths:
            text = self._texts.read_small(path)
            bytes_left -= len(text)
            if bytes_left < 0:
                return
            if word in text and word in _WORD.findall(text):
                yield path

    def _build_table(self) -> dict[bytes, list[str]]:
        """Build a table of the files that contain each word; return an empty table if the texts are too large."""
        table: dict[bytes, list[str]] = {}
        bytes_left = MAX_TABLE
        for path in self.paths:
            text = self._texts.read_small(path)
            bytes_left -= len(text)
            if bytes_left < 0:
                return {}
            for word in set(_WORD.findall(text)):
                table.setdefault(word, []).append(path)
        return table


def _group_by_kind(questions: Iterable[tuple[int, Clues]]) -> Mapping[str, _Signs]:
    """Group the clues of all questions by extension or file name, each with the bits of its questions."""
    clues_by_kind: dict[str, dict[bytes, int]] = {}
    for kind in dict.fromkeys(kind for _, clues in questions for kind in clues):
        usual, signs = "" if kind in files.RECIPES else kind, clues_by_kind.setdefault(kind, {})
        for bit, clues in questions:
            for sign in clues.get(kind) or clues.get(usual, ()):
                signs[sign] = signs.get(sign, 0) | bit
    return {kind: tuple(signs.items()) for kind, signs in clues_by_kind.items()}


def _has_file_named(paths: list[str], name: str) -> bool:
    """Return whether `name` is the whole name of any file in `paths`, which all end in it."""
    start = -len(name) - 1
    return "/" in [path[start] for path in paths]


def _join_bits(signs: _Signs) -> int:
    """Return the bits of all questions that some signs answer."""
    bits = 0
    for _, bit in signs:
        bits |= bit
    return bits


def _find_facts(texts: list[bytes], signs: _Signs) -> list[int]:
    """Return the bits of the questions for which each text contains a sign.

    All texts are searched at once, because a search in a long text skips more of it, and most texts have no sign.
    """
    joined = b"\0".join(texts)
    starts = list(accumulate((len(text) + 1 for text in texts), initial=0))
    facts = [0] * len(texts)
    for sign, bits in signs:
        at = joined.find(sign)
        while at >= 0:
            number = bisect_right(starts, at) - 1
            facts[number] |= bits
            at = joined.find(sign, starts[number + 1])
    return facts


def _has_parts(text: bytes, parts: list[bytes]) -> bool:
    """Return whether all parts of a dotted name occur in a text as whole words."""
    return all(part in text for part in parts) and set(parts).issubset(_PART.findall(text))


class Repositories:
    """The indexes of the repositories that files belong to, each built once."""

    def __init__(
        self,
        settings_for: Callable[[str], Settings],
        roots: Roots,
        texts: Texts,
        cache: Callable[[str], str | None] = lambda path: None,
    ) -> None:
        """Prepare to index repositories; `cache` returns the cache folder for a file."""
        self._cache = cache
        self._settings_for = settings_for
        self._roots = roots
        self._texts = texts
        self._indexes: dict[str, RepositoryIndex] = {}

    def get_index(self, path: str) -> RepositoryIndex:
        """Get the index of a file's repository or, outside a repository, of its folder and the subfolders."""
        root, is_repository = self._roots.find_root(path)
        if root not in self._indexes:
            depth = None if is_repository else _DEPTH_ALONE
            folders_with_new_files = {*self._roots.checked, os.path.dirname(os.path.abspath(path))}
            cache = partial(self._cache, path)
            self._indexes[root] = RepositoryIndex(
                root, self._settings_for, self._texts, depth, folders_with_new_files, cache
            )
        return self._indexes[root]

    def list_limits_reached(self) -> Iterator[tuple[str, str]]:
        """List the limits that were reached, each with the root of its repository."""
        return ((root, reason) for root, index in self._indexes.items() for reason in index.limits_reached)


def _split_steps(path: str) -> list[str]:
    """Split a path into its components, without `.` and `..`."""
    return [step for step in path.split("/") if step not in ("", ".", "..")]


def _count_common(first: Iterable[str], second: Iterable[str]) -> int:
    """Count the leading components that two paths have in common."""
    count = 0
    for left, right in zip(first, second, strict=False):
        if left != right:
            break
        count += 1
    return count

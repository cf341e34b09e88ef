"""The Python programs of a repository that a configuration is given to, each with the option that gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cfglint_train.documents.document import Document
from cfglint_train.foundation.typed import TYPE_CHECKING
from cfglint_train.repository.documents import Documents
from cfglint_train.repository.index import Repositories

if TYPE_CHECKING:
    from cfglint_train.launches.launch_scripts import Handed


def given_programs(
    handed: Callable[[], Iterable[Handed]], documents: Documents, repositories: Repositories
) -> tuple[tuple[Document | None, str], ...]:
    """The program of each invocation that is given a file, None where the repository has none, and the word before the
    file's path; empty where that is the first one. `handed`: the invocations, each with the words behind the path.
    """
    from cfglint_train.launches.entries import file_of  # few findings are about what a program's parser takes

    found = []
    for script, one, behind in handed():
        file = file_of(script, one, documents.sources, repositories.index(script.path))
        before = one.words[: len(one.words) - len(behind) - 1][-1:]
        found.append((None if file is None else documents.document(file), before[0].text if before else ""))
    return tuple(found)

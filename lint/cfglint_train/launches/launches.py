"""Where scripts start a configuration: on how many GPUs, and with what laid over it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from cfglint_train.documents.document import Route, Unknown
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.folders import folder_of
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks import launchers
from cfglint_train.frameworks.framework import Framework
from cfglint_train.frameworks.launch_reading import LaunchFacts
from cfglint_train.frameworks.launchers import Submission, Unread, directives, launch_of, options_of
from cfglint_train.frameworks.lens import Config, LaunchArgument, Override
from cfglint_train.frameworks.registry import launched_by
from cfglint_train.plan.origin import Origin, Place, Value
from cfglint_train.repository.index import RepositoryIndex

Call = tuple[ShellDocument, Invocation]
"""A place that starts a script: where, and the script with its arguments."""

_CONFIG_FILE: Final = ("--config_file", "--config-file")


class LauncherGiven(Frozen):
    """What the launcher of a framework is given: a configuration file, and options that override it."""

    framework: str
    path: str | None
    """As written."""
    settings: tuple[tuple[Route, Override], ...] = ()
    place: Place | None = None
    """Where the file is named."""
    assumed: str = ""
    """What is assumed where an example shows it, and how to state it."""

    @property
    def order(self) -> tuple[str, str, str]:
        """The same for what comes to the same."""
        return self.framework, self.path or "", repr([(route, one.value) for route, one in self.settings])


class Launch(Frozen):
    """One place where a script starts a configuration."""

    document: ShellDocument
    number: int
    """Of the invocation that starts it."""
    facts: Mapping[str, Value]
    """nodes, gpus-per-node, gpu, host-memory: what the launch says of the cluster; None is said, and cannot be
    determined.
    """
    overrides: Mapping[Route, Override]
    launcher: LauncherGiven | None
    sharding: Value | None = None
    """Options of the launcher shard the model, in a way that is not read: the value is None."""
    known: bool = False
    """All that could shard the model is in sight; what the launch does not name, it does not use."""
    environment: Mapping[str, str] = {}
    """What is set for it."""
    meets: Value | None = None
    """Whether the processes of several nodes are given an address at which they meet."""


def starts(
    document: ShellDocument,
    given: Iterable[tuple[Invocation, tuple[Word, ...]]],
    config: Config,
    framework: Framework,
    repository: RepositoryIndex,
    calls: Callable[[bool], Collection[Call]],
    jobs: Callable[[str | None], ShellDocument | None],
) -> list[Launch]:
    """What the invocations of a script come to that are given a configuration's file, once for each place that submits
    the script or starts it with arguments that it hands on.

    `given` are those, each with the words behind the file. `calls` gives the places that start the script (or submit
    it, where only these are asked for). `jobs` reads a job script that one of them hands the file on to: its directives
    count below the options there.
    """
    found = []
    for invocation, words in given:
        options = (*_before(invocation, words), *words)
        overrides = _overrides(document, invocation, options, config, framework)
        places = []
        for call in calls(invocation.forwards) or (None,):
            if call is None:
                places.append(_start(document, invocation, overrides, None))
                continue
            added = _overrides(*call, call[1].words, config, framework) if invocation.forwards else {}
            places.append(_start(document, invocation, {**overrides, **added}, submission_of(*call)))
        script = jobs(script_at(document, invocation, repository))
        inner = [] if script is None else taking(script, config, framework)
        is_job = script is not None and _submits(document, invocation)
        asked = _asked(script) if script is not None and is_job and not inner else {}
        found += [one._replace(facts={**asked, **one.facts}) for one in places if not inner]
        ignored = {} if script is None or is_job else _facts(directives(script), script)
        found += [_handed_on(one, start, ignored) for one in places for start in inner]
    return found


def _before(invocation: Invocation, behind: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words in front of a configuration's path, where that is the value of an option (`--config FILE`): options
    may stand on either side of it then.
    """
    option = len(invocation.words) - len(behind) - 2
    given = option >= 0 and invocation.words[option].known and invocation.words[option].text.startswith("--")
    return tuple(invocation.words[:option]) if given else ()


def taking(document: ShellDocument, config: Config, framework: Framework) -> list[Launch]:
    """The places where a script starts a program of a framework with a file that is handed to the script (`$1`)."""
    found = []
    given = dict(_GIVEN.findall(document.source.decode("utf-8", "replace")))
    for invocation in document.invocations:
        if any(re.fullmatch(pattern, invocation.program) for pattern in framework.listed.entries):
            file = next((word for word in invocation.arguments[:2] if not word.known), None)
            if file is not None and _is_argument(document, file, given):
                behind = invocation.words[invocation.words.index(file) + 1 :]
                overrides = _overrides(document, invocation, behind, config, framework)
                found.append(_start(document, invocation, overrides))
            elif file is None and invocation.forwards:
                found.append(_start(document, invocation, {}))
    return found


_ARGUMENT: Final = re.compile(r"\$\{?[\d@*]")
_VARIABLE: Final = re.compile(r"\"?\$\{?(\w+)\}?\"?")
_GIVEN: Final = re.compile(r"(?m)^[ \t]*(?:(?:export|local|readonly)[ \t]+)?([A-Za-z_]\w*)=(.*)$")


def _is_argument(document: ShellDocument, word: Word, given: Mapping[str, str]) -> bool:
    """Whether a word is an argument of its script, itself or by a variable. `given`: what the script assigns."""
    text = document.text(word.span)
    name = _VARIABLE.fullmatch(text)
    return _ARGUMENT.search(given.get(name[1], text) if name is not None else text) is not None


def _handed_on(outer: Launch, inner: Launch, ignored: Mapping[str, Value]) -> Launch:
    """A start by a script that another one hands the file to; the job that the latter states wins.

    `ignored`: the directives of a script that is not submitted, which are comments then.
    """
    own = {name: value for name, value in inner.facts.items() if name not in ignored or value != ignored[name]}
    facts, overrides = {**own, **outer.facts}, {**inner.overrides, **outer.overrides}
    return inner._replace(facts=facts, overrides=overrides, environment={**outer.environment, **inner.environment})


def _asked(job: ShellDocument) -> dict[str, Value]:
    """What the directives of a job script ask for, as far as no program in it is started otherwise."""
    started = [_facts(launch_of(job, one), job, one) for one in job.invocations if not one.is_directive]
    return {
        fact: value
        for fact, value in _facts(directives(job), job).items()
        if all(fact in one and one[fact].value == value.value for one in started)
    }


def _submits(document: ShellDocument, invocation: Invocation) -> bool:
    return invocation.parent is not None and document.invocations[invocation.parent].program == "sbatch"


def script_at(document: ShellDocument, invocation: Invocation, repository: RepositoryIndex) -> str | None:
    """The script that a place of a script starts or submits."""
    if not invocation.head or not invocation.head[-1].known or invocation.program in launchers.NAMES:
        return None
    script = invocation.head[-1].text
    found = repository.named(os.path.basename(script))
    return next((path for path in found if _means(script, path, document, invocation, repository)), None)


_TRAINS_NOTHING: Final = frozenset((":", "[", "cat", "cp", "echo", "grep", "ls", "mv", "printf", "sed", "test"))
"""Commands that print, test or change the files that they are given."""


def sharded(document: ShellDocument, path: str, repository: RepositoryIndex) -> list[bool]:
    """For each place where a script starts a file: whether its launcher may shard the model.

    The launcher's own file, which may lie among those that it starts, is not started.
    """
    launching = {one.parent for one in document.invocations}
    given = [
        one
        for number, one in enumerate(document.invocations)
        if number not in launching and one.program not in _TRAINS_NOTHING
        if behind(document, one, path, repository) is not None
    ]
    found = [_start(document, one, {}) for one in given]
    return [one.launcher is not None or one.sharding is not None for one in found]


def shards_unknown(document: ShellDocument) -> bool:
    """Whether a script starts what it names by a variable (`for c in ...`) and may shard the model of that."""
    starts = (
        _start(document, one, {})
        for one in document.invocations
        if any(not word.known for word in (*one.head[-1:], *one.words))
    )
    return any(one.launcher is not None or one.sharding is not None for one in starts)


def own_start(config: Config, submitted: Collection[Submission] = ()) -> list[Launch]:
    """The command that a configuration is itself: its options are the settings. Empty for other shell scripts.

    Where the framework reads how its commands are started, only what submits the script counts, and nothing where their
    own options say on how many GPUs they run.
    """
    document, (number, *_) = config.document, config.root
    if not isinstance(document, ShellDocument):
        return []
    spread = frameworks.load(config.framework).launching.is_spread_by_launch
    if number not in document.keyed and not (submitted and spread(config)):
        return []
    return [_start(document, document.invocations[int(number)], {}, one) for one in submitted or (None,)]


def argued(config: Config, calls: Iterable[Call]) -> list[Launch]:
    """What the places that start a script add to the command in it that is the configuration: the options there, as
    that command reads them.
    """
    document, (number, *_) = config.document, config.root
    assert isinstance(document, ShellDocument)
    keyed, found = document.keyed.get(int(number)), list[Launch]()
    for caller, call in calls:
        options = call if keyed is None else keyed.mapping(call)
        overrides: dict[Route, Override] = {}
        for written, entry in zip(call.entries, options.entries, strict=True):
            name = (entry.name or "").removeprefix("--")
            assumed = caller.assumed((call.number, written.name or ""))
            place, script = Place(caller, written.span), os.path.basename(caller.path)
            origin = Origin("user", place, script, name, config.framework, assumed)
            overrides[tuple(name.split("."))] = Override(caller.plain(entry.value), origin)
        found.append(Launch(caller, call.number, {}, overrides, None))
    return found


def calls_of(document: ShellDocument, script: str, repository: RepositoryIndex) -> Iterator[Call]:
    """The places of a script that start another one, or submit it to Slurm."""
    path = os.path.abspath(script).replace(os.sep, "/")
    for one in document.invocations:
        if script_at(document, one, repository) == path:
            yield document, one


def submission_of(document: ShellDocument, call: Invocation) -> Submission | None:
    """What submits a script to Slurm at a place that starts it."""
    if call.parent is None or not _submits(document, call):
        return None
    return document, document.invocations[call.parent]


def may_be_unread(repository: RepositoryIndex) -> bool:
    """Whether a script of a repository has an option whose file a launcher does not read without another."""
    spellings = (word for option in launchers.SWITCHED for word in (option, f"--{option[2:].replace('_', '-')}"))
    return any(repository.scripts_naming(word) for word in spellings)


def unread(document: ShellDocument, config: Config, repository: RepositoryIndex) -> Iterator[Unread]:
    """Where a launcher of a script is given a configuration's file and does not read it."""
    for one in launchers.unread(document):
        if _means(one.text, config.document.path, document, one.invocation, repository):
            yield one


def by_name(document: ShellDocument) -> Mapping[str, Sequence[Invocation]]:
    """The invocations of a script by the last parts of the paths that their words may be: what `behind` goes by."""
    found: dict[str, list[Invocation]] = {}
    for invocation in document.invocations:
        words = (*invocation.head[-1:], *invocation.words)
        for name in {_last_part(word.text if word.known else word.tail) for word in words}:
            found.setdefault(name, []).append(invocation)
    return found


def _last_part(path: str) -> str:
    """The name of the file that a path leads to."""
    name = path.rpartition("/")[2]
    return os.path.basename(os.path.normpath(path)) if name in ("", ".", "..") else name


def behind(
    document: ShellDocument, invocation: Invocation, config: str, repository: RepositoryIndex
) -> tuple[Word, ...] | None:
    """The words behind the one that is the configuration's path: among the words of a program, or a script's own."""
    name = os.path.basename(config)
    words = (*invocation.head[-1:], *invocation.words)
    for index, word in enumerate(words):
        if name in word.text and word.known and _means(word.text, config, document, invocation, repository):
            return words[index + 1 :]
    return None


def behind_elsewhere(
    document: ShellDocument, invocation: Invocation, config: str, repository: RepositoryIndex
) -> tuple[Word, ...] | None:
    """The words behind a path in a folder out of sight, of whose end only the configuration has as much: an absolute
    one that is not there, or one whose folder cannot be determined (`$ROOT/configs/sft.yaml`).
    """
    path = os.path.abspath(config).replace(os.sep, "/")
    words = (*invocation.head[-1:], *invocation.words)
    for index, word in enumerate(words):
        end = word.text if word.known else word.tail
        if end.startswith("/") and os.path.basename(end) == os.path.basename(path):
            found = None if os.path.exists(end) else repository.by_tail(end, document.path)
            if found == path:
                return words[index + 1 :]
    return None


def behind_name(invocation: Invocation, name: str) -> tuple[Word, ...] | None:
    """The words behind the first one that is a path with a name."""
    words = (*invocation.head[-1:], *invocation.words)
    found = (index for index, word in enumerate(words) if word.known and os.path.basename(word.text) == name)
    return next((words[index + 1 :] for index in found), None)


def _means(
    written: str, config: str, document: ShellDocument, invocation: Invocation, repository: RepositoryIndex
) -> bool:
    """Whether a path in a script is the configuration's.

    The first of the folders in which the path leads to a file decides. Where none does, the script changes its folder
    or runs on another machine; then the end of the path must agree, with a folder in it, as many folders have a
    `config.yaml`, and no other file of the repository may have the same end. Where a script changes to a folder of its
    own machine (`cd /fsx/axolotl`), the name alone will do.
    """
    text = os.path.normpath(written).replace(os.sep, "/")
    path = os.path.abspath(config).replace(os.sep, "/")
    if text.startswith("/"):
        return text == path
    end = text
    while end.startswith("../"):
        end = end.removeprefix("../")
    if not path.endswith(f"/{end}"):
        return False
    for base in folders_of(document, invocation, repository.root):
        meant = os.path.normpath(os.path.join(base, text)).replace(os.sep, "/")
        if meant == path or os.path.isfile(meant):
            return meant == path
    rivals = (one for one in repository.named(os.path.basename(path)) if one != path and one.endswith(f"/{end}"))
    placed = "/" in end or os.path.isabs(folder_of(document, invocation) or "")
    return placed and next(rivals, None) is None


def folders_of(document: ShellDocument, invocation: Invocation, root: str) -> list[str]:
    """Where an invocation may run, the likeliest first.

    The folder from which a script will be started is unknown: from its own folder, or one above it up to the root of
    the repository. From there it may change to another, which counts where it exists.
    """
    above = list(_above(document.path, root))
    moved = folder_of(document, invocation)
    inner = [os.path.join(folder, moved) for folder in above] if moved else []
    return [folder for folder in inner if os.path.isdir(folder)] or above


def _above(script: str, root: str) -> Iterator[str]:
    """The folder of a script, and those above it up to a root."""
    folder = os.path.dirname(os.path.abspath(script))
    yield folder
    while folder.replace(os.sep, "/") != root and (above := os.path.dirname(folder)) != folder:
        folder = above
        yield folder


def _start(
    document: ShellDocument,
    invocation: Invocation,
    overrides: Mapping[Route, Override],
    submission: Submission | None = None,
) -> Launch:
    launch = launch_of(document, invocation, submission)
    name = os.path.basename(document.path)
    facts = _facts(launch, document, invocation)
    sharding = launch.sharding
    if sharding is not None:
        sharding = sharding._replace(origin=sharding.origin._replace(kind="user"))
    given = [_launcher_given(document, outer) for outer in document.enclosing(invocation)]
    launcher = next((one for one in reversed(given) if one is not None), None)
    meets = None if launch.meets is None else _given(launch.meets, name)
    return Launch(
        document, invocation.number, facts, overrides, launcher, sharding, launch.complete, launch.environment, meets
    )


def _facts(launch: LaunchFacts, document: ShellDocument, invocation: Invocation | None = None) -> dict[str, Value]:
    """What a launch says of the cluster; a launcher's default is that of the line that starts it."""
    script = os.path.basename(document.path)
    start = script if invocation is None else f"{script}:{document.position(invocation.span.start).line}"
    found = (
        ("nodes", launch.nodes),
        ("gpus-per-node", launch.gpus_per_node),
        ("gpu", launch.gpu),
        ("host-memory", launch.host_memory),
    )
    return {
        fact: _given(value, script if value.origin.place is not None else start)
        for fact, value in found
        if value is not None
    }


def _launcher_given(document: ShellDocument, launcher: Invocation) -> LauncherGiven | None:
    """What a launcher is given; None where that is nothing, or it is no framework's."""
    name = launched_by(launcher.program)
    if name is None or not launcher.entries:
        return None
    file = next((entry for flag in _CONFIG_FILE if (entry := launcher.get(flag)) is not None), None)
    stated = None if file is None else document.plain(file.value)
    path = stated if isinstance(stated, str) else None
    if file is not None and path is None:
        return None
    options = options_of(launcher)
    values = {option: document.plain(entry.value) for option, entry in options.items()}
    script = os.path.basename(document.path)
    settings = []
    for route, (option, value) in frameworks.load(name).launching.launched(values).items():
        place = Place(document, options[option].span)
        assumed = document.assumed((launcher.number, options[option].name or ""))
        settings.append(
            (route, Override(value, Origin("user", place, script, options[option].name or "", name, assumed)))
        )
    named = None if file is None else Place(document, file.span)
    return LauncherGiven(name, path, tuple(settings), named) if path is not None or settings else None


def _given(value: Value, script: str) -> Value:
    """A launcher's fact as one that the user gives; its default counts too, as that is what will happen."""
    place = value.origin.place
    if place is not None:
        script = os.path.basename(place.document.path)
    return Value(value.value, value.origin._replace(kind="user", note=script))


def _overrides(
    document: ShellDocument, invocation: Invocation, words: Iterable[Word], config: Config, framework: Framework
) -> Mapping[Route, Override]:
    """The settings that the words make. Of a word whose value cannot be determined (`--lr=$LR`), the value is
    `Unknown`.
    """
    told = [(_told(word), word) for word in words if not word.spreads and not document.is_lost(word)]
    try:
        settings = framework.launching.trailing(config, [text for text, _ in told])
    except ValueError:
        return {}
    script = os.path.basename(document.path)
    found = {}
    for route, value in settings.items():
        named = _saying([text for text, _ in told], route)
        word = told[named.start][1] if named else None
        saying = [one for _, one in told[named.start : named.stop]]
        place = Place(document, word.span) if word is not None else None
        assumed = "; ".join(dict.fromkeys(one.assumed for one in saying if one.assumed))
        origin = Origin("user", place, script, ".".join(map(str, route)), framework.name, assumed)
        given = None if word is None else _given_by(document, invocation, word, route)
        unknown = value == _UNTOLD or any(one.optional for one in saying)
        found[route] = Override(Unknown(f"what {script} gives") if unknown else value, origin, given)
    return found


def _given_by(document: ShellDocument, invocation: Invocation, word: Word, route: Route) -> LaunchArgument | None:
    """The word that a fix changes to give a setting another value: that of an option, or the word itself (`a.b=1`)."""
    index = next((index for index, one in enumerate(invocation.words) if one is word), None)
    if index is None or len(_steps(word.text)) != len(route):
        return None
    flag = next((one for one in invocation.flags if one.word == index), None)
    if flag is not None:
        alone = flag.joined or len(flag.values) == 1
        return LaunchArgument(document, (invocation.number, flag.name)) if alone else None
    name, sign, _ = word.text.partition("=")
    return LaunchArgument(document, (invocation.number, index), f"{name}=") if sign else None


_UNTOLD: Final = "cfglint-untold"
"""Stands for a value that cannot be determined while the words are parsed."""


def _told(word: Word) -> str:
    """The text of a word, with `_UNTOLD` for a value that cannot be determined."""
    if word.known or word.optional:
        return word.text
    name, sign, _ = word.text.partition("=")
    return f"{name}={_UNTOLD}" if sign and not set("$`") & set(name) else _UNTOLD


def _saying(words: list[str], route: Route) -> range:
    """The words that give the setting at a route, as numbers: the last one that names it, and its value behind it."""
    at = next((index for index in reversed(range(len(words))) if _names(words[index], route)), None)
    if at is None:
        return range(0)
    alone = "=" in words[at] or words[at + 1 : at + 2] == [] or words[at + 1].startswith("--")
    return range(at, at + 1 if alone else at + 2)


def _names(text: str, route: Route) -> bool:
    """Whether a word gives the setting at a route, or one around it. A route that begins with dashes is that of an
    option which a framework does not take for a setting.
    """
    if str(route[0]).startswith("-"):
        return text.partition("=")[0] == route[0]
    steps = _steps(text)
    negated = (steps[0].removeprefix("no_"), *steps[1:])
    return tuple(map(str, route[: len(steps)])) in (steps, negated)


def _steps(text: str) -> tuple[str, ...]:
    """The setting that a word names, as the steps of a route."""
    return tuple(text.partition("=")[0].lstrip("-").replace("-", "_").split("."))

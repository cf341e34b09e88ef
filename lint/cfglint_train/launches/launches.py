"""Launches of a config in shell scripts: their cluster facts and the settings they override."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from cfglint_train.documents.document import Route, Unknown
from cfglint_train.documents.shell.composed import find_composed_file, names_file
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.folders import resolve_working_folder
from cfglint_train.documents.shell.options import OptionParser
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation import filesystem
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.regular_files import is_below
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks import launchers
from cfglint_train.frameworks.framework import Framework
from cfglint_train.frameworks.launch_reading import LaunchFacts
from cfglint_train.frameworks.launchers import (
    IgnoredFile,
    ScriptCall,
    get_submission,
    list_options,
    read_directives,
    read_launch,
)
from cfglint_train.frameworks.lens import Config, LaunchArgument, Override
from cfglint_train.frameworks.registry import find_launcher_framework, list_config_words, remove_config_word
from cfglint_train.plan.origin import FieldValue, Origin, Place
from cfglint_train.repository import files
from cfglint_train.repository.index import RepositoryIndex

_MODULE: Final = compile_on_use(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_CONFIG_FILE: Final = ("--config_file", "--config-file")


class LauncherInput(Frozen):
    """The config file and options that a framework's launcher receives; the options override the file."""

    framework: str
    path: str | None
    """Path as written in the command."""
    settings: tuple[tuple[Route, Override], ...] = ()
    place: Place | None = None
    """Position of the path in the command."""
    assumption: str = ""
    """Assumption to report, with the way to confirm it, if only an example shows this input; else empty."""

    @property
    def sort_key(self) -> tuple[str, str, str]:
        """Sort key that is equal for equivalent inputs."""
        return self.framework, self.path or "", repr([(route, override.value) for route, override in self.settings])


class Launch(Frozen):
    """An invocation that starts a config, with the cluster facts and overrides that it states."""

    document: ShellDocument
    number: int
    """Number of the invocation that starts the config."""
    facts: Mapping[str, FieldValue]
    """Cluster facts by name (nodes, gpus-per-node, gpu, host-memory). A value of None means set but undetermined."""
    overrides: Mapping[Route, Override]
    launcher: LauncherInput | None
    sharding: FieldValue | None = None
    """Launcher options that shard the model in a way that cfglint does not read; the value is None."""
    is_sharding_known: bool = False
    """True if the launch shows every option that could shard the model, so an absent option is known to be unset."""
    environment: Mapping[str, str] = {}
    """Environment variables set for the launch."""
    rendezvous: FieldValue | None = None
    """True if the processes of several nodes get a rendezvous address; None if the launch does not say."""


def find_launches(
    document: ShellDocument,
    uses: Iterable[tuple[Invocation, tuple[Word, ...]]],
    config: Config,
    framework: Framework,
    repository: RepositoryIndex,
    find_callers: Callable[[bool], Collection[tuple[ScriptCall, ...]]],
    read_job: Callable[[str | None], ShellDocument | None],
) -> list[Launch]:
    """Return the launches of `config` in `document`, one per caller that passes the script arguments or a job.

    A script without callers has one launch per invocation. `uses` are the invocations that receive the config, each
    with the words after its path. `find_callers` returns the chains of calls that start the script, or only those from
    jobs if its argument is false. `read_job` reads a script to which an invocation passes the file; if that
    script is submitted, its directives have lower precedence than the options of the invocation.
    """
    launches = []
    for invocation, words in uses:
        options = (*_get_leading_words(invocation, words), *words)
        overrides = _parse_overrides(document, invocation, options, config, framework)
        outer_launches = []
        for calls in find_callers(invocation.forwards) or ((),):
            caller_overrides: Mapping[Route, Override] = {}
            if calls and invocation.forwards:
                caller_overrides = _parse_overrides(*calls[0], calls[0][1].words, config, framework)
            outer_launches.append(_build_launch(document, invocation, {**overrides, **caller_overrides}, calls))
        script = read_job(resolve_script(document, invocation, repository))
        nested_launches = [] if script is None else find_argument_launches(script, config, framework)
        is_job = script is not None and get_submission(document, invocation) is not None
        job_facts = _collect_directive_facts(script) if script is not None and is_job and not nested_launches else {}
        launches += [
            outer._replace(facts={**job_facts, **outer.facts}) for outer in outer_launches if not nested_launches
        ]
        ignored_directives = {} if script is None or is_job else _collect_facts(read_directives(script), script)
        launches += [
            _combine_nested(outer, nested, ignored_directives) for outer in outer_launches for nested in nested_launches
        ]
    return launches


def _get_leading_words(invocation: Invocation, trailing: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the words before the option whose value is the config path (`--config FILE`), or nothing for other forms.

    Overrides may stand on either side of that option.
    """
    option = len(invocation.words) - len(trailing) - 2
    is_option_value = (
        option >= 0 and invocation.words[option].is_known and invocation.words[option].text.startswith("--")
    )
    return tuple(invocation.words[:option]) if is_option_value else ()


def find_argument_launches(document: ShellDocument, config: Config, framework: Framework) -> list[Launch]:
    """Return the launches in which a script passes its own argument (`$1`) to a framework's program as its file.

    A command that begins with a setting (`trainer.nnodes=1`) is a configuration itself.
    """
    launches, no_settings = [], ("-", *list_config_words())
    assignments = dict(_ASSIGNMENT.findall(document.source.decode("utf-8", "replace")))
    for invocation in document.invocations:
        if any("=" in word.text and not word.text.startswith(no_settings) for word in invocation.arguments[:1]):
            continue
        if any(re.fullmatch(pattern, invocation.program) for pattern in framework.manifest.program_patterns):
            file = next((word for word in invocation.arguments[:2] if not word.is_known), None)
            if file is not None and _is_argument(document, file, assignments):
                trailing = invocation.words[invocation.words.index(file) + 1 :]
                overrides = _parse_overrides(document, invocation, trailing, config, framework)
                launches.append(_build_launch(document, invocation, overrides))
            elif file is None and invocation.forwards:
                launches.append(_build_launch(document, invocation, {}))
    return launches


_ARGUMENT: Final = compile_on_use(r"\$\{?[\d@*]")
_VARIABLE: Final = compile_on_use(r"\"?\$\{?(\w+)\}?\"?")
_ASSIGNMENT: Final = compile_on_use(r"(?m)^[ \t]*(?:(?:export|local|readonly)[ \t]+)?([A-Za-z_]\w*)=(.*)$")


def _is_argument(document: ShellDocument, word: Word, assignments: Mapping[str, str]) -> bool:
    """Return whether a word is an argument of its script, directly or through a variable in `assignments`."""
    text = document.get_text(word.span)
    name = _VARIABLE.fullmatch(text)
    return _ARGUMENT.search(assignments.get(name[1], text) if name is not None else text) is not None


def _combine_nested(outer: Launch, inner: Launch, ignored_directives: Mapping[str, FieldValue]) -> Launch:
    """Return the launch in an inner script that `outer` starts; facts and overrides of `outer` win.

    Environment variables of `inner` win. Facts that come from `ignored_directives` are dropped: these are directives of
    a script that is not submitted, hence only comments.
    """
    inner_facts = {
        name: value
        for name, value in inner.facts.items()
        if name not in ignored_directives or value != ignored_directives[name]
    }
    facts, overrides = {**inner_facts, **outer.facts}, {**inner.overrides, **outer.overrides}
    return inner._replace(facts=facts, overrides=overrides, environment={**outer.environment, **inner.environment})


def _collect_directive_facts(job: ShellDocument) -> dict[str, FieldValue]:
    """Return the facts from a job script's directives that match the launch of every program in the script."""
    program_facts = [
        _collect_facts(read_launch(job, item), job, item) for item in job.invocations if not item.is_directive
    ]
    return {
        fact: value
        for fact, value in _collect_facts(read_directives(job), job).items()
        if all(fact in item and item[fact].value == value.value for item in program_facts)
    }


def resolve_script(document: ShellDocument, invocation: Invocation, repository: RepositoryIndex) -> str | None:
    """Return the path of the repository's script that an invocation starts or submits, or None.

    A new file that git does not track yet may be missing from the listing of the repository, but not from its folder.
    """
    if not invocation.head or not invocation.head[-1].is_known or invocation.program in launchers.LAUNCHER_NAMES:
        return None
    script = invocation.head[-1].text
    candidates = repository.find_by_name(os.path.basename(script))
    listed = next(
        (path for path in candidates if _is_config_path(script, path, document, invocation, repository)), None
    )
    is_searched_in_path = len(invocation.head) == 1 and "/" not in script
    is_other_program = files.SYNTAXES.get(os.path.splitext(script)[1], "shell") != "shell"
    if listed is not None or is_searched_in_path or is_other_program:
        return listed
    for folder in list_working_folders(document, invocation, repository.root):
        path = os.path.normpath(os.path.join(folder, script))
        if filesystem.is_file(path):
            return path if is_below(path, repository.root) and files.is_shell_script(path) else None
    return None


_FILE_COMMANDS: Final = frozenset((":", "[", "cat", "cp", "echo", "grep", "ls", "mv", "printf", "sed", "test"))
"""Commands that only print, test or change the files they receive."""


def detect_sharding(document: ShellDocument, path: str, repository: RepositoryIndex) -> list[bool]:
    """Return, for each invocation in a script that receives a file, whether its launcher may shard the model.

    Invocations of launchers do not count: the file may be the launcher's own config. Nor do `echo`, `cp` and the like.
    """
    launching = {invocation.parent for invocation in document.invocations}
    invocations = [
        invocation
        for number, invocation in enumerate(document.invocations)
        if number not in launching and invocation.program not in _FILE_COMMANDS
        if find_trailing_words(document, invocation, path, repository) is not None
    ]
    launches = [_build_launch(document, invocation, {}) for invocation in invocations]
    return [invocation.launcher is not None or invocation.sharding is not None for invocation in launches]


def can_shard_variable_files(document: ShellDocument) -> bool:
    """Return whether a script starts files that it names by a variable (`for c in ...`) and may shard their models."""
    launches = (
        _build_launch(document, item, {})
        for item in document.invocations
        if any(not word.is_known for word in (*item.head[-1:], *item.words))
    )
    return any(item.launcher is not None or item.sharding is not None for item in launches)


def find_command_launches(config: Config, jobs: Collection[tuple[ScriptCall, ...]] = ()) -> list[Launch]:
    """Return the launches of a config that is itself a command with options as settings, or nothing for other configs.

    There is one launch per chain of calls from a job, or one if no job starts the script. If the options are not read
    as keys, only jobs yield launches, and only if the command uses every GPU that is launched. If it does not,
    its own settings state its GPUs.
    """
    document, (number, *_) = config.document, config.root
    if not isinstance(document, ShellDocument):
        return []
    spread = frameworks.load(config.framework).launch_interface.uses_all_launched_gpus
    is_spread = spread(config)
    if number not in document.translators and not (jobs and is_spread):
        return []
    launches = [_build_launch(document, document.invocations[int(number)], {}, calls) for calls in jobs or ((),)]
    return launches if is_spread else [_drop_size(launch) for launch in launches]


def _drop_size(launch: Launch) -> Launch:
    """Return a launch without the number of its GPUs, which the program divides by its own settings."""
    facts = {name: fact for name, fact in launch.facts.items() if name not in ("nodes", "gpus-per-node")}
    return launch._replace(facts=facts)


_PLAIN_OPTIONS: Final = OptionParser(lambda name: name, lambda _, text: text, lambda _: None)
"""Options under their own names, with the words as values."""


def find_caller_launches(config: Config, calls: Iterable[ScriptCall]) -> list[Launch]:
    """Return one launch per call of the config's script, with the options that the call adds as overrides."""
    document, (number, *_) = config.document, config.root
    assert isinstance(document, ShellDocument)
    keyed_invocation, launches = document.translators.get(int(number)), list[Launch]()
    for caller, call in calls:
        overrides: dict[Route, Override] = {}
        for written, route, value in (keyed_invocation or _PLAIN_OPTIONS).list_options(call):
            assumed = caller.get_assumption((call.number, written.name or ""))
            place, script = Place(caller, written.span), os.path.basename(caller.path)
            origin = Origin("user", place, script, ".".join(map(str, route)), config.framework, assumed)
            overrides[route] = Override(value, origin)
        launches.append(Launch(caller, call.number, {}, overrides, None))
    return launches


def find_calls(document: ShellDocument, script: str, repository: RepositoryIndex) -> Iterator[ScriptCall]:
    """Yield the invocations of `document` that start `script` or submit it to Slurm."""
    path = os.path.abspath(script).replace(os.sep, "/")
    for invocation in document.invocations:
        if resolve_script(document, invocation, repository) == path:
            yield document, invocation


def is_job_call(document: ShellDocument, call: Invocation) -> bool:
    """Return whether a call submits its script to Slurm, or starts it with `srun` or in a job script."""
    if get_submission(document, call) is not None or any(item.is_directive for item in document.invocations):
        return True
    return any(launcher.program == "srun" for launcher in document.list_launchers(call))


def can_have_ignored_files(repository: RepositoryIndex) -> bool:
    """Return whether any script uses an option whose file a launcher reads only together with another option."""
    spellings = (
        word for option in launchers.REQUIRED_SWITCHES for word in (option, f"--{option[2:].replace('_', '-')}")
    )
    return any(repository.find_scripts_naming(word) for word in spellings)


def find_ignored_files(document: ShellDocument, config: Config, repository: RepositoryIndex) -> Iterator[IgnoredFile]:
    """Yield the launcher options that name the config's file although the launcher ignores it."""
    for option in launchers.find_ignored_files(document):
        if _is_config_path(option.text, config.document.path, document, option.invocation, repository):
            yield option


def group_by_file_name(document: ShellDocument) -> Mapping[str, Sequence[Invocation]]:
    """Return the invocations of a script, grouped by the file names in their words, for `find_trailing_words`."""
    invocations: dict[str, list[Invocation]] = {}
    for invocation in document.invocations:
        words = (*invocation.head[-1:], *invocation.words)
        names = {_get_file_name(word.text if word.is_known else word.known_suffix) for word in words}
        composed = find_composed_file(invocation)
        named = (os.path.basename(_get_module_file(invocation)), "" if composed is None else composed.name)
        for name in names.union(named):
            invocations.setdefault(name, []).append(invocation)
    return invocations


def _get_module_file(invocation: Invocation) -> str:
    """Return the file of the Python module that an invocation names (`src.train`), or an empty string."""
    is_module = bool(invocation.head) and _MODULE.fullmatch(invocation.program) is not None
    return "" if not is_module or invocation.program.endswith(".py") else f"{invocation.program.replace('.', '/')}.py"


def _get_file_name(path: str) -> str:
    """Return the file name at the end of a path."""
    path = remove_config_word(path)
    name = path.rpartition("/")[2]
    return os.path.basename(os.path.normpath(path)) if name in ("", ".", "..") else name


def find_trailing_words(
    document: ShellDocument, invocation: Invocation, config: str, repository: RepositoryIndex
) -> tuple[Word, ...] | None:
    """Return the words after the config's path in an invocation, or None if it does not receive the config.

    The path may also be the program itself. If Hydra composes the config, all words are returned.
    """
    if names_file(invocation, os.path.abspath(config).replace(os.sep, "/")):
        return invocation.words
    name = os.path.basename(config)
    words = (*invocation.head[-1:], *invocation.words)
    for index, word in enumerate(words):
        written = remove_config_word(word.text)
        if name in written and word.is_known and _is_config_path(written, config, document, invocation, repository):
            return words[index + 1 :]
    module_file = _get_module_file(invocation)
    if os.path.basename(module_file) == name and _is_config_path(module_file, config, document, invocation, repository):
        return invocation.words
    return None


def find_trailing_words_elsewhere(
    document: ShellDocument, invocation: Invocation, config: str, repository: RepositoryIndex
) -> tuple[Word, ...] | None:
    """Return the words after a path whose end matches only the config in the repository, or None.

    The path is absolute and missing on this machine, or its folder is undetermined (`$ROOT/configs/sft.yaml`).
    """
    path = os.path.abspath(config).replace(os.sep, "/")
    words = (*invocation.head[-1:], *invocation.words)
    for index, word in enumerate(words):
        end = word.text if word.is_known else word.known_suffix
        if end.startswith("/") and os.path.basename(end) == os.path.basename(path):
            match = None if filesystem.exists(end) else repository.find_by_suffix(end, document.path)
            if match == path:
                return words[index + 1 :]
    return None


def find_trailing_words_by_name(invocation: Invocation, name: str) -> tuple[Word, ...] | None:
    """Return the words after the first path whose file name is `name`, or None."""
    words = (*invocation.head[-1:], *invocation.words)
    positions = (index for index, word in enumerate(words) if word.is_known and os.path.basename(word.text) == name)
    return next((words[index + 1 :] for index in positions), None)


def _is_config_path(
    written: str, config: str, document: ShellDocument, invocation: Invocation, repository: RepositoryIndex
) -> bool:
    """Return whether a path written in a script is the config's path.

    The first working folder in which the path exists decides. If the path exists in none, the script changes its folder
    or runs on another machine. Then the end of the path must match, including a folder (many folders have a
    `config.yaml`), and no other file of the repository may have the same end. The file name alone suffices if the
    script changes to an absolute folder (`cd /fsx/axolotl`).
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
    for base in list_working_folders(document, invocation, repository.root):
        candidate = os.path.normpath(os.path.join(base, text)).replace(os.sep, "/")
        if candidate == path or filesystem.is_file(candidate):
            return candidate == path
    rivals = (
        other
        for other in repository.find_by_name(os.path.basename(path))
        if other != path and other.endswith(f"/{end}")
    )
    has_folder = "/" in end or os.path.isabs(resolve_working_folder(document, invocation) or "")
    return has_folder and next(rivals, None) is None


def list_working_folders(document: ShellDocument, invocation: Invocation, root: str) -> list[str]:
    """Return the folders in which an invocation may run, most likely first.

    A script may be started from its own folder or from any parent up to the repository root. If it changes to a folder
    that exists below any of these, only the existing folders are returned.
    """
    parents = list(_list_parents(document.path, root))
    changed = resolve_working_folder(document, invocation)
    changed_folders = [os.path.join(folder, changed) for folder in parents] if changed else []
    return [folder for folder in changed_folders if filesystem.is_folder(folder)] or parents


def _list_parents(script: str, root: str) -> Iterator[str]:
    """Yield the folder of a script and its parents up to `root`."""
    folder = os.path.dirname(os.path.abspath(script))
    yield folder
    while folder.replace(os.sep, "/") != root and (parent := os.path.dirname(folder)) != folder:
        folder = parent
        yield folder


def _build_launch(
    document: ShellDocument,
    invocation: Invocation,
    overrides: Mapping[Route, Override],
    calls: Sequence[ScriptCall] = (),
) -> Launch:
    launch = read_launch(document, invocation, calls)
    name = os.path.basename(document.path)
    facts = _collect_facts(launch, document, invocation)
    sharding = launch.sharding
    if sharding is not None:
        sharding = sharding._replace(origin=sharding.origin._replace(kind="user"))
    inputs = [_read_launcher_input(document, outer) for outer in document.list_launchers(invocation)]
    launcher = next((item for item in reversed(inputs) if item is not None), None)
    rendezvous = None if launch.rendezvous is None else _mark_as_user_value(launch.rendezvous, name)
    return Launch(
        document,
        invocation.number,
        facts,
        overrides,
        launcher,
        sharding,
        launch.is_sharding_known,
        launch.environment,
        rendezvous,
    )


def _collect_facts(
    launch: LaunchFacts, document: ShellDocument, invocation: Invocation | None = None
) -> dict[str, FieldValue]:
    """Return the cluster facts of a launch; a launcher's default is attributed to the line of `invocation`."""
    script = os.path.basename(document.path)
    start = script if invocation is None else f"{script}:{document.locate(invocation.span.start).line}"
    values = (
        ("nodes", launch.nodes),
        ("gpus-per-node", launch.gpus_per_node),
        ("gpu", launch.gpu),
        ("host-memory", launch.host_memory),
        ("visible-gpus", launch.visible_gpus),
    )
    return {
        fact: _mark_as_user_value(value, script if value.origin.place is not None else start)
        for fact, value in values
        if value is not None
    }


def _read_launcher_input(document: ShellDocument, launcher: Invocation) -> LauncherInput | None:
    """Return the input of a framework's launcher, or None for other launchers or if the input cannot be read."""
    name = find_launcher_framework(launcher.program)
    if name is None or not launcher.entries:
        return None
    file = next((entry for flag in _CONFIG_FILE if (entry := launcher.get(flag)) is not None), None)
    path_value = None if file is None else document.build_value(file.value)
    path = path_value if isinstance(path_value, str) else None
    if file is not None and path is None:
        return None
    options = list_options(launcher)
    values = {option: document.build_value(entry.value) for option, entry in options.items()}
    script = os.path.basename(document.path)
    settings = []
    for route, (option, value) in frameworks.load(name).launch_interface.read_launcher_options(values).items():
        place = Place(document, options[option].span)
        assumed = document.get_assumption((launcher.number, options[option].name or ""))
        settings.append(
            (route, Override(value, Origin("user", place, script, options[option].name or "", name, assumed)))
        )
    file_place = None if file is None else Place(document, file.span)
    return LauncherInput(name, path, tuple(settings), file_place) if path is not None or settings else None


def _mark_as_user_value(value: FieldValue, script: str) -> FieldValue:
    """Return a launcher's fact as a value that the user set; defaults are included because the launcher uses them."""
    place = value.origin.place
    if place is not None:
        script = os.path.basename(place.document.path)
    return FieldValue(value.value, value.origin._replace(kind="user", note=script))


def _parse_overrides(
    document: ShellDocument, invocation: Invocation, words: Iterable[Word], config: Config, framework: Framework
) -> Mapping[Route, Override]:
    """Return the settings that `words` override, or nothing if the framework cannot parse the words.

    A value that cannot be determined (`--lr=$LR`) is `Unknown`.
    """
    texts = [(_render_word(word), word) for word in words if not word.spreads and not document.is_lost_blank(word)]
    rendered_words = [text for text, _ in texts]
    try:
        settings = framework.launch_interface.parse_trailing(config, rendered_words)
    except ValueError:
        return {}
    script = os.path.basename(document.path)
    overrides = {}
    words_by_setting = _index_setting_words(rendered_words)
    for route, value in settings.items():
        positions = _find_setting_words(rendered_words, words_by_setting, route)
        word = texts[positions.start][1] if positions else None
        setting_words = [item for _, item in texts[positions.start : positions.stop]]
        place = Place(document, word.span) if word is not None else None
        assumed = "; ".join(dict.fromkeys(item.assumption for item in setting_words if item.assumption))
        origin = Origin("user", place, script, ".".join(map(str, route)), framework.name, assumed)
        argument = None if word is None else _find_argument(document, invocation, word, route)
        unknown = isinstance(value, str) and value.startswith(_UNDETERMINED)
        if unknown or any(item.is_optional for item in setting_words):
            value = Unknown(f"what {script} gives", value.removeprefix(_UNDETERMINED) if unknown else "")
        overrides[route] = Override(value, origin, argument)
    return overrides


def _find_argument(document: ShellDocument, invocation: Invocation, word: Word, route: Route) -> LaunchArgument | None:
    """Return the argument that a fix edits to change a setting, or None if there is no single place to edit.

    The argument is an option's value, or the word itself (`a.b=1`).
    """
    index = next((index for index, item in enumerate(invocation.words) if item is word), None)
    if index is None or len(_split_setting_name(word.text)) != len(route):
        return None
    flag = next((item for item in invocation.flags if item.word == index), None)
    if flag is not None:
        alone = flag.value_offset or len(flag.values) == 1
        return LaunchArgument(document, (invocation.number, flag.name)) if alone else None
    name, sign, _ = word.text.partition("=")
    return LaunchArgument(document, (invocation.number, index), f"{name}=") if sign else None


_UNDETERMINED: Final = "cfglint-untold"
"""Placeholder for an undetermined value while the framework parses the words, in front of a path in an unknown folder.
"""


def _render_word(word: Word) -> str:
    """Return the text of a word, with `_UNDETERMINED` for a value that cannot be determined."""
    if word.is_known or word.is_optional:
        return word.text
    name, sign, _ = word.text.partition("=")
    if sign and not set("$`") & set(name):
        return f"{name}={_UNDETERMINED}{word.text[len(name) + 1 :] if word.known_suffix else ''}"
    return f"{_UNDETERMINED}{word.text}" if word.known_suffix else _UNDETERMINED


def _find_setting_words(words: list[str], positions: Mapping[Route, int], route: Route) -> range:
    """Return the positions of the words that set `route`: the last word that names it, and its value if separate.

    A word also sets what is below the setting that it names.
    """
    steps = tuple(map(str, route))
    position = max((positions.get(steps[:length], -1) for length in range(1, len(steps) + 1)), default=-1)
    if position < 0:
        return range(0)
    alone = "=" in words[position] or words[position + 1 : position + 2] == [] or words[position + 1].startswith("--")
    return range(position, position + 1 if alone else position + 2)


def _index_setting_words(words: list[str]) -> Mapping[Route, int]:
    """Return the last position of each setting that words name.

    A route that begins with a dash or a plus is an option, or a name that the framework does not have.
    """
    positions: dict[Route, int] = {}
    for index, text in enumerate(words):
        steps = _split_setting_name(text)
        positions[steps] = positions[steps[0].removeprefix("no_"), *steps[1:]] = index
        if text.startswith(("-", "+")):
            name = text.partition("=")[0]
            positions[(name,)] = positions[tuple(name.split("."))] = index
    return positions


def _split_setting_name(text: str) -> tuple[str, ...]:
    """Return the setting that a word names as the steps of a route, with `-` replaced by `_`."""
    return tuple(text.partition("=")[0].lstrip("-+").replace("-", "_").split("."))

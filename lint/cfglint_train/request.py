"""Requests of the Python API: the options of a call, and their translation for the engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from math import inf

from cfglint_train.documents.document import Route
from cfglint_train.foundation import filesystem
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.wording import suggest_name
from cfglint_train.frameworks.registry import map_spellings
from cfglint_train.plan.origin import FieldValue, Origin
from cfglint_train.runs.statements import CommandLine
from cfglint_train.runs.workspace import Workspace
from cfglint_train.settings import cluster_facts
from cfglint_train.settings.files import DISK, Files
from cfglint_train.settings.settings import Settings, load_settings

if TYPE_CHECKING:
    from cfglint_train.foundation.budget import Budget
    from cfglint_train.judging.baseline import Baseline
    from cfglint_train.judging.options import LintOptions

PathLike = str | os.PathLike[str]
Text = str | bytes


class OptionError(UsageError):
    """An invalid option: `option` is the field of `Options`, `value` its value, `problem` the reason."""

    def __init__(self, option: str, value: str, problem: str) -> None:
        """Compose the message from the field, its value and the reason."""
        super().__init__(f"{option}: {value}: {problem}")
        self.option = option
        self.value = value
        self.problem = problem


class Options(Frozen):
    """Options that override the settings files. An option at its default leaves the choice to the settings."""

    select: Iterable[str] | None = None
    """Rules to run, in place of those that the settings select: codes, families (`MEM`), names or `ALL`."""
    ignore: Iterable[str] = ()
    baseline: PathLike | None = None
    """File of accepted findings (`cfglint-baseline.json`), which are neither reported nor fixed, or None."""
    require_checked: bool | None = None
    """True to keep the rules that report unchecked runs (CHK) on even if they are not selected."""
    nodes: int | str | None = None
    gpus_per_node: int | str | None = None
    gpu: str | None = None
    """Name of a known GPU (`H100`, `A100-80GB`), or the size of its memory."""
    gpu_memory: str | None = None
    """Memory of one GPU, with its unit: `80GB`, `79.1GiB`."""
    host_memory: str | None = None
    """Memory of one node, with its unit."""
    disk: str | None = None
    """Space for checkpoints, with its unit."""
    tokens_per_second: float | str | None = None
    """Measured throughput of the whole job, in tokens per second."""
    price_per_gpu_hour: float | str | None = None
    """Price of one GPU for an hour: a number, or a number with a currency (`2.40 EUR`)."""
    releases: Mapping[str, str] = {}
    """Target releases by package: `{"axolotl": "0.18.0", "torch": "2.8"}`."""
    overrides: Mapping[str, Any] | Iterable[str] = {}
    """Settings that the launch passes: values by dotted key, or `key=value` words, which each framework parses like its
    launcher.
    """
    config: PathLike | None = None
    """Settings file for every path, or None for the nearest settings file of each path."""
    isolated: bool = False
    """True to ignore all settings files."""
    settings_files: Files = DISK
    """Source of the settings files and the baseline: the disk, or a commit."""
    force_exclude: bool = False
    """True to leave out excluded files even if they are named."""
    no_cache: bool = False
    """True to neither read nor write the cache."""
    cache_dir: PathLike | None = None
    """Folder of the cache, for example for vocabularies that are read from copies of frameworks."""
    model_config: PathLike | None = None
    """`config.json` of a model, or its folder, that is used for every run, whatever model the run names."""
    model_folders: Iterable[PathLike] = ()
    """Folders outside the repository from which cfglint may read models that a config names by path."""
    online: bool = False
    """True to ask the Hub for the `config.json` of models that cfglint does not know; needs huggingface_hub."""
    launch_environment: Mapping[str, str] | None = None
    """Variables of the process that is about to run the only path, a script; None if the launch is not known.

    With them, other scripts of the repository do not count as launches of its runs.
    """
    max_cpu_seconds: float | None = None
    """Limit on the CPU time of the whole call, in seconds; files that are not read by then are reported as errors.

    None uses the limit in the settings of the working directory.
    """
    jobs: int = 1
    """Number of processes that `lint` may use if there are many files; 0 means one per core.

    With more than one process, the `raw` result of `lint` has no runs.
    """

    def replace(self, **changes: Any) -> Options:
        """Return a copy with other values of some fields; raise ValueError for unknown names."""
        return self._replace(**changes)


DEFAULTS: Final = Options()
"""Options that leave everything to the settings files."""


class Request(Frozen):
    """A call of the API, translated for the engine."""

    workspace: Workspace
    files: list[str]
    options: LintOptions
    sources: dict[str, bytes]


def build_request(
    paths: PathLike | Iterable[PathLike] | None,
    options: Options,
    sources: Mapping[str, Text] | None,
    earlier: Workspace | None = None,
) -> Request:
    """Translate a call for the engine.

    `earlier`: the workspace of a call with the same options since which no file on the disk has changed. Raises
    `UsageError` (`OptionError`, `FactError`, `SettingsError`) if it is invalid.
    """
    from cfglint_train.foundation import deadline, regular_files
    from cfglint_train.judging.dispatch import open_workspace
    from cfglint_train.judging.options import LintOptions

    lint_options = LintOptions(
        select=None if options.select is None else _check_selectors("select", options.select),
        ignore=_check_selectors("ignore", options.ignore),
        require_checked=options.require_checked,
        baseline=None if options.baseline is None else _load_baseline(options.baseline, options.settings_files),
        command_line=_build_command_line(options),
        settings=load_fixed_settings(options),
        settings_files=options.settings_files,
    )
    texts = {
        regular_files.normalize_path(os.fspath(name)): text.encode("utf-8", "surrogatepass")
        if isinstance(text, str)
        else text
        for name, text in (sources or {}).items()
    }
    if paths is None:
        paths = ["."] if sources is None else list(texts)
    requested_paths = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    requested = [os.fspath(path) for path in requested_paths]
    if options.launch_environment is not None:
        launch = regular_files.normalize_path(requested[0])
        command_line = lint_options.command_line._replace(launch=launch, environment=options.launch_environment)
        lint_options = lint_options._replace(command_line=command_line)
    workspace = open_workspace(lint_options, texts) if earlier is None else earlier.reopen(texts)
    budget = _build_budget(options, workspace)
    lint_options = lint_options._replace(budget=budget)
    try:
        walk = partial(workspace.collect, force_exclude=options.force_exclude)
        files = deadline.run_within(budget.compute_seconds_left, walk, requested)
    except deadline.OutOfTime:
        files = requested  # reported as unread
    if options.overrides:
        from cfglint_train.judging.overrides import validate_overrides

        problem = validate_overrides(workspace, files, lint_options.command_line)
        if problem is not None:
            raise OptionError("overrides", *problem)
    if lint_options.baseline is not None:
        lint_options = lint_options._replace(
            folders=tuple(os.path.abspath(path) for path in requested if filesystem.is_folder(path))
        )
    return Request(workspace, files, lint_options, texts)


def _build_budget(options: Options, workspace: Workspace) -> Budget:
    """Return the budget of CPU time from the options, else from the settings of the working directory."""
    from cfglint_train.foundation.budget import Budget

    seconds = options.max_cpu_seconds
    if seconds is None:
        seconds = workspace.settings_for(os.path.join(os.getcwd(), "x")).max_cpu_seconds
    elif not 0 < seconds < inf:
        raise OptionError("max_cpu_seconds", f"{seconds}", "must be a positive number")
    return Budget() if seconds is None else Budget(seconds)


def _load_baseline(path: PathLike, files: Files) -> Baseline:
    from cfglint_train.judging import baseline

    return baseline.load_baseline(os.fspath(path), files)


def find_repository(path: PathLike) -> str:
    """Return the root of the repository of a file, or the folder of the file if it is in no repository."""
    from cfglint_train.foundation.roots import Roots

    return Roots().find_root(os.fspath(path))[0]


def load_fixed_settings(options: Options) -> Settings | None:
    """Return the settings that the options fix for every file, or None if each file has its own settings."""
    if options.config is not None:
        return load_settings(os.fspath(options.config), options.settings_files)
    return Settings(os.getcwd(), measurements=None) if options.isolated else None


def _check_selectors(option: str, values: Iterable[str]) -> tuple[str, ...]:
    from cfglint_rules import registry

    selectors = (values,) if isinstance(values, str) else tuple(values)
    for selector in selectors:
        if not registry.match_selector(selector):
            raise OptionError(option, selector, registry.describe_unknown(selector))
    return selectors


def _collect_facts(options: Options) -> dict[str, str]:
    """Return the facts in the options by canonical name; raise `OptionError` or `FactError` for an invalid fact."""
    facts = {
        name: str(value)
        for name in cluster_facts.HARDWARE_FACTS
        if (value := getattr(options, name.replace("-", "_"))) is not None
    }
    for package, release in options.releases.items():
        if package not in map_spellings():
            hint = suggest_name(package.lower(), map_spellings(), f"known names: {', '.join(map_spellings())}")
            problem = f"unknown package; {hint}"
            raise OptionError("releases", f"{package}={release}", problem)
        facts[map_spellings()[package]] = release.removeprefix("=")
    for name, text in facts.items():
        cluster_facts.check(name, FieldValue(text, Origin("user", note="command line")))
    return facts


def _build_command_line(options: Options) -> CommandLine:
    """Return the options about runs; raise `OptionError`, `FactError` or `UsageError` for an invalid option."""
    command_line = _build_facts_and_overrides(options)
    if options.no_cache or options.cache_dir is not None:
        command_line = command_line._replace(cache_dir="" if options.no_cache else os.fspath(options.cache_dir or ""))
    if options.model_config is not None or options.online:
        from cfglint_train.models.user_config import load_user_config

        config, online = load_user_config(options.model_config, options.online)
        command_line = command_line._replace(model_config=config, online=online)
    folders = tuple(os.fspath(folder) for folder in options.model_folders)
    for folder in folders:
        if not filesystem.is_folder(folder):
            raise OptionError("model_folders", folder, "no such folder")
    if folders:
        command_line = command_line._replace(model_folders=folders)
    return command_line


def _build_facts_and_overrides(options: Options) -> CommandLine:
    """Return a command line with the facts, releases and overrides of the options."""
    if not isinstance(options.overrides, Mapping):
        words = tuple(options.overrides)
        if words:
            from cfglint_train.frameworks.framework import parse_dotted_settings

            for word in words:
                try:
                    parse_dotted_settings([word])
                except ValueError as error:
                    raise OptionError("overrides", word, str(error)) from None
        return CommandLine(_collect_facts(options), settings=words)
    overrides: dict[Route, Any] = {}
    for key, value in options.overrides.items():
        route = tuple(key.split("."))
        if not all(route):
            problem = "expected KEY=VALUE; for a key of a section, SECTION.KEY=VALUE"
            raise OptionError("overrides", f"{key}={value}", problem)
        overrides[route] = value
    return CommandLine(_collect_facts(options), overrides)

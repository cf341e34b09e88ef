"""Frameworks: recognition of their files, lenses, inference, and the properties that rules need."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from json import load as parse

from cfglint_train.documents.document import MISSING, Document, DocumentError, Route, Span
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.modules import import_module
from cfglint_train.foundation.typed import Any, Literal
from cfglint_train.frameworks.codec import is_countable
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.lens import Auto, Config, Lens, Override
from cfglint_train.frameworks.loaders import PLAIN, Loader
from cfglint_train.frameworks.registry import FrameworkManifest, list_frameworks
from cfglint_train.frameworks.requires import load_requirements
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.fields import Plan
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin
from cfglint_train.plan.reading import ResolvedPlan
from cfglint_train.plan.releases import Releases


class RecognisedConfig(Frozen):
    """A config that a recognizer finds in a document. The framework with the highest score gets the document."""

    root: Route
    score: int
    reason: str
    role: str | None = None
    """Role of a file that is not an ordinary config, or None.

    "other": the file does not train (inference, export). "unread": it trains, but its settings cannot be read;
    `reason` gives the cause. "program": like "unread", but a launch may make its settings readable. "handed": like
    "unread", provided that another file passes it a model of the framework's kind (`LaunchInterface.passes_model`).
    "part": only its keys can be checked, because of `reason`; its run cannot.
    """
    span: Span | None = None
    """Location of the training call, or None for the start of the file."""


class Reference(Frozen):
    """A companion that a config names, by path or as a section of its own document."""

    framework: str
    route: Route
    """Route, from the config's root, of the setting that names the companion."""
    path: str | None
    overrides: Mapping[Route, Override] = {}
    """Settings in the config that override the companion's, by the companion's route."""


class Job:
    """State of a training job while its plan is inferred."""

    __slots__ = ("architecture", "companions", "launch_known", "main", "plan", "releases")

    def __init__(
        self, main: Config, companions: Mapping[str, Config], releases: Releases, launch_known: bool | None = None
    ) -> None:
        """Start with an empty plan and without an architecture."""
        self.main = main
        self.companions = dict(companions)
        self.releases = releases
        self.launch_known = launch_known
        """True if the launches state everything that they use, False if something may be missing, None if no script
        starts the job.
        """
        self.plan = ResolvedPlan()
        self.architecture: Architecture | None = None


def _return_empty(_: Any) -> Any:
    return ()


def _keep_types(_: Document) -> None:
    pass


def _leave_auto(_: Job, __: Field) -> Any:
    return MISSING


def parse_dotted_settings(words: Iterable[str]) -> Mapping[Route, Any]:
    """Parse `a.b=value` words, with values typed as PyYAML types them. Raise `ValueError` for other words."""
    from cfglint_train.documents.yaml.dialects import PYYAML
    from cfglint_train.documents.yaml.document import YamlDocument

    settings: dict[Route, Any] = {}
    for word in words:
        key, sign, text = word.partition("=")
        route = tuple(key.split("."))
        if not sign or not all(route):
            raise ValueError("expected KEY=VALUE; for a key of a section, SECTION.KEY=VALUE")
        try:
            document = YamlDocument(word, text.encode(), PYYAML)
        except DocumentError as error:
            raise ValueError(f"the value is not valid YAML: {error.message}") from None
        settings[route] = None if document.root is None else document.get_value()
    return settings


class MetricsCost(Frozen):
    """Cost of a metrics collection."""

    negligible_interval: int
    """Minimum number of steps between two collections at which the cost is negligible."""
    suggested_interval: int
    """Interval in steps to set if the present interval is shorter than `negligible_interval`."""
    synchronizations: Mapping[str, int] | None = None
    """Host-device synchronizations per tensor of the model, by optimizer name; None means a single synchronization."""


class LaunchInterface(Frozen):
    """Ways in which launches pass settings to a framework."""

    parse_settings: Callable[[Iterable[str]], Mapping[Route, Any]] = parse_dotted_settings
    """Parser of `a.b=value` words as the framework reads them.

    Returns the settings by route, and raises `ValueError` for other words.
    """
    parse_trailing: Callable[[Config, list[str]], Mapping[Route, Any]] = lambda _, __: {}
    """Parser of the trailing words of a launch.

    Returns the settings by route, and raises `ValueError` for words that the framework rejects.
    """
    list_recipes: Callable[[Config], tuple[str, ...]] = _return_empty
    """Paths, as written, of the settings files that launches pass to a program; empty if a launch passes none."""
    accepts_recipe: Callable[[Document, str], bool] = lambda _, __: False
    """Predicate: a Python program, the user's or the framework's, accepts a config of the framework with an option.

    The option is empty if the file's path comes first.
    """
    main_syntaxes: frozenset[str] | None = None
    """Syntaxes of the files that are runs, or None for all; a file of another syntax belongs to a script's run."""
    passes_model: Callable[[Any, str], bool] = lambda _, __: False
    """Predicate: a Python program passes a model of the framework's kind to code that it imports from a file."""
    read_launcher_options: Callable[[Mapping[str, Any]], Mapping[Route, tuple[str, Any]]] = lambda _: {}
    """Function that maps the launcher's options, named with underscores, to settings by route, each with its option."""
    companion_setting: str = ""
    """Setting, named after a companion's framework, by which only some launches of a program may add the companion."""
    separates_launches: bool = False
    """True if each launch of a file is a run of its own, because launches state much of what the run is."""
    uses_all_launched_gpus: Callable[[Config], bool] = lambda _: True
    """Predicate: a job runs on all GPUs of its launch, not just on the number that its own options state."""


class EvenBatch(Frozen):
    """A batch that the framework divides evenly among GPUs."""

    text: str
    """The batch in messages: its settings with their values."""
    sequences: int
    unit: int
    """Number that must divide `sequences`."""
    divisor: str
    """The unit in messages."""
    outcome: str
    """The consequence of a remainder."""
    field: Field
    """Field that a change would set."""
    factor: int = 1
    """Sequences per unit of the setting that states `field`."""
    scale: int = 1
    """Units of `field` per unit of that setting."""
    is_unit: bool = False
    """True if `field` holds the unit, so that a change lowers it to the largest number that divides the batch."""
    setting: str = ""
    """Dotted setting that a change would set if no field holds it, as for a critic; empty if `field` does."""
    since: str = ""
    """First release that divides the batch so; empty: all known releases."""
    before: str = ""
    """First release that does not divide the batch so; empty: all do."""
    checked: str = ""
    """Name that the framework's check of the batch contains; a copy without such a check accepts the batch."""
    assumption: str = ""
    """The assumption behind a setting that decides whether the framework divides the batch so; empty if none."""


class Traits(Frozen):
    """Properties of a framework that rules need. The defaults fit most frameworks."""

    runs_trainer: bool = False
    """True if the framework runs the HF Trainer and accepts the Trainer's arguments under their own names."""
    strict_json: bool = False
    """True if the framework reads JSON companions with `json.load`, which rejects comments."""
    section_files: tuple[str, ...] = ()
    """Keys whose value may be a section, or the path of a JSON file that contains the section."""
    refuses_duplicates_since: str | None = None
    """First release whose loader rejects duplicate keys; an empty string means every release, None no release."""
    batch_identity: tuple[str, str, str] | None = None
    """Keys of global batch, micro batch and accumulation; global = micro x accumulation x data-parallel ranks."""
    batch_divisor: Literal["ranks", "micro batches", "groups"] | None = None
    """Number by which the global batch must be divisible, or None if there is no such rule.

    "ranks": the data-parallel ranks. "micro batches": ranks x micro batch. "groups": ranks x micro batch of each group
    of models.
    """
    list_even_batches: Callable[[Config, Plan], Iterable[EvenBatch]] = lambda _, __: ()
    """Batches that must divide evenly among GPUs, beside the global batch."""
    fills_packs: Callable[[Config], bool] = lambda _: True
    """Predicate: packs are filled up to the sequence length; otherwise the samples of a micro batch are concatenated.
    """
    suggest_template: Callable[[str, str], str | None] = lambda _, __: None
    """Function that returns a better template, or None, for a model's Hub ID and the stated template.

    A template is suggested if the stated template writes special tokens that the model was not trained on.
    """
    metrics_cost: MetricsCost | None = None
    waits_for_cancel: bool = False
    """True if all ranks wait while the job checks for cancellation; otherwise, a separate thread may check."""
    find_dataset_file: Callable[[Config], tuple[str, str] | None] = lambda _: None
    """Function that returns the path of the JSON file that describes the data sets of a config, and its key.

    It returns None if the framework has no such file, or does not read it.
    """
    drops_reference_since: str | None = None
    """First release that skips the reference model if the KL coefficient is 0, or None."""


class Framework(Frozen):
    """A framework. Its functions receive a `Config` or `Job` and do not depend on any rule."""

    name: str
    default_release: str
    """Release that is assumed if the repository does not determine it."""
    lenses: tuple[Lens, ...]
    loader: Loader = PLAIN
    """Conversion of the scalars in its files to the declared types."""
    prepare: Callable[[Document], None] = _keep_types
    """Hook that prepares a document before it is read, so that values are typed as by the framework's loader."""
    references: Callable[[Config], tuple[Reference, ...]] = _return_empty
    infer: Callable[[Job], None] = _return_empty
    """Hook that infers fields from others, in place, after lenses and companions are read."""
    fill_auto: Callable[[Job, Field], Any] = _leave_auto
    """Function that returns the framework's value for a companion's "auto", or MISSING if it does not fill it in."""
    shared_fields: frozenset[str] = frozenset()
    """Fields that must agree with the main config, whose value applies, if this file is its companion."""
    keys_type: type[Keys] = Keys
    """Class that handles the keys of its files."""
    launch_interface: LaunchInterface = LaunchInterface()
    traits: Traits = Traits()

    @property
    def manifest(self) -> FrameworkManifest:
        """Contents of `framework.json`; raises `KeyError` if the framework has no folder."""
        return list_frameworks()[self.name]

    def list_installed(self, release: str) -> Mapping[str, str]:
        """Return the releases of other packages that a release of this framework installs, by package."""
        return load_requirements(self.name, release).installed

    @property
    def title(self) -> str:
        """Name of the framework for messages."""
        return self.manifest.title

    @property
    def keys(self) -> Keys | None:
        """Key handling of its files, or None if it has no vocabulary."""
        if self.name not in _keys_by_framework:
            _keys_by_framework[self.name] = None if self.manifest.vocabulary is None else self.keys_type(self.manifest)
        return _keys_by_framework[self.name]

    @property
    def key_lookup(self) -> Keys:
        """Key handling that finds settings by their names in clauses, even without a vocabulary."""
        return self.keys or self.keys_type(self.manifest)

    def explain_unwritable(self, field: Field) -> str | None:
        """Return the reason why no fix can write `field`, or None if a fix can, or if no lens reads the field."""
        reason = _load_read_only(self.manifest.folder).get(field)
        if reason is not None:
            return reason
        owner = next((lens for lens in reversed(self.lenses) if field in lens.fields), None)
        return f"{self.title} has no key for it" if owner is not None and not owner.keys[field] else None

    @property
    def is_companion(self) -> bool:
        """True if its files only shape the runs of other frameworks."""
        return bool(self.shared_fields)

    def is_run(self, document: Document) -> bool:
        """Return whether a file is a run, not a companion or a file with a part of a script's settings."""
        syntaxes = self.launch_interface.main_syntaxes
        return not self.is_companion and (syntaxes is None or document.syntax in syntaxes)


@cache
def _load_read_only(folder: str) -> Mapping[Field, str]:
    """Return the fields in a folder's `read_only.json`, which have keys but are never written, with the reasons."""
    path = os.path.join(folder, "read_only.json")
    return dict(_read_reasons(path)) if os.path.exists(path) else {}


def _read_reasons(path: str) -> Iterator[tuple[Field, str]]:
    """Yield the fields in a file, and in the files that it includes, with their reasons."""
    with open(path, encoding="utf-8") as file:
        content = parse(file)
    for shared in content.pop("include", ()):
        yield from _read_reasons(os.path.join(os.path.dirname(path), shared))
    yield from ((field, reason) for reason, fields in content.items() for field in fields)


_keys_by_framework: dict[str, Keys | None] = {}
_loaded_frameworks: dict[str, Framework] = {}


def load(name: str) -> Framework:
    """Return a framework by name; import its module on first use. Raise `KeyError` for an unknown name."""
    if name not in _loaded_frameworks:
        if name not in list_frameworks():
            raise KeyError(name)
        _loaded_frameworks[name] = import_module(f"cfglint_train.frameworks.{name}.framework").FRAMEWORK
    return _loaded_frameworks[name]


def recognise(name: str, document: Document) -> list[RecognisedConfig]:
    """Return the configs of a framework in a document. Import only the framework's `recognise.py`."""
    configs: list[RecognisedConfig] = import_module(f"cfglint_train.frameworks.{name}.recognise").recognise(document)
    return configs


def get_keys(config: Config) -> Keys | None:
    """Return the key handling of a config's framework, or None if it has no vocabulary."""
    return load(config.framework).keys


def read_config(config: Config) -> ResolvedPlan:
    """Return the fields that all lenses read in a config. A shared companion is read only once."""
    return config.compute_once(_read_with_all_lenses)


def _read_with_all_lenses(config: Config) -> ResolvedPlan:
    return read_lenses(load(config.framework).lenses, config)


def read_fields(config: Config, framework: Framework, *fields: Field) -> ResolvedPlan:
    """Return the values of `fields`, and of the fields that the same lenses read."""
    wanted = set(fields)
    return read_lenses((lens for lens in framework.lenses if not wanted.isdisjoint(lens.fields)), config)


def read_lenses(lenses: Iterable[Lens], config: Config) -> ResolvedPlan:
    """Return the fields that `lenses` read in a config. Later lenses override earlier lenses.

    Numbers outside the 64-bit range are left out, so that computing with a plan is safe.
    """
    plan = ResolvedPlan()
    for lens in lenses:
        for field, value, origin in lens.read(config):
            if is_countable(value):
                plan.put(field, value, origin)
    return plan


def adopt_companion(job: Job, companion: ResolvedPlan, framework: Framework, host: Framework) -> None:
    """Copy a companion's fields into the job's plan, as the host framework treats them.

    A shared field is copied only if the plan does not have it. "auto" becomes the value that the host fills in, or else
    the companion's fallback.
    """
    for field, value in companion:
        resolved, origin = value.value, value.origin
        if isinstance(resolved, Auto):
            host_value = host.fill_auto(job, field)
            if host_value is MISSING:
                resolved = resolved.fallback
                origin = origin._replace(kind="inferred", note=f"auto, but {host.title} does not fill it in")
            else:
                resolved = host_value
                origin = origin._replace(kind="inferred", note=f"auto, filled by {host.title}")
                if resolved is None and field in job.plan.unreadable_fields:
                    continue  # the host's own setting is the one that cannot be determined
                if field in framework.shared_fields:
                    # The host's own key sets it, so that is the key to change.
                    origin = Origin("inferred", note=origin.note, framework=host.name)
        if field in framework.shared_fields and job.plan.get(field) is not None:
            continue
        job.plan.put(field, resolved, origin)

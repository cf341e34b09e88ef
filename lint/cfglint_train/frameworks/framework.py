"""What a framework is to cfglint: how its files are recognised, its lenses, and what follows from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from json import load as parse

from cfglint_train.documents.document import MISSING, Document, DocumentError, Route, Span
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Literal
from cfglint_train.frameworks.codec import is_countable
from cfglint_train.frameworks.keys import Keys
from cfglint_train.frameworks.lens import Auto, Config, Lens, Override
from cfglint_train.frameworks.loaders import PLAIN, Loader
from cfglint_train.frameworks.registry import FrameworkManifest, list_frameworks
from cfglint_train.frameworks.requires import load_requirements
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.names import Field
from cfglint_train.plan.reading import ResolvedPlan
from cfglint_train.plan.releases import Releases


class RecognisedConfig(Frozen):
    """A configuration that a recogniser sees in a document. The highest score wins a document."""

    root: Route
    score: int
    reason: str
    role: str | None = None
    """other: a file of the framework that trains nothing (inference, export); unread: it trains, and `why` says what
    keeps its settings from being read; program: the same, with what a launch gives it; handed: the same, if another
    file hands it a model of the framework's kind (`Framework.hands`); None: what the framework's files are.
    """
    span: Span | None = None
    """Where it trains; None: at its head."""


class Reference(Frozen):
    """A companion that a configuration names: by path (as written), or as a section of its own document."""

    framework: str
    route: Route
    """The setting that names it, below the configuration's root."""
    path: str | None
    overrides: Mapping[Route, Override] = {}
    """Settings that the configuration lays over the companion's own."""


class Job:
    """All that inference sees of one training job while its plan is made."""

    __slots__ = ("architecture", "companions", "launch_known", "main", "plan", "releases")

    def __init__(
        self, main: Config, companions: Mapping[str, Config], releases: Releases, launch_known: bool | None = None
    ) -> None:
        self.main = main
        self.companions = dict(companions)
        self.releases = releases
        self.launch_known = launch_known
        """Its launches are known: what they do not name, they do not use. None: no script starts it."""
        self.plan = ResolvedPlan()
        self.architecture: Architecture | None = None


def _return_empty(_: Any) -> Any:
    return ()


def _keep_types(_: Document) -> None:
    pass


def _leave_auto(_: Job, __: Field) -> Any:
    return MISSING


def parse_dotted_settings(words: Iterable[str]) -> Mapping[Route, Any]:
    """`a.b=value` words, the values as PyYAML types them. Raises ValueError for other words."""
    from cfglint_train.documents.yaml.dialects import PYYAML
    from cfglint_train.documents.yaml.document import YamlDocument

    settings: dict[Route, Any] = {}
    for word in words:
        key, sign, text = word.partition("=")
        route = tuple(key.split("."))
        if not sign or not all(route):
            raise ValueError("expected KEY=VALUE, with dots between the keys of sections")
        try:
            document = YamlDocument(word, text.encode(), PYYAML)
        except DocumentError as error:
            raise ValueError(f"the value is not valid YAML: {error.message}") from None
        settings[route] = None if document.root is None else document.get_value()
    return settings


class MetricsCost(Frozen):
    """What collecting metrics costs, each time."""

    negligible_interval: int
    """Steps between two collections from which on it does not count."""
    suggested_interval: int
    """The interval to set where it is shorter."""
    synchronizations: Mapping[str, int] | None = None
    """Host-device synchronisations for each tensor of the model, by the optimizer's name; None: one in all."""


class LaunchInterface(Frozen):
    """How launches give a framework its settings."""

    parse_settings: Callable[[Iterable[str]], Mapping[Route, Any]] = parse_dotted_settings
    """`a.b=value` words as the framework reads them, by route. Raises ValueError for other words."""
    parse_trailing: Callable[[Config, list[str]], Mapping[Route, Any]] = lambda _, __: {}
    """The settings that words behind the configuration's path make, by route. Raises ValueError for what it refuses."""
    list_recipes: Callable[[Config], tuple[str, ...]] = _return_empty
    """The files that the launches of a program give it as its settings, as written; none where one launch names none.
    """
    accepts_recipe: Callable[[Document, str], bool] = lambda _, __: False
    """Whether a Python program, of whomever, takes a file of the framework by an option."""
    passes_model: Callable[[Any, str], bool] = lambda _, __: False
    """Whether a Python program, a document, gives a model of the framework's kind to what it imports from a file."""
    read_launcher_options: Callable[[Mapping[str, Any]], Mapping[Route, tuple[str, Any]]] = lambda _: {}
    """The settings that options of its launcher give, by route, each with its option; names have underscores."""
    uses_all_launched_gpus: Callable[[Config], bool] = lambda _: True
    """Whether a job runs on all the GPUs that its launch gives it, and not on as many as its own options say."""


class Traits(Frozen):
    """Properties of a framework that rules need. The defaults fit most frameworks."""

    runs_trainer: bool = False
    """It runs the HF Trainer, and has the Trainer's arguments under their own names."""
    strict_json: bool = False
    """It opens the JSON files that its configurations name with `json.load`, which refuses comments."""
    section_files: tuple[str, ...] = ()
    """Sections that may also be given as the name of a JSON file which has them."""
    refuses_duplicates_since: str | None = None
    """The first release whose own loader refuses a key that stands twice; empty for every release."""
    batch_identity: tuple[str, str, str] | None = None
    """Keys of whole batch, micro batch and accumulation, the first of which must be the product of ranks and others."""
    batch_divisor: Literal["ranks", "micro batches", "groups"] | None = None
    """What the global batch must be a multiple of: the data-parallel ranks, their micro batches, or the ranks of each
    group of models times their micro batches."""
    fills_packs: Callable[[Config], bool] = lambda _: True
    """Whether packed sequences are filled up to the length; else the samples of a micro batch are put end to end."""
    suggest_template: Callable[[str, str], str | None] = lambda _, __: None
    """The template to use for a model (its Hub id), where another one writes special tokens that it does not know."""
    metrics_cost: MetricsCost | None = None
    """What its metrics cost."""
    waits_for_cancel: bool = False
    """All ranks wait while the job asks whether it was cancelled; elsewhere a thread beside the training may ask."""
    drops_reference_since: str | None = None
    """The first release that loads no reference model where the coefficient of its penalty is 0."""


class Framework(Frozen):
    """A framework. Functions get their `Config` or `Job`; none of them sees a rule."""

    name: str
    default_release: str
    """The release that is assumed where nothing settles it."""
    lenses: tuple[Lens, ...]
    loader: Loader = PLAIN
    """How it turns the scalars of its files into the types that it wants."""
    prepare: Callable[[Document], None] = _keep_types
    """Set how the document types its values: as this framework's loader does."""
    references: Callable[[Config], tuple[Reference, ...]] = _return_empty
    infer: Callable[[Job], None] = _return_empty
    """Fill the fields that follow from others, in place, once lenses and companions are read."""
    fill_auto: Callable[[Job, Field], Any] = _leave_auto
    """The value that this framework fills in for a companion's "auto"; MISSING where it leaves it to the companion."""
    shared_fields: frozenset[str] = frozenset()
    """As a companion: fields whose values must agree with the main configuration, which owns them."""
    keys_type: type[Keys] = Keys
    """What it makes of the keys of its files; it counts where `framework.json` names a vocabulary."""
    launch_interface: LaunchInterface = LaunchInterface()
    traits: Traits = Traits()

    @property
    def manifest(self) -> FrameworkManifest:
        """What `framework.json` says of it. Raises KeyError where there is no such folder."""
        return list_frameworks()[self.name]

    def list_installed(self, release: str) -> Mapping[str, str]:
        """Return the releases of other packages that a release of this framework brings along, by package."""
        return load_requirements(self.name, release).installed

    @property
    def title(self) -> str:
        """Its name as people write it."""
        return self.manifest.title

    @property
    def keys(self) -> Keys | None:
        """What it makes of the keys of its files; None where it has no vocabulary."""
        if self.name not in _keys_by_framework:
            _keys_by_framework[self.name] = None if self.manifest.vocabulary is None else self.keys_type(self.manifest)
        return _keys_by_framework[self.name]

    @property
    def key_lookup(self) -> Keys:
        """How its settings are spelled, by which clauses ask for them: with a vocabulary or without."""
        return self.keys or self.keys_type(self.manifest)

    def explain_unwritable(self, field: Field) -> str | None:
        """Why no fix writes a field that its lenses read; None where one is written, or the field is none of theirs."""
        reason = _load_read_only(self.manifest.folder).get(field)
        if reason is not None:
            return reason
        owner = next((lens for lens in reversed(self.lenses) if field in lens.fields), None)
        return f"{self.title} has no key for it" if owner is not None and not owner.keys[field] else None

    @property
    def is_companion(self) -> bool:
        """Whether its files shape the runs of other frameworks."""
        return bool(self.shared_fields)


@cache
def _load_read_only(folder: str) -> Mapping[Field, str]:
    """The fields that have keys and are never written, each with the reason: `read_only.json` of a folder."""
    path = os.path.join(folder, "read_only.json")
    return dict(_read_reasons(path)) if os.path.exists(path) else {}


def _read_reasons(path: str) -> Iterator[tuple[Field, str]]:
    """The fields of a file and of those that it includes."""
    with open(path, encoding="utf-8") as file:
        content = parse(file)
    for shared in content.pop("include", ()):
        yield from _read_reasons(os.path.join(os.path.dirname(path), shared))
    yield from ((field, reason) for reason, fields in content.items() for field in fields)


_keys_by_framework: dict[str, Keys | None] = {}
_loaded_frameworks: dict[str, Framework] = {}


def load(name: str) -> Framework:
    """A framework by name; its module is imported when it is first needed. Raises KeyError for an unknown name."""
    if name not in _loaded_frameworks:
        if name not in list_frameworks():
            raise KeyError(name)
        _loaded_frameworks[name] = import_module(f"cfglint_train.frameworks.{name}.framework").FRAMEWORK
    return _loaded_frameworks[name]


def recognise(name: str, document: Document) -> list[RecognisedConfig]:
    """The configurations of a framework in a document; of its folder, only `recognise.py` is imported."""
    configs: list[RecognisedConfig] = import_module(f"cfglint_train.frameworks.{name}.recognise").recognise(document)
    return configs


def get_keys(config: Config) -> Keys | None:
    """What the framework of a configuration makes of its keys; None where it has no vocabulary."""
    return load(config.framework).keys


def read_config(config: Config) -> ResolvedPlan:
    """What one configuration says, field by field. A companion is read once for all runs that it shapes."""
    return config.compute_once(_read_with_all_lenses)


def _read_with_all_lenses(config: Config) -> ResolvedPlan:
    return read_lenses(load(config.framework).lenses, config)


def read_fields(config: Config, framework: Framework, *fields: Field) -> ResolvedPlan:
    """What one configuration says of some fields, and of those that are read with them."""
    wanted = set(fields)
    return read_lenses((lens for lens in framework.lenses if not wanted.isdisjoint(lens.fields)), config)


def read_lenses(lenses: Iterable[Lens], config: Config) -> ResolvedPlan:
    """What some lenses read of a configuration. Later ones win over earlier ones.

    Numbers that no counter holds are left out: a plan can be computed with.
    """
    plan = ResolvedPlan()
    for lens in lenses:
        for field, value, origin in lens.read(config):
            if is_countable(value):
                plan.put(field, value, origin)
    return plan


def adopt_companion(job: Job, companion: ResolvedPlan, framework: Framework, host: Framework) -> None:
    """Take a companion's fields over into the job's reading, as the host framework treats them.

    A shared field fills a gap only; "auto" becomes what the host fills in, else what the companion itself takes.
    """
    for field, value in companion:
        resolved, origin = value.value, value.origin
        if isinstance(resolved, Auto):
            host_value = host.fill_auto(job, field)
            if host_value is MISSING:
                resolved = resolved.fallback
                origin = origin._replace(kind="inferred", note=f"auto, which {host.title} does not fill")
            else:
                resolved = host_value
                origin = origin._replace(kind="inferred", note=f"auto, filled by {host.title}")
        if field in framework.shared_fields and job.plan.get(field) is not None:
            continue
        job.plan.put(field, resolved, origin)

"""One training job as rules see it: plan, documents, architecture, hardware, releases, estimate.

`assemble` makes it: lenses of the main configuration, then its companions, then what the launch and the user say, then
what is assumed for lack of a statement, then what the framework infers from all that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from math import prod

from cfglint_train.documents.document import Change, Document, Route
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final, TypeVar
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.framework import Framework, Job
from cfglint_train.frameworks.lens import Config, Lens, spelled
from cfglint_train.hardware.catalogue import Hardware
from cfglint_train.hardware.gpus import capacity
from cfglint_train.memory.budget import Estimate
from cfglint_train.models.architecture import Architecture
from cfglint_train.plan.fields import Plan, named
from cfglint_train.plan.names import Field
from cfglint_train.plan.origin import Origin, Place, Value
from cfglint_train.plan.reading import ResolvedPlan, merged
from cfglint_train.plan.releases import Releases
from cfglint_train.releases.other_releases import RELEASE, Elsewhere, elsewhere
from cfglint_train.runs.checkpoint_world_size import written_ranks
from cfglint_train.settings.cluster_facts import IN_SIGHT

if TYPE_CHECKING:
    from cfglint_train.frameworks.launchers import Unread
    from cfglint_train.launches.shared_output_dir import PreviousLaunch
    from cfglint_train.settings.house_rules import HouseRule

ASSUMED_GPUS: Final = 8
CONVERTER: Final = b"zero_to_fp32"
"""DeepSpeed's program that makes whole weights of the shards of a checkpoint."""
_DEGREES: Final[tuple[Field, ...]] = (
    "parallel.shard_size",
    "parallel.replicas",
    "parallel.tensor",
    "parallel.pipeline",
    "parallel.context",
)
"""Degrees of which each multiplies the GPUs of a job."""


GPU: Final = "gpu"
"""The card, among the facts of a run that are no plan fields."""

Made = TypeVar("Made")


class Unresolved(Frozen):
    """A file that a configuration or its launch names, and that is not there, or not in a syntax that is read."""

    framework: str
    path: str
    """As written."""
    place: Place | None
    """Where it is named."""
    similar: tuple[str, ...] = ()
    """Files of the repository whose paths end alike, where several do."""
    refused: bool = False
    """It is there as YAML, and its reader takes only JSON."""


class CorrectedKey(Frozen):
    """A misspelt key, and the one that it is taken for."""

    written: Route
    meant: Route
    document: Document
    rename: tuple[Change, ...]
    """What puts its value under the right name."""

    @property
    def words(self) -> str:
        """How a report says it."""
        return f"counts `{spelled(self.written)}` as `{spelled(self.meant)}`"


class RunInputs(Frozen):
    """What a run is assembled from."""

    main: Config
    companions: Mapping[str, Config]
    facts: Mapping[Field, Value]
    """What the user or the launch says of the cluster: plan field -> value (`launch.nodes`, ...)."""
    hardware: Hardware
    releases: Releases
    inside: tuple[str, ...] = ()
    """The folders that a model's has to be in to be looked at."""
    model_config: Mapping[str, Any] | None = None
    """The object of a `config.json` that the user names for the model, whatever it is called."""
    online: bool = False
    """The Hub may be asked for a model that is unknown here."""
    unresolved: tuple[Unresolved, ...] = ()
    """Files that shape the run and are not there."""
    variants: tuple[Mapping[str, Config], ...] = ()
    """The companions of further launches, where these name other files than `companions` has."""
    others: Mapping[Field, tuple[Any, ...]] = {}
    """The values of facts in which launches differ; such a fact is None."""
    sharding: Value | None = None
    """None as a value where options of a launcher shard the model, in a way that is not read."""
    launch_known: bool | None = None
    """Scripts start the run, and none leaves open how it shards the model: what they do not name, they do not use. None
    where no script starts it.
    """
    resumable: bool | None = None
    """Whether the settings ask that its checkpoints allow resuming; None if unstated."""
    require: tuple[HouseRule, ...] = ()
    """The rules of the house that hold for it."""
    meant: tuple[CorrectedKey, ...] = ()
    """The misspelt keys that count as what they are meant to be."""
    scripts: tuple[Document, ...] = ()
    """The scripts that start it, but for one that is its configuration."""
    unread: tuple[Unread, ...] = ()
    """Places where a launcher is given the configuration's file and does not read it."""
    earlier: tuple[PreviousLaunch, ...] = ()
    """Launches that write into its folder before it does."""
    stands_elsewhere: bool = False
    """All its launches give it files of settings that are configurations of runs themselves."""
    appended: str = ""
    """What may give all its launches further options, out of sight."""
    refusals: Callable[[Run, Mapping[str, bytes]], frozenset[str]] | None = None
    """What would stop a run with other texts of some files, and does not stop it now: the rules about it are above."""


class Run:
    """One training job."""

    def __init__(
        self, parts: RunInputs, base: ResolvedPlan, reading: ResolvedPlan, architecture: Architecture | None
    ) -> None:
        self.parts = parts
        self.base = base
        """What lenses, companions and the user say, before inference: the part that a fix must leave alone."""
        self.reading = reading
        self.architecture = architecture
        self.plan: Plan = reading.plan()
        self._estimate: Estimate | None = None
        self._made: dict[Callable[[Run], Any], Any] = {}
        self._corners: dict[Any, Run] = {}
        self.is_corner = False
        """It is the run at another admissible value of some fact: how grave a finding is there counts, no fix of it."""
        self.meant: Run | None = None
        """The run that the rules which estimate have judged: with misspelt keys under their right names."""
        self.problem: str | None = None
        """Why the model's own configuration could not be read."""
        self.judgements: dict[Any, Any] = {}
        """What `verdicts.judge` found out, by its question: several rules ask the same."""

    @property
    def main(self) -> Config:
        """The configuration that the run is named after."""
        return self.parts.main

    @property
    def framework(self) -> Framework:
        """The main configuration's framework."""
        return frameworks.load(self.main.framework)

    @property
    def hardware(self) -> Hardware:
        """GPU, host and disk, each with its origin."""
        return self.parts.hardware

    @property
    def releases(self) -> Releases:
        """The releases that the run is checked against."""
        return self.parts.releases

    @property
    def configs(self) -> tuple[Config, ...]:
        """The main configuration and its companions."""
        return (self.main, *self.companions)

    @property
    def companions(self) -> tuple[Config, ...]:
        """The files and sections that shape the main configuration's run, without those that only replace one."""
        return tuple(one for one in self.parts.companions.values() if not one.document.stands_in)

    @property
    def cluster(self) -> tuple[int | None, int | None]:
        """The stated nodes of the cluster and GPUs of each, None where unstated. The job may take fewer."""
        nodes, gpus = (self.parts.facts.get(fact) for fact in ("launch.nodes", "launch.gpus_per_node"))
        return None if nodes is None else nodes.value, None if gpus is None else gpus.value

    def companion(self, framework: str) -> Config | None:
        """The companion of a framework; None, too, where it only replaces a file."""
        return next((one for one in self.companions if one.framework == framework), None)

    @property
    def is_estimated(self) -> bool:
        """Whether something has asked for the estimate."""
        return self._estimate is not None

    @property
    def estimate(self) -> Estimate:
        """The peaks of every phase."""
        if self._estimate is None:
            from cfglint_train.memory.estimate import estimate

            self._estimate = estimate(self.plan, self.architecture, self.hardware, self.reading.unreadable)
        return self._estimate

    def changed(self, changes: Mapping[Field, Any]) -> Run:
        """The same job with other values of some plan fields; what follows from them is inferred anew."""
        base = ResolvedPlan(self.base.values)
        for field, value in changes.items():
            known = base.values.get(field)
            base.put(field, value, known.origin if known is not None else Origin("inferred", note="a fix"))
        return _inferred(self.parts, base, self.architecture)

    def assuming(self, notes: Mapping[Field, str]) -> Run:
        """Return the same job with fields that count as assumed, each with how to state it."""
        base = ResolvedPlan(self.base.values)
        for field, note in notes.items():
            value, origin = base.values[field]
            user = origin.kind == "user"
            base.put(field, value, Origin("assumed", note=note) if user else origin._replace(assumed=note))
        return _inferred(self.parts, base, self.architecture)

    def refused_with(self, texts: Mapping[str, bytes]) -> frozenset[str]:
        """Return why other texts of files are refused: they would stop the job, be undone, or change nothing."""
        return frozenset() if self.parts.refusals is None else self.parts.refusals(self, texts)

    def on(self, gpu: str) -> Run:
        """The same job on another GPU, by its name or the size of its memory."""
        return self._moved({GPU: gpu})

    def origin(self, field: Field) -> Origin | None:
        """Where a field's value comes from."""
        return self.reading.origin(field)

    def stated(self, field: Field) -> bool:
        """Whether the configuration or its launch (not a default) says it."""
        return self.reading.stated(field)

    def place(self, *fields: Field) -> Place:
        """Where a finding about a field points: where it is stated, else where the first stated one of the others is,
        else the head of the main configuration. What a stand-in states, the setting that names that file states. The
        options of another framework's launcher are no part of the configuration.
        """
        for field in fields:
            origin = self.reading.origin(field)
            if origin is not None and origin.place is not None and not self._is_launchers(origin):
                return self._naming(origin.place.document) if origin.place.document.stands_in else origin.place
        return self.main.top()

    def _is_launchers(self, origin: Origin) -> bool:
        """Whether something is stated by an option of a launcher that starts the main configuration."""
        assert origin.place is not None
        return origin.place.document.syntax == "shell" and origin.framework not in ("", self.main.framework)

    def _naming(self, document: Document) -> Place:
        """Where the main configuration names a file."""
        references = self.framework.references(self.main)
        named = (self.main.place(*one.route) for one in references if one.path == document.path)
        return next(named, None) or self.main.top()

    def spell(self, field: Field) -> str:
        """The key that states a field, or would state it, for messages."""
        origin, owner = self.reading.origin(field), self.owner(field)
        stated = origin.key if origin is not None and origin.kind == "explicit" else ""
        if owner is None:
            return stated or field
        config, lens = owner
        if stated in map(spelled, lens.keys[field]):
            return stated
        return " + ".join(map(spelled, lens.keys_in(config, field))) or stated or field

    def owner(self, field: Field) -> tuple[Config, Lens] | None:
        """The configuration that a field's value comes from, with the lens that writes it there."""
        origin = self.reading.origin(field)
        configs = self.configs
        if origin is not None and origin.framework:
            configs = tuple(config for config in configs if config.framework == origin.framework) or configs
        for config in configs:
            lens = lens_for(config, field)
            if lens is not None:
                return config, lens
        return None

    @property
    def elsewhere(self) -> tuple[Elsewhere, ...]:
        """The candidate releases where none is stated and their defaults differ."""
        return self.once(_elsewhere)

    def once(self, work: Callable[[Run], Made]) -> Made:
        """What some work makes of this run, which never changes: done when it is first asked for."""
        if work not in self._made:
            self._made[work] = work(self)
        made: Made = self._made[work]
        return made

    def under(self, facts: Mapping[str, Any]) -> Run:
        """The same job where some facts (plan fields, `gpu`) have other values; what follows is inferred anew."""
        key = tuple(sorted(facts.items()))
        if key not in self._corners:
            self._corners[key] = self._moved(facts)
            self._corners[key].is_corner = True
        return self._corners[key]

    def _moved(self, facts: Mapping[str, Any]) -> Run:
        parts, base = self.parts, ResolvedPlan(self.base.values)
        stated = Origin("user", note="another admissible value")
        for fact, value in facts.items():
            if fact == GPU:
                name, size = capacity(value)
                parts = parts._replace(hardware=parts.hardware._replace(gpu=name, gpu_bytes=size, gpu_origin=stated))
            elif fact.startswith(RELEASE):
                self._take_defaults(base, fact, value)
            else:
                base.put(named(fact), value, stated)
                for field, along in _ALONG.get((fact, value), {}).items():
                    base.put(field, along, stated)
        return _inferred(parts, base, self.architecture)

    def _take_defaults(self, base: ResolvedPlan, fact: str, release: str) -> None:
        """Put the defaults of another release in the place of those that count."""
        found = next(one for one in self.elsewhere if (one.fact, one.release) == (fact, release))
        for field, value in found.defaults.items():
            if value is None:
                base.values.pop(field, None)
            else:
                base.put(field, value.value, value.origin)


def _elsewhere(run: Run) -> tuple[Elsewhere, ...]:
    return elsewhere(run.configs, run.base)


def lens_for(config: Config, field: Field) -> Lens | None:
    """The lens of a configuration's framework that reads a field; the last one, as the last one wins."""
    lenses = frameworks.load(config.framework).lenses
    return next((lens for lens in reversed(lenses) if field in lens.fields), None)


_SHARDING: Final = (named("parallel.strategy"), named("parallel.zero_stage"))
_ALONG: Final[Mapping[tuple[str, Any], Mapping[Field, Any]]] = {
    ("parallel.strategy", "zero"): {"parallel.zero_stage": 3}
}
"""What another value of a fact comes with: of DeepSpeed, the stage that shards everything."""


def assemble(parts: RunInputs) -> Run:
    """Make the run of its parts."""
    own = frameworks.read(parts.main)
    architecture, problem = _model(parts, own)
    readings = [_adopted(parts, companions, own, architecture) for companions in (parts.companions, *parts.variants)]
    reading, differing = merged(readings)
    if parts.sharding is not None and reading.origin("parallel.strategy") is None:
        reading.put("parallel.strategy", *parts.sharding)
    for field, value in parts.facts.items():
        if field == _GPUS and _uses_fewer(parts, reading, value):
            continue
        reading.put(field, value.value, value.origin)
        differing.pop(field, None)
    for one in parts.unresolved:
        # What it says of sharding is not known; it is not what holds where no file says anything.
        note = f"{one.path} is not {'JSON' if one.refused else 'there'}"
        origin = Origin("explicit", one.place, note, framework=one.framework)
        for field in _SHARDING:
            if reading.origin(field) is None:
                reading.put(field, None, origin)
    converts = any(CONVERTER in script.source for script in parts.scripts)
    reading.put("checkpoint.converted", converts, Origin("inferred", note="the scripts that start it"))
    run = _inferred(parts._replace(others={**differing, **parts.others}), reading, architecture)
    ranks = written_ranks(run.reading, os.path.dirname(parts.main.document.path), parts.inside)
    if ranks is not None:
        reading.put("checkpoint.load_ranks", ranks, Origin("inferred", note="the shards of the checkpoint"))
        run = _inferred(run.parts, reading, architecture)
    run.problem = problem
    return run


_GPUS: Final[Field] = "launch.gpus_per_node"


def _uses_fewer(parts: RunInputs, reading: ResolvedPlan, offered: Value) -> bool:
    """Whether the launcher's file or option asks for fewer processes than its script has GPUs for, as where an engine
    of vLLM gets the last one.

    Source: accelerate 1.15.0 commands/launch.py (_validate_launch_command): the number is that of the option, else of
    the file, and only without both that of the GPUs in sight.
    """
    asked = reading.values.get(_GPUS)
    if asked is None or asked.value is None or asked.origin.framework not in parts.companions:
        return False
    fewer = offered.value is not None and bool(asked.value < offered.value)
    return fewer and offered.origin.key in IN_SIGHT and reading.stated(_GPUS)


def _adopted(
    parts: RunInputs, companions: Mapping[str, Config], own: ResolvedPlan, architecture: Architecture | None
) -> ResolvedPlan:
    """The reading of the main configuration with what its companions add."""
    job = Job(parts.main, companions, parts.releases)
    job.reading = ResolvedPlan(own.values)
    job.architecture = architecture
    for name, companion in companions.items():
        of = frameworks.load(name)
        frameworks.adopt(job, frameworks.read(companion), of, frameworks.load(parts.main.framework))
    return job.reading


def _inferred(parts: RunInputs, base: ResolvedPlan, architecture: Architecture | None) -> Run:
    job = Job(parts.main, parts.companions, parts.releases, parts.launch_known)
    job.reading = ResolvedPlan(base.values)
    job.architecture = architecture
    _assume(job.reading)
    frameworks.load(parts.main.framework).infer(job)
    return Run(parts, base, job.reading, architecture)


def fewest_gpus(reading: ResolvedPlan) -> int:
    """The GPUs that the stated degrees of parallelism need together."""
    return prod(degree for field in _DEGREES if isinstance(degree := reading.get(field), int) and degree > 0)


def _assume(reading: ResolvedPlan) -> None:
    """Where nothing is stated, put eight GPUs per node, and as few nodes as hold the stated degrees of parallelism.

    Of replicas whose size is not stated, each has a node, as by default in OLMo-core. What is stated and cannot be read
    stays unknown.
    """
    unreadable = reading.unreadable
    if "launch.nodes" not in unreadable and reading.get("launch.nodes") is None:
        nodes = -(-fewest_gpus(reading) // (reading.get("launch.gpus_per_node") or ASSUMED_GPUS))
        if reading.get("parallel.shard_size") is None and "parallel.shard_size" not in unreadable:
            nodes = max(nodes, reading.get("parallel.replicas") or 1)
        note = f"{nodes} node{'s' * (nodes > 1)}; set `nodes` to be sure"
        reading.put("launch.nodes", nodes, Origin("assumed", note=note))
    if "launch.gpus_per_node" not in unreadable and reading.get("launch.gpus_per_node") is None:
        note = f"{ASSUMED_GPUS} GPUs per node; set `gpus-per-node` to be sure"
        reading.put("launch.gpus_per_node", ASSUMED_GPUS, Origin("assumed", note=note))


def _model(parts: RunInputs, reading: ResolvedPlan) -> tuple[Architecture | None, str | None]:
    """The model's shape; without one, what kept its configuration from being read."""
    from cfglint_train.models.find import model_of
    from cfglint_train.models.local import UnreadableModelError

    folder = os.path.dirname(parts.main.document.path)
    try:
        return model_of(reading.get, folder, parts.inside, parts.model_config, parts.online), None
    except UnreadableModelError as error:
        return None, str(error)

"""Dataset entries: data sets that a run names but that its dataset file lacks, or describes in a way that fails.

`datasets.json` in the folder of a framework has clauses about an entry of the file together with settings of the run.
There, `@dataset` is the name of the data set and `@entry.NAME` a field of its entry.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from json import loads

from cfglint_rules.vocabulary.clauses import find_scope, format_message, match_rows
from cfglint_rules.vocabulary.effect_by_release import build_release_grounds, find_candidate_releases
from cfglint_rules.vocabulary.settings import Settings
from cfglint_rules.vocabulary.table import build_clause
from cfglint_train.documents.document import MISSING, Document, Span, Unknown
from cfglint_train.documents.document import Mapping as MappingNode
from cfglint_train.findings.finding import SEVERITIES, Related, Report, Severity
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.wording import find_similar, join_names
from cfglint_train.frameworks.registry import list_frameworks
from cfglint_train.mutations.mutations import get_mutations
from cfglint_train.plan.certainty import Ground
from cfglint_train.plan.origin import Place
from cfglint_train.runs.run import Run

if TYPE_CHECKING:
    from cfglint_train.repository.dataset_file import DatasetFile

DatasetTable = Mapping[str, Any]
"""The parsed file of a framework."""

_ENTRY: Final = "@entry"
_NAME: Final = "@dataset"


@cache
def load_dataset_table(framework: str) -> DatasetTable | None:
    """Return the table of a framework, or None if it has none."""
    path = os.path.join(list_frameworks()[framework].folder, "datasets.json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        table: DatasetTable = loads(file.read())
    return table


class EntrySettings(Settings):
    """Settings of a run together with those of one of its data sets."""

    __slots__ = ("dataset_file", "name", "setting")

    def __init__(self, run: Run, dataset_file: DatasetFile, setting: str, name: str) -> None:
        """Read the entry `name` of a dataset file, which the setting `setting` of the run names."""
        super().__init__(run.main, run)
        self.dataset_file, self.setting, self.name = dataset_file, setting, name

    def get_value(self, name: str) -> Any:
        """Return the plain value of a setting or of a field of the entry, or MISSING."""
        if name == _NAME:
            return self.name
        return self.get_field(*_split_field(name)) if name.startswith(_ENTRY) else super().get_value(name)

    def get_field(self, *route: str) -> Any:
        """Return the plain value of a field of the entry, or MISSING."""
        assert self.dataset_file.document is not None
        return self.dataset_file.document.get_value((self.name, *route))

    def format_name(self, name: str) -> str:
        """Return the name of a setting as the config spells it, or of a field of the entry."""
        return ".".join(_split_field(name)) if name.startswith(_ENTRY) else super().format_name(name)

    def find_field(self, *route: str) -> Place:
        """Return the place of a field of the entry, or that of the next larger field that exists."""
        document = self.dataset_file.document
        assert document is not None
        for length in range(len(route), -1, -1):
            entry = document.find_entry((self.name, *route[:length]))
            if entry is not None:
                return Place(document, entry.key.span)
        return Place(document, None)

    def find_name(self) -> Place:
        """Return the place at which the run names the data set."""
        return self.config.get_origin(self.setting).place or self.config.find_top()


def report_refused_datasets(run: Run) -> Iterator[Report]:
    """Yield a report for each data set that the run names but cannot train on."""
    table, dataset_file = load_dataset_table(run.main.framework), run.inputs.dataset_file
    if table is None or dataset_file is None:
        return
    for setting, names in _list_names(run, table):
        if dataset_file.problem:
            yield _report_invalid_file(run, dataset_file, setting)
            return
        assert dataset_file.document is not None
        entries = dataset_file.document.get_value()
        undefined = [name for name in names if name not in entries and name not in dataset_file.other_names]
        if undefined and not dataset_file.writer:
            yield from _report_undefined(run, table, dataset_file, setting, undefined, list(entries))
        for name in names:
            if isinstance(entries.get(name), dict):
                settings = EntrySettings(run, dataset_file, setting, name)
                reports = list(_report_clauses(table, settings))
                yield from reports or _report_samples(table, settings)


def report_unread_dataset_fields(run: Run) -> Iterator[Report]:
    """Yield a report for each field of the run's data sets that resembles a field, or belongs to another section."""
    table, dataset_file = load_dataset_table(run.main.framework), run.inputs.dataset_file
    if table is None or dataset_file is None or dataset_file.document is None:
        return
    entries = dataset_file.document.get_value()
    for setting, names in _list_names(run, table):
        for name in names:
            for section, read_names in table["fields"].items():
                route = (section,) if section else ()
                settings = EntrySettings(run, dataset_file, setting, name)
                value = settings.get_field(*route) if isinstance(entries.get(name), dict) else None
                fields: dict[str, Any] = value if isinstance(value, dict) else {}
                for field in fields:
                    remedy = "" if field in read_names else _suggest_field(field, section, table, fields)
                    if remedy:
                        yield Report(
                            f"`{'.'.join((*route, field))}` of `{name}` has no effect: {run.framework.title} does not "
                            "read it",
                            settings.find_field(*route, field),
                            "warning",
                            help=remedy,
                            grounds=_build_file_grounds(dataset_file),
                        )


def _split_field(name: str) -> tuple[str, ...]:
    return tuple(name.split(".")[1:])


def _list_names(run: Run, table: DatasetTable) -> Iterator[tuple[str, list[str]]]:
    """Yield the settings that name data sets, each with the names."""
    for setting in table["settings"]:
        value = run.main.get(setting)
        if get_mutations(run.main).is_changed((setting,)) or isinstance(value, Unknown):
            continue
        names = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else ()
        literal = [name.strip() for name in names if isinstance(name, str) and "$" not in name and "{" not in name]
        if literal:
            yield setting, [name for name in literal if name]


def _build_file_grounds(dataset_file: DatasetFile) -> tuple[Ground, ...]:
    """Return the assumptions under which a run reads a dataset file as it is."""
    notes = [dataset_file.assumption] if dataset_file.assumption else []
    if dataset_file.writer:
        notes.append(f"`{dataset_file.writer}`, which names the file, leaves it as it is")
    return tuple(Ground(f"file:{dataset_file.path}", None, "assumed", note) for note in notes)


def _report_invalid_file(run: Run, dataset_file: DatasetFile, setting: str) -> Report:
    candidates = find_candidate_releases(run.main)
    return Report(
        f"{run.framework.title} cannot read `{dataset_file.path}`, which describes `{setting}`: it is not valid JSON",
        run.main.get_origin(setting).place or run.main.find_top(),
        "info" if run.main.evidence.fork is not None else None,
        notes=(dataset_file.problem,),
        help=f"correct `{dataset_file.path}`; JSON allows neither comments nor a comma after the last entry",
        grounds=(*build_release_grounds(candidates, is_uniform=True), *_build_file_grounds(dataset_file)),
    )


def _report_undefined(
    run: Run, table: DatasetTable, dataset_file: DatasetFile, setting: str, undefined: list[str], defined: list[str]
) -> Iterator[Report]:
    """Yield a report on data sets that no dataset file of the repository defines.

    If a copy of the framework lacks data sets of upstream, which its examples name, the finding points at the file.
    Without a copy, upstream's own file may define them.
    """
    shipped = [name for name in undefined if name in table["shipped"]]
    ignored = {*shipped, *(table["examples"] if dataset_file.is_in_copy else ())}  # upstream's examples name these
    misnamed = [name for name in undefined if name not in ignored]
    file_name, grounds = os.path.basename(dataset_file.path), _build_file_grounds(dataset_file)
    grounds = (*build_release_grounds(find_candidate_releases(run.main), is_uniform=True), *grounds)
    severity: Severity | None = "info" if run.main.evidence.fork is not None else None
    if dataset_file.is_in_copy and shipped and dataset_file.document is not None:
        yield Report(
            f"`{file_name}` lacks data sets that {run.framework.title} ships and that runs name: these runs stop",
            _find_top(dataset_file.document),
            severity,
            related=(Related(run.main.get_origin(setting).place or run.main.find_top(), "named here"),),
            help=f"define {join_names([f'`{name}`' for name in shipped])} again, or name other data sets",
            grounds=grounds,
        )
    if not misnamed:
        return
    if not dataset_file.is_in_copy and not run.main.has(table["folder"]):
        note = f"the run reads `{dataset_file.path}`, not one in another folder"
        grounds += (Ground(f"file:{dataset_file.path}", None, "assumed", note),)
    similar = find_similar(misnamed[0], defined, 0.8)
    names = join_names([f"`{name}`" for name in misnamed])
    yield Report(
        f"`{setting}` names {names}, which `{file_name}` does not define: {run.framework.title} stops",
        run.main.get_origin(setting).place or run.main.find_top(),
        severity,
        help=f"did you mean `{similar}`?"
        if similar
        else f"define {names} in `{dataset_file.path}`, or correct the name",
        grounds=grounds,
    )


def _find_top(document: Document) -> Place:
    """Return the place of the first data set of a file."""
    entries = document.root.entries if isinstance(document.root, MappingNode) else ()
    return Place(document, entries[0].key.span if entries else Span(0, 1))


def _report_clauses(table: DatasetTable, settings: EntrySettings) -> Iterator[Report]:
    for clause, scope in match_rows(table["clauses"], settings):
        fields = [name for name in clause.when if name.startswith(_ENTRY) and settings.get_value(name) is not MISSING]
        place = settings.find_field(*_split_field(fields[0])) if fields else settings.find_field()
        yield Report(
            format_message(clause, settings) + scope.condition,
            place,
            max(clause.severity, scope.max_severity, key=SEVERITIES.index),
            related=(Related(settings.find_name(), "named here"),),
            help=clause.help and format_message(clause._replace(message=clause.help), settings),
            grounds=(*scope.grounds, *_build_file_grounds(settings.dataset_file)),
        )


def _report_samples(table: DatasetTable, settings: EntrySettings) -> Iterator[Report]:
    """Yield a report if the samples of a data set lack a column that its format reads, or have other roles."""
    file_name, style = settings.get_field("file_name"), settings.get_field("formatting")
    style = "alpaca" if style is MISSING else style
    is_local = all(settings.get_field(name) is MISSING for name in table["sources"])
    if not is_local or not isinstance(file_name, str) or style not in list(table["formats"]):
        return
    samples = settings.dataset_file.read_samples(file_name)
    if not samples:
        return
    columns, present = settings.get_field("columns"), {name for sample in samples for name in sample}
    for field, default in table["formats"][style].items():
        column = default if columns is MISSING else columns.get(field) if isinstance(columns, dict) else None
        is_answer = field == "response" and settings.get_field("ranking") is True
        if not isinstance(column, str) or not column or column in present or is_answer:
            continue
        place = settings.find_field("columns", field)
        message = f"no sample of `{file_name}` has the column `{column}`, which `{settings.name}` reads as `{field}`"
        yield _build_sample_report(settings, message, place, f"name the column of the samples in `columns.{field}`")
        return
    if style == "sharegpt":
        yield from _report_turns(table, settings, file_name, samples)


def _report_turns(
    table: DatasetTable, settings: EntrySettings, file_name: str, samples: tuple[Mapping[str, Any], ...]
) -> Iterator[Report]:
    """Yield a report if messages lack a tag, or if their roles do not alternate, so that samples are dropped."""
    stated, columns = settings.get_field("tags"), settings.get_field("columns")
    tags = {
        name: default if stated is MISSING else stated.get(name) if isinstance(stated, dict) else None
        for name, default in table["tags"].items()
    }
    column = (
        table["formats"]["sharegpt"]["messages"]
        if columns is MISSING
        else columns.get("messages")
        if isinstance(columns, dict)
        else None
    )
    if not (isinstance(column, str) and isinstance(tags["role_tag"], str) and isinstance(tags["content_tag"], str)):
        return
    is_paired = settings.get_field("ranking") is True
    dropped = 0
    for sample in samples:
        messages = sample.get(column)
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            return
        for tag in ("role_tag", "content_tag"):
            if any(tags[tag] not in message for message in messages):
                text = f"messages of `{file_name}` have no `{tags[tag]}`, which `{settings.name}` reads as `{tag}`"
                yield _build_sample_report(
                    settings, text, settings.find_field("tags", tag), f"name the field of the messages in `tags.{tag}`"
                )
                return
        dropped += not _is_accepted(messages, tags, is_paired)
    if dropped:
        count = "every sample" if dropped == len(samples) else f"{dropped:,} of {len(samples):,} samples"
        text = f"LLaMA-Factory drops {count} of `{file_name}`: their roles do not follow the tags of `{settings.name}`"
        remedy = "name every role of the messages in `tags`; user and assistant must take turns, the user first"
        severity: Severity | None = None if dropped == len(samples) else "warning"
        yield _build_sample_report(settings, text, settings.find_field("tags"), remedy, severity, since="0.8.0")


def _is_accepted(messages: list[dict[str, Any]], tags: Mapping[str, Any], is_paired: bool) -> bool:
    """Return whether the roles of a conversation alternate as the converter requires.

    Source: LLaMA-Factory 0.8.0 `data/aligner.py`, 0.9.2 and 0.9.5 `data/converter.py` (SharegptDatasetConverter).
    """
    roles = [message[tags["role_tag"]] for message in messages]
    if roles and tags["system_tag"] and roles[0] == tags["system_tag"]:
        del roles[0]
    speakers = (tags["user_tag"], tags["observation_tag"]), (tags["assistant_tag"], tags["function_tag"])
    is_complete = bool(roles) and len(roles) % 2 == int(is_paired)
    return is_complete and all(role in speakers[turn % 2] for turn, role in enumerate(roles))


def _build_sample_report(
    settings: EntrySettings, message: str, place: Place, remedy: str, severity: Severity | None = None, since: str = ""
) -> Report:
    row: dict[str, Any] = {
        "name": "",
        "message": message,
        "when": {},
        "example": {},
        "source": "",
        "since": since or None,
    }
    scope = find_scope(build_clause(row), settings.config)
    max_severity: Severity = "info" if scope is None else scope.max_severity
    return Report(
        message + ("" if scope is None else scope.condition),
        place,
        max(severity or "error", max_severity, key=SEVERITIES.index),
        related=(Related(settings.find_name(), "named here"),),
        help=remedy,
        grounds=(*(() if scope is None else scope.grounds), *_build_file_grounds(settings.dataset_file)),
    )


def _suggest_field(field: str, section: str, table: DatasetTable, fields: Mapping[str, Any]) -> str:
    """Return the remedy for an unknown field, or an empty string if it resembles none and belongs nowhere else."""
    home = next((other for other, names in table["fields"].items() if other != section and field in names), None)
    if home is not None:
        return f"move it into `{home}`" if home else "move it out of this section"
    similar = find_similar(field, [name for name in table["fields"][section] if name not in fields], 0.75)
    return "" if similar is None else f"did you mean `{similar}`?"

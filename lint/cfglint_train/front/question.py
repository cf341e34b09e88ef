"""`cfglint estimate --model NAME`: a question without a file, as the minimal configuration that it stands for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from cfglint_train import api
from cfglint_train.foundation.errors import UsageError
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import TYPE_CHECKING, Any, Final
from cfglint_train.foundation.wording import counted, did_you_mean
from cfglint_train.front import starter
from cfglint_train.front.commands import estimation
from cfglint_train.front.commands.options import api_options
from cfglint_train.front.commands.outcome import CLEAN, TROUBLE
from cfglint_train.front.commands.output import complain, shown, troubles, verbose, write
from cfglint_train.hardware import gpus
from cfglint_train.judging import dispatch
from cfglint_train.judging.remedies import attach
from cfglint_train.models import lookup
from cfglint_train.models.names import component
from cfglint_train.plan.names import Field
from cfglint_train.request import Options, request
from cfglint_train.runs.run import ASSUMED_GPUS

if TYPE_CHECKING:
    from cfglint_train.judging.result import Result
    from cfglint_train.runs.run import Run

ADAPTERS: Final = ("lora", "qlora")
LENGTH: Final = 4096
_FIRST: Final = "axolotl"
"""The framework that is taken where none is named and it has the method."""


class Question(Frozen):
    """What is asked, with what is assumed for lack of a flag."""

    framework: str
    path: str
    words: frozenset[str]
    """Method, precision and sharding, for the lines of the starter."""
    changes: dict[Field, Any]
    facts: dict[str, str]
    """The cluster, for the pragma of the file."""
    assumed: dict[str, tuple[Field, ...]]
    """What no flag states, in words -> the fields that it gives."""

    @property
    def note(self) -> str:
        """All that is assumed, in one line."""
        return ", ".join(self.assumed)


def answer(options: Any, axes: Sequence[Any]) -> int:
    """Print the budget that is asked for; save the configuration where `--write` asks for it. Raises UsageError."""
    _check_alone(options)
    wanted = api_options(options)
    request([], wanted, None)  # facts that mean nothing are refused before a text has them
    question = ask(options, wanted)
    if options.write:
        _check_new(question.path, question.framework)
    text, result = judged(question, wanted, full=options.output_format == "html" or options.write is not None)
    complain([*troubles(result), *verbose(result, options)])
    runs = tuple(_assuming(run, question) for run in result.runs)
    if result.troubles or not runs:
        return TROUBLE
    _check_model(runs[0], options)
    report = estimation.lines(
        runs, axes, options.output_format, result._replace(runs=runs), estimation.style_for(options)
    )
    write(report, options)
    if options.write:
        complain(save(question.path, text, result))
    return CLEAN


def ask(options: Any, wanted: Options) -> Question:
    """Return the question that the flags ask. Raises UsageError."""
    assumed: dict[str, tuple[Field, ...]] = {}

    def stated(flag: str, usual: Any, words: str, *fields: Field) -> Any:
        given = getattr(options, flag)
        if given is None:
            assumed[f"{words.format(usual)} (`--{flag}`)"] = fields
        return usual if given is None else given

    method = stated("method", "lora", "{}", "method.tuning")
    framework, path = _framework(options, method)
    if not options.write:
        stated("framework", framework, "{} trains")
    path = path or f"{component(options.model) or 'model'}-{method}.yaml"
    if not path.endswith((".yaml", ".yml")) or not path.isprintable():
        raise UsageError(f"--write {framework}={path}: {framework} reads YAML; name a file that ends in .yaml")
    changes: dict[Field, Any] = {
        "model.id": options.model,
        "sequence.length": stated(
            "length", _usual_length(options.model), "sequences of {:,} tokens", "sequence.length"
        ),
        "batch.micro": stated("micro", 1, "micro batch {}", "batch.micro"),
        "batch.accumulation": stated("accumulation", 8, "accumulation {}", "batch.accumulation"),
        **_optimizer(stated("optimizer", "adamw_torch_fused", "{}", "optimizer.name")),
        "activations.checkpointing": "none" if options.no_checkpointing else "full",
    }
    facts = _facts(path, wanted)
    precision = stated("precision", _usual_format(facts.get("gpu")), "{}", "precision.compute")
    if method in ADAPTERS:
        rank = stated("rank", 16, "rank {}", "method.lora_rank")
        changes |= {"method.lora_rank": rank, "method.lora_alpha": 2 * rank}
        if starter.writes(framework, "model.dtype"):
            changes["model.dtype"] = precision  # the weights below an adapter are held in 16 bits
    elif options.rank is not None:
        raise UsageError(f"--rank is for {' and '.join(ADAPTERS)}, not for {method}")
    if not options.no_checkpointing:
        assumed["activation checkpointing (`--no-checkpointing`)"] = ("activations.checkpointing",)
    sharding = "zero" if options.zero else "fsdp" if options.fsdp else "whole"
    if options.zero:
        changes["parallel.zero_stage"] = options.zero
    spread = sharding != "whole" or facts.get("nodes", "1") != "1"
    if "nodes" not in facts:
        facts["nodes"] = "1"
        assumed["1 node (`--nodes`)"] = ("launch.nodes",)
    if "gpus-per-node" not in facts:
        gpus_per_node = ASSUMED_GPUS if spread else 1
        facts["gpus-per-node"] = str(gpus_per_node)
        assumed[f"{counted(gpus_per_node, 'GPU')} per node (`--gpus-per-node`)"] = ("launch.gpus_per_node",)
    words = frozenset((method, precision, sharding, f"{sharding}{options.zero or ''}"))
    return Question(framework, path, words, changes, facts, assumed)


def _framework(options: Any, method: str) -> tuple[str, str]:
    """The framework that has a method, and the file that `--write` names; empty where it names none."""
    framework, _, path = (options.write or options.framework or "").partition("=")
    if options.write and options.framework not in (None, framework):
        raise UsageError(f"--framework {options.framework} contradicts --write {options.write}")
    known = starter.frameworks()
    if framework and framework not in known:
        raise _unknown("framework", framework, known)
    if method not in starter.METHODS:
        raise _unknown("method", method, starter.METHODS)
    offering = [name for name in sorted(known, key=lambda name: name != _FIRST) if method in starter.methods(name)]
    if framework and framework not in offering:
        raise UsageError(f"no --method {method} for {framework}; {' and '.join(offering)} has it")
    return framework or offering[0], path


def judged(question: Question, wanted: Options, full: bool = False) -> tuple[bytes, Result]:
    """Return the configuration that says what is asked, and its run; `full`: with what all rules find. Raises
    UsageError.
    """
    skeleton = starter.skeleton(question.framework, question.words, question.path, question.facts)
    asking = request([question.path], wanted, {question.path: skeleton})
    text = starter.filled(asking.workspace, question.path, question.changes)
    # The same workspace: what it has read of the repository is not read again.
    workspace = asking.workspace.updated({question.path: text})
    return text, attach(
        dispatch.lint(workspace, asking.files, asking.options if full else asking.options._replace(select=()))
    )


def save(path: str, text: bytes, result: Result) -> Iterator[str]:
    """Write a new file, and say what is still to be done about it. Raises OSError; also where there is one."""
    from cfglint_train.foundation import atomic

    atomic.commit(atomic.stage_new(path, text))
    yield f"wrote {shown(path)}; fill in before you start it:"
    yield from (f"  line {number}: {shown(line)}" for number, line in starter.to_fill(text))
    grave = [finding for finding in result.findings if finding.severity != "info"]
    if grave:
        yield f"{counted(len(grave), 'problem')} in it: run `cfglint {shown(path)}`"


def _check_alone(options: Any) -> None:
    """Raise UsageError where a flag that takes a file, or lays settings over one, meets those of a question."""
    files = {"a file": options.paths, "--plan": options.plan, "--stdin-filename": options.stdin_filename}
    clash = next((name for name, given in files.items() if given), None)
    if clash is not None:
        raise UsageError(f"--model asks without a file; it cannot be used with {clash}")
    if options.write and options.set:
        raise UsageError("--write cannot be used with --set: it writes only what the flags of the question state")


def _check_new(path: str, framework: str) -> None:
    """Raise UsageError where no new file can be made at a path."""
    if os.path.lexists(path):
        raise UsageError(f"{path} exists and is not overwritten; name another file with --write {framework}=FILE")
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise UsageError(f"--write {framework}={path}: there is no folder {folder}")


def _facts(path: str, wanted: Options) -> dict[str, str]:
    """What flags and settings state of the cluster and the releases. Raises FactError."""
    from cfglint_train.settings.cluster_facts import HARDWARE_FACTS, overlay

    settings = api.settings(wanted, path).facts_for(path)
    flags = {name: value for name in HARDWARE_FACTS if (value := getattr(wanted, name.replace("-", "_"))) is not None}
    return overlay(settings, {**flags, **wanted.releases})


def _usual_format(gpu: str | None) -> str:
    """The number format that a card computes in."""
    card = None if gpu is None else gpus.find(gpu)
    return "fp16" if card is not None and card.capability is not None and card.capability < (8, 0) else "bf16"


def _usual_length(model: str) -> int:
    """The tokens of a sequence, of which a model may have no more than it has positions for."""
    architecture = lookup.find(model)
    return min(LENGTH, architecture.context or LENGTH) if architecture is not None else LENGTH


def _optimizer(name: str) -> dict[Field, Any]:
    from cfglint_train.frameworks.hf_trainer.optimizers import OPTIMIZERS

    if name not in OPTIMIZERS:
        raise _unknown("optimizer", name, tuple(OPTIMIZERS))
    return dict(OPTIMIZERS[name])


def _assuming(run: Run, question: Question) -> Run:
    """The run with what no flag states marked as assumed."""
    fields = [field for given in question.assumed.values() for field in given]
    return run.assuming({field: question.note for field in fields if run.base.origin(field) is not None})


def _check_model(run: Run, options: Any) -> None:
    """Raise UsageError for a model whose shape is not known."""
    if run.architecture is not None:
        return
    if run.problem is not None:
        raise UsageError(run.problem)
    names = lookup.near(options.model)
    hint = f"did you mean {' or '.join(names)}? Else state its shape" if names else "state its shape"
    raise UsageError(f"unknown model {options.model}; {hint} with --model-config FILE, or ask the Hub with --online")


def _unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    return UsageError(f"unknown {what} {name}; {did_you_mean(name.lower(), known, 'known: ' + ', '.join(known))}")

"""Unread launches: report runs that a script, Python program or notebook starts and that cfglint does not read.

Each run is reported at the command that starts it or at its program. A command with an unknown program counts as
training if an option (`--learning_rate`) or its name suggests it. It counts as language model training if it has an
option that names or adapts a model, an option or launcher that shards the model, or a program that names a class of
causal language models.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping

from cfglint_train.documents.document import Document, DocumentError, Position, Span
from cfglint_train.documents.notebooks import parse_notebook
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.shell.composed import find_composed_file
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.folders import resolve_working_folder
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.framework import Framework
from cfglint_train.frameworks.launchers import can_shard
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import (
    FrameworkManifest,
    find_candidates,
    find_framework_of_program,
    remove_config_word,
)
from cfglint_train.launches.absent_files import find_nearest, find_nearest_module
from cfglint_train.launches.entries import can_train, get_program, get_program_name, resolve_program
from cfglint_train.launches.examples import extract_scripts, list_examples
from cfglint_train.launches.launch_scripts import LaunchScripts
from cfglint_train.launches.python_launches import extract_commands
from cfglint_train.plan.origin import Place
from cfglint_train.repository import files
from cfglint_train.repository.documents import Documents, UnreadFile
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.lookalikes import identify_tool
from cfglint_train.repository.sources import Sources

_CONTAINERS: Final = (".ipynb", ".mk", ".py", ".yaml", ".yml")
"""Endings of files that contain commands among other text."""
_TESTS: Final = ("test", "tests")
"""Folders whose programs start other programs only to test them."""


def note_unread_runs(
    path: str,
    configs: list[Config],
    documents: Documents,
    scripts: LaunchScripts,
    index: RepositoryIndex,
    is_read: Callable[[str], bool],
) -> None:
    """Record the runs that a file starts and that cfglint does not read.

    `configs` are the configs in the file itself. `is_read` returns whether a file is the main config of a run or is
    already reported as unread.
    """
    name = os.path.basename(path)
    sources, is_script = documents.sources, not path.endswith(_CONTAINERS) and name not in files.RECIPES
    config_numbers = [int(config.root[0]) for config in configs] if is_script else []
    for script in _read_commands(path, documents, scripts, index):
        absent = list(describe_absent_files(script, sources, index)) if is_script else []
        missing_files = collect_missing_files(script, config_numbers, sources, index)
        if path.endswith(".ipynb"):
            missing_files = _leave_out_written(missing_files, documents.get_parsed(path))
        problems = (
            *describe_missing_files(script, missing_files, sources),
            *describe_miscased_files(script, sources, index, is_read),
        )
        positions = {script.locate(span.start) for span, _, _ in absent}
        documents.unread.extend(
            UnreadFile(path, position, message, "absent") for position, message in problems if position not in positions
        )
        documents.unread.extend(
            UnreadFile(path, script.locate(span.start), message, "absent", Place(script, span), help, is_failure=True)
            for span, message, help in absent
        )
        for span, reason in (
            *describe_written_files(script, missing_files),
            *describe_undetermined_files(script, config_numbers, index, is_read),
        ):
            documents.note_run(script, span, reason)
        options = [] if is_script else list(_find_option_runs(script))
        if (
            path in documents.launching_scripts
            and not configs
            and not options
            and not identify_tool(path, script.source)
        ):
            reported = [span for span, _, _ in absent]
            options = list(describe_unread_launches(script, documents, index, is_read, reported))
        for span, reason in options:
            documents.note_run(script, span, reason)


def _read_commands(
    path: str, documents: Documents, scripts: LaunchScripts, index: RepositoryIndex
) -> Iterator[ShellDocument]:
    """Yield the commands that a file starts, as parsed scripts."""
    texts: Iterable[str] = ()
    if path.endswith(".ipynb"):
        texts = _read_notebook(path, documents)
    elif path.endswith(_CONTAINERS) or os.path.basename(path) in files.RECIPES:
        full_path = os.path.abspath(path)
        if not os.path.basename(path).startswith("test_") and set(_TESTS).isdisjoint(path.split("/")):
            texts = extract_scripts(full_path, documents.sources.read(path).decode("utf-8", "replace"), index)
    else:
        script = scripts.read_script(path, path)
        if script is not None:
            yield script
    for text in texts:
        try:
            parsed = files.parse(path, text.encode(), "shell") if text.strip() else None
        except DocumentError:
            continue
        if isinstance(parsed, ShellDocument):
            yield parsed


def _read_notebook(path: str, documents: Documents) -> Iterator[str]:
    """Yield the commands of a notebook, and those that its Python code starts."""
    notebook = parse_notebook(documents.sources.read(path).decode("utf-8", "replace"))
    if notebook is not None:
        yield extract_commands(notebook.python)
        yield notebook.commands


def _leave_out_written(missing: MissingFiles, notebook: Document | None) -> MissingFiles:
    """Return the missing files without those that the Python code of a notebook names, because it may write them."""
    source = b"" if notebook is None else notebook.source
    return {file: places for file, places in missing.items() if os.fsencode(os.path.basename(file)) not in source}


def _find_option_runs(script: ShellDocument) -> Iterator[tuple[Span, str]]:
    """Yield the span of each command that trains by options alone, and the reason why cfglint does not read it.

    `script` holds commands from a file that is not a shell script.
    """
    for name in find_candidates(script.source, "shell"):
        for config in frameworks.recognise(name, script):
            if config.role != "other" and config.root:
                invocation = script.invocations[int(config.root[0])]
                yield invocation.head[-1].span, f"the options of `{invocation.program}` are read in shell scripts only"


# --- missing files ----------------------------------------------------------------------------------------------------

_CONFIGURATION: Final = compile_on_use(r"\.(?:ya?ml|json)$")
_FILE: Final = compile_on_use(r"\.(?:ya?ml|json|py)$")
_YAML: Final = compile_on_use(r"\.ya?ml$")
"""Settings file of a program that is unknown to cfglint; JSON files do not match because they may be data."""
_MODULE: Final = compile_on_use(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?<!\.py)")
"""Module in a package."""
_TRAINS: Final = compile_on_use(r"(?<!s)(?:train|tune|sft|dpo|grpo)(?!_?data)")
"""Name of a program that trains rather than prepares training data."""
_LAUNCHERS: Final = ("accelerate launch", "deepspeed", "torchrun")
_REDIRECTION: Final = rb"(?:>|\btee\b(?:[ \t]+-a)?)[ \t]*[\"']?[^\s\"'<>|;&]*(?<![\w.-])"
"""Shell redirection up to the name of the file that it writes."""
_OPTION: Final = "--config"
_SETTINGS_OPTIONS: Final = (_OPTION, "--config_file")
_SUBCOMMAND: Final = compile_on_use(r"[a-z][a-z0-9-]*")


MissingFiles = Mapping[str, list[tuple[Invocation, Word, str]]]
"""Missing file -> each command that trains with it, the word that names the file, and the program's title."""


def describe_missing_files(
    document: ShellDocument, missing: MissingFiles, sources: Sources
) -> Iterator[tuple[Position, str]]:
    """Yield the position and message of each missing file that a script trains with, once per file.

    Files that the script also names elsewhere are left out because the script may create them there.
    """
    for file, places in missing.items():
        invocation, word, title = places[0]
        if document.source.count(os.fsencode(os.path.basename(file))) > len(places) or set("<>{}*") & set(file):
            continue
        if sources.find(os.path.join(resolve_working_folder(document, invocation), file), document.path) is None:
            message = f"run not checked: {title} is started with `{file}`, which was not found"
            yield document.locate(word.span.start), message


def describe_written_files(document: ShellDocument, missing: MissingFiles) -> Iterator[tuple[Span, str]]:
    """Yield the span and reason of each file that a script writes (`cat > c.yaml <<EOF`) and trains with."""
    for file, places in missing.items():
        _, word, title = places[0]
        name = re.escape(os.fsencode(os.path.basename(file)))
        if re.search(_REDIRECTION + name + rb"(?![\w.-])", document.source):
            message = f"`{file}`, which {title} is started with, is written by the script itself"
            yield word.span, message


def describe_undetermined_files(
    document: ShellDocument, config_numbers: Container[int], index: RepositoryIndex, is_read: Callable[[str], bool]
) -> Iterator[tuple[Span, str]]:
    """Yield the span and reason of each settings file whose name is undetermined (`llamafactory-cli train $1`).

    Each name is reported once per framework. Nothing is reported if the repository has configs of the framework
    because those are checked. `is_read` returns whether a file is the config of a run.
    """
    seen = set[tuple[str, str]]()
    for invocation in document.invocations:
        framework = None if invocation.number in config_numbers else _find_framework(invocation)
        if framework is None or any(word.is_known and _CONFIGURATION.search(word.text) for word in invocation.words):
            continue
        word = _find_file_word(invocation)
        if word is None and invocation.forwards and not invocation.entries:
            place, text = invocation.head[-1].span, "$@"
        elif word is not None and not word.is_known and not word.spreads:
            place, text = word.span, word.text.removeprefix(f"{_OPTION}=")
        else:
            continue
        if (framework.name, text) in seen:
            continue
        seen.add((framework.name, text))
        if not any(map(is_read, index.find_with_clues(dict.fromkeys(files.CONFIGURATIONS, framework.clues["yaml"])))):
            yield place, f"the file that {framework.title} is started with (`{text}`) cannot be determined"


def describe_miscased_files(
    document: ShellDocument, sources: Sources, index: RepositoryIndex, is_read: Callable[[str], bool]
) -> Iterator[tuple[Position, str]]:
    """Yield the position and message of files that exist only with different letter case (`Scripts/train.py`).

    Each file is reported once. `is_read` returns whether a file is the config of a run.
    """
    seen = set[str]()
    for invocation in document.invocations:
        for word in (*invocation.head[-1:], *invocation.words):
            name = regular_files.normalize_path(word.text) if word.is_known and "/" in word.text else ""
            if name in seen or "/" not in name or not _FILE.search(name):
                continue
            seen.add(name)
            existing = next(
                (
                    candidate
                    for candidate in index.find_by_name(os.path.basename(name))
                    if _is_miscased(candidate, name)
                ),
                None,
            )
            if (
                existing is None
                or sources.find(os.path.join(resolve_working_folder(document, invocation), name), document.path)
                is not None
            ):
                continue
            actual = existing[-len(name) :]
            if os.fsencode(actual) not in document.source and is_read(sources.format_path(existing, document.path)):
                # A script that also names the actual file may copy it to the missing name.
                message = f"run not checked: `{name}` was not found; the repository has it as `{actual}`"
                yield document.locate(word.span.start), message


def _is_miscased(path: str, name: str) -> bool:
    return path.lower().endswith(f"/{name.lower()}") and not path.endswith(f"/{name}")


def _find_file_word(invocation: Invocation) -> Word | None:
    """Return the word that names the settings file: the value of `--config`, else the first word after a subcommand."""
    for flag, entry in zip(invocation.flags, invocation.entries, strict=True):
        if entry.name == _OPTION:
            return invocation.words[flag.values[0] if flag.values else flag.word]
    return next((word for word in invocation.words if not (word.is_known and _SUBCOMMAND.fullmatch(word.text))), None)


def describe_absent_files(
    document: ShellDocument, sources: Sources, index: RepositoryIndex
) -> Iterator[tuple[Span, str, str | None]]:
    """Yield the span, message and remedy of each file that a launch needs and that is missing among its siblings.

    The files are training programs, the values of `--config` and `--config_file`, and files that Hydra composes. Each
    file is reported once.
    """
    seen = set[str]()
    for invocation in document.invocations:
        for word, text in _list_needed_files(document, invocation, sources, index):
            if text in seen:
                continue
            seen.add(text)
            is_module = text == invocation.program and not text.endswith(".py")
            find = find_nearest_module if is_module else find_nearest
            nearest = find(document, invocation, text, sources, index)
            if nearest is not None:
                help = f"did you mean `{nearest}`?" if nearest else None
                yield word.span, f"`{text}` was not found, so the launch fails", help


def _list_needed_files(
    document: ShellDocument, invocation: Invocation, sources: Sources, index: RepositoryIndex
) -> Iterator[tuple[Word, str]]:
    """Yield the words of a training launch that name a program or a settings file, each with the path in it."""
    name, is_program = get_program_name(invocation), invocation.program.endswith(".py")
    launchers = list(document.list_launchers(invocation))
    is_launched = any(launcher.program in _LAUNCHERS for launcher in launchers)
    if is_program:
        if not (is_launched and _TRAINS.search(os.path.basename(name))) and not _is_training(document, invocation):
            return
        if resolve_program(document, invocation, sources, index) is None:
            if invocation.head[-1].is_known and not _is_framework_program(name, None, sources):
                yield invocation.head[-1], name
            return  # The whole launch may belong to another checkout.
    if _is_module(document, invocation) and resolve_program(document, invocation, sources, index) is None:
        yield invocation.head[-1], name
    if not is_program and _find_framework(invocation) is None:
        return
    if not is_program:
        word = _find_file_word(invocation)
        if word is not None and word.is_known and _CONFIGURATION.search(word.text):
            yield word, remove_config_word(word.text.removeprefix(f"{_OPTION}="))
    composed = find_composed_file(invocation)
    if composed is not None and composed.end.startswith("/") and not composed.is_absolute:
        yield composed.word, composed.end.lstrip("/")
    for started in (invocation, *launchers):
        for flag, entry in zip(started.flags, started.entries, strict=True):
            if entry.name in _SETTINGS_OPTIONS:
                word = started.words[flag.values[0] if flag.values else flag.word]
                text = word.text.removeprefix(f"{entry.name}=")
                if word.is_known and _CONFIGURATION.search(text):
                    yield word, text


def _is_module(document: ShellDocument, invocation: Invocation) -> bool:
    """Return whether a program is a module of a package that trains."""
    is_named = bool(invocation.head) and invocation.head[-1].is_known
    return is_named and _MODULE.fullmatch(invocation.program) is not None and _is_training(document, invocation)


def collect_missing_files(
    document: ShellDocument, config_numbers: Container[int], sources: Sources, index: RepositoryIndex
) -> MissingFiles:
    """Return the missing files that a script trains with; `config_numbers` are invocations that are configs."""
    missing: dict[str, list[tuple[Invocation, Word, str]]] = {}
    for invocation in document.invocations:
        if invocation.number in config_numbers:
            continue
        framework = _find_framework(invocation)
        title = _format_missing_program(document, invocation, sources, index) if framework is None else framework.title
        endings = _CONFIGURATION if framework is not None else _YAML
        word = next((word for word in invocation.words if word.is_known and endings.search(word.text)), None)
        name = "" if word is None else remove_config_word(word.text)
        composed = find_composed_file(invocation)
        if framework is not None and composed is not None and _names_own_file(document, invocation, framework, index):
            word, name = composed.word, composed.name
        if title and word is not None and not index.find_by_name(os.path.basename(name)):
            missing.setdefault(remove_config_word(word.text), []).append((invocation, word, title))
    return missing


def _names_own_file(
    document: ShellDocument, invocation: Invocation, framework: FrameworkManifest, index: RepositoryIndex
) -> bool:
    """Return whether a command composes a file of the repository's own, not one of the framework's package."""
    recognised = frameworks.recognise(framework.name, document)
    return index.is_repository and all(config.root[:1] != (invocation.number,) for config in recognised)


def _find_framework(invocation: Invocation) -> FrameworkManifest | None:
    """Return the framework that a command or module trains with, or None for Python files and other commands."""
    name = invocation.program
    first = next((word.text for word in invocation.arguments[:1] if word.is_known), "")
    if "/" in name or name.endswith(".py"):
        return None
    framework = find_framework_of_program(name)
    if framework is None or "yaml" not in framework.clues:  # The framework reads no settings file.
        return None
    is_training = re.fullmatch(framework.training_pattern or "", f"{name} {first}") is not None
    is_named_train = "train" in (first if _SUBCOMMAND.fullmatch(first) else name)
    return framework if is_training or is_named_train else None


def _format_missing_program(
    document: ShellDocument, invocation: Invocation, sources: Sources, index: RepositoryIndex
) -> str:
    """Return a launched training program that is not in the repository, quoted, or an empty string.

    Programs in the repository are checked at their own files.
    """
    is_launched = invocation.parent is not None and document.invocations[invocation.parent].program in _LAUNCHERS
    name = get_program_name(invocation)
    if not is_launched or not name.endswith(".py") or _TRAINS.search(os.path.basename(name)) is None:
        return ""
    return f"`{name}`" if resolve_program(document, invocation, sources, index) is None else ""


# --- programs that no framework reads ---------------------------------------------------------------------------------

_MODEL: Final = compile_on_use(
    r"(?:\w+_)?(?:base_model|model_(?:id|name|name_or_id|name_or_path|path))|(?:language|llama|llm|lm)_model"
    r"|lora_(?:alpha|r|rank)"
)
"""Options that name a model or adapt it."""
_TRAINING: Final = frozenset((
    "deepspeed", "deepspeed_config", "epochs", "gradient_accumulation_steps", "learning_rate", "lr",
    "lr_scheduler_type", "max_steps", "micro_batch_size", "num_epochs", "num_train_epochs",
    "per_device_train_batch_size", "train_batch_size", "warmup_ratio", "warmup_steps", "weight_decay",
))  # fmt: skip
_GENERATION_OPTIONS: Final = frozenset(("micro_batch_size",))
"""Training options that generation and evaluation programs also have."""
_SHARDING_OPTIONS: Final = frozenset((
    "deepspeed", "deepspeed_config", "deepspeed_config_file", "ds_config", "fsdp", "fsdp_config",
    "fsdp_transformer_layer_cls_to_wrap", "micro_train_batch_size", "zero_stage",
))  # fmt: skip
"""Options that shard a model: those of DeepSpeed, programs built on it (DeepSpeed-Chat, OpenRLHF), HF Trainer."""
_CAUSAL: Final = compile_on_use(rb"\w+ForCausalLM\b")
_SETTINGS: Final = compile_on_use(r"conf|cfg|arg|param|setting|recipe")
"""Name of an option whose value is a settings file; the JSON file of any other option may be data."""


def describe_unread_launches(
    document: ShellDocument,
    documents: Documents,
    index: RepositoryIndex,
    is_read: Callable[[str], bool],
    reported: Collection[Span] = (),
) -> Iterator[tuple[Span, str]]:
    """Yield the span and reason of each program that trains a language model and that cfglint does not read.

    Each program is reported once. `is_read` returns whether a file is a config or is already reported as unread.
    `reported` are the words of files whose absence is reported.
    """
    sources = documents.sources
    launching = {invocation.parent for invocation in document.invocations}
    seen = set()
    for invocation in document.invocations:
        if invocation.number in launching or invocation.program in seen or not _is_training(document, invocation):
            continue
        name, is_determined = get_program_name(invocation), invocation.head[-1].is_known
        file = resolve_program(document, invocation, sources, index)
        if _is_framework_program(name, file, sources):
            continue
        if not (_is_model_training(document, invocation) or _has_causal_model(invocation, file, sources)):
            continue
        if any(word.span in reported for word in (*invocation.head, *invocation.words)):
            continue
        named_files = list(_find_settings_files(document, invocation, sources))
        settings_files = [path for _, path in named_files if path is not None]
        missing = next((text for text, path in named_files if path is None), None)
        candidates = () if is_determined or file is not None else index.find_by_name(os.path.basename(name))
        if any(is_read(path) for path in (*settings_files, *_list_training_files(file, sources, index), *candidates)):
            continue
        seen.add(invocation.program)
        place = invocation.head[-1].span
        if file is None and not candidates and invocation.program.endswith(".py"):
            yield place, f"it starts `{name}`, which was not found"
        elif missing is not None and not settings_files:
            yield place, f"`{name}` takes its settings from `{missing}`, which was not found"
        elif settings_files and not _is_recognised(settings_files[0], documents):
            settings_file = (
                os.path.relpath(settings_files[0]) if os.path.isabs(settings_files[0]) else settings_files[0]
            )
            yield place, f"`{name}` takes its settings from `{settings_file}`, which no framework reads"
        elif (trainer := _find_imported_trainer(file, sources, index)) is not None:
            yield place, f"`{name}` trains with `{trainer[0]}` of `{trainer[1]}`, which is not read"
        else:
            yield place, f"nothing that cfglint reads is in `{name}`"


def _is_recognised(path: str, documents: Documents) -> bool:
    """Return whether a file belongs to a framework, as a companion too, so that it is checked by itself."""
    document = documents.read_document(path)
    names = documents.candidates.get(path, ()) if document is not None else ()
    return any(document is not None and frameworks.recognise(name, document) for name in names)


def _is_framework_program(name: str, file: str | None, sources: Sources) -> bool:
    """Return whether `name` is a program of a framework.

    If the repository has its own file of that name (`scripts/train.py`), the file must also mention a package of the
    framework.
    """
    framework = find_framework_of_program(name)
    if framework is None or framework.layout is None or file is None:
        return framework is not None
    text = sources.read(file)
    return any(re.search(rb"\b" + package.encode() + rb"\b", text) is not None for package in framework.layout.packages)


def _is_training(document: ShellDocument, invocation: Invocation) -> bool:
    """Return whether an invocation shows that it trains, by its options or its program's name.

    Sharding options or a micro batch size are not enough because generation programs use them too.
    """
    started_program = get_program(document, invocation)
    if not invocation.head or not get_program_name(invocation) or not started_program.is_python:
        return False
    return bool(_list_option_names(invocation) & _TRAINING - _SHARDING_OPTIONS - _GENERATION_OPTIONS) or can_train(
        started_program
    )


def _is_model_training(document: ShellDocument, invocation: Invocation) -> bool:
    """Return whether the options or launchers of a training invocation show that it trains a language model."""
    options = _list_option_names(invocation)
    names_model = any(_MODEL.fullmatch(option) for option in options)
    return bool(
        options & _SHARDING_OPTIONS
        or (names_model and options & _TRAINING)
        or any(map(can_shard, document.list_launchers(invocation)))
    )


def _has_causal_model(invocation: Invocation, file: str | None, sources: Sources) -> bool:
    """Return whether a program with training options names a class of causal language models."""
    return (
        file is not None
        and bool(_list_option_names(invocation) & _TRAINING)
        and _CAUSAL.search(sources.read(file)) is not None
    )


_SETTING: Final = compile_on_use(r"\+{0,2}(?:[\w/@-]+\.)*([a-z]\w*)=(?!=)")
"""Hydra or OmegaConf setting (`optim.lr=1e-5`); the captured group is the last part of the name."""


def _list_option_names(invocation: Invocation) -> frozenset[str]:
    settings = [match[1] for word in invocation.words if (match := _SETTING.match(word.text)) is not None]
    return frozenset([*((entry.name or "").lstrip("-").replace("-", "_") for entry in invocation.entries), *settings])


_IMPORT: Final = compile_on_use(rb"(?m)^[ \t]*(?:from|import)[ \t]+([\w.]+)")
_SMALL: Final = 4 * 2**10
"""Maximum size in bytes of a program whose imports are searched because it may only call another program."""


def _list_training_files(file: str | None, sources: Sources, index: RepositoryIndex) -> Iterator[str]:
    """Yield the Python files that may contain the training code: the program and, if it is small, its imports."""
    if file is None:
        return
    yield file
    text = sources.read(file)
    for module in _IMPORT.findall(text) if len(text) <= _SMALL else ():
        path = index.find_by_suffix(module.decode().replace(".", "/") + ".py", file)
        if path is not None:
            yield sources.format_path(path, file)


_IMPORTED_NAMES: Final = compile_on_use(rb"(?m)^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*|[^\n#]*)")
_TRAINER: Final = compile_on_use(rb"\b[A-Z]\w*Trainer\b")


def _find_imported_trainer(file: str | None, sources: Sources, index: RepositoryIndex) -> tuple[str, str] | None:
    """Return the trainer class that a program imports from the repository and instantiates, and its file, or None."""
    if file is None:
        return None
    text = sources.read(file)
    for module, names in _IMPORTED_NAMES.findall(text):
        trainer = next((name for name in _TRAINER.findall(names) if name + b"(" in text), None)
        path = index.find_by_suffix(module.decode().strip(".").replace(".", "/") + ".py", file)
        if trainer is not None and path is not None:
            return trainer.decode(), sources.format_path(path, file)
    return None


def _find_settings_files(
    document: ShellDocument, invocation: Invocation, sources: Sources
) -> Iterator[tuple[str, str | None]]:
    """Yield each settings file of an invocation as it is written, with its path, or None if it is not found.

    Files of sharding options (DeepSpeed) and JSON data (`--train_file`) are left out.
    """
    flags = list(zip(invocation.flags, invocation.entries, strict=True))
    deepspeed_words = {value for flag, entry in flags if _is_sharding_option(entry.name) for value in flag.values}
    data_words = {value for flag, entry in flags if not _SETTINGS.search(entry.name or "") for value in flag.values}
    for index, word in enumerate(invocation.words):
        if index in deepspeed_words or (index in data_words and word.text.endswith(".json")):
            continue
        if word.is_known and _CONFIGURATION.search(word.text):
            text = word.text.rpartition("=")[2]
            folder = resolve_working_folder(document, invocation)
            yield text, sources.find(os.path.join(folder, text), document.path)


def _is_sharding_option(option: str | None) -> bool:
    return (option or "").lstrip("-").replace("-", "_") in _SHARDING_OPTIONS


# --- programs that a framework reads ----------------------------------------------------------------------------------

MAX_IMPORTERS: Final = 20
"""Maximum number of importing Python files that are read for the arguments that they pass to a module."""


def is_reported_at_program(
    role: str, path: str, index: RepositoryIndex, framework: Framework, scripts: LaunchScripts
) -> bool:
    """Return whether a run is reported at its program rather than at a launch.

    A program that gets its settings from a launch is reported if no launch is visible. Any other program receives its
    model as an argument; it is reported if a file that imports it passes a model of the framework's kind.
    """
    if role == "program":
        return not is_started(path, index, lambda name: scripts.read_script(name, path))
    full_path, module = regular_files.normalize_path(os.path.abspath(path)), os.path.basename(path).removesuffix(".py")
    importers = [file for file in index.find_python_using(("import",), module) if file != full_path][:MAX_IMPORTERS]
    return any(
        framework.launch_interface.passes_model(script, path)
        for file in importers
        if (script := _read_python_script(file)) is not None
    )


def _read_python_script(path: str) -> PythonScript | None:
    try:
        return PythonScript(path, regular_files.read(path))
    except (OSError, DocumentError):
        return None


def is_started(path: str, index: RepositoryIndex, read_script: Callable[[str], ShellDocument | None]) -> bool:
    """Return whether a script starts a Python file, or an example starts it with a settings file.

    The settings are then checked at that launch. A script that names the file but does not parse counts as starting it.
    `read_script` returns a parsed script, or None.
    """
    name = os.path.basename(path)
    for script in index.find_scripts_naming(name):
        document = read_script(script)
        if document is None or any(_can_start(document, invocation, name) for invocation in document.invocations):
            return True
    with_file = re.compile(rb"\b" + re.escape(os.fsencode(name)) + rb"\b(?:[^\n\\]|\\.|\\\n)*\.(?:ya?ml|json)\b")
    return index.is_repository and any(with_file.search(text) for _, text in index.compute_once(list_examples))


def _can_start(document: ShellDocument, invocation: Invocation, name: str) -> bool:
    """Return whether an invocation may start a Python file.

    A Python program that receives the file's name as an argument does not count: it decides how to start the file.
    """
    if os.path.basename(invocation.program) == name:
        return True
    is_named = any(word.text.endswith(name) for word in invocation.words)
    return is_named and not (invocation.program.endswith(".py") and get_program(document, invocation).is_python)

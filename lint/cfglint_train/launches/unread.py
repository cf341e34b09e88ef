"""The runs that a script, a Python program or a notebook starts and that are not read: each is named where it is
started, or at its program.

A command that no framework reads shows that it trains (an option such as `--learning_rate`, or the program's name); it,
or the program that it starts, that this is a language model (an option that names or adapts one, the files of DeepSpeed
and accelerate; a class of such models).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping

from cfglint_train.documents.document import DocumentError, Position, Span
from cfglint_train.documents.notebooks import read
from cfglint_train.documents.python.document import PythonDocument
from cfglint_train.documents.python.script import PythonScript
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.folders import folder_of
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.documents.shell.words import Word
from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks.framework import Framework
from cfglint_train.frameworks.launchers import may_shard
from cfglint_train.frameworks.lens import Config
from cfglint_train.frameworks.registry import FrameworkManifest, candidates, of_program
from cfglint_train.launches.entries import file_of, name_of, program, trains
from cfglint_train.launches.examples import examples, scripts_in
from cfglint_train.launches.launch_scripts import LaunchScripts
from cfglint_train.launches.python_launches import commands
from cfglint_train.repository import files
from cfglint_train.repository.documents import Documents, UnreadFile
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.lookalikes import looks_like
from cfglint_train.repository.sources import Sources

_HOLDING: Final = (".ipynb", ".mk", ".py", ".yaml", ".yml")
"""Ends of the names of files that hold commands among other things."""
_TESTS: Final = ("test", "tests")
"""Folders with programs that start others to try them."""


def note_starts(
    path: str,
    configs: list[Config],
    documents: Documents,
    scripts: LaunchScripts,
    index: RepositoryIndex,
    reads: Callable[[str], bool],
) -> None:
    """Note what a file starts and that is not read. `configs` are its own; `reads`: whether another one is the main
    configuration of a run, or is named as one that is not read.
    """
    name = os.path.basename(path)
    sources, is_script = documents.sources, not path.endswith(_HOLDING) and name not in files.RECIPES
    own = [int(config.root[0]) for config in configs] if is_script else []
    for script in _scripts(path, documents, scripts, index):
        started = started_with(script, own, sources, index)
        missing = (*absent(script, started, sources), *miscased(script, sources, index, reads))
        documents.unread.extend(UnreadFile(path, at, told, "absent") for at, told in missing)
        for span, why in (*written(script, started), *argued(script, own, index, reads)):
            documents.note_run(script, span, why)
        options = [] if is_script else list(_in_options(script))
        if path in documents.launching and not configs and not options and not looks_like(path, script.source):
            options = list(unread_launches(script, sources, index, reads))
        for span, why in options:
            documents.note_run(script, span, why)


def _scripts(
    path: str, documents: Documents, scripts: LaunchScripts, index: RepositoryIndex
) -> Iterator[ShellDocument]:
    """The commands that a file starts, as scripts."""
    texts: Iterable[str] = ()
    if path.endswith(".ipynb"):
        texts = _of_notebook(path, documents)
    elif path.endswith(_HOLDING) or os.path.basename(path) in files.RECIPES:
        whole = os.path.abspath(path)
        if not os.path.basename(path).startswith("test_") and set(_TESTS).isdisjoint(path.split("/")):
            texts = scripts_in(whole, documents.sources.read(path).decode("utf-8", "replace"), index)
    else:
        script = scripts.script(path, path)
        if script is not None:
            yield script
    for text in texts:
        try:
            found = files.parse(path, text.encode(), "shell") if text.strip() else None
        except DocumentError:
            continue
        if isinstance(found, ShellDocument):
            yield found


def _of_notebook(path: str, documents: Documents) -> Iterator[str]:
    """The commands of a notebook. The run of its Python code is noted."""
    notebook = read(documents.sources.read(path).decode("utf-8", "replace"))
    if notebook is None:
        return
    try:
        program = files.parse(path, notebook.python.encode(), "python")
    except DocumentError:
        program = None
    if isinstance(program, PythonDocument):
        found = (one for name in candidates(program.source, "python") for one in frameworks.recognise(name, program))
        run = next((one for one in found if one.role in (None, "unread", "program")), None)
        if run is not None:
            at = next((program.span(call) for call in program.calls("train") if run.at is None), run.at)
            documents.note_run(
                program, at, "it is in a notebook; export it as a script (`jupyter nbconvert --to script`)"
            )
    yield commands(notebook.python)
    yield notebook.commands


def _in_options(script: ShellDocument) -> Iterator[tuple[Span, str]]:
    """Where a program or a notebook trains with options alone."""
    for name in candidates(script.source, "shell"):
        for found in frameworks.recognise(name, script):
            if found.role != "other" and found.root:
                started = script.invocations[int(found.root[0])]
                yield started.head[-1].span, f"the options of `{started.program}` are read in shell scripts only"


# --- files that are not there -----------------------------------------------------------------------------------------

_CONFIGURATION: Final = re.compile(r"\.(?:ya?ml|json)$")
_FILE: Final = re.compile(r"\.(?:ya?ml|json|py)$")
_YAML: Final = re.compile(r"\.ya?ml$")
"""What a program that is not known is given as settings: JSON may as well be data."""
_TRAINS: Final = re.compile(r"(?<!s)(?:train|tune|sft|dpo|grpo)(?!_?data)")
"""In the name of a program that trains, and does not make the data for it."""
_LAUNCHERS: Final = ("accelerate launch", "deepspeed", "torchrun")
_INTO: Final = rb"(?:>|\btee\b(?:[ \t]+-a)?)[ \t]*[\"']?[^\s\"'<>|;&]*(?<![\w.-])"
"""Bash writes to the file that follows."""
_OPTION: Final = "--config"
_SUBCOMMAND: Final = re.compile(r"[a-z][a-z0-9-]*")


Started = Mapping[str, list[tuple[Invocation, Word, str]]]
"""Files that a repository does not have, by name: the commands that train with them, and what these start."""


def absent(document: ShellDocument, started: Started, sources: Sources) -> Iterator[tuple[Position, str]]:
    """Where a script trains with such a file, and what is wrong; each file once. A file that the script names
    elsewhere, too, may be made there.
    """
    for file, places in started.items():
        one, word, title = places[0]
        if document.source.count(os.fsencode(os.path.basename(file))) > len(places) or set("<>{}*") & set(file):
            continue
        if sources.find(os.path.join(folder_of(document, one), file), document.path) is None:
            told = f"run not checked: `{file}`, which {title} is started with, was not found"
            yield document.position(word.span.start), told


def written(document: ShellDocument, started: Started) -> Iterator[tuple[Span, str]]:
    """Where a script trains with a file that it writes itself (`cat > c.yaml <<EOF`), and that; each file once."""
    for file, places in started.items():
        _, word, title = places[0]
        name = re.escape(os.fsencode(os.path.basename(file)))
        if re.search(_INTO + name + rb"(?![\w.-])", document.source):
            told = f"`{file}`, which {title} is started with, is written by the script itself"
            yield word.span, told


def argued(
    document: ShellDocument, read: Container[int], index: RepositoryIndex, reads: Callable[[str], bool]
) -> Iterator[tuple[Span, str]]:
    """Where a script trains with a file of unknown name (`llamafactory-cli train $1`), once for each name;
    nothing where the repository has files of the framework, which are checked. `reads`: whether a file is such a one.
    """
    met = set[tuple[str, str]]()
    for one in document.invocations:
        framework = None if one.number in read else _trained_with(one)
        if framework is None or any(word.known and _CONFIGURATION.search(word.text) for word in one.words):
            continue
        word = _file_word(one)
        if word is None and one.forwards and not one.entries:
            place, text = one.head[-1].span, "$@"
        elif word is not None and not word.known and not word.spreads:
            place, text = word.span, word.text.removeprefix(f"{_OPTION}=")
        else:
            continue
        if (framework.name, text) in met:
            continue
        met.add((framework.name, text))
        if not any(map(reads, index.with_one_of(dict.fromkeys(files.CONFIGURATIONS, framework.clues["yaml"])))):
            yield place, f"the file that {framework.title} is started with (`{text}`) cannot be determined"


def miscased(
    document: ShellDocument, sources: Sources, index: RepositoryIndex, reads: Callable[[str], bool]
) -> Iterator[tuple[Position, str]]:
    """Where a script starts something with a file that the repository has in another case (`Scripts/train.py`), and
    the file; each once. `reads`: whether a file is a run.
    """
    met = set[str]()
    for one in document.invocations:
        for word in (*one.head[-1:], *one.words):
            name = regular_files.tidy(word.text) if word.known and "/" in word.text else ""
            if name in met or "/" not in name or not _FILE.search(name):
                continue
            met.add(name)
            found = next((path for path in index.named(os.path.basename(name)) if _is_miscased(path, name)), None)
            if found is None or sources.find(os.path.join(folder_of(document, one), name), document.path) is not None:
                continue
            own = found[-len(name) :]
            if os.fsencode(own) not in document.source and reads(sources.named(found, document.path)):
                # Else it may be copied there.
                told = f"run not checked: `{name}` was not found; the repository has it as `{own}`"
                yield document.position(word.span.start), told


def _is_miscased(path: str, name: str) -> bool:
    return path.lower().endswith(f"/{name.lower()}") and not path.endswith(f"/{name}")


def _file_word(one: Invocation) -> Word | None:
    """The word that names the file of settings: the value of an option, else the first behind the command."""
    for flag, entry in zip(one.flags, one.entries, strict=True):
        if entry.name == _OPTION:
            return one.words[flag.values[0] if flag.values else flag.word]
    return next((word for word in one.words if not (word.known and _SUBCOMMAND.fullmatch(word.text))), None)


def started_with(document: ShellDocument, read: Container[int], sources: Sources, index: RepositoryIndex) -> Started:
    """What a script trains with that the repository does not have. `read`: the invocations that are configurations."""
    started: dict[str, list[tuple[Invocation, Word, str]]] = {}
    for one in document.invocations:
        if one.number in read:
            continue
        framework = _trained_with(one)
        title = _program_without_source(document, one, sources, index) if framework is None else framework.title
        endings = _CONFIGURATION if framework is not None else _YAML
        word = next((word for word in one.words if word.known and endings.search(word.text)), None)
        if title and word is not None and not index.named(os.path.basename(word.text)):
            started.setdefault(word.text, []).append((one, word, title))
    return started


def _trained_with(invocation: Invocation) -> FrameworkManifest | None:
    """The framework that a command or module trains with; None for a script, and for what does not train."""
    name = invocation.program
    first = next((word.text for word in invocation.arguments[:1] if word.known), "")
    if "/" in name or name.endswith(".py"):
        return None
    framework = of_program(name)
    if framework is None or "yaml" not in framework.clues:  # it takes no file of settings
        return None
    is_training = re.fullmatch(framework.trains or "", f"{name} {first}") is not None
    named = "train" in (first if _SUBCOMMAND.fullmatch(first) else name)
    return framework if is_training or named else None


def _program_without_source(document: ShellDocument, one: Invocation, sources: Sources, index: RepositoryIndex) -> str:
    """A training program that a launcher of several processes starts and that the repository lacks; empty for others:
    what a program of the repository does is seen there.
    """
    launched = one.parent is not None and document.invocations[one.parent].program in _LAUNCHERS
    name = name_of(one)
    if not launched or not name.endswith(".py") or _TRAINS.search(os.path.basename(name)) is None:
        return ""
    return f"`{name}`" if file_of(document, one, sources, index) is None else ""


# --- programs that no framework reads ---------------------------------------------------------------------------------

_MODEL: Final = re.compile(
    r"(?:\w+_)?(?:base_model|model_(?:id|name|name_or_id|name_or_path|path))|(?:language|llama|llm|lm)_model"
    r"|lora_(?:alpha|r|rank)"
)
"""Options that name a model, or that adapt one."""
_TRAINING: Final = frozenset((
    "deepspeed", "deepspeed_config", "epochs", "gradient_accumulation_steps", "learning_rate", "lr",
    "lr_scheduler_type", "max_steps", "micro_batch_size", "num_epochs", "num_train_epochs",
    "per_device_train_batch_size", "train_batch_size", "warmup_ratio", "warmup_steps", "weight_decay",
))  # fmt: skip
_ANY_BATCH: Final = frozenset(("micro_batch_size",))
"""Options of programs that generate or judge, too."""
_SHARDING: Final = frozenset((
    "deepspeed", "deepspeed_config", "deepspeed_config_file", "ds_config", "fsdp", "fsdp_config",
    "fsdp_transformer_layer_cls_to_wrap", "micro_train_batch_size", "zero_stage",
))  # fmt: skip
"""Options that name DeepSpeed's file, or that programs built around it have (DeepSpeed-Chat, OpenRLHF), and those with
which the Trainer shards a model.
"""
_CAUSAL: Final = re.compile(rb"\w+ForCausalLM\b")
_SETTINGS: Final = re.compile(r"conf|cfg|arg|param|setting|recipe")
"""In the name of an option that takes settings: a file of JSON may as well be data."""


def unread_launches(
    document: ShellDocument, sources: Sources, index: RepositoryIndex, reads: Callable[[str], bool]
) -> Iterator[tuple[Span, str]]:
    """Where a script trains with such a program, and why it is not read; each program once.

    `reads`: whether a file is a configuration, or is named as one that is not read.
    """
    launching = {one.parent for one in document.invocations}
    met = set()
    for one in document.invocations:
        if one.number in launching or one.program in met or not _trains(document, one):
            continue
        name, known = name_of(one), one.head[-1].known
        file = file_of(document, one, sources, index)
        if _is_of_a_framework(name, file, sources):
            continue
        if not (_is_of_a_model(document, one) or _loads_a_model(one, file, sources)):
            continue
        given = [path for path in _given(document, one, sources) if path is not None]
        likely = () if known or file is not None else index.named(os.path.basename(name))
        if any(reads(path) for path in (*given, *_training(file, sources, index), *likely)):
            continue
        met.add(one.program)
        place = one.head[-1].span
        if file is None and not likely and one.program.endswith(".py"):
            yield place, f"`{name}`, which it starts, was not found"
        elif given:
            of = os.path.relpath(given[0]) if os.path.isabs(given[0]) else given[0]
            yield place, f"`{name}` takes its settings from `{of}`, which no framework reads"
        elif (made := _made(file, sources, index)) is not None:
            yield place, f"`{name}` trains with `{made[0]}` of `{made[1]}`, which is not read"
        else:
            yield place, f"nothing that cfglint reads is in `{name}`"


def _is_of_a_framework(name: str, file: str | None, sources: Sources) -> bool:
    """Whether a framework's program is started: a file of its name may be the repository's own (`scripts/train.py`),
    and that does not name the framework's package.
    """
    framework = of_program(name)
    if framework is None or framework.tree is None or file is None:
        return framework is not None
    text = sources.read(file)
    return any(re.search(rb"\b" + package.encode() + rb"\b", text) is not None for package in framework.tree.packages)


def _trains(document: ShellDocument, one: Invocation) -> bool:
    """Whether an invocation shows that it trains. DeepSpeed's file or a batch size alone does not: programs generate
    with them, too.
    """
    started = program(document, one)
    if not one.head or not name_of(one) or not started.python:
        return False
    return bool(_options(one) & _TRAINING - _SHARDING - _ANY_BATCH) or trains(started)


def _is_of_a_model(document: ShellDocument, one: Invocation) -> bool:
    """Whether an invocation that trains shows that it trains a language model."""
    own = _options(one)
    of_model = any(_MODEL.fullmatch(option) for option in own)
    return bool(own & _SHARDING or (of_model and own & _TRAINING) or any(map(may_shard, document.enclosing(one))))


def _loads_a_model(one: Invocation, file: str | None, sources: Sources) -> bool:
    """Whether a program with options of a training run has a class of causal language models."""
    return file is not None and bool(_options(one) & _TRAINING) and _CAUSAL.search(sources.read(file)) is not None


_SETTING: Final = re.compile(r"\+{0,2}(?:[\w/@-]+\.)*([a-z]\w*)=(?!=)")
"""`optim.lr=1e-5`: a setting of Hydra or OmegaConf, by its own name."""


def _options(one: Invocation) -> frozenset[str]:
    settings = [match[1] for word in one.words if (match := _SETTING.match(word.text)) is not None]
    return frozenset([*((entry.name or "").lstrip("-").replace("-", "_") for entry in one.entries), *settings])


_IMPORT: Final = re.compile(rb"(?m)^[ \t]*(?:from|import)[ \t]+([\w.]+)")
_SMALL: Final = 4 * 2**10
"""Bytes of a program that may do no more than call another one."""


def _training(file: str | None, sources: Sources, index: RepositoryIndex) -> Iterator[str]:
    """The Python files that may train where a program is started: itself, and what a small one imports."""
    if file is None:
        return
    yield file
    text = sources.read(file)
    for module in _IMPORT.findall(text) if len(text) <= _SMALL else ():
        path = index.by_tail(module.decode().replace(".", "/") + ".py", file)
        if path is not None:
            yield sources.named(path, file)


_NAMES: Final = re.compile(rb"(?m)^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*|[^\n#]*)")
_TRAINER: Final = re.compile(rb"\b[A-Z]\w*Trainer\b")


def _made(file: str | None, sources: Sources, index: RepositoryIndex) -> tuple[str, str] | None:
    """The trainer that a program makes of a class of another module of the repository, and the module's file."""
    if file is None:
        return None
    text = sources.read(file)
    for module, names in _NAMES.findall(text):
        made = next((one for one in _TRAINER.findall(names) if one + b"(" in text), None)
        path = index.by_tail(module.decode().strip(".").replace(".", "/") + ".py", file)
        if made is not None and path is not None:
            return made.decode(), sources.named(path, file)
    return None


def _given(document: ShellDocument, one: Invocation, sources: Sources) -> Iterator[str | None]:
    """The files that an invocation is given as settings, but for those of DeepSpeed and for data (`--train_file`)."""
    flags = list(zip(one.flags, one.entries, strict=True))
    other = {value for flag, entry in flags if _is_deepspeed(entry.name) for value in flag.values}
    data = {value for flag, entry in flags if not _SETTINGS.search(entry.name or "") for value in flag.values}
    for index, word in enumerate(one.words):
        if index in other or (index in data and word.text.endswith(".json")):
            continue
        if word.known and _CONFIGURATION.search(word.text):
            yield sources.find(os.path.join(folder_of(document, one), word.text.rpartition("=")[2]), document.path)


def _is_deepspeed(option: str | None) -> bool:
    return (option or "").lstrip("-").replace("-", "_") in _SHARDING


# --- programs that a framework reads ----------------------------------------------------------------------------------

MAX_IMPORTING: Final = 20
"""Python files that may import a module, and are read to see what they give it."""


def is_named(role: str, path: str, index: RepositoryIndex, framework: Framework, scripts: LaunchScripts) -> bool:
    """Whether a run is named at its program: one that a launch gives its settings, if nothing shows how it is started;
    one that is handed its model, if something hands it one of the framework's kind.
    """
    if role == "program":
        return not is_started(path, index, lambda name: scripts.script(name, path))
    own, module = regular_files.tidy(os.path.abspath(path)), os.path.basename(path).removesuffix(".py")
    importing = [one for one in index.pythons_having(("import",), module) if one != own][:MAX_IMPORTING]
    return any(framework.launching.hands(script, path) for one in importing if (script := _script(one)) is not None)


def _script(path: str) -> PythonScript | None:
    try:
        return PythonScript(path, regular_files.read(path))
    except (OSError, DocumentError):
        return None


def is_started(path: str, index: RepositoryIndex, read: Callable[[str], ShellDocument | None]) -> bool:
    """Whether a script starts a Python file, or a read-me file or Makefile with a file of settings: what it is given is
    checked there. `read` gives a script.
    """
    name = os.path.basename(path)
    for script in index.scripts_naming(name):
        document = read(script)
        if document is None or any(_may_start(document, one, name) for one in document.invocations):
            return True
    with_file = re.compile(rb"\b" + re.escape(os.fsencode(name)) + rb"\b(?:[^\n\\]|\\.|\\\n)*\.(?:ya?ml|json)\b")
    return index.rooted and any(with_file.search(text) for _, text in index.once(examples))


def _may_start(document: ShellDocument, one: Invocation, name: str) -> bool:
    """Whether an invocation may start a Python file: another Python program that is given its name starts it in a way
    of its own.
    """
    if os.path.basename(one.program) == name:
        return True
    named = any(word.text.endswith(name) for word in one.words)
    return named and not (one.program.endswith(".py") and program(document, one).python)

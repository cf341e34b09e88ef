"""What the launchers around a program say of the job: nodes, GPUs per node, environment, host memory.

Sources: torch 2.13 `distributed/run.py`; DeepSpeed 0.19.8 `launcher/runner.py`; accelerate 1.11.0 `commands/launch.py`;
LLaMA-Factory 0.9.5 `launcher.py`; the manuals of sbatch, srun and mpirun. Numbers that a launcher takes from the
environment or finds out on the machine are not stated here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from cfglint_train.documents.document import Entry
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.accelerate.command import EXCLUSIVE
from cfglint_train.frameworks.launch_reading import LaunchFacts, LaunchReading, is_open
from cfglint_train.hardware import gpus
from cfglint_train.plan.origin import Origin, Place, Value

Submission = tuple[ShellDocument, Invocation]
"""The `sbatch` of another script that submits a job script."""


def launch_of(document: ShellDocument, invocation: Invocation, submission: Submission | None = None) -> LaunchFacts:
    """What the launchers of an invocation, its environment and the batch directives say.

    A launcher counts with its own options, from the innermost outwards; then what the environment lets it see, then
    what the batch system gives: options of `sbatch` above the directives of the job script.
    """
    reading = LaunchReading(document)
    for name, given in document.exported(invocation).items():
        if given.text is not None:
            reading.environment[name] = given.text
            reading.assumed[name] = given.assumed
        else:
            reading.open.add(name)
    around = list(_around(document, invocation))
    for one in around:
        _READERS.get(one.program, _nothing)(reading, one)
    _read_environment(reading, invocation)
    given_by_ray = around[-1].program == "ray job submit"
    for one in around:
        _batch(reading, one, given_by_ray)
    submitted = {} if submission is None else _submitted(*submission, given_by_ray)
    for name, value in submitted.items():
        reading.take(name, value)
    overridden = {name: reading.found[name] for name in submitted}
    for name, value in submitted.items():  # a variable of Slurm's follows the submission
        if value.value is None and overridden[name].origin.assumed:
            overridden[name] = overridden[name]._replace(value=None)
    for one in document.invocations:
        if one.is_directive:
            _batch(reading, one, given_by_ray)
    # What the submission says and cannot be determined replaces the directive anyway.
    reading.found.update({name: value for name, value in overridden.items() if value.value is None})
    spelled = {name for one in around for word in (*one.head, *one.words) for name in word.names}
    named = [NAMES[one.program] for one in around if one.program in NAMES]
    launcher = next((name for name in named if name != "python"), named[0] if named else None)
    return LaunchFacts(
        None if launcher is None else Value(launcher, Origin("explicit", Place(document, invocation.span))),
        reading.found.get("nodes"),
        reading.found.get("gpus"),
        reading.found.get("gpu"),
        reading.found.get("memory"),
        {name: text for name, text in reading.environment.items() if name not in spelled},
        _sharding(document, around),
        reading.found.get("meets"),
        _working_copy(document, around),
        _is_complete(document, around),
    )


def _batch(reading: LaunchReading, one: Invocation, given_by_ray: bool) -> None:
    """What the batch system is asked for."""
    if one.program in ("srun", "sbatch"):
        if not given_by_ray:
            _slurm(reading, one)
        _slurm_memory(reading, one)


def directives(job: ShellDocument) -> LaunchFacts:
    """What the directives of a job script ask the batch system for."""
    reading = LaunchReading(job)
    for one in job.invocations:
        if one.is_directive:
            _batch(reading, one, given_by_ray=False)
    found = reading.found
    return LaunchFacts(None, found.get("nodes"), found.get("gpus"), found.get("gpu"), found.get("memory"))


def _submitted(document: ShellDocument, invocation: Invocation, given_by_ray: bool) -> Mapping[str, Value]:
    """What the `sbatch` that submits a job script asks for."""
    reading = LaunchReading(document)
    _batch(reading, invocation, given_by_ray)
    return reading.found


_UNREAD: Final = frozenset(("use_megatron_lm", "use_parallelism_config"))
_USES: Final = _UNREAD | {"use_fsdp", "use_deepspeed"}


def options_of(invocation: Invocation) -> Mapping[str, Entry]:
    """The options of a launcher, names with underscores; none where there may be more than the text shows, be it in a
    file that cannot be determined.
    """
    options = _by_name(invocation)
    file = options.get("config_file")
    return {} if _may_bring_more(invocation) or (file is not None and is_open(file.value)) else options


def _by_name(invocation: Invocation) -> dict[str, Entry]:
    return {(entry.name or "").lstrip("-").replace("-", "_"): entry for entry in invocation.entries}


def _sharding(document: ShellDocument, around: list[Invocation]) -> Value | None:
    """The option of `accelerate launch` that shards the model in a way that is not read, that names a file which may
    and cannot be determined, or that it refuses beside another one: the value is None.
    """
    for one in around:
        if one.program != "accelerate launch":
            continue
        uses = _UNREAD if options_of(one) else _USES
        given = _by_name(one)
        exclusive = [entry for name, entry in given.items() if name in EXCLUSIVE]
        if len(exclusive) > 1:
            first, second = exclusive[:2]
            note = f"accelerate refuses `{second.name}` beside `{first.name}`"
            return Value(None, Origin("explicit", Place(document, second.span), note, second.name or ""))
        for name, entry in given.items():
            if name in uses or (name == "config_file" and is_open(entry.value)):
                return Value(None, Origin("explicit", Place(document, entry.span), key=entry.name or ""))
    return None


def may_shard(launcher: Invocation) -> bool:
    """Whether a launcher is that of DeepSpeed, or accelerate's with a file or a switch that may shard a model."""
    given = launcher.program == "accelerate launch" and _by_name(launcher).keys() & (_USES | {"config_file"})
    return bool(given) or launcher.program == "deepspeed"


# Options by which `accelerate launch` is given settings -> the switch without which it reads none of them
# (accelerate 1.15.0 commands/launch.py, launch_command). A configuration file may throw the switch, too.
SWITCHED: Final = {"--deepspeed_config_file": "--use_deepspeed"}


class Unread(Frozen):
    """A file that a launcher is given and does not read."""

    text: str
    """As written."""
    place: Place
    option: str
    switch: str
    """What would make the launcher read it."""
    invocation: Invocation
    """Of the launcher."""


def unread(document: ShellDocument) -> Iterator[Unread]:
    """The files that the launchers of a script are given without effect, as far as the script shows."""
    for one in document.invocations if b"accelerate" in document.source else ():
        if one.program != "accelerate launch" or one.open or b"ACCELERATE_USE_DEEPSPEED" in document.source:
            continue
        given = _by_name(one)
        for option, switch in SWITCHED.items():
            entry = given.get(option[2:])
            text = None if entry is None else document.plain(entry.value)
            if entry is not None and isinstance(text, str) and not {switch[2:], "config_file"} & given.keys():
                yield Unread(text, Place(document, entry.key.span), option, switch, one)


def _working_copy(document: ShellDocument, around: list[Invocation]) -> Value | None:
    """Whether `ray job submit` is given a `working_dir`, which each node copies below its session folder.

    Source: ray 2.46.0 `_private/runtime_env/working_dir.py` (resources_dir, delete_uri).
    """
    for one in around:
        for entry in one.entries if one.program == "ray job submit" else ():
            start, end = entry.span
            if "working" in (entry.name or "") or b"working_dir" in document.source[start:end]:
                return Value(True, Origin("explicit", Place(document, entry.span), key=entry.name or ""))
    return None


# What starts one process per GPU and does nothing else. `accelerate launch` is none: without a file it takes one from
# the home directory of the calling user.
_PLAIN: Final = ("torchrun", "llamafactory-cli", "deepspeed")
_SHARDING: Final = ("FSDP", "ACCELERATE", "DEEPSPEED")


# A variable that shards the model, wherever the script exports it.
_EXPORTED: Final = re.compile(rb"^[ \t]*(?:export|declare -x)[ \t]+\w*(?:FSDP|ACCELERATE|DEEPSPEED)", re.MULTILINE)


def _is_complete(document: ShellDocument, around: list[Invocation]) -> bool:
    """Whether all that shards the model is named: by the program, its options and the variables that it is given."""
    if _EXPORTED.search(document.source):
        return False
    known = not any(_may_bring_more(one) for one in around)
    settings = [given.name for one in around for given in one.environment]
    sharding = any(part in name for name in settings for part in _SHARDING)
    return known and not sharding and any(one.program in _PLAIN for one in around)


def _may_bring_more(one: Invocation) -> bool:
    """Whether there may be options that the text does not show. Those of srun shard nothing.

    A variable behind an option that takes a value is that value, quoted or not; an array may be more.
    """
    values = {flag.values[0] for flag in one.flags if len(flag.values) == 1}
    loose = [word.spreads or index not in values for index, word in enumerate(one.words) if word.loose]
    return bool(one.open) or (one.program != "srun" and any(loose))


def _around(document: ShellDocument, invocation: Invocation) -> Iterator[Invocation]:
    """An invocation and what starts it, up to a submission to Ray: where that was started from does not matter."""
    yield invocation
    for one in document.enclosing(invocation):
        yield one
        if one.program == "ray job submit":
            return


# The name in the plan; the innermost one counts, an interpreter only where there is nothing else.
NAMES: Final[Mapping[str, str]] = {
    "torchrun": "torchrun",
    "deepspeed": "deepspeed",
    "accelerate launch": "accelerate",
    "llamafactory-cli": "llamafactory-cli",
    "axolotl": "axolotl",
    "trl": "accelerate",
    "ray job submit": "ray",
    "mpirun": "mpirun",
    "srun": "srun",
    "python": "python",
}  # fmt: skip


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,6}", text) and int(text) > 0 else None


def _nodes(text: str | None) -> int | None:
    """`4`, or `4:4` and `4-4`; a range is no number."""
    parts = re.split("[:-]", text) if text else []
    return _count(parts[0]) if parts and len(set(parts)) == 1 else None


_NPROC: Final = ("--nproc_per_node", "--nproc-per-node")


def _torchrun(reading: LaunchReading, one: Invocation) -> None:
    name, text = reading.option(one, ("--nnodes",))
    if name is not None:
        reading.put("nodes", _nodes(text), one, name)
    elif not one.open and not reading.sets("PET_NNODES"):
        reading.put("nodes", 1, one, "--nnodes", kind="default")
    name, text = reading.option(one, _NPROC)
    if name is not None:
        reading.put("gpus", _count(text), one, name)
    elif not one.open and not reading.sets("PET_NPROC_PER_NODE"):
        reading.put("gpus", 1, one, _NPROC[0], kind="default")
    _torchrun_meets(reading, one)


# torchrun's own address is 127.0.0.1, and MASTER_ADDR is no variable that it reads; each of its options has a variable
# `PET_...`, which schedulers set (torch 2.13 distributed/run.py, argparse_util.py).
_ENDPOINT: Final = "--rdzv_endpoint"
_ADDRESSES: Final = ("--master_addr", "--master-addr", _ENDPOINT, "--rdzv-endpoint")
_ADDRESS_VARIABLES: Final = ("PET_MASTER_ADDR", "PET_RDZV_ENDPOINT")
_NOT_OUTSIDE: Final = "nothing outside of the script sets {}"


def _torchrun_meets(reading: LaunchReading, one: Invocation) -> None:
    nodes, _ = reading.option(one, ("--nnodes",))
    if reading.has(one, _ADDRESSES) or _address_in_environment(reading):
        _put_meets(reading, one, True, _ENDPOINT)
    elif _may_bring_more(one):
        _put_meets(reading, one, None, _ENDPOINT)
    elif nodes is not None:
        _put_meets(reading, one, False, _ENDPOINT, nodes, _NOT_OUTSIDE.format("PET_MASTER_ADDR"))


def _address_in_environment(reading: LaunchReading) -> bool:
    return any(map(reading.sets, _ADDRESS_VARIABLES))


def _put_meets(
    reading: LaunchReading, one: Invocation, value: bool | None, key: str, at: str = "", assumed: str = ""
) -> None:
    """Whether there is an address, which `key` would state, at an option or at the whole invocation."""
    entry = one.get(at) if at else None
    place = Place(reading.document, one.span if entry is None else entry.span)
    reading.take("meets", Value(value, Origin("explicit", place, key=key, assumed=assumed)))


def _deepspeed(reading: LaunchReading, one: Invocation) -> None:
    name, text = reading.option(one, ("--num_nodes",))
    reading.put("nodes", _count(text), one, name)
    name, text = reading.option(one, ("--num_gpus", "--num_accelerators"))
    reading.put("gpus", _count(text), one, name)
    name, text = reading.option(one, ("--include", "-i"))
    if text is None:
        reading.put("nodes", None, one, name)
        reading.put("gpus", None, one, name)
    else:
        # host:0,1@host:0,1; a host without a list stands for all its GPUs.
        hosts = [host.partition(":")[2] for host in text.split("@")]
        counts = {len(listed.split(",")) for listed in hosts if re.fullmatch(r"[0-9]+(,[0-9]+)*", listed)}
        reading.put("nodes", len(hosts), one, name)
        if len(counts) == 1 and all(hosts):
            reading.put("gpus", counts.pop(), one, name)


# `trl` hands the options that its scripts do not take on to `accelerate launch` (trl 0.18.0 to 1.16.0 cli.py).
_CONFIGURED: Final = ("--config_file", "--config-file", "--accelerate_config")


def _accelerate(reading: LaunchReading, one: Invocation) -> None:
    machines_flag, text = reading.option(one, ("--num_machines", "--num-machines"))
    machines = _count(text)
    configured = reading.has(one, _CONFIGURED) or bool(one.open)
    if machines_flag is None and not configured:
        machines = 1
    flag, text = reading.option(one, ("--num_processes", "--num-processes"))
    processes = _count(text)
    if machines_flag is not None:
        reading.put("nodes", machines, one, machines_flag)
    elif flag is not None and not configured:
        reading.put("nodes", 1, one, "--num_machines", kind="default")
    if processes is not None and machines is None and machines_flag is not None:
        reading.put("gpus", None, one, machines_flag)
    elif processes is None or (machines and processes % machines == 0):
        reading.put("gpus", processes // machines if processes and machines else None, one, flag)
    _accelerate_meets(reading, one, machines_flag)


def _accelerate_meets(reading: LaunchReading, one: Invocation, machines: str | None) -> None:
    """Its file may state the address, too: that of `--config_file`, or without one that of the home directory."""
    if reading.has(one, (f"--{_ADDRESS}", f"--{_ADDRESS.replace('_', '-')}")):
        _put_meets(reading, one, True, f"--{_ADDRESS}")
    elif _may_bring_more(one):
        _put_meets(reading, one, None, f"--{_ADDRESS}")
    elif machines is not None and not reading.has(one, ("--config_file", "--config-file")):
        note = f"no file in accelerate's home directory states `{_ADDRESS}`; pass `--config_file` to be sure"
        _put_meets(reading, one, False, f"--{_ADDRESS}", machines, note)


_ADDRESS: Final = "main_process_ip"


def _slurm(reading: LaunchReading, one: Invocation) -> None:
    name, text = reading.option(one, ("--nodes", "-N"))
    nodes = _nodes(text)
    reading.put("nodes", nodes, one, name)
    name, text = reading.option(one, ("--gpus-per-node",))
    reading.put("gpus", _gres(text), one, name)
    _slurm_card(reading, one, name, text)
    name, text = reading.option(one, ("--gres",))
    if text is None:
        reading.put("gpus", None, one, name)
    elif "gpu" in text:
        reading.put(
            "gpus", sum(_gres(part) or 0 for part in text.split(",") if part.startswith("gpu")) or None, one, name
        )
        _slurm_card(reading, one, name, text)
    name, text = reading.option(one, ("--gpus", "-G"))
    total = _gres(text)
    _slurm_card(reading, one, name, text)
    if text is None:
        reading.put("gpus", None, one, name)
    elif total and nodes and total % nodes == 0:
        reading.put("gpus", total // nodes, one, name)
    name, text = reading.option(one, ("--constraint", "-C"))
    if "gpu" not in reading.found:  # of its features some are cards
        features = re.split(r"[&|,\[\]()*]", text or "")
        _slurm_card(reading, one, name, ",".join(feature for feature in features if gpus.find(feature)))
    if one.program == "srun":
        # One task per GPU, where the job does not state GPUs.
        name, text = reading.option(one, ("--ntasks-per-node",))
        if (_count(text) or 0) > 1:
            reading.put("gpus", _count(text), one, name)


def _slurm_card(reading: LaunchReading, one: Invocation, flag: str | None, text: str | None) -> None:
    """The card of `gpu:h200:8` or `h100:4`. Where a name means one of two (`a100`), the larger one is assumed."""
    asked = [part.split(":") for part in (text or "").split(",")]
    names = {next((word for word in words if word and word != "gpu" and not word.isdigit()), "") for words in asked}
    name = names.pop() if len(names) == 1 else ""
    card = gpus.find(name) if name else None
    if card is None:
        return
    smaller = gpus.smaller(name, card)
    note = "" if smaller is None else f"`{name}` means {card.name}, not {smaller}; set `gpu` to be sure"
    reading.put("gpu", card.name if smaller is None else gpus.family(card), one, flag, assumed=note)


def _slurm_memory(reading: LaunchReading, one: Invocation) -> None:
    name, text = reading.option(one, ("--mem",))
    memory = re.fullmatch(r"([0-9]+)([KMGT]?)B?", text.upper()) if text else None
    if memory is not None and int(memory.group(1)) > 0:  # 0 asks for all there is
        # sbatch: megabytes by default; its units are powers of 1024.
        reading.put("memory", f"{memory.group(1)}{memory.group(2) or 'M'}iB", one, name)


def _gres(text: str | None) -> int | None:
    """`8`, `gpu:8`, `gpu:a100:8`, `a100:8`; a bare `gpu` is one."""
    if not text:
        return None
    last = text.split(":")[-1]
    return _count(last) if last.isdigit() else 1 if text == "gpu" else None


def _mpirun(reading: LaunchReading, one: Invocation) -> None:
    name, text = reading.option(one, ("--npernode", "-npernode", "--ppn", "-ppn", "-N"))
    local = _count(text)
    reading.put("gpus", local, one, name)
    name, text = reading.option(one, ("-np", "--np", "-n"))
    total = _count(text)
    if total is None or (local and total % local == 0):
        reading.put("nodes", total // local if total and local else None, one, name)


def _axolotl(reading: LaunchReading, one: Invocation) -> None:
    """`axolotl train config.yml -- --nproc_per_node=8`: what is behind the dashes goes to the launcher."""
    dashes = next((index for index, word in enumerate(one.words) if word.known and word.text == "--"), None)
    if dashes is None:
        return
    given: dict[str, str | None] = {}
    rest = one.words[dashes + 1 :]
    for index, word in enumerate(rest):
        name, equals, value = word.text.partition("=")
        if name.startswith("--") and (word.known or equals):
            behind = rest[index + 1] if index + 1 < len(rest) else None
            text = value if equals or behind is None else behind.text
            told = word.known if equals or behind is None else behind.known
            given[name.replace("-", "_")] = text if told else None
    assumed = "; ".join(dict.fromkeys(word.assumed for word in one.words if word.assumed))
    place = Origin("explicit", Place(reading.document, one.span), key="--", assumed=assumed)
    for field, name, read in (("nodes", "__nnodes", _nodes), ("gpus", "__nproc_per_node", _count)):
        if name in given:
            count = read(given[name])
            if count is not None or given[name] is None:
                reading.take(field, Value(count, place if count else place._replace(assumed="")))
    if "__nnodes" in given and not {"__master_addr", "__rdzv_endpoint"} & given.keys():
        more = any(word.loose for word in rest)
        if _address_in_environment(reading):
            _put_meets(reading, one, True, _ENDPOINT)
        else:
            meets = None if more else False
            _put_meets(reading, one, meets, _ENDPOINT, assumed=_NOT_OUTSIDE.format("PET_MASTER_ADDR"))
    machines, processes = _count(given.get("__num_machines", "1")), _count(given.get("__num_processes"))
    if "__num_processes" in given and (machines is None or processes is None or processes % machines == 0):
        gpus = processes // machines if processes and machines else None
        reading.take("nodes", Value(machines, place if machines else place._replace(assumed="")))
        reading.take("gpus", Value(gpus, place if gpus else place._replace(assumed="")))


def _nothing(_: LaunchReading, __: Invocation) -> None:
    pass


_READERS: Final[Mapping[str, Callable[[LaunchReading, Invocation], None]]] = {
    "torchrun": _torchrun,
    "deepspeed": _deepspeed,
    "accelerate launch": _accelerate,
    "axolotl": _axolotl,
    "trl": _accelerate,
    "mpirun": _mpirun,
}


def _read_environment(reading: LaunchReading, invocation: Invocation) -> None:
    """What launchers take from variables that the script sets."""
    environment = reading.environment
    for field, names, read in (
        ("nodes", ("NNODES", "PET_NNODES"), _nodes),
        ("gpus", ("NPROC_PER_NODE", "PET_NPROC_PER_NODE"), _count),
    ):
        for name in names:
            value = read(environment.get(name))
            if (value is not None or name in reading.open) and _listens(invocation, name):
                place = Place(reading.document, invocation.span)
                origin = Origin("explicit", place, key=name, assumed=reading.assumed.get(name, ""))
                reading.take(field, Value(value, origin))
    if invocation.program == "llamafactory-cli" and reading.sets("NNODES") and not reading.sets("MASTER_ADDR"):
        _put_meets(reading, invocation, False, "MASTER_ADDR", assumed=_NOT_OUTSIDE.format("MASTER_ADDR"))
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible and re.fullmatch(r"[^,\s]+(,[^,\s]+)*", visible):
        place, assumed = Place(reading.document, invocation.span), reading.assumed["CUDA_VISIBLE_DEVICES"]
        origin = Origin("explicit", place, key="CUDA_VISIBLE_DEVICES", assumed=assumed)
        reading.take("gpus", Value(len(visible.split(",")), origin))


def _listens(invocation: Invocation, name: str) -> bool:
    """NNODES and NPROC_PER_NODE mean something to LLaMA-Factory's launcher, PET_* to torchrun."""
    return invocation.program == "llamafactory-cli" or name.startswith("PET_")

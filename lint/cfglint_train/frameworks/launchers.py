"""Settings of the launchers around a program: nodes, GPUs per node, environment, host memory.

Sources: torch 2.13 `distributed/run.py`; DeepSpeed 0.19.8 `launcher/runner.py`; accelerate 1.11.0 `commands/launch.py`;
LLaMA-Factory 0.9.5 `launcher.py`; the manuals of sbatch, srun and mpirun. Values that a launcher reads from
outside the script or detects on the machine are not covered here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from cfglint_train.documents.document import Entry
from cfglint_train.documents.shell.document import ShellDocument
from cfglint_train.documents.shell.script import Invocation
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.accelerate.command import EXCLUSIVE_SWITCHES
from cfglint_train.frameworks.launch_reading import LaunchFacts, LaunchReading, is_undetermined
from cfglint_train.hardware import gpus
from cfglint_train.plan.origin import FieldValue, Origin, Place

ScriptCall = tuple[ShellDocument, Invocation]
"""A script, and its invocation that starts or submits another script."""


def get_submission(document: ShellDocument, call: Invocation) -> Invocation | None:
    """Return the `sbatch` invocation that submits the script of `call`, or None if the script is started directly."""
    parent = None if call.parent is None else document.invocations[call.parent]
    return parent if parent is not None and parent.program == "sbatch" else None


def read_launch(document: ShellDocument, invocation: Invocation, calls: Sequence[ScriptCall] = ()) -> LaunchFacts:
    """Return the facts that an invocation's launchers, environment and batch directives state.

    The first source that states a fact wins: options of the launchers from the innermost outwards, environment
    variables of the script, options of `srun`, options of the `sbatch` command, directives of the job script. `calls`
    are the calls of the script in other scripts, the nearest first, each the start of the script before it.
    """
    reading = LaunchReading(document)
    for name, variable in document.collect_environment(invocation).items():
        if variable.text is not None:
            reading.environment[name] = variable.text
            reading.assumptions[name] = variable.assumption
        else:
            reading.undetermined.add(name)
    launchers = list(_walk_launchers(document, invocation))
    for launcher in launchers:
        _READERS.get(launcher.program, _read_nothing)(reading, launcher)
    _read_environment(reading, invocation)
    given_by_ray = launchers[-1].program == "ray job submit"
    for launcher in launchers:
        _read_batch(reading, launcher, given_by_ray)
    submitted = _read_calls(calls, given_by_ray)
    for name, value in submitted.items():
        reading.keep_fact(name, value)
    overridden = {name: reading.facts[name] for name in submitted}
    for name, value in submitted.items():  # An unknown submitted value makes an assumed value unknown.
        if value.value is None and overridden[name].origin.assumption:
            overridden[name] = overridden[name]._replace(value=None)
    for launcher in document.invocations:
        if launcher.is_directive:
            _read_batch(reading, launcher, given_by_ray)
    # An option of the submission replaces the directive even if its value cannot be determined.
    reading.facts.update({name: value for name, value in overridden.items() if value.value is None})
    command_variables = {
        name for launcher in launchers for word in (*launcher.head, *launcher.words) for name in word.names
    }
    launcher_names = [LAUNCHER_NAMES[launcher.program] for launcher in launchers if launcher.program in LAUNCHER_NAMES]
    launcher_name = next(
        (name for name in launcher_names if name != "python"), launcher_names[0] if launcher_names else None
    )
    return LaunchFacts(
        None
        if launcher_name is None
        else FieldValue(launcher_name, Origin("explicit", Place(document, invocation.span))),
        reading.facts.get("nodes"),
        reading.facts.get("gpus"),
        reading.facts.get("gpu"),
        reading.facts.get("memory"),
        {name: text for name, text in reading.environment.items() if name not in command_variables},
        _find_unread_sharding(document, launchers),
        reading.facts.get("meets"),
        _find_working_copy(document, launchers),
        _is_sharding_known(document, launchers),
        reading.facts.get("visible"),
    )


def _read_batch(reading: LaunchReading, invocation: Invocation, given_by_ray: bool) -> None:
    """Read the resources that `srun` or `sbatch` requests; under Ray, only the host memory."""
    if invocation.program in ("srun", "sbatch"):
        if not given_by_ray:
            _read_slurm(reading, invocation)
        _read_slurm_memory(reading, invocation)


def read_directives(job: ShellDocument) -> LaunchFacts:
    """Return the resources that the directives of a job script request from the batch system."""
    reading = LaunchReading(job)
    for invocation in job.invocations:
        if invocation.is_directive:
            _read_batch(reading, invocation, given_by_ray=False)
    facts = reading.facts
    return LaunchFacts(
        None,
        facts.get("nodes"),
        facts.get("gpus"),
        facts.get("gpu"),
        facts.get("memory"),
        visible_gpus=facts.get("visible"),
    )


def _read_calls(calls: Sequence[ScriptCall], given_by_ray: bool) -> Mapping[str, FieldValue]:
    """Return the resources that the nearest call requests: with its `sbatch` command, or from the job it is part of."""
    if not calls:
        return {}
    document, call = calls[0]
    submission = get_submission(document, call)
    if submission is not None:
        reading = LaunchReading(document)
        _read_batch(reading, submission, given_by_ray)
        return reading.facts
    job = read_launch(document, call, calls[1:])
    facts = {"memory": job.host_memory}
    if not given_by_ray:
        facts |= {"nodes": job.nodes, "gpus": job.gpus_per_node, "gpu": job.gpu, "visible": job.visible_gpus}
    return {name: value for name, value in facts.items() if value is not None}


_UNSUPPORTED_SWITCHES: Final = frozenset(("use_megatron_lm", "use_parallelism_config"))
_SHARDING_SWITCHES: Final = _UNSUPPORTED_SWITCHES | {"use_fsdp", "use_deepspeed"}


def list_options(invocation: Invocation) -> Mapping[str, Entry]:
    """Return the options of a launcher by name, with underscores.

    Return {} if the command may have options that the text does not show, or names a file that cannot be determined.
    """
    options = _map_entries(invocation)
    file = options.get("config_file")
    return {} if _can_have_hidden_options(invocation) or (file is not None and is_undetermined(file.value)) else options


def _map_entries(invocation: Invocation) -> dict[str, Entry]:
    return {(entry.name or "").lstrip("-").replace("-", "_"): entry for entry in invocation.entries}


def _find_unread_sharding(document: ShellDocument, launchers: list[Invocation]) -> FieldValue | None:
    """Return the option of `accelerate launch` that may shard the model in a way that cfglint does not read.

    This includes an option that names a file which cannot be determined, and an option that accelerate rejects together
    with another option. The fact's value is always None.
    """
    for launcher in launchers:
        if launcher.program != "accelerate launch":
            continue
        switches = _UNSUPPORTED_SWITCHES if list_options(launcher) else _SHARDING_SWITCHES
        entries = _map_entries(launcher)
        exclusive = [entry for name, entry in entries.items() if name in EXCLUSIVE_SWITCHES]
        if len(exclusive) > 1:
            first, second = exclusive[:2]
            note = f"accelerate rejects `{second.name}` together with `{first.name}`"
            return FieldValue(None, Origin("explicit", Place(document, second.span), note, second.name or ""))
        for name, entry in entries.items():
            if name in switches or (name == "config_file" and is_undetermined(entry.value)):
                return FieldValue(None, Origin("explicit", Place(document, entry.span), key=entry.name or ""))
    return None


def can_shard(launcher: Invocation) -> bool:
    """Return whether a launcher may shard a model: `deepspeed`, or `accelerate launch` with a file or switch."""
    options = launcher.program == "accelerate launch" and _map_entries(launcher).keys() & (
        _SHARDING_SWITCHES | {"config_file"}
    )
    return bool(options) or launcher.program == "deepspeed"


# Options that pass settings to `accelerate launch` -> the switch that makes it read them (accelerate 1.15.0
# commands/launch.py, launch_command). A configuration file may set the switch, too.
REQUIRED_SWITCHES: Final = {"--deepspeed_config_file": "--use_deepspeed"}


class IgnoredFile(Frozen):
    """A file that a launcher receives but does not read."""

    text: str
    """Path as written."""
    place: Place
    option: str
    switch: str
    """Option that would make the launcher read the file."""
    invocation: Invocation
    """Invocation of the launcher."""


def find_ignored_files(document: ShellDocument) -> Iterator[IgnoredFile]:
    """Yield the files that a script passes to launchers although, judging by the script, they are not read."""
    for launcher in document.invocations if b"accelerate" in document.source else ():
        if launcher.program != "accelerate launch" or launcher.open or b"ACCELERATE_USE_DEEPSPEED" in document.source:
            continue
        entries = _map_entries(launcher)
        for option, switch in REQUIRED_SWITCHES.items():
            entry = entries.get(option[2:])
            text = None if entry is None else document.build_value(entry.value)
            if entry is not None and isinstance(text, str) and not {switch[2:], "config_file"} & entries.keys():
                yield IgnoredFile(text, Place(document, entry.key.span), option, switch, launcher)


def _find_working_copy(document: ShellDocument, launchers: list[Invocation]) -> FieldValue | None:
    """Return a true fact if `ray job submit` has a `working_dir`, or None.

    Each node copies that directory below its session folder.
    Source: ray 2.46.0 `_private/runtime_env/working_dir.py` (resources_dir, delete_uri).
    """
    for launcher in launchers:
        for entry in launcher.entries if launcher.program == "ray job submit" else ():
            start, end = entry.span
            if "working" in (entry.name or "") or b"working_dir" in document.source[start:end]:
                return FieldValue(True, Origin("explicit", Place(document, entry.span), key=entry.name or ""))
    return None


# Launchers that only start one process per GPU. `accelerate launch` is not listed: without
# `--config_file`, it reads a file in the home directory of the calling user.
_PLAIN_LAUNCHERS: Final = ("torchrun", "llamafactory-cli", "deepspeed")
_SHARDING_VARIABLES: Final = ("FSDP", "ACCELERATE", "DEEPSPEED")


# Export of a variable that may shard the model, anywhere in the script.
_SHARDING_EXPORT: Final = compile_on_use(
    rb"^[ \t]*(?:export|declare -x)[ \t]+\w*(?:FSDP|ACCELERATE|DEEPSPEED)", re.MULTILINE
)


def _is_sharding_known(document: ShellDocument, launchers: list[Invocation]) -> bool:
    """Return whether everything in the launch that could shard the model is visible.

    True if a plain launcher starts the program, all options are visible, and the script sets no variable of FSDP,
    accelerate or DeepSpeed.
    """
    if _SHARDING_EXPORT.search(document.source):
        return False
    all_options_known = not any(_can_have_hidden_options(launcher) for launcher in launchers)
    settings = [variable.name for launcher in launchers for variable in launcher.environment]
    sharding = any(part in name for name in settings for part in _SHARDING_VARIABLES)
    return all_options_known and not sharding and any(launcher.program in _PLAIN_LAUNCHERS for launcher in launchers)


def _can_have_hidden_options(launcher: Invocation) -> bool:
    """Return whether a launcher may have options that the text does not show.

    Options of `srun` cannot shard a model, so variables in them do not count. A variable after an option that takes a
    value is that value, quoted or not; an array may expand to more words.
    """
    values = {flag.values[0] for flag in launcher.flags if len(flag.values) == 1}
    loose = [word.spreads or index not in values for index, word in enumerate(launcher.words) if word.loose]
    return bool(launcher.open) or (launcher.program != "srun" and any(loose))


def _walk_launchers(document: ShellDocument, invocation: Invocation) -> Iterator[Invocation]:
    """Yield an invocation, then its launchers from the innermost outwards, up to `ray job submit`.

    Launchers around `ray job submit` start the submission, not the job.
    """
    yield invocation
    for launcher in document.list_launchers(invocation):
        yield launcher
        if launcher.program == "ray job submit":
            return


# Launcher names of the plan. The innermost launcher counts; `python` counts only if nothing else launches.
LOCAL_LAUNCHERS: Final = frozenset((
    "accelerate launch", "axolotl", "command", "deepspeed", "env", "exec", "ionice", "llamafactory-cli", "nice",
    "nohup", "numactl", "python", "setsid", "srun", "stdbuf", "taskset", "time", "timeout", "torchrun", "trl",
    "unbuffer", "uv run",
))  # fmt: skip
"""Launchers that start a program in the current folder."""

LAUNCHER_NAMES: Final[Mapping[str, str]] = {
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


def _parse_count(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,6}", text) and int(text) > 0 else None


def _parse_nodes(text: str | None) -> int | None:
    """Parse a number of nodes from `4`, `4:4` or `4-4`; return None for a range with different ends."""
    parts = re.split("[:-]", text) if text else []
    return _parse_count(parts[0]) if parts and len(set(parts)) == 1 else None


_NPROC_OPTIONS: Final = ("--nproc_per_node", "--nproc-per-node")


def _read_torchrun(reading: LaunchReading, launcher: Invocation) -> None:
    name, text = reading.find_option(launcher, ("--nnodes",))
    if name is not None:
        reading.put_option("nodes", _parse_nodes(text), launcher, name)
    elif not launcher.open and not reading.is_set("PET_NNODES"):
        reading.put_option("nodes", 1, launcher, "--nnodes", kind="default")
    name, text = reading.find_option(launcher, _NPROC_OPTIONS)
    if name is not None:
        reading.put_option("gpus", _parse_count(text), launcher, name)
    elif not launcher.open and not reading.is_set("PET_NPROC_PER_NODE"):
        reading.put_option("gpus", 1, launcher, _NPROC_OPTIONS[0], kind="default")
    _read_torchrun_rendezvous(reading, launcher)


# torchrun's default address is 127.0.0.1; torchrun does not read MASTER_ADDR. Each of its options has a variable
# `PET_...`, which schedulers set (torch 2.13 distributed/run.py, argparse_util.py).
_ENDPOINT: Final = "--rdzv_endpoint"
_ADDRESS_OPTIONS: Final = ("--master_addr", "--master-addr", _ENDPOINT, "--rdzv-endpoint")
_ADDRESS_VARIABLES: Final = ("PET_MASTER_ADDR", "PET_RDZV_ENDPOINT")
_NOT_SET_OUTSIDE: Final = "nothing outside the script sets {}"


def _read_torchrun_rendezvous(reading: LaunchReading, launcher: Invocation) -> None:
    nodes, _ = reading.find_option(launcher, ("--nnodes",))
    if reading.has_option(launcher, _ADDRESS_OPTIONS) or _is_address_exported(reading):
        _put_rendezvous(reading, launcher, True, _ENDPOINT)
    elif _can_have_hidden_options(launcher):
        _put_rendezvous(reading, launcher, None, _ENDPOINT)
    elif nodes is not None:
        _put_rendezvous(reading, launcher, False, _ENDPOINT, nodes, _NOT_SET_OUTSIDE.format("PET_MASTER_ADDR"))


def _is_address_exported(reading: LaunchReading) -> bool:
    return any(map(reading.is_set, _ADDRESS_VARIABLES))


def _put_rendezvous(
    reading: LaunchReading, launcher: Invocation, value: bool | None, key: str, option: str = "", assumption: str = ""
) -> None:
    """Record whether the processes have a rendezvous address; `key` is the option that sets it.

    The fact points at `option` if the launcher has it, and at the whole invocation otherwise.
    """
    entry = launcher.get(option) if option else None
    place = Place(reading.document, launcher.span if entry is None else entry.span)
    reading.keep_fact("meets", FieldValue(value, Origin("explicit", place, key=key, assumption=assumption)))


def _read_deepspeed(reading: LaunchReading, launcher: Invocation) -> None:
    name, text = reading.find_option(launcher, ("--num_nodes",))
    reading.put_option("nodes", _parse_count(text), launcher, name)
    name, text = reading.find_option(launcher, ("--num_gpus", "--num_accelerators"))
    reading.put_option("gpus", _parse_count(text), launcher, name)
    name, text = reading.find_option(launcher, ("--include", "-i"))
    if text is None:
        reading.put_option("nodes", None, launcher, name)
        reading.put_option("gpus", None, launcher, name)
    else:
        # host:0,1@host:0,1; a host without a list contributes all its GPUs.
        hosts = [host.partition(":")[2] for host in text.split("@")]
        counts = {len(devices.split(",")) for devices in hosts if re.fullmatch(r"[0-9]+(,[0-9]+)*", devices)}
        reading.put_option("nodes", len(hosts), launcher, name)
        if len(counts) == 1 and all(hosts):
            reading.put_option("gpus", counts.pop(), launcher, name)


# `trl` passes the options that its scripts do not accept to `accelerate launch` (trl 0.18.0 to 1.16.0 cli.py).
_CONFIG_OPTIONS: Final = ("--config_file", "--config-file", "--accelerate_config")


def _read_accelerate(reading: LaunchReading, launcher: Invocation) -> None:
    machines_flag, text = reading.find_option(launcher, ("--num_machines", "--num-machines"))
    machines = _parse_count(text)
    has_config = reading.has_option(launcher, _CONFIG_OPTIONS) or bool(launcher.open)
    if machines_flag is None and not has_config:
        machines = 1
    flag, text = reading.find_option(launcher, ("--num_processes", "--num-processes"))
    processes = _parse_count(text)
    if machines_flag is not None:
        reading.put_option("nodes", machines, launcher, machines_flag)
    elif flag is not None and not has_config:
        reading.put_option("nodes", 1, launcher, "--num_machines", kind="default")
    if processes is not None and machines is None and machines_flag is not None:
        reading.put_option("gpus", None, launcher, machines_flag)
    elif processes is None or (machines and processes % machines == 0):
        reading.put_option("gpus", processes // machines if processes and machines else None, launcher, flag)
    _read_accelerate_rendezvous(reading, launcher, machines_flag)


def _read_accelerate_rendezvous(reading: LaunchReading, launcher: Invocation, machines_flag: str | None) -> None:
    """Read whether accelerate has a rendezvous address on its command line.

    accelerate's file may state the address too: the file of `--config_file`, or the default file in the home directory.
    """
    if reading.has_option(launcher, (f"--{_ADDRESS}", f"--{_ADDRESS.replace('_', '-')}")):
        _put_rendezvous(reading, launcher, True, f"--{_ADDRESS}")
    elif _can_have_hidden_options(launcher):
        _put_rendezvous(reading, launcher, None, f"--{_ADDRESS}")
    elif machines_flag is not None and not reading.has_option(launcher, ("--config_file", "--config-file")):
        note = f"no file in accelerate's home directory states `{_ADDRESS}`; pass `--config_file` to be sure"
        _put_rendezvous(reading, launcher, False, f"--{_ADDRESS}", machines_flag, note)


_ADDRESS: Final = "main_process_ip"


def _read_slurm(reading: LaunchReading, invocation: Invocation) -> None:
    name, text = reading.find_option(invocation, ("--nodes", "-N"))
    nodes = _parse_nodes(text)
    reading.put_option("nodes", nodes, invocation, name)
    name, text = reading.find_option(invocation, ("--gpus-per-node",))
    _put_granted(reading, _parse_gres(text), invocation, name)
    _read_slurm_gpu(reading, invocation, name, text)
    name, text = reading.find_option(invocation, ("--gres",))
    if text is None:
        _put_granted(reading, None, invocation, name)
    elif "gpu" in text:
        count = sum(_parse_gres(part) or 0 for part in text.split(",") if part.startswith("gpu"))
        _put_granted(reading, count or None, invocation, name)
        _read_slurm_gpu(reading, invocation, name, text)
    name, text = reading.find_option(invocation, ("--gpus", "-G"))
    total = _parse_gres(text)
    _read_slurm_gpu(reading, invocation, name, text)
    if text is None:
        _put_granted(reading, None, invocation, name)
    elif total and nodes and total % nodes == 0:
        _put_granted(reading, total // nodes, invocation, name)
    name, text = reading.find_option(invocation, ("--constraint", "-C"))
    if "gpu" not in reading.facts:  # Some features are GPU names.
        features = re.split(r"[&|,\[\]()*]", text or "")
        _read_slurm_gpu(reading, invocation, name, ",".join(feature for feature in features if gpus.find_gpu(feature)))
    if invocation.program == "srun":
        # One task per GPU, if the job does not state GPUs.
        name, text = reading.find_option(invocation, ("--ntasks-per-node",))
        if (_parse_count(text) or 0) > 1:
            reading.put_option("gpus", _parse_count(text), invocation, name)


def _put_granted(reading: LaunchReading, count: int | None, invocation: Invocation, name: str | None) -> None:
    """Record the GPUs per node that Slurm grants: as many are visible, and launchers use all of them by default."""
    reading.put_option("visible", count, invocation, name)
    reading.put_option("gpus", count, invocation, name)


def _read_slurm_gpu(reading: LaunchReading, invocation: Invocation, flag: str | None, text: str | None) -> None:
    """Read the GPU model of `gpu:h200:8` or `h100:4`; assume the larger model if the name is ambiguous (`a100`)."""
    requests = [part.split(":") for part in (text or "").split(",")]
    names = {next((word for word in words if word and word != "gpu" and not word.isdigit()), "") for words in requests}
    name = names.pop() if len(names) == 1 else ""
    gpu = gpus.find_gpu(name) if name else None
    if gpu is None:
        return
    smaller = gpus.find_smaller(name, gpu)
    note = "" if smaller is None else f"`{name}` means {gpu.name}, not {smaller}; set `gpu` to be sure"
    reading.put_option("gpu", gpu.name if smaller is None else gpus.get_family(gpu), invocation, flag, assumption=note)


def _read_slurm_memory(reading: LaunchReading, invocation: Invocation) -> None:
    name, text = reading.find_option(invocation, ("--mem",))
    memory = re.fullmatch(r"([0-9]+)([KMGT]?)B?", text.upper()) if text else None
    if memory is not None and int(memory.group(1)) > 0:  # 0 requests all memory of the node
        # sbatch counts in megabytes by default; its units are powers of 1024.
        reading.put_option("memory", f"{memory.group(1)}{memory.group(2) or 'M'}iB", invocation, name)


def _parse_gres(text: str | None) -> int | None:
    """Parse `8`, `gpu:8`, `gpu:a100:8` or `a100:8` as a number of GPUs; a bare `gpu` counts as 1."""
    if not text:
        return None
    last = text.split(":")[-1]
    return _parse_count(last) if last.isdigit() else 1 if text == "gpu" else None


def _read_mpirun(reading: LaunchReading, launcher: Invocation) -> None:
    name, text = reading.find_option(launcher, ("--npernode", "-npernode", "--ppn", "-ppn", "-N"))
    per_node = _parse_count(text)
    reading.put_option("gpus", per_node, launcher, name)
    name, text = reading.find_option(launcher, ("-np", "--np", "-n"))
    total = _parse_count(text)
    if total is None or (per_node and total % per_node == 0):
        reading.put_option("nodes", total // per_node if total and per_node else None, launcher, name)


def _read_axolotl(reading: LaunchReading, launcher: Invocation) -> None:
    """Read `axolotl train config.yml -- --nproc_per_node=8`: words after the dashes go to the launcher."""
    dashes = next((index for index, word in enumerate(launcher.words) if word.is_known and word.text == "--"), None)
    if dashes is None:
        return
    options: dict[str, str | None] = {}
    rest = launcher.words[dashes + 1 :]
    for index, word in enumerate(rest):
        name, equals, value = word.text.partition("=")
        if name.startswith("--") and (word.is_known or equals):
            following = rest[index + 1] if index + 1 < len(rest) else None
            text = value if equals or following is None else following.text
            is_known = word.is_known if equals or following is None else following.is_known
            options[name.replace("-", "_")] = text if is_known else None
    assumption = "; ".join(dict.fromkeys(word.assumption for word in launcher.words if word.assumption))
    place = Origin("explicit", Place(reading.document, launcher.span), key="--", assumption=assumption)
    for field, name, parse in (("nodes", "__nnodes", _parse_nodes), ("gpus", "__nproc_per_node", _parse_count)):
        if name in options:
            count = parse(options[name])
            if count is not None or options[name] is None:
                reading.keep_fact(field, FieldValue(count, place if count else place._replace(assumption="")))
    if "__nnodes" in options and not {"__master_addr", "__rdzv_endpoint"} & options.keys():
        has_hidden_words = any(word.loose for word in rest)
        if _is_address_exported(reading):
            _put_rendezvous(reading, launcher, True, _ENDPOINT)
        else:
            rendezvous = None if has_hidden_words else False
            _put_rendezvous(
                reading, launcher, rendezvous, _ENDPOINT, assumption=_NOT_SET_OUTSIDE.format("PET_MASTER_ADDR")
            )
    machines, processes = _parse_count(options.get("__num_machines", "1")), _parse_count(options.get("__num_processes"))
    if "__num_processes" in options and (machines is None or processes is None or processes % machines == 0):
        gpus_per_node = processes // machines if processes and machines else None
        reading.keep_fact("nodes", FieldValue(machines, place if machines else place._replace(assumption="")))
        reading.keep_fact("gpus", FieldValue(gpus_per_node, place if gpus_per_node else place._replace(assumption="")))


def _read_nothing(_: LaunchReading, __: Invocation) -> None:
    pass


_READERS: Final[Mapping[str, Callable[[LaunchReading, Invocation], None]]] = {
    "torchrun": _read_torchrun,
    "deepspeed": _read_deepspeed,
    "accelerate launch": _read_accelerate,
    "axolotl": _read_axolotl,
    "trl": _read_accelerate,
    "mpirun": _read_mpirun,
}


def _read_environment(reading: LaunchReading, invocation: Invocation) -> None:
    """Read the environment variables that launchers use and the script sets, and the visible GPUs."""
    environment = reading.environment
    for field, names, parse in (
        ("nodes", ("NNODES", "PET_NNODES"), _parse_nodes),
        ("gpus", ("NPROC_PER_NODE", "PET_NPROC_PER_NODE"), _parse_count),
    ):
        for name in names:
            value = parse(environment.get(name))
            if (value is not None or name in reading.undetermined) and _is_read_by(invocation, name):
                place = Place(reading.document, invocation.span)
                origin = Origin("explicit", place, key=name, assumption=reading.assumptions.get(name, ""))
                reading.keep_fact(field, FieldValue(value, origin))
    if invocation.program == "llamafactory-cli" and reading.is_set("NNODES") and not reading.is_set("MASTER_ADDR"):
        _put_rendezvous(reading, invocation, False, "MASTER_ADDR", assumption=_NOT_SET_OUTSIDE.format("MASTER_ADDR"))
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible and re.fullmatch(r"[^,\s]+(,[^,\s]+)*", visible):
        place, assumption = Place(reading.document, invocation.span), reading.assumptions["CUDA_VISIBLE_DEVICES"]
        origin = Origin("explicit", place, key="CUDA_VISIBLE_DEVICES", assumption=assumption)
        count = FieldValue(len(visible.split(",")), origin)
        reading.keep_fact("gpus", count)
        if all(launcher.program != "deepspeed" for launcher in _walk_launchers(reading.document, invocation)):
            reading.keep_fact("visible", count)  # DeepSpeed's launcher ignores the variable beside `--num_gpus`.


def _is_read_by(invocation: Invocation, name: str) -> bool:
    """Return whether a launch reads a variable.

    `llamafactory-cli` reads NNODES and NPROC_PER_NODE; torchrun reads PET_*.
    """
    return invocation.program == "llamafactory-cli" or name.startswith("PET_")

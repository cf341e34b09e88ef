"""Out-of-memory messages in job logs: GPU, driver, rollout engine, host, shared memory and disk.

A log is read line by line in bounded memory. Ranks that report the same failure are joined. Sources of the texts: torch
c10/cuda/CUDACachingAllocator.cpp (1.0 to 2.13), torch utils/data/dataloader.py, torch distributed/elastic, DeepSpeed
launcher/launch.py, vLLM v1/core/kv_cache_utils.py and worker/gpu_worker.py, SGLang managers and model_runner.py, NCCL
src/include/checks.h, ray core/ray_core memory monitor, Linux mm/oom_kill.c, slurmstepd, kubelet.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Final, Literal

Kind = Literal["gpu", "driver", "engine", "host", "killed", "shared memory", "disk"]
"""gpu: torch's allocator. driver: CUDA, HIP, cuBLAS or NCCL outside of torch's pool. engine: a rollout engine's cache.
host: memory of a node. killed: a process ended by signal 9, whose cause the log does not state.
"""

UNITS: Final = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "kB": 2**10, "GB": 2**30}
"""Bytes of each unit; the kernel's kB and Ray's GB are powers of two."""

_MAX_FRAMES: Final = 80
_MAX_SOURCES: Final = 1024
_MAX_FAILURES: Final = 16
_MAX_RANKS: Final = 4096
_MAX_CODE: Final = 240
_MAX_TEXT: Final = 3000
"""Characters of a message; torch's longest has 700 and a line per process on the GPU."""
_MAX_CONTINUED: Final = 8
"""Lines over which a terminal or notebook wraps one message."""


class Frame(Frozen):
    """A frame of a traceback; fields are empty if the log does not show them."""

    path: str
    """Path of the file; that of an installed package begins with the package."""
    function: str
    code: str = ""


class Message(Frozen):
    """An out-of-memory message. Sizes are in bytes, None if the log does not state them."""

    kind: Kind
    text: str
    """Beginning of the message as the log states it."""
    tried: float | None = None
    """Size of the allocation that failed, as torch's allocator rounds and prints it."""
    resolution: float = 0.0
    """Largest difference between `tried` and the size that the allocator requested."""
    total: float | None = None
    free: float | None = None
    allocated: float | None = None
    limit: float | None = None
    """Bytes that torch's allocator may hold, if the job set a fraction of the GPU."""
    idle: float | None = None
    """Bytes that torch's allocator holds without use."""
    others: float | None = None
    """Bytes on the GPU outside of this process, and of its libraries if the message lists no processes."""
    device: int | None = None
    frames: tuple[Frame, ...] = ()
    """Frames of the traceback, outermost first."""
    step: tuple[int, int] | None = None
    """Training steps that were done, and their total, as the last progress bar shows them."""
    is_loading: bool = False
    """True if weights were being loaded when the log last showed progress."""

    @property
    def needed(self) -> float:
        """Bytes that were allocated, and those of the request: a lower bound of the peak."""
        return (self.allocated or 0.0) + (self.tried or 0.0)


class Failure(Frozen):
    """A failure, with the ranks that report it; the message is that of the rank that needed most."""

    message: Message
    ranks: tuple[int, ...]
    repeats: int
    """Number of messages that were joined."""


_SIZE: Final = r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?(bytes|[KMGT]iB)"
_ANSI: Final = compile_on_use(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\))")
_PREFIX: Final = compile_on_use(
    r"\s*(?:\[(?:rank|default)\s?(?P<rank>[0-9]{1,6})\]:?\s?|\((?:[\w.]+ )?pid=[0-9]+(?:, ip=[0-9a-f.:]+)?\) ?"
    r"|(?P<task>[0-9]{1,6}): |(?:[0-9]{1,3}\.){3}[0-9]{1,3}: |[\w.]{1,80}-[\w.-]{0,80}[0-9]: ){1,4}"
)
_LOCAL_RANK: Final = compile_on_use(r"\[rank=?\s?([0-9]{1,6})\]|\brank[=:]\s?([0-9]{1,6})\b")
_FRAMES: Final = compile_on_use(
    r'File "([^"]{1,400})", line [0-9]+, in ([\w<>.]{1,120})'  # a traceback
    r"|([\w./~\\:-]{1,400}\.py):[0-9]+ in ([\w<>.]{1,120})"  # rich
    r"|^\s*(?:File )?([\w./~\\:-]{1,400}\.py)(?::[0-9]+,)? in ([\w<>.]{1,120})\("  # IPython
)
_HINTS: Final = (
    "ut of memory", "out-of-memory", "No space left", "PytorchStreamWriter", "quota exceeded", "oom", "OOM", "KV cache",
    "cache blocks", "ALLOC_FAILED", "llocate ", "SIGKILL", "Killed", "Bus error", "exitcode", "return code = ",
    "low on memory", "memory pressure", "memory usage threshold", "memory: usage", "Out Of Memory", "xit code",
    "xit Code", "GPU memory utilization", "mem-fraction-static", "bad_alloc", "MemoryError", "MemoryAllocation",
    "OUT_OF_MEMORY", "enough memory", "shared memory", "DUE TO",
)  # fmt: skip
"""Texts of which every message has one; most lines have none, and searching for them is fast."""
_TORCH: Final = compile_on_use(rf"(?:[A-Z]{{2,5}} |^|\W)out of memory\. Tried to allocate {_SIZE}")
_TORCH_END: Final = compile_on_use(r"reserved in total by PyTorch|reserved by PyTorch but unallocated|[GM]iB cached\)")
_DEVICE: Final = compile_on_use(r"[A-Z]PU ([0-9]{1,4})(?:;| has a total)")
_TOTAL: Final = compile_on_use(rf"total capaci?ty of {_SIZE}|{_SIZE} total capacity")
_FREE: Final = compile_on_use(rf"of which {_SIZE} is free|{_SIZE} free")
_ALLOCATED: Final = compile_on_use(rf"[Oo]f the allocated memory {_SIZE} is allocated by|{_SIZE} already allocated")
_IDLE: Final = compile_on_use(rf"and {_SIZE} is reserved by PyTorch but unallocated")
_RESERVED: Final = compile_on_use(rf"{_SIZE} reserved in total|{_SIZE} cached")
_LIMIT: Final = compile_on_use(rf"{_SIZE} allowed;")
_PROCESS: Final = compile_on_use(rf"Process [0-9]+ has {_SIZE} memory in use")
_THIS_PROCESS: Final = "this process has"
_CONTEXT_LIMIT: Final = 3 * 2**30
"""Most bytes of a process on the GPU outside of torch's pool: context, NCCL's buffers and cuBLAS's workspaces."""

_OTHERS: Final[tuple[tuple[Kind, re.Pattern[str]], ...]] = (
    (
        "driver",
        compile_on_use(
            r"(?:CUDA|HIP|hip|NPU) error: out of memory|(?:CUBLAS|HIPBLAS|CUDNN|CUSOLVER)_STATUS_ALLOC_FAILED"
            r"|(?:Cuda|CUDA|HIP) failure (?:2 )?'out of memory'|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY"
        ),
    ),
    (
        "engine",
        compile_on_use(
            r"No available memory for the cache blocks"
            r"|larger than the (?:available|maximum number of tokens).{0,40}KV cache"
            r"|Free memory on device .{0,80}less than desired GPU memory utilization"
            r"|Not enough memory\. Please try (?:to increase|increasing) --mem-fraction-static"
        ),
    ),
    (
        "shared memory",
        compile_on_use(
            r"DataLoader worker .{0,40}Bus error|out of shared memory|No space left on device.{0,40}/dev/shm"
            r"|/dev/shm.{0,80}No space left on device|exitcode: -7\b|return code = -7\b"
        ),
    ),
    (
        "disk",
        compile_on_use(
            r"No space left on device|PytorchStreamWriter failed writing file|[Dd]isk quota exceeded"
            r"|\[Errno (?:28|122)\]"
        ),
    ),
    (
        "host",
        compile_on_use(
            r"[Oo]ut of memory: Kill(?:ed)? process|invoked oom-killer|oom-kill:constraint|oom[_-]kill event"
            r"|OOM ?Killed|cgroup out-of-memory|tasks? [0-9,-]{1,80}: Out Of Memory|memory: usage [0-9]+kB, limit"
            r"|killed due to (?:the node running low on memory|memory pressure \(OOM\))"
            r"| was .{1,60}, which exceeds the memory usage threshold"
            r"|[Cc]an't allocate memory: you tried to allocate|not enough memory: you tried to allocate|std::bad_alloc"
            r"|Cannot allocate memory|^MemoryError\b|Unable to allocate .{1,20} for an array"
            r"|DataLoader worker .{0,40}killed by signal: Killed"
        ),
    ),
    (
        "killed",
        compile_on_use(
            r"exitcode\s*: -9\b|return code = -9\b|Signal 9 \(SIGKILL\)|died with <Signals\.SIGKILL: 9>"
            r"|[Ee]xit [Cc]ode:?\s+137\b|: line [0-9]+: +[0-9]+ Killed\b|tasks? [0-9,-]{1,80}: Killed\b|^Killed\s*$"
        ),
    ),
)
_OTHER_CAUSE: Final = compile_on_use(r"(?:exitcode\s*:|return code =) -?(?!9\b)[1-9]|DUE TO (?:TIME LIMIT|PREEMPTION)")
"""Reasons for which a launcher or a scheduler kills processes that did nothing wrong."""
_REQUEST: Final = compile_on_use(rf"(?:you tried|Unable) to allocate {_SIZE}")
_RESIDENT: Final = compile_on_use(r"(?:anon|shmem)-rss:([0-9]{1,15})kB")
_CGROUP: Final = compile_on_use(r"memory: usage ([0-9]{1,15})(kB), limit ([0-9]{1,15})(kB)")
_NODE: Final = compile_on_use(r" was ([0-9]{1,9}\.[0-9]{2})(GB) / ([0-9]{1,9}\.[0-9]{2})(GB)")
_BAR: Final = compile_on_use(r"%\|[^|]{0,400}\| *([0-9]{1,9})/([0-9]{1,9}) \[")
_TRAINING_BAR: Final = compile_on_use(r"^\W*$|train|epoch|step|episode", re.IGNORECASE)
_LOADING_BAR: Final = compile_on_use(r"[Ll]oading (?:checkpoint|safetensors|weights)")


class _Source:
    """The recent lines of one process: its traceback, and the line before the current one."""

    __slots__ = ("frames", "indent", "is_after_frame", "line")

    def __init__(self) -> None:
        """Start without a traceback."""
        self.frames: deque[Frame] = deque(maxlen=_MAX_FRAMES)
        self.is_after_frame = False
        self.indent = 0
        self.line = ""

    def is_code(self, line: str) -> bool:
        """Return whether a line is the code of the frame above it, which may quote a message."""
        return self.is_after_frame and _count_spaces(line) > self.indent

    def add_line(self, line: str) -> None:
        """Add a line of the process: a frame, its code, or other text."""
        if "Traceback (most recent call last)" in line:
            self.clear_frames()
        matches = list(_FRAMES.finditer(line)) if ".py" in line or 'File "' in line else []
        for match in matches:
            at = next(number for number in (1, 3, 5) if match[number] is not None)
            self.frames.append(Frame(_shorten_path(match[at]), match[at + 1]))
        stripped = line.strip("\u2502\u2771 \t")
        if self.is_after_frame and not matches and stripped.strip("^~"):
            self.frames[-1] = self.frames[-1]._replace(code=stripped[:_MAX_CODE])
        if matches or stripped.strip("^~"):
            self.is_after_frame, self.indent = bool(matches), _count_spaces(line)
        if stripped:
            self.line = stripped[:_MAX_CODE]

    def take_frames(self) -> tuple[Frame, ...]:
        """Return the frames of the traceback and forget them; a line of code counts if the log shows no frame."""
        frames = tuple(self.frames)
        if not frames and re.search(r"[=(].*\)", self.line):
            frames = (Frame("", "", self.line),)
        self.clear_frames()
        return frames

    def clear_frames(self) -> None:
        """Forget the traceback."""
        self.frames.clear()
        self.is_after_frame = False


def _count_spaces(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _has_hint(text: str) -> bool:
    """Return whether a line may have a message."""
    return any(hint in text for hint in _HINTS)


def _shorten_path(path: str) -> str:
    """Return a path below the folder of installed packages, or the end of another path."""
    return re.split(r"(?:site|dist)-packages/", path.replace("\\", "/"))[-1][-200:]


_Key = tuple[Kind, tuple[Frame, ...], bool]
"""Kind, innermost frame, and whether training had not begun: messages that have these in common are joined."""


class _Reader:
    """A reader of a log that keeps its failures."""

    def __init__(self) -> None:
        """Start at the beginning of a log."""
        self.sources: dict[str, _Source] = {}
        self.failures: dict[_Key, Failure] = {}
        self.step: tuple[int, int] | None = None
        self.is_loading = False
        self.has_other_cause = False
        """True if the first failure in the log is another one than a lack of memory."""
        self.pending: tuple[str, list[str], int | None] | None = None
        """Source, lines and rank of a message that may continue on the next line."""

    def read_line(self, raw: str) -> None:
        """Read a line without its end."""
        line = raw.replace("\x00", "")
        if "\x1b" in line:
            line = _ANSI.sub("", line)
        if "%|" in line:
            self._note_progress(line)
        match = _PREFIX.match(line)
        prefix = match[0].strip() if match is not None else ""
        text = line[match.end() :] if match is not None else line
        rank = None
        if match is not None and (match["rank"] or match["task"]):
            rank = int(match["rank"] or match["task"])
        if self.pending is not None and self._continue_message(prefix, text):
            return
        source = self._get_source(prefix)
        if _has_hint(text) and not source.is_code(text) and self._read_message(prefix, source, text, rank):
            return
        source.add_line(text[:_MAX_TEXT])

    def finish(self) -> None:
        """Read the message that the end of the log cuts."""
        if self.pending is not None:
            prefix, lines, rank = self.pending
            self.pending = None
            self._add_torch(self._get_source(prefix), " ".join(lines), rank)

    def list_causes(self) -> Iterator[Failure]:
        """Yield the failures without processes that were ended because of another failure."""
        kinds = {failure.message.kind for failure in self.failures.values()}
        consequences: set[Kind] = set()
        if self.has_other_cause or len(kinds) > 1:
            consequences.add("killed")
        if kinds & {"gpu", "driver", "engine"}:
            consequences.add("shared memory")
        yield from (failure for failure in self.failures.values() if failure.message.kind not in consequences)

    def _get_source(self, prefix: str) -> _Source:
        source = self.sources.get(prefix)
        if source is None:
            if len(self.sources) >= _MAX_SOURCES:
                del self.sources[next(iter(self.sources))]
            source = self.sources[prefix] = _Source()
        return source

    def _note_progress(self, line: str) -> None:
        start = line.rindex("%|")
        match = _BAR.match(line, start)
        if match is None:
            return
        label = _PREFIX.sub("", line[max(0, start - 160) : start].rstrip("0123456789"), count=1)
        if _LOADING_BAR.search(label):
            self.is_loading = True
        elif _TRAINING_BAR.search(label):
            self.step, self.is_loading = (int(match[1]), int(match[2])), False

    def _continue_message(self, prefix: str, text: str) -> bool:
        """Add a line to the pending message; return False if it is not a part of it."""
        assert self.pending is not None
        start, lines, _ = self.pending
        ends = len(lines) >= _MAX_CONTINUED or (prefix and prefix != start) or not text.strip()
        if ends or _FRAMES.search(text[:_MAX_TEXT]) is not None or _has_hint(text):
            self.finish()
            return False
        lines.append(text.strip()[:_MAX_TEXT])
        if _TORCH_END.search(" ".join(lines[-2:])) is not None:
            self.finish()
        return True

    def _read_message(self, prefix: str, source: _Source, text: str, rank: int | None) -> bool:
        """Read a message; return False if the line has none."""
        parts = list(_split_torch_messages(text))
        if parts:
            for part in parts[:-1]:
                self._add_torch(source, part, rank)
            if _TORCH_END.search(parts[-1]) is None:
                self.pending = prefix, [parts[-1]], rank
            else:
                self._add_torch(source, parts[-1], rank)
            return True
        for kind, pattern in _OTHERS:
            other = pattern.search(text)
            if other is not None:
                start = 0  # or a word before the message
                if other.end() > _MAX_CODE:
                    start = text.find(" ", other.end() - _MAX_CODE, other.start()) + 1 or other.start()
                self._add_other(kind, source, text[start : start + _MAX_TEXT], rank)
                return True
        if not self.failures and _OTHER_CAUSE.search(text) is not None:
            self.has_other_cause = True
        return False

    def _add_torch(self, source: _Source, text: str, rank: int | None) -> None:
        message = parse_torch_message(text)
        if message is not None:
            self._add(message._replace(frames=source.take_frames()), rank)

    def _add_other(self, kind: Kind, source: _Source, text: str, rank: int | None) -> None:
        request, used = _REQUEST.search(text), _CGROUP.search(text) or _NODE.search(text)
        resident = [float(match[1]) * UNITS["kB"] for match in _RESIDENT.finditer(text)]
        message = Message(
            kind,
            text.strip()[:_MAX_CODE],
            tried=None if request is None else _convert_size(request, 1),
            total=None if used is None else _convert_size(used, 3),
            allocated=_convert_size(used, 1) if used is not None else sum(resident) if resident else None,
            frames=() if kind == "killed" else source.take_frames(),  # the traceback is the launcher's
        )
        self._add(message, rank)

    def _add(self, message: Message, rank: int | None) -> None:
        """Join a message with an earlier one of the same kind and place, or add it."""
        message = message._replace(step=self.step, is_loading=self.is_loading)
        if rank is None:
            stated = _LOCAL_RANK.search(message.text)
            rank = int(stated[1] or stated[2]) if stated is not None else message.device
        key: _Key = (message.kind, message.frames[-1:], message.step is None)
        if not message.frames:  # a launcher repeats the message without the traceback
            same = (item for item, failure in self.failures.items() if _is_repeated(failure.message, message))
            key = next(same, key)
        earlier = self.failures.get(key)
        if earlier is None:
            if len(self.failures) < _MAX_FAILURES:
                self.failures[key] = Failure(message, () if rank is None else (rank,), 1)
            return
        ranks = earlier.ranks
        if rank is not None and rank not in ranks and len(ranks) < _MAX_RANKS:
            ranks = tuple(sorted((*ranks, rank)))
        kept = earlier.message
        if message.needed > kept.needed:
            kept = message._replace(frames=message.frames or kept.frames, step=kept.step)
        self.failures[key] = Failure(kept, ranks, earlier.repeats + 1)


def _is_repeated(earlier: Message, message: Message) -> bool:
    return earlier.kind == message.kind and earlier.tried == message.tried


def list_torch_messages(line: str) -> Iterator[Message]:
    """Yield the messages of torch's allocator that a line states in full."""
    for part in _split_torch_messages(line):
        message = parse_torch_message(part)
        if message is not None:
            yield message


def _split_torch_messages(text: str) -> Iterator[str]:
    """Yield the parts of a text that begin with a message of torch's allocator; ranks may share a line."""
    starts = [match.start() for match in _TORCH.finditer(text)]
    for start, end in zip(starts, [*starts[1:], len(text)]):
        yield text[start : min(end, start + _MAX_TEXT)]


def parse_torch_message(text: str) -> Message | None:
    """Parse a message of torch's allocator; return None if the text is none. Old releases state fewer sizes."""
    match = _TORCH.search(text)
    if match is None:
        return None
    unit = UNITS[match[2]]
    decimals = len(match[1].partition(".")[2])
    allocated, reserved, total, free = (
        _parse_size(pattern, text) for pattern in (_ALLOCATED, _RESERVED, _TOTAL, _FREE)
    )
    idle = _parse_size(_IDLE, text)
    if idle is None and reserved is not None and allocated is not None:
        idle = max(0.0, reserved - allocated)
    device = _DEVICE.search(text)
    held = None if allocated is None or idle is None else allocated + idle
    return Message(
        "gpu",
        text.strip()[:_MAX_CODE],
        tried=float(match[1]) * unit,
        resolution=0.5 * unit / 10**decimals,
        total=total,
        free=free,
        allocated=allocated,
        limit=_parse_size(_LIMIT, text),
        idle=idle,
        others=_compute_others(text, held, total, free),
        device=None if device is None else int(device[1]),
    )


def _compute_others(text: str, held: float | None, total: float | None, free: float | None) -> float | None:
    """Return the bytes of other processes on the GPU, or None if the message does not state them.

    torch lists every process. It names its process `this process`, unless a container hides the number of the process.
    In that case, it is the process that holds torch's pool and a context. Windows reports sizes beyond the GPU's.
    """
    sizes = [_convert_size(match, 1) for match in _PROCESS.finditer(text)]
    if total is not None and max(sizes, default=0.0) > total:
        return None
    if _THIS_PROCESS in text:
        return sum(sizes)
    if held is None:
        return None
    if not sizes:
        rest = None if total is None or free is None else total - free - held
        return rest if rest is not None and rest > _CONTEXT_LIMIT else None
    similar = [size for size in sizes if 0 <= size - held + 0.02 * 2**30 <= _CONTEXT_LIMIT]
    return sum(sizes) - similar[0] if len(similar) == 1 else None


def _parse_size(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    if match is None:
        return None
    at = next(number for number in range(1, len(match.groups()) + 1) if match[number] is not None)
    return _convert_size(match, at)


def _convert_size(match: re.Match[str], group: int) -> float:
    """Return the bytes of a number and the unit that follows it."""
    return float(match[group]) * UNITS[match[group + 1]]


def read_log(pieces: Iterable[str]) -> tuple[Failure, ...]:
    """Return the failures in a log that comes in pieces of text, in order."""
    reader = _Reader()
    for line in regular_files.split_lines(pieces):
        reader.read_line(line)
    reader.finish()
    return tuple(reader.list_causes())

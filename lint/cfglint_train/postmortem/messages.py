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

UNITS: Final = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "kB": 2**10}

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
    idle: float | None = None
    """Bytes that torch's allocator holds without use."""
    others: float | None = None
    """Bytes that other processes hold on the GPU."""
    device: int | None = None
    frames: tuple[Frame, ...] = ()
    """Frames of the traceback, outermost first."""
    step: tuple[int, int] | None = None
    """Training steps that were done, and their total, as the last progress bar shows them."""
    is_loading: bool = False
    """True if weights were being loaded when the log last showed progress."""


class Failure(Frozen):
    """A failure, with the ranks that report it; the message is that of the largest request."""

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
    "cache blocks", "ALLOC_FAILED", "allocate memory", "SIGKILL", "ignal: Killed", "Bus error", "exitcode: -",
    "return code = -", "low on memory", "GPU memory utilization", "mem-fraction-static", "bad_alloc", "MemoryError",
    "MemoryAllocation", "OUT_OF_MEMORY", "enough memory", "shared memory",
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
            r"Out of memory: Kill(?:ed)? process|oom[_-]kill(?:er|:| event| )|OOM[ -]?[Kk]ill(?:ed|er)"
            r"|cgroup out-of-memory"
            r"|Task was killed due to the node running low on memory|[Cc]an't allocate memory: you tried to allocate"
            r"|not enough memory: you tried to allocate|std::bad_alloc|Cannot allocate memory|^MemoryError\b"
            r"|DataLoader worker .{0,40}killed by signal: Killed|oom_kill"
        ),
    ),
    (
        "killed",
        compile_on_use(r"exitcode: -9\b|return code = -9\b|Signal 9 \(SIGKILL\)|died with <Signals\.SIGKILL: 9>"),
    ),
)
_REQUEST: Final = compile_on_use(r"you tried to allocate ([0-9]{1,20}) bytes")
_RESIDENT: Final = compile_on_use(r"anon-rss:([0-9]{1,15})kB")
_BAR: Final = compile_on_use(r"%\|[^|]{0,400}\| *([0-9]{1,9})/([0-9]{1,9}) \[")
_TRAINING_BAR: Final = compile_on_use(r"^\W*$|train|epoch|step|episode", re.IGNORECASE)
_LOADING_BAR: Final = compile_on_use(r"[Ll]oading (?:checkpoint|safetensors|weights)")


class _Source:
    """The recent lines of one process: its traceback, and the line before the current one."""

    __slots__ = ("frames", "is_after_frame", "line")

    def __init__(self) -> None:
        """Start without a traceback."""
        self.frames: deque[Frame] = deque(maxlen=_MAX_FRAMES)
        self.is_after_frame = False
        self.line = ""

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
            self.is_after_frame = bool(matches)
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


def _has_hint(text: str) -> bool:
    """Return whether a line may have a message."""
    return any(hint in text for hint in _HINTS)


def _shorten_path(path: str) -> str:
    """Return a path below the folder of installed packages, or the end of another path."""
    return re.split(r"(?:site|dist)-packages/", path.replace("\\", "/"))[-1][-200:]


_Key = tuple[Kind, str, bool]
"""Kind, innermost function, and whether training had not begun: messages that have these in common are joined."""


class _Reader:
    """A reader of a log that keeps its failures."""

    def __init__(self) -> None:
        """Start at the beginning of a log."""
        self.sources: dict[str, _Source] = {}
        self.failures: dict[_Key, Failure] = {}
        self.step: tuple[int, int] | None = None
        self.is_loading = False
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
        if _has_hint(text) and self._read_message(prefix, source, text, rank):
            return
        source.add_line(text[:_MAX_TEXT])

    def finish(self) -> None:
        """Read the message that the end of the log cuts."""
        if self.pending is not None:
            prefix, lines, rank = self.pending
            self.pending = None
            self._add_torch(self._get_source(prefix), " ".join(lines), rank)

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
                start = max(0, other.start() - 80)
                self._add_other(kind, source, text[start : start + _MAX_TEXT], rank)
                return True
        return False

    def _add_torch(self, source: _Source, text: str, rank: int | None) -> None:
        message = parse_torch_message(text)
        if message is not None:
            self._add(message._replace(frames=source.take_frames()), rank)

    def _add_other(self, kind: Kind, source: _Source, text: str, rank: int | None) -> None:
        if kind in ("killed", "shared memory") and any(key[0] in ("gpu", "driver", "engine") for key in self.failures):
            return  # the launcher ends the other processes
        request, resident = _REQUEST.search(text), _RESIDENT.search(text)
        message = Message(
            kind,
            text.strip()[:_MAX_CODE],
            tried=None if request is None else float(request[1]),
            allocated=None if resident is None else float(resident[1]) * UNITS["kB"],
            frames=source.take_frames(),
        )
        self._add(message, rank)

    def _add(self, message: Message, rank: int | None) -> None:
        """Join a message with an earlier one of the same kind and place, or add it."""
        message = message._replace(step=self.step, is_loading=self.is_loading)
        if rank is None:
            stated = _LOCAL_RANK.search(message.text)
            rank = int(stated[1] or stated[2]) if stated is not None else message.device
        innermost = message.frames[-1].function if message.frames else ""
        key: _Key = (message.kind, innermost, message.step is None)
        if not message.frames and message.kind == "gpu":  # a launcher repeats the message without the traceback
            same = (item for item, failure in self.failures.items() if failure.message.tried == message.tried)
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
        if (message.tried or 0) > (kept.tried or 0):
            kept = message._replace(frames=message.frames or kept.frames, step=kept.step)
        self.failures[key] = Failure(kept, ranks, earlier.repeats + 1)


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
        idle=idle,
        others=_compute_others(text, held, total, free),
        device=None if device is None else int(device[1]),
    )


def _compute_others(text: str, held: float | None, total: float | None, free: float | None) -> float | None:
    """Return the bytes of other processes on the GPU, or None if the message does not state them.

    torch lists every process. It names its process `this process`, unless a container hides the number of the process.
    In that case, it is the process that holds torch's pool and a context. Windows reports sizes beyond the GPU's.
    """
    sizes = [float(match[1]) * UNITS[match[2]] for match in _PROCESS.finditer(text)]
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
    return float(match[at]) * UNITS[match[at + 1]]


def read_log(pieces: Iterable[str]) -> tuple[Failure, ...]:
    """Return the failures in a log that comes in pieces of text, in order."""
    reader = _Reader()
    for line in regular_files.split_lines(pieces):
        reader.read_line(line)
    reader.finish()
    return tuple(_drop_consequences(reader.failures.values()))


def _drop_consequences(failures: Iterable[Failure]) -> Iterator[Failure]:
    """Yield the failures without those whose cause another one states."""
    listed = list(failures)
    kinds = {failure.message.kind for failure in listed}
    for failure in listed:
        if failure.message.kind == "killed" and "host" in kinds:
            continue
        yield failure

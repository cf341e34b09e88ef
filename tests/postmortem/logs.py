"""Logs of tests: torch's messages with the numbers of public reports, and tracebacks of function names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def load_reports() -> list[dict[str, Any]]:
    """Return the public reports: numbers of the message, frames, facts of the configuration, and the expected cause."""
    return [json.loads(line) for line in (HERE / "public.jsonl").read_text(encoding="utf-8").splitlines()]


def format_message(message: dict[str, Any]) -> str:
    """Return a message of torch's allocator with given numbers, in the words of its release."""
    if message["style"] == "text":
        return "\n".join(message["lines"])
    start = f"CUDA out of memory. Tried to allocate {message['tried']}"
    if message["style"] == "short":
        return f"torch.OutOfMemoryError: {start}."
    if message["style"] == "old":
        parts = (
            (message["total"], "total capacity"),
            (message["allocated"], "already allocated"),
            (message["free"], "free"),
            (message["reserved"], "reserved in total by PyTorch"),
        )
        sizes = "; ".join(f"{size} {name}" for size, name in parts if size is not None)
        return f"torch.cuda.OutOfMemoryError: {start} (GPU {message['device']}; {sizes}) If reserved memory is >>"
    device = "" if message["device"] is None else message["device"]
    text = f"torch.OutOfMemoryError: {start}. GPU {device} has a total capacity of {message['total']} of which "
    text += f"{message['free']} is free."
    if message["own"] is not None:
        text += f" Including non-PyTorch memory, this process has {message['own']} memory in use."
    for number, size in enumerate(message["processes"]):
        text += f" Process {21216 + number} has {size} memory in use."
    if message["allocated"] is not None:
        text += f" Of the allocated memory {message['allocated']} is allocated by PyTorch, and {message['idle']} is "
        text += "reserved by PyTorch but unallocated."
    return text


def format_frames(frames: list[list[str]]) -> list[str]:
    """Return the lines of a traceback; a frame without a path is only its line of code."""
    lines = ["Traceback (most recent call last):"] if frames and frames[0][0] else []
    for path, function, code in frames:
        if path:
            lines.append(f'  File "/x/site-packages/{path}", line 7, in {function}')
        if code:
            lines.append(f"    {code}")
    return lines


def build_log(report: dict[str, Any], *, traceback: bool = True) -> str:
    """Return the log of a report, with or without its traceback."""
    lines = format_frames(report["frames"]) if traceback else []
    return "\n".join([*lines, format_message(report["message"]), ""])

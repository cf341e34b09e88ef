"""Rows of measurements: the readings of a case, the device and the package versions. Sizes are in bytes."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from typing import Any

from .cases import Case
from .engines import build_engine, start_distributed
from .models import build_batch, build_model
from .readings import Readings, record_host_peak
from .trainers import run_training

SCHEMA = 2
"""Version of the row format. Since 2, PEFT recognizes 4-bit models."""
SEED = 1234
STEPS = 3
PACKAGES = ("torch", "transformers", "peft", "accelerate", "safetensors", "bitsandbytes", "liger_kernel", "deepspeed",
            "trl")  # fmt: skip


def measure_case(case: Case, dry: bool, shared: bool) -> dict[str, Any]:
    """Run a case and return the readings for its row; exceptions of the training steps propagate."""
    import torch

    torch.manual_seed(SEED)
    device = "cpu" if dry else "cuda"
    if case.strategy != "none":
        start_distributed(dry)
    readings = Readings(dry, shared)
    row: dict[str, Any] = {"context": readings.read_driver_usage()}
    if case.trainer:
        return {**row, **run_training(case, build_model(case, device, dry), readings, dry)}
    training_engine = build_engine(case, build_model(case, device, dry), dry)
    readings.record_phase("init")
    started = time.monotonic()
    for step in range(len(case.lengths) or STEPS):
        for turn in range(case.accumulation):
            loss = training_engine.forward(build_batch(case, step, device, dry))
            readings.record_phase("forward")
            training_engine.backward(loss)
            del loss
            readings.record_phase("backward")
            if case.strategy.startswith("zero") and turn < case.accumulation - 1:
                training_engine.update()
        training_engine.update()
        readings.record_phase("optimizer step")
    row["seconds"] = round((time.monotonic() - started) / (len(case.lengths) or STEPS), 3)
    row["driver"] = readings.read_driver_usage()
    row["snapshot"] = readings.sum_blocks()
    if case.save:
        host: dict[str, int] = {}
        with tempfile.TemporaryDirectory() as folder:
            with record_host_peak(host):
                training_engine.save(folder)
            host["disk"] = sum(os.path.getsize(os.path.join(root, name))
                               for root, _, names in os.walk(folder) for name in names)  # fmt: skip
        readings.record_phase("save")
        row["host"] = host
    return {**row, "phases": readings.phases, "peak": readings.find_peak()}


def describe_environment(dry: bool) -> dict[str, Any]:
    """Return the device with its driver version, and the versions of Python, CUDA and the packages."""
    import torch

    versions = {"python": sys.version.split()[0], "cuda": str(torch.version.cuda)}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    device: dict[str, Any] = {"name": "cpu (dry run)"}
    if not dry:
        properties = torch.cuda.get_device_properties(0)
        device = {
            "name": properties.name,
            "memory": properties.total_memory,
            "capability": [properties.major, properties.minor],
        }
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            answer = subprocess.run(
                ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                capture_output=True, text=True, timeout=20, check=True,
            )  # fmt: skip
            device["driver"] = answer.stdout.splitlines()[0].strip()
    return {"device": device, "versions": versions}


def find_missing_package(case: Case) -> str:
    """Return the first package that the case needs but that is not installed, or an empty string."""
    packages = ["torch", "transformers"]
    packages += ["peft"] if case.lora else []
    packages += ["bitsandbytes"] if case.quantization != "none" or case.optimizer == "8bit" else []
    packages += ["liger_kernel"] if case.liger else []
    packages += ["deepspeed"] if case.strategy.startswith("zero") else []
    packages += ["trl"] if case.trainer in ("sft", "dpo") else []
    packages += ["flash_attn"] if case.attention == "flash_attention_2" else []
    return next((name for name in packages if importlib.util.find_spec(name) is None), "")


def build_row(case: Case, dry: bool, shared: bool = False) -> dict[str, Any]:
    """Run a case and return its row, even if the case fails or a package is missing."""
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    head = {"schema": SCHEMA, "id": case.id, "rank": rank, "world": world_size, "dry": dry, "config": case._asdict()}
    missing = find_missing_package(case)
    if missing:
        return {**head, "outcome": "unavailable", "error": f"{missing} is not installed"}
    readings: dict[str, Any] = {}
    outcome, error = "ok", ""
    try:
        readings = measure_case(case, dry, shared)
    except Exception as failure:  # a failed case is a row too
        text = f"{type(failure).__name__}: {failure}"
        outcome = "oom" if "out of memory" in text.lower() or "OutOfMemory" in text else "error"
        error = text[:500] if outcome == "oom" else traceback.format_exc()[-2000:]
    return {**head, "outcome": outcome, "error": error, **describe_environment(dry), **readings}


def list_finished(path: str) -> set[str]:
    """Return the ids of the cases with outcome `ok` or `oom` in a file of rows; none if there is no file."""
    if not os.path.exists(path):
        return set()
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    return {row["id"] for row in rows if row["outcome"] in ("ok", "oom")}


def append_row(path: str, row: dict[str, Any]) -> None:
    """Append a row and flush it to disk, because the next case may kill the process."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())

"""Rows that the harness measured on a GPU: conversion and storage. `measured/README.md` describes their schema."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from cfglint_train.calibration.rows import MEASURED_FOLDER, Row
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.sizes import GIB
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.foundation.versions import parse_release
from cfglint_train.frameworks.hf_trainer.trl_losses import find_trl_loss

_PRECISIONS: Final = {"bf16": "bf16", "amp_bf16w": "bf16", "amp": "fp32", "fp32": "fp32"}
_OPTIMIZERS: Final = {"fused": "fused", "foreach": "foreach", "8bit": "bitsandbytes"}
_TRL_TRAINERS: Final = ("sft", "dpo")
_SHUFFLED_ORDER: Final = (
    22, 9, 32, 15, 0, 3, 8, 18, 14, 13, 38, 2, 7, 4, 23, 37, 27, 29, 35, 17, 19, 25, 6, 21, 12, 10, 16, 39, 24, 33,
    11, 34, 28, 20, 26, 31, 30, 36, 1, 5,
)  # fmt: skip
"""Order in which a Trainer visits 40 rows: accelerate 1.15's SeedableRandomSampler with seed 42."""


def is_measured(row: Row) -> bool:
    """Return whether a row has the harness's schema, as opposed to the schema of published rows."""
    return "config" in row.content and "schema" in row.content


def find_problems(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons why a row cannot be used as evidence."""
    if row.get("schema") not in (1, 2):
        yield "schema is not 1 or 2"
    if row.get("dry"):
        yield "the row is from a dry run"
    if row.get("outcome") not in ("ok", "oom"):
        yield f"outcome is {row.get('outcome')!r}, not ok or oom"
    for field in ("id", "config", "device", "versions"):
        if not row.get(field):
            yield f"{field} is missing"
    tables = Row("", row)
    config, device, versions = tables.get_table("config"), tables.get_table("device"), tables.get_table("versions")
    for name in ("sequence", "micro"):
        value = config.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            yield f"config.{name} is not a positive whole number"
    if not _is_lengths(config.get("lengths")):
        yield "config.lengths is not a list of positive whole numbers"
    for name in ("name", "memory", "driver"):
        if not device.get(name):
            yield f"device.{name} is missing"
    for name in ("torch", "transformers"):
        if not versions.get(name):
            yield f"versions.{name} is missing"
    if config.get("trainer") in _TRL_TRAINERS and not _is_release(versions.get("trl")):
        yield f"versions.trl is not a release; the trainer {config['trainer']} needs one"
    if row.get("outcome") == "ok":
        peak = tables.get_table("peak")
        allocated, reserved = peak.get("allocated"), peak.get("reserved")
        if not isinstance(allocated, int) or not isinstance(reserved, int) or not 0 < allocated <= reserved:
            yield "peak.allocated and peak.reserved are not sizes in bytes"


def _is_lengths(value: Any) -> bool:
    """Return whether the batch lengths of a case are absent or valid."""
    if value is None:
        return True
    return isinstance(value, list) and all(type(length) is int and length > 0 for length in value)


def _is_release(value: Any) -> bool:
    try:
        parse_release(value if isinstance(value, str) else "")
    except ValueError:
        return False
    return True


def convert_to_published(row: Row) -> tuple[Row, ...]:
    """Return a measured row as published rows, one per counter.

    If the row cannot be stated as a plan, the result is a single row with the reason in `unmapped`.
    """
    published = _convert_allocated(row)
    reserved = row.get_table("peak").get("reserved")
    if not isinstance(reserved, int) or "unmapped" in published.content:
        return (published,)
    changes = {"counter": "reserved", "measured_gib": reserved / GIB, "outcome": ""}
    return published, Row(f"{published.id} (reserved)", {**published.content, **changes})


def _convert_allocated(row: Row) -> Row:
    peak, config = row.get_table("peak"), row.get_table("config")
    allocated, strategy = peak.get("allocated"), config.get("strategy")
    world = row.content.get("world") or 1
    name = row.id if world == 1 else f"{row.id}@{row.content.get('rank')}/{world}"
    head = {
        "group": f"measured|{config.get('model')}|{config.get('strategy')}",
        "quality": "measured",
        "method": "lora" if config.get("lora") else "full",
        "framework": "cfglint calibrate run",
        "outcome": "OOM" if row.get_text("outcome") == "oom" else "fits",
        "measured_gib": allocated / GIB if isinstance(allocated, int) else None,
        "model": config.get("model"),
        "counter": "allocated",
        "capacity": row.get_table("device").get("memory"),
    }
    if world == 1 and strategy == "fsdp2":
        return Row(name, {**head, "unmapped": "FSDP on one rank"})
    if config.get("layers"):
        head["shape"] = {"first": config["layers"]}
    if row.content.get("schema") == 1 and config.get("quantization") == "nf4" and not config.get("prepared"):
        # The harness did not mark the model as 4-bit, so PEFT used its plain adapter.
        head["mode"] = {"as_given": False, "clones": False}
    batches = _list_batch_lengths(config)
    if batches:
        head["setup"] = {"records": compute_records(batches)}
    trl = str(row.get_table("versions").get("trl") or "")
    trainer_fields = _build_trainer_fields(config, trl)
    if trainer_fields is None:
        return Row(name, {**head, "unmapped": f"the size of the DPO logits in trl {trl} is unknown"})
    return Row(name, {**head, "plan": {**_build_plan_fields(config, world), **trainer_fields}})


def compute_records(lengths: Sequence[int]) -> float:
    """Return the sum of the record lengths, divided by the longest length, minus 1.

    A record is a length that exceeds all lengths before it.
    """
    longest, total = 0, 0
    for length in lengths:
        if length > longest:
            longest, total = length, total + length
    return total / longest - 1


def _list_batch_lengths(config: Mapping[str, Any]) -> list[int]:
    """Return the batch lengths in the order in which the batches ran, or an empty list if that order is unknown.

    Trainers shuffle rows; the order is known for 40 rows only.
    """
    lengths, micro = config.get("lengths") or (config.get("sequence") or 1,), config.get("micro") or 1
    if not config.get("trainer") or len(lengths) == 1:
        return list(lengths)
    if len(lengths) != len(_SHUFFLED_ORDER):
        return []
    rows = [lengths[row] for row in _SHUFFLED_ORDER]
    return [max(rows[first : first + micro]) for first in range(0, len(rows), micro)]


def _build_trainer_fields(config: Mapping[str, Any], trl: str) -> dict[str, Any] | None:
    """Return the plan fields that TRL's trainers add to a case, or None for a release whose loss is unknown.

    These are the chunked loss of SFT (TRL 1.13 and 1.14) and the reference model and loss of DPO.
    """
    trainer = config.get("trainer")
    if trainer not in _TRL_TRAINERS:
        return {}
    adapters = {}
    if config.get("quantization") == "nf4":  # TRL casts the trained weights of quantized models
        adapters = dict.fromkeys(("precision.params", "precision.adapter", "precision.grads"), "bf16")
    if trainer == "sft" and not config.get("liger"):
        return {"activations.fused_loss": "checkpointed_half", **adapters}
    if trainer == "dpo":
        made_loss = find_trl_loss(trainer, trl)
        if made_loss.with_reference is None:
            return None
        return {
            "method.stage": "dpo",
            "method.reference_model": "adapter-off" if config.get("lora") else "full",
            "batch.pairs": True,
            "activations.fused_loss": made_loss.loss,
            "activations.passing_logits": made_loss.with_reference[
                0 if str(config.get("precision")).startswith("amp") else 1
            ],
            **adapters,
        }
    return adapters


def _build_plan_fields(config: Mapping[str, Any], world: Any) -> dict[str, Any]:
    """Return the plan fields of a case that the harness ran."""
    lora, strategy = config.get("lora") or 0, str(config.get("strategy") or "none")
    precision = str(config.get("precision") or "bf16")
    weight_format = _PRECISIONS.get(precision, "bf16")
    fields: dict[str, Any] = {
        "method.tuning": "lora" if lora else "full",
        "precision.params": "fp32" if lora else weight_format,
        "precision.frozen": "fp32" if config.get("prepared") else weight_format,
        "precision.grads": "fp32" if lora else weight_format,
        "precision.compute": "fp32" if precision == "fp32" else "bf16",
        "precision.autocast": precision.startswith("amp"),
        "precision.master": "none",
        "optimizer.name": "adafactor" if config.get("optimizer") == "adafactor" else "adamw",
        "optimizer.implementation": _OPTIMIZERS.get(str(config.get("optimizer")), "fused"),
        "batch.micro": config.get("micro"),
        "batch.accumulation": config.get("accumulation") or 1,
        "sequence.length": max(config.get("lengths") or (config.get("sequence"),)),
        "sequence.packing": not config.get("padding") and not (config.get("lengths") and config.get("trainer")),
        "activations.attention": {"eager": "eager", "flash_attention_2": "flash"}.get(
            str(config.get("attention")), "sdpa"
        ),
        "activations.checkpointing": "full" if config.get("checkpointing") else "none",
        "activations.fused_loss": "liger" if config.get("liger") else "none",
        "activations.liger_layers": bool(config.get("liger")),
        "activations.compile": bool(config.get("compiled")),
        "activations.compiled_model": bool(config.get("compiled")),
        "activations.compiled_loss": bool(config.get("compiled")),
        "launch.nodes": 1,
        "launch.gpus_per_node": max(world, 2) if strategy == "ddp" else world,  # DDP copies gradients even on one rank
        "parallel.strategy": "none" if strategy == "none" else "zero" if strategy.startswith("zero") else strategy,
    }
    if config.get("optimizer") == "8bit":
        fields["optimizer.state_bits"] = 8
        if config.get("trainer"):  # transformers trainer.py registers embeddings with 32 bits
            fields["optimizer.embedding_bits"] = 32
    if lora:
        fields |= {
            "method.lora_rank": lora,
            "method.lora_dropout": config.get("dropout") or 0.0,
            "method.lora_targets": tuple(str(config.get("targets") or "all-linear").split(",")),
            "method.quantization": config.get("quantization") or "none",
            "method.double_quantization": True,
            "precision.adapter": "fp32",
        }
    if strategy.startswith("zero"):
        fields |= {
            "parallel.zero_stage": int(strategy[-1]),
            "parallel.reduce_bucket": 16_777_216,
            "precision.master": "fp32",
            "optimizer.state_bits": 32,
            "parallel.offload_optimizer": "cpu" if config.get("offload") else "none",
        }
    if strategy == "fsdp2":
        fields["precision.params"] = fields["precision.params"] if lora else "bf16"
    return fields


class StoredRows(Frozen):
    """Result of storing rows in one file."""

    path: str
    added: int
    existing: int
    """Number of rows that were skipped: already in the file, or duplicates within the input."""


def store_rows(rows: list[dict[str, Any]], folder: str = MEASURED_FOLDER) -> list[StoredRows]:
    """Append rows to the files of the folder, one file per device, driver and versions.

    Rows that a file already holds are skipped.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        versions = json.dumps(row["versions"], sort_keys=True)
        device = re.sub(r"[^a-z0-9]+", "-", str(row["device"]["name"]).lower()).strip("-")
        digest = hashlib.sha256((versions + str(row["device"].get("driver"))).encode()).hexdigest()[:8]
        groups.setdefault(f"{device}-{digest}.jsonl", []).append(row)
    os.makedirs(folder, exist_ok=True)
    stored = []
    for name, items in groups.items():
        path = os.path.join(folder, name)
        existing_keys: set[tuple[Any, ...]] = set()
        if os.path.exists(path):
            with open(path, encoding="utf-8") as stream:
                existing_keys = {_build_key(json.loads(line)) for line in stream if line.strip()}
        new = {_build_key(row): row for row in items if _build_key(row) not in existing_keys}
        if new:
            with open(path, "a", encoding="utf-8", newline="\n") as stream:
                stream.writelines(json.dumps(row) + "\n" for row in new.values())
        stored.append(StoredRows(path, len(new), len(items) - len(new)))
    return stored


def _build_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    peak = row.get("peak") or {}
    return row.get("id"), row.get("rank"), row.get("world"), peak.get("allocated"), peak.get("reserved")

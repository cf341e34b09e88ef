"""Lenses between Guest's keys and the plan."""

from __future__ import annotations

from cfglint_train.foundation.typed import Final
from cfglint_train.frameworks.codec import build_choice
from cfglint_train.frameworks.lens_types import Key
from cfglint_train.frameworks.loaders import PLAIN

_PRECISION: Final = build_choice({"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"})
_RECOMPUTE: Final = build_choice({True: "full", False: "none"})
_STRATEGY: Final = build_choice({"none": "none", "ddp": "ddp", "fsdp": "fsdp2"})

LENSES: Final = (
    Key("model.id", (("model",),), PLAIN.string),
    Key("batch.micro", (("train", "micro_batch"), ("train", "batch")), PLAIN.integer, default=1),
    Key("batch.accumulation", (("train", "accumulation"),), PLAIN.integer, default=1),
    Key("sequence.length", (("train", "length"),), PLAIN.integer, default=2048),
    Key("precision.compute", (("train", "precision"),), _PRECISION, default="bf16"),
    Key("activations.checkpointing", (("train", "recompute"),), _RECOMPUTE, default="none"),
    Key("parallel.strategy", (("train", "strategy"),), _STRATEGY, default="ddp"),
    Key("checkpoint.interval", (("save", "every"),), PLAIN.integer, default=1000),
    Key("checkpoint.keep", (("save", "keep"),), PLAIN.integer, default="all"),
    Key("checkpoint.model_only", (("save", "weights_only"),), PLAIN.boolean, default=False),
    Key("checkpoint.path", (("save", "folder"),), PLAIN.string, default="checkpoints"),
)

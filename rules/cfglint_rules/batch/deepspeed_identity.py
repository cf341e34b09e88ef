"""BAT001 deepspeed-batch-identity: the batch settings in a DeepSpeed file contradict each other, so DeepSpeed stops.

## What it does
DeepSpeed asserts that train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x data-parallel
ranks. The rule reports three mistakes: values that fit no number of ranks, values that do not fit the stated number of
ranks, and a file that sets only the accumulation.

## Why is this bad?
DeepSpeed stops with an AssertionError on every rank during initialization, after the model has been loaded.

## Example
    "train_batch_size": 100,
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 4

## Use instead
Set two of the three keys; DeepSpeed computes the third. With the HF Trainer, set all three to "auto".

## Fix safety
Safe: DeepSpeed would have rejected the file. The fix removes `train_batch_size`, which follows from the other two.

## References
deepspeed 0.19.8 `runtime/config.py` (_set_batch_related_parameters, _batch_assertion).
"""

from __future__ import annotations

from collections.abc import Iterator

from cfglint_rules.rule import Rule
from cfglint_train.documents.document import Delete
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Any, Final
from cfglint_train.frameworks.framework import load
from cfglint_train.frameworks.lens import Config
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "BAT001", "deepspeed-batch-identity", "error", particular=True, fix="safe", depends_on_unseen_flags=True
)


_UNEVEN: Final = "the batch does not come out even over the ranks"
"""Claim about a batch that cannot be divided evenly, which stays true for any multiple of the number of nodes."""


def check(run: Run) -> Iterator[Report]:
    """Yield a report for every file whose batch settings contradict each other."""
    for config in run.configs:
        framework = load(config.framework)
        if framework.traits.batch_identity is not None:
            yield from _check_batch(run, BatchKeys(config, framework.title, *framework.traits.batch_identity))


class BatchKeys(Frozen):
    """A config with three keys for the batch, any two of which determine the third."""

    config: Config
    title: str
    global_batch: str
    micro: str
    accumulation: str

    def build_report(self, message: str, with_fix: bool = True, claim: str | None = None) -> Report:
        """Return a report at the global batch.

        With `with_fix`, the report offers to remove the global batch if the other two keys determine it.
        """
        config = self.config
        changes: Any = ((config, (Delete((*config.root, self.global_batch)),)),)
        is_determined = config.has(self.micro) and config.has(self.accumulation)
        removal = Fix("safe", f"remove `{self.global_batch}`, which follows from the other two", keys=changes)
        return Report(
            message,
            config.find_place(self.global_batch) or config.find_top(),
            fix=removal if with_fix and is_determined else None,
            min_certainty="followed",
            claim=claim,
        )

    def format_product(self, micro: int | None, accumulation: int | None) -> str:
        """Return the stated micro batch and accumulation as a product, for messages."""
        sizes = ((self.micro, micro), (self.accumulation, accumulation))
        return " x ".join(f"`{name}: {value}`" for name, value in sizes if value is not None)


def _check_batch(run: Run, batch: BatchKeys) -> Iterator[Report]:
    config = batch.config
    global_batch, micro, accumulation = (
        _read_count(config, key) for key in (batch.global_batch, batch.micro, batch.accumulation)
    )
    if global_batch is None:
        if (
            micro is None
            and accumulation is not None
            and not config.has(batch.global_batch)
            and not config.has(batch.micro)
        ):
            requirement = f"{batch.title} also needs `{batch.global_batch}` or `{batch.micro}`"
            place = config.find_place(batch.accumulation) or config.find_top()
            yield Report(f"`{batch.accumulation}` alone does not determine the batch size: {requirement}", place)
        return
    ranks = run.plan.data_parallel
    if micro is None and accumulation is None:
        if ranks is not None and global_batch % ranks:
            message = f"`{batch.global_batch}` is {global_batch}, not a multiple of the {ranks} data-parallel ranks"
            yield batch.build_report(message, with_fix=False, claim=_UNEVEN)
        return
    step = (micro or 1) * (accumulation or 1)
    if global_batch % step:
        yield batch.build_report(
            f"`{batch.global_batch}` is {global_batch}, not a multiple of {batch.format_product(micro, accumulation)}"
        )
    elif ranks is not None and micro is not None and accumulation is not None and global_batch != step * ranks:
        product = f"{batch.format_product(micro, accumulation)} x {ranks} ranks = {step * ranks}"
        yield batch.build_report(f"`{batch.global_batch}` is {global_batch}, but {product}")
    elif ranks is not None and global_batch % (step * ranks):
        product = f"{batch.format_product(micro, accumulation)} x {ranks} ranks"
        yield batch.build_report(
            f"`{batch.global_batch}` is {global_batch}, not a multiple of {product}", with_fix=False, claim=_UNEVEN
        )


def _read_count(config: Config, key: str) -> int | None:
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

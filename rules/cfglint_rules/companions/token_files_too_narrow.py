"""XFL007 token-files-too-narrow: the token files are read as a data type that is too small for the vocabulary.

## What it does
Reports token files that are read as uint16 (or uint8) if the vocabulary has more tokens than that type can represent.

## Why is this bad?
Nothing checks the files. If they store four bytes per token, each token is read as two tokens, and the model learns
noise. If they store two bytes, token ids of 65,536 and above were truncated when the files were written.

## Example
    model:
      vocab_size: 100278
    data:
      paths: [part-0.npy]          # memmap_dtype is uint16 by default

## Use instead
    data:
      memmap_dtype: uint32

## Fix safety
Unsafe: cfglint does not know what the files contain.

## When it does not apply
Ignore this rule if the vocabulary was extended with tokens that the files do not use.

## References
ai2-olmo 0.6.0 `config.py` (DataConfig.memmap_dtype), `data/memmap_dataset.py` (_read_chunk_from_memmap);
ai2-olmo-core 3.0.0 `data/numpy_dataset.py` (get_dtype); allenai/OLMo#692.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfglint_rules.rule import Rule
from cfglint_train.findings.finding import Fix, Report
from cfglint_train.foundation.typed import Final
from cfglint_train.runs.run import Run

RULE: Final = Rule(
    "XFL007",
    "token-files-too-narrow",
    "warning",
    fix="unsafe",
    needs={"data.token_dtype": ("uint8", "uint16")},
    writes=("data.token_dtype",),
)

_TOKEN_LIMITS: Final[Mapping[str, int]] = {"uint8": 2**8, "uint16": 2**16}


def check(run: Run) -> Iterator[Report]:
    """Yield a report if the vocabulary is too large for the data type of the token files."""
    dtype = run.plan.data.token_dtype
    stated_size = dict(run.plan.model.architecture or ()).get("vocab_size")
    vocab_size = (
        stated_size if isinstance(stated_size, int) else None if run.architecture is None else run.architecture.vocab
    )
    if dtype is None or dtype not in _TOKEN_LIMITS or vocab_size is None or vocab_size <= _TOKEN_LIMITS[dtype]:
        return
    key = run.spell_key("data.token_dtype")
    default_note = "" if run.is_stated("data.token_dtype") else ", the default"
    yield Report(
        f"`{key}` is {dtype}{default_note}, which holds {_TOKEN_LIMITS[dtype]:,} token ids; the vocabulary has "
        f"{vocab_size:,}",
        run.find_place("data.token_dtype", "model.architecture"),
        fix=Fix(
            "unsafe", f"set {key}: uint32, if the files contain four bytes per token", {"data.token_dtype": "uint32"}
        ),
    )

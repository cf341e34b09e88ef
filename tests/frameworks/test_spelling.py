"""Keys in messages: the key that a message names for a field is the key that a fix writes, in all available files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cfglint_train.documents.document import CannotEdit, Change
from cfglint_train.frameworks.lens import Config, format_route
from cfglint_train.plan.enumerations import list_choices
from cfglint_train.plan.names import Field
from cfglint_train.plan.reading import is_equal
from cfglint_train.runs.run import Run
from tests.support.corpus import CORPUS, needs_corpus
from tests.support.linting import FIXTURES, lint, list_fixture_runs, list_runs

FOLDERS = [
    pytest.param(FIXTURES, marks=pytest.mark.slow),
    *(CORPUS / name for name in ("axolotl", "llamafactory", "olmo", "deepspeed")),
]
MANY = 6
# The new value decides which of two sections is switched on, or which of two keys can express it.
BY_VALUE = {
    ("axolotl", "method.quantization"), ("deepspeed", "precision.compute"), ("hf_scripts", "precision.compute"),
    ("llamafactory", "method.quantization"), ("llamafactory", "precision.compute"),
    ("olmo", "logging.metrics_interval"), ("trl", "precision.compute"),
    *((name, f"parallel.{field}")  # `fsdp` switches FSDP on, and `fsdp_config` has the details
      for name in ("hf_scripts", "llamafactory", "trl") for field in ("cpu_efficient_loading", "wrapping")),
}  # fmt: skip


FLAT = """\
python -m openrlhf.cli.train_ppo_ray --pretrain meta-llama/Llama-2-7b-hf --prompt_data d --vllm_num_engines 2 \\
  --actor_num_gpus_per_node 8 --prompt_max_len 1024 --generate_max_len 65536 --micro_train_batch_size 16 --bf16 \\
  --flash_attn --eval_dataset e --normalize_reward{more}
"""


@pytest.mark.parametrize("more", ["", " --vllm_enable_sleep", " --dynamic_filtering --async_train"])
def test_a_script_is_advised_in_its_own_spelling(tmp_path: Path, more: str) -> None:
    (tmp_path / "ppo.sh").write_text(FLAT.format(more=more))
    findings = lint(tmp_path).findings
    assert {"KEY006", "XFL005", "MEM001"} <= {finding.code for finding in findings}
    texts = [
        text
        for item in findings
        for text in (item.message, item.help or "", *item.notes, item.fix.message if item.fix else "")
    ]
    assert not [text for text in texts if re.search(r"--[a-z]+\.[a-z]|`--max_len", text)]
    assert any("--reward_pretrain" in text for text in texts)
    assert any("`--prompt_max_len + --generate_max_len`" in text for text in texts)


def list_other_values(field: Field, seen_values: list[Any], present: Any) -> list[Any]:
    """Return other values of a field: its choices, those of other files, and some number or boolean."""
    candidates: list[Any] = [*(list_choices(field) or ()), *seen_values]
    if isinstance(present, bool):
        candidates.append(not present)
    elif isinstance(present, int):
        candidates += [present + 1, 2 * present]
    return [value for value in candidates if value is not None and not is_equal(value, present)][:MANY]


def list_names(config: Config, changes: list[Change]) -> Iterator[str]:
    """Yield the names of everything that the changes touch.

    These are the keys, with their spelling in a script, the sections that are made of several keys, and the keys set in
    them.
    """
    for change in changes:
        route = change.route[len(config.root) :]
        yield format_route(route)
        yield format_route(config.document.get_spelled_route(change.route)[len(config.root) :])
        value = getattr(change, "value", None)
        if isinstance(value, dict):
            yield from (format_route((*route, key)) for key in value)


def try_changes(run: Run, pool: dict[Field, list[Any]]) -> Iterator[tuple[Field, str, list[str]]]:
    for field in pool:
        owner = run.find_owner(field)
        origin = run.get_origin(field)
        if owner is None or (origin is not None and origin.kind == "user"):
            continue
        config, lens = owner
        present = {read_field: value for read_field, value, _ in lens.read(config)}
        for value in list_other_values(field, pool[field], present.get(field)):
            try:
                changes = lens.write(config, {field: value})
            except CannotEdit:
                continue
            if changes:
                yield field, run.spell_key(field), list(list_names(config, changes))


@needs_corpus
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_key_that_is_named_is_written(folder: Path) -> None:
    runs = list_fixture_runs() if folder == FIXTURES else list_runs(folder)
    pool: dict[Field, list[Any]] = defaultdict(list)
    for run in runs:
        for field, value in run.stated_plan:
            if value.value not in pool[field] and not isinstance(value.value, (list, tuple)):
                pool[field].append(value.value)
    wrong, checked = set(), 0
    for run in runs:
        for field, key, written_names in try_changes(run, pool):
            checked += 1
            if not any(name == key or name.startswith(f"{key}.") for name in written_names):
                wrong.add((run.main.framework, field, key, *written_names))
    wrong = {entry for entry in wrong if entry[:2] not in BY_VALUE}
    assert not wrong, "\n".join(map(str, sorted(wrong)))
    assert checked > 100


def test_a_setting_that_nobody_states_has_its_own_key(tmp_path: Path) -> None:
    (tmp_path / "axolotl.yaml").write_text(
        "base_model: meta-llama/Llama-3.1-8B\ndatasets:\n  - path: d\n    type: alpaca\nmicro_batch_size: 16\n"
    )
    (run,) = list_runs(tmp_path)
    assert run.spell_key("batch.micro") == "micro_batch_size"
    assert run.spell_key("batch.accumulation") == "gradient_accumulation_steps"

"""Programs that pass their own optimizer or scheduler to DeepSpeed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cfglint_train.mutations import client_optimizers
from cfglint_train.mutations.client_optimizers import has_client_optimizer, has_client_scheduler
from cfglint_train.repository.index import RepositoryIndex
from cfglint_train.repository.texts import Texts
from cfglint_train.settings.settings import Settings


def has_client_object(
    folder: Path, text: str, predicate: Callable[[RepositoryIndex], bool] = has_client_optimizer
) -> bool:
    (folder / "train.py").write_text(text)
    return predicate(RepositoryIndex(str(folder), lambda _: Settings(str(folder)), Texts()))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("deepspeed.initialize(args=args, model=model, optimizer=optimizer)", True),
        ("deepspeed.initialize(args, model, optimizer)", True),
        ("deepspeed.initialize(model=model, **arguments)", True),
        ("deepspeed.initialize(args, model, None)", False),
        ("deepspeed.initialize(model=model, optimizer=None)", False),
        ("deepspeed.initialize(model=model, config=config)", False),
        ("tool.initialize(model=model, optimizer=optimizer)  # deepspeed.initialize", False),
    ],
)
def test_calls(tmp_path: Path, call: str, expected: bool) -> None:
    assert has_client_object(tmp_path, f"engine, optimizer, _, _ = {call}\n") is expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("deepspeed.initialize(model=model, lr_scheduler=scheduler)", True),
        ("deepspeed.initialize(args, model, optimizer, None, None, scheduler)", True),
        ("deepspeed.initialize(model=model, **arguments)", True),
        ("deepspeed.initialize(args, model, optimizer)", False),
        ("deepspeed.initialize(model=model, lr_scheduler=None)", False),
    ],
)
def test_schedulers(tmp_path: Path, call: str, expected: bool) -> None:
    assert has_client_object(tmp_path, f"engine, _, _, scheduler = {call}\n", has_client_scheduler) is expected


def test_what_is_no_python(tmp_path: Path) -> None:
    assert not has_client_object(tmp_path, "deepspeed.initialize(optimizer=\n")


def test_more_than_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_optimizers, "MAX_PROGRAM_BYTES", 10)
    assert has_client_object(tmp_path, "engine, optimizer, _, _ = deepspeed.initialize(model=model)\n")

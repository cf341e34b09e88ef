"""Correct rewrites: what a fix writes, and what it refuses to overwrite."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from cfglint_train.documents.document import Append, CannotEdit, Change, Delete, Document, Edit, Rename, Set, Span
from cfglint_train.documents.json import JsonDocument
from cfglint_train.documents.yaml.document import YamlDocument
from cfglint_train.findings import read_back
from cfglint_train.foundation import atomic
from cfglint_train.foundation.exchange import exchange
from tests.support.command import run_cfglint
from tests.support.configs import DEEPSPEED

OLD, NEW, THEIRS = b"old\n", b"new\n", b"theirs\n"


def parse_yaml(text: str) -> Document:
    return YamlDocument("a.yaml", text.encode())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.yaml"
    path.write_bytes(OLD)
    return path


# --- renames ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", [parse_yaml("a: 1\nb: 2\n"), JsonDocument("a.json", b'{"a": 1, "b": 2}')])
def test_a_rename_never_meets_a_key_that_stands(document: Document) -> None:
    with pytest.raises(CannotEdit, match="b is already set"):
        read_back.check_keys(document, [Rename(("a",), "b")])
    read_back.check_keys(document, [Delete(("b",)), Rename(("a",), "b")])
    read_back.check_keys(document, [Rename(("a",), "c")])


@pytest.mark.parametrize("second", [Rename(("b",), "c"), Set(("c",), 1), Append(("c",), 1)])
def test_two_changes_never_make_one_key(second: Change) -> None:
    with pytest.raises(CannotEdit, match="c is already set"):
        read_back.check_keys(parse_yaml("a: 1\nb: 2\n"), [Rename(("a",), "c"), second])


# --- reading back ----------------------------------------------------------------------------------------------------


def check_edits(document: Document, *changes: Change) -> None:
    read_back.check_tree(document, changes, document.build_edits(changes))


@pytest.mark.parametrize(
    "changes",
    [
        [Set(("a",), 5)],
        [Set(("n",), {"x": [1, 2]})],
        [Set(("s", "new"), 5)],
        [Append(("l",), 3)],
        [Append(("m",), 3)],
        [Delete(("a",))],
        [Rename(("a",), "z")],
        [Delete(("l", 0))],
        [Set(("l", 1), 7)],
        [Set(("twice",), 7)],
    ],
)
def test_what_a_change_means_is_read_back(changes: list[Change]) -> None:
    check_edits(parse_yaml("a: 1\ns:\n  x: 1\nl:\n  - 1\n  - 2\ntwice: 1\ntwice: 2\n"), *changes)


@pytest.mark.parametrize(
    ("text", "edit"),
    [
        pytest.param("a: 1\nb: 2\n", Edit(Span(0, 0), "b: 2\n"), id="a key a second time, with its own value"),
        pytest.param("a: 1\na: 2\nb: 3\n", Edit(Span(0, 5), ""), id="a duplicate that is gone"),
        pytest.param("a: 1\na: 2\nb: 3\n", Edit(Span(3, 4), "9"), id="another value of a duplicate that is shadowed"),
    ],
)
def test_entries_are_compared_and_not_only_what_wins(text: str, edit: Edit) -> None:
    document = parse_yaml(text)
    wanted = document.build_edits([Set(("b",), 7)])
    read_back.check_tree(document, [Set(("b",), 7)], wanted)
    with pytest.raises(CannotEdit, match="would not read back"):
        read_back.check_tree(document, [Set(("b",), 7)], sorted([*wanted, edit]))


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_file_with_other_names_is_refused(file: Path) -> None:
    os.link(file, file.with_name("b.yaml"))
    with pytest.raises(OSError, match="hard links"):
        atomic.stage(str(file), NEW, OLD)
    assert file.read_bytes() == OLD
    assert len(list(file.parent.iterdir())) == 2


def test_extended_attributes_are_kept(file: Path) -> None:
    if not hasattr(os, "setxattr"):
        pytest.skip("not applicable: no extended attributes")
    try:
        os.setxattr(file, "user.note", b"x")
    except OSError:
        pytest.skip("not applicable: the file system has no extended attributes")
    atomic.commit(atomic.stage(str(file), NEW, OLD))
    assert file.read_bytes() == NEW
    assert os.getxattr(file, "user.note") == b"x"


def test_an_owner_that_cannot_be_kept_is_a_reason_not_to_write(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    real = os.stat

    def return_other_owner(path: str) -> os.stat_result:
        status = list(real(path))
        if path == str(file):
            status[4] += 1
        return os.stat_result(status)

    monkeypatch.setattr(atomic.os, "chown", refuse)
    monkeypatch.setattr(atomic.os, "stat", return_other_owner)
    with pytest.raises(OSError, match="owner"):
        atomic.stage(str(file), NEW, OLD)
    assert [path.name for path in file.parent.iterdir()] == ["a.yaml"]


@pytest.mark.parametrize("can", [True, False])
def test_a_change_before_the_commit_is_noticed(file: Path, monkeypatch: pytest.MonkeyPatch, can: bool) -> None:
    if not can:
        monkeypatch.setattr(atomic, "exchange", lambda *_: False)
    staged = atomic.stage(str(file), NEW, OLD)
    file.write_bytes(THEIRS)
    with pytest.raises(OSError, match="another program changed it"):
        atomic.commit(staged)
    assert file.read_bytes() == THEIRS
    assert [path.name for path in file.parent.iterdir()] == ["a.yaml"]


def test_a_change_in_the_last_moment_is_noticed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exchange_late(source: str, target: str) -> bool:
        if Path(source).read_bytes() == NEW:
            file.write_bytes(THEIRS)
        return exchange(source, target)

    first = file.with_name("first")
    first.write_bytes(b"")
    if not exchange(str(first), str(file)):
        pytest.skip("not applicable: the system cannot exchange names")
    exchange(str(first), str(file))
    first.unlink()
    staged = atomic.stage(str(file), NEW, OLD)
    monkeypatch.setattr(atomic, "exchange", exchange_late)
    with pytest.raises(OSError, match="another program changed it"):
        atomic.commit(staged)
    assert file.read_bytes() == THEIRS
    assert [path.name for path in file.parent.iterdir()] == ["a.yaml"]


def test_what_a_killed_process_left_is_removed(file: Path) -> None:
    gone, living = file.with_name(".cfglint-999999999-0"), file.with_name(f".cfglint-{os.getpid()}-7")
    fresh, other = file.with_name(".cfglint-999999998-0"), file.with_name(".cfglint-notes")
    for path in (gone, living, fresh, other):
        path.write_bytes(b"")
    for path in (gone, living, other):
        os.utime(path, (time.time() - 3600, time.time() - 3600))
    atomic.commit(atomic.stage(str(file), NEW, OLD))
    assert sorted(path.name for path in file.parent.iterdir()) == sorted(
        path.name for path in (file, living, fresh, other)
    )


def test_a_hard_link_is_told_by_the_command(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(DEEPSPEED)
    os.link(tmp_path / "ds.json", tmp_path / "other.txt")
    outcome = run_cfglint("--select", "BAT001", "--fix", "ds.json", cwd=tmp_path)
    assert outcome.code == 2
    assert "not written: it has hard links" in outcome.out
    assert (tmp_path / "ds.json").read_text() == DEEPSPEED


# --- reports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", ["fsync", "chmod", "replace"])
def test_a_report_that_fails_leaves_the_old_one(file: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    def fail_with_full_disk(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, failing, fail_with_full_disk)
    with pytest.raises(OSError, match=r"No space left on device: '.*a\.yaml'"):
        atomic.write_output(str(file), NEW)
    assert [(path.name, path.read_bytes()) for path in file.parent.iterdir()] == [("a.yaml", OLD)]


def test_a_report_is_written_where_it_is_wanted(file: Path) -> None:
    file.chmod(0o640)
    (file.parent / ".git").mkdir()
    (file.parent / "link").symlink_to(file)
    atomic.write_output(str(file.parent / "link"), NEW)
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (NEW, 0o640)
    assert (file.parent / "link").is_symlink()
    atomic.write_output(os.devnull, NEW)
    atomic.write_output(str(file.parent / "new"), NEW)
    assert (file.parent / "new").read_bytes() == NEW


def test_a_report_follows_no_link_out_of_the_repository(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    (home / ".git").mkdir(parents=True)
    outside.mkdir()
    (outside / "profile").write_bytes(OLD)
    (home / "report.sarif").symlink_to(outside / "profile")
    (home / "new.sarif").symlink_to(outside / "new")
    (home / "reports").symlink_to(outside)
    for name in ("report.sarif", "new.sarif", "reports/report.sarif"):
        outcome = run_cfglint("--output-file", name, cwd=home)
        assert outcome.code == 2
        assert f"{name}: a link that points outside the repository" in outcome.err
    assert [(path.name, path.read_bytes()) for path in outside.iterdir()] == [("profile", OLD)]

from __future__ import annotations

import contextlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfglint_train.hardware import gpus
from cfglint_train.hardware.gpus import find_gpu, list_names, normalize_name, parse_capacity, parse_marketed_size
from cfglint_train.hardware.sizes import SizeError
from tests.support.cases import for_each
from tests.support.corpus import SHARED

with open(gpus.DATA, encoding="utf-8") as stream:
    ROWS = json.load(stream)
MEASUREMENTS = SHARED / "data" / "published_measurements.jsonl"


@for_each(
    ("written", "name"),
    [
        ("A100-80GB", "A100-80GB"),
        ("a100", "A100-80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("A100-SXM4-40GB", "A100-40GB"),
        ("a100_40gb", "A100-40GB"),
        ("H100-SXM", "H100-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-80GB"),
        ("h100 96GB", "H100-96GB"),
        ("H200", "H200"),
        ("B200", "B200"),
        ("L40S", "L40S"),
        ("RTX 4090", "RTX 4090"),
        ("RTX4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("4090", "RTX 4090"),
        ("V100-32GB", "V100-32GB"),
        ("v100-16g", "V100-16GB"),
        ("Tesla V100-SXM2-16GB", "V100-16GB"),
        ("Tesla T4", "T4"),
        ("A10G", "A10"),
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA A40", "A40"),
        ("NVIDIA L4", "L4"),
        ("L20", "L20"),
        ("NVIDIA H800", "H100-80GB"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000"),
        ("NVIDIA GeForce RTX 3060", "RTX 3060"),
        ("rtx4080", "RTX 4080"),
        ("AMD Instinct MI325X", "MI325X"),
        ("MI355X", "MI355X"),
        ("910B3", "Ascend 910B"),
        ("Ascend 910B", "Ascend 910B"),
        ("V100", None),  # sold with 16 GB too
        ("TPU v5", None),
        ("", None),
    ],
)
def test_names_as_people_write_them(written, name):
    gpu = find_gpu(written)
    assert (gpu.name if gpu else None) == name


def test_no_two_cards_share_a_key():
    owners: dict[str, str] = {}
    for name, row in ROWS.items():
        for alias in (name, *row["aliases"]):
            assert owners.setdefault(normalize_name(alias), name) == name, alias


@for_each("name", list_names())
def test_a_driver_reports_less_than_the_name_says(name):
    gpu = find_gpu(name)
    assert gpu is not None
    assert gpu.bytes <= gpu.max_bytes
    # memory is sold in units of 2**30 for most cards; none reports more than that, none loses more than a tenth
    assert 0.89 * gpu.marketed_gb * 2**30 < gpu.bytes <= gpu.marketed_gb * 2**30
    assert ROWS[name]["source"]
    assert gpu.capability is None or (7, 0) <= gpu.capability <= (13, 0)


@pytest.mark.skipif(not MEASUREMENTS.is_file(), reason=f"no shared data: no published measurements at {MEASUREMENTS}")
def test_published_capacities_lie_in_the_recorded_ranges():
    """Match published runs that name their card as `A100 80GB (79.15 GiB)`, to the precision of the text."""
    checked = set()
    for line in MEASUREMENTS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)["gpu"] or {}
        text = str(row.get("name"))
        stated = re.search(r"([\d.]+) GiB", text)
        name = re.split(r"[(/]| [\d.]+ GiB", text)[0]
        gpu = find_gpu(f"{name} {row.get('gb')}GB") or find_gpu(name)
        if gpu is None or stated is None:
            continue
        checked.add(gpu.name)
        margin = 0.01 if "." in stated[1] else 1.0
        assert gpu.bytes / 2**30 - margin <= float(stated[1]) <= gpu.max_bytes / 2**30 + margin, text
    assert checked >= {"A100-80GB", "H100-96GB", "RTX 3090", "B200"}


@pytest.mark.parametrize(
    ("text", "name", "gib"),
    [
        ("a100", "A100-80GB", 79.1),
        ("80GB", None, 79.1),  # the least of the 80 GB cards
        ("24GB", None, 22.03),
        ("24G", None, 22.03),
        ("80GiB", None, 80.0),
        ("79.32GiB", None, 79.32),
        ("20GB", None, 20e9 / 2**30),  # no card is sold with this size
    ],
)
def test_capacity(text, name, gib):
    card, size = parse_capacity(text)
    assert card == name
    assert size == pytest.approx(gib * 2**30, rel=1e-9)


def test_a_known_card_reads_its_own_marketed_size():
    gpu = find_gpu("RTX 4090")
    assert gpu is not None
    assert parse_marketed_size("24GB", gpu) == gpu.bytes > parse_marketed_size("24GB")
    assert parse_marketed_size("20GB", gpu) == 20 * 10**9


@pytest.mark.parametrize(
    ("text", "remedy"),
    [("V100", "V100-32GB or V100-16GB"), ("H10", "did you mean H100-80GB"), ("banana", "A100-80GB"), ("80", "no unit")],
)
def test_a_refusal_says_what_to_write(text, remedy):
    with pytest.raises(SizeError, match=remedy):
        parse_capacity(text)


@given(st.text())
def test_no_text_breaks_the_lookup(text):
    find_gpu(text)
    with contextlib.suppress(SizeError):
        assert parse_capacity(text)[1] > 0

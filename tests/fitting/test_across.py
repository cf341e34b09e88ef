"""`cfglint fit --across`: hardware from a list or a file of prices, and the table with its Pareto rows."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from cfglint_train import api
from cfglint_train.fitting.across import HardwareRow, _is_better
from cfglint_train.foundation.errors import UsageError
from cfglint_train.hardware.offers import Offer, read_offers
from tests.support.command import run_cfglint
from tests.support.corpus import REPOSITORY
from tests.support.linting import change_directory

SCHEMA = Draft202012Validator(json.loads((REPOSITORY / "tests" / "hardware.schema.json").read_text()))

AXOLOTL = """\
base_model: meta-llama/Llama-3.1-8B
datasets: [{path: data/train.jsonl, type: alpaca}]
micro_batch_size: 4
gradient_accumulation_steps: 1
sequence_len: 8192
pad_to_sequence_len: true
bf16: true
gradient_checkpointing: true
optimizer: adamw_torch_fused
fsdp_version: 2
fsdp_config: {transformer_layer_cls_to_wrap: LlamaDecoderLayer, reshard_after_forward: true}
"""


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.yaml").write_text(AXOLOTL)
    return tmp_path


def compare(here: Path, across: str, *flags: str) -> tuple[int, list[dict]]:
    outcome = run_cfglint("fit", "--across", across, "--output-format", "json", *flags, "train.yaml", cwd=here)
    (compared,) = json.loads(outcome.out)["runs"]
    assert compared["path"] == "train.yaml"
    return outcome.code, compared["hardware"]


@pytest.mark.parametrize(
    ("text", "offers"),
    [
        ("H100x8", [("H100-80GB", 8, None)]),
        ("H100, A100-80GBx4x2", [("H100-80GB", None, None), ("A100-80GB", 4, 2)]),
        ("rtx4090x4,rtx4090x4x2", [("RTX 4090", 4, None), ("RTX 4090", 4, 2)]),
        ("80GBx8", [("80GB", 8, None)]),
    ],
)
def test_lists_of_hardware(text, offers):
    assert read_offers(text) == tuple(Offer(*offer) for offer in offers)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("H10Ox8", "--across H10Ox8: unknown GPU 'H10O'; did you mean H100-80GB?"),
        ("H100x0", "--across H100x0: a count must be a whole number from 1 to 100,000, not '0'"),
        ("H100xx8", "--across H100xx8: unknown GPU"),
        ("H100,", "--across: an entry is empty"),
        ("none.csv", "--across none.csv: No such file"),
        (",".join(["H100"] * 101), "101 kinds of hardware; at most 100"),
    ],
)
def test_wrong_lists_are_2(here, text, problem):
    outcome = run_cfglint("fit", "--across", text, "train.yaml", cwd=here)
    assert (outcome.code, outcome.out) == (2, "")
    assert problem in outcome.err


PRICES = {
    "prices.csv": "gpu, count, nodes, price_per_hour\nH100, 8, 2, 40\nL40S, 4, , 6.5\n",
    "prices.json": '[{"gpu": "H100", "count": 8, "nodes": 2, "price_per_hour": 40},'
    '{"gpu": "L40S", "count": 4, "price_per_hour": 6.5}]',
    "prices.toml": '[[hardware]]\ngpu = "H100"\ncount = 8\nnodes = 2\nprice_per_hour = 40\n'
    '[[hardware]]\ngpu = "L40S"\ncount = 4\nprice_per_hour = 6.5\n',
}


@pytest.mark.parametrize("name", PRICES)
def test_files_of_prices(tmp_path, name):
    (tmp_path / name).write_text(PRICES[name])
    assert read_offers(str(tmp_path / name)) == (Offer("H100-80GB", 8, 2, 40.0), Offer("L40S", 4, None, 6.5))


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.csv", "gpu,cuont\nH100,8\n", "row 1: unknown column cuont; did you mean count?"),
        ("a.csv", "gpu,count\nH100,8\nH1000,8\n", "row 2: unknown GPU 'H1000'"),
        ("a.csv", "gpu,price_per_hour\nH100,free\n", "row 1: price_per_hour must be a positive number, not 'free'"),
        ("a.csv", "gpu,count\nH100,8,9\n", "row 1: has more values than columns"),
        ("a.csv", "gpu,gpu\nH100,A100\n", "has two columns gpu"),
        ("a.csv", "", "names no hardware"),
        ("a.json", '{"gpu": "H100"}', "needs a list of objects"),
        ("a.json", "[3]", "row 1: must be an object with gpu, count and price_per_hour"),
        ("a.json", "[", "Expecting value"),
        ("a.toml", "gpu = 'H100'", "needs [[hardware]] tables"),
        ("a.toml", "[[hardware]]\ncount = 8", "row 1: names no gpu"),
        ("a.toml", "[[hardware]]\ngpu = 'H100'\nprice_per_hour = true", "price_per_hour must be a positive number"),
    ],
)
def test_wrong_files_name_the_row(tmp_path, name, text, problem):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as error:
        read_offers(str(tmp_path / name))
    assert problem in str(error.value)


def test_each_row_is_the_fit_on_that_hardware(here):
    code, rows = compare(here, "H100x8,L40Sx8x2,RTX4090x2,H200x8")
    assert code == 0
    for row, flags in zip(rows, ("H100 1 8", "L40S 2 8", "RTX4090 1 2", "H200 1 8"), strict=True):
        gpu, nodes, count = flags.split()
        words = ("--gpu", gpu, "--nodes", nodes, "--gpus-per-node", count, "--output-format", "json", "train.yaml")
        (alone,) = json.loads(run_cfglint("fit", *words, cwd=here).out)["runs"]
        assert (row["expected"], row["capacity"], row["verdict"]) == (
            alone["expected"],
            alone["capacity"],
            alone["verdict"],
        )
        if row["change"]:
            assert (row["change"], row["outcome"]) == (alone["solution"]["settings"], alone["solution"]["verdict"])
            assert row["headroom"] == row["capacity"] - alone["solution"]["expected"]
    assert [bool(row["change"]) for row in rows] == [True, True, False, False]
    assert [row["headroom"] is None for row in rows] == [False, False, True, False]
    assert [row["global_batch"] for row in rows] == [32, 64, 8, 32]
    assert "use a GPU with at least" in rows[2]["remedy"]
    assert compare(here, "H100x8,L40Sx8x2")[0] == 1


def test_the_report_follows_its_schema_and_is_the_result_of_the_api(here):
    prices = "gpu,count,price_per_hour,tokens_per_second\nH200,8,36,20000\nH100,8,20,\nRTX4090,1,,\n"
    (here / "prices.csv").write_text(prices)
    (here / "train.yaml").write_text(AXOLOTL + "max_steps: 100\n")
    report = json.loads(
        run_cfglint("fit", "--across", "prices.csv", "--output-format", "json", "train.yaml", cwd=here).out
    )
    SCHEMA.validate(report)
    with change_directory(here):
        result = api.fit_across("prices.csv", "train.yaml")
        assert api.fit_across(read_offers("prices.csv"), ["train.yaml"]).runs == result.runs
    assert json.loads(json.dumps([asdict(run) for run in result.runs])) == report["runs"]


def test_a_row_has_the_time_and_cost_that_the_run_has_there(here):
    (here / "train.yaml").write_text(AXOLOTL + "max_steps: 100\n")
    (here / "prices.csv").write_text("gpu,count,price_per_hour,tokens_per_second\nH200,8,36,20000\n")
    (row,) = compare(here, "prices.csv")[1]
    flags = ("--gpu", "H200", "--nodes", "1", "--gpus-per-node", "8", "--tokens-per-second", "20000")
    words = (*flags, "--price-per-gpu-hour", "4.5", "--output-format", "json", "train.yaml")
    (alone,) = json.loads(run_cfglint("fit", *words, cwd=here).out)["runs"]
    assert row["change"] == []
    assert (round(row["hours"], 3), round(row["cost"], 2)) == (alone["cost"]["hours"], alone["cost"]["price"])
    assert row["cost"] / alone["cost"]["tokens"] * 1e6 == pytest.approx(row["cost_per_million_tokens"])


def test_a_cost_needs_a_price_and_a_measured_throughput(here):
    head = "gpu,count,price_per_hour,tokens_per_second\n"
    (here / "prices.csv").write_text(f"{head}H200,8,36,20000\nH200,4,18,\nH100,8,20,10000\n")
    _, rows = compare(here, "prices.csv", "--keep", "activations.fused_loss")
    assert rows[0]["cost_per_million_tokens"] == pytest.approx(36 / 3600 / 20000 * 1e6)
    assert rows[1]["cost_per_million_tokens"] is rows[1]["relative_cost"] is None
    # The change on the H100 makes a step slower, and so a token dearer.
    assert rows[2]["slowdown"] > 1
    assert rows[2]["cost_per_million_tokens"] == pytest.approx(20 * rows[2]["slowdown"] / 3600 / 10000 * 1e6)
    assert rows[2]["relative_cost"] == pytest.approx(rows[2]["slowdown"] * 20 / 18)
    assert rows[0]["relative_cost"] == 1


def build_row(headroom: int, slowdown: float, price: float | None, cost: float | None = None, gpus: int = 8):
    facts: dict[str, object] = dict.fromkeys(field.name for field in fields(HardwareRow))
    facts |= {"gpu": "H100-80GB", "gpus": gpus, "headroom": headroom, "slowdown": slowdown}
    return HardwareRow(**{**facts, "price_per_hour": price, "cost_per_million_tokens": cost})


def test_pareto_rows_are_those_that_no_other_beats():
    best, dear, slow = build_row(5, 1.0, 10.0), build_row(5, 1.0, 20.0), build_row(9, 1.5, 10.0)
    rows = [best, dear, slow]
    assert [[_is_better(other, row) for other in rows] for row in rows] == [
        [False, False, False],
        [True, False, False],
        [False, False, False],
    ]
    unpriced = build_row(5, 1.0, None)
    assert not any(_is_better(*pair) for pair in ((unpriced, dear), (dear, unpriced)))
    fast = build_row(5, 1.0, 20.0, cost=1.0)  # dearer per hour, but its tokens are not known to be dearer
    assert not _is_better(best, fast)
    assert not _is_better(build_row(5, 1.0, 10.0, cost=2.0), fast)
    assert _is_better(build_row(5, 1.0, 10.0, cost=1.0), fast)
    assert _is_better(unpriced, build_row(5, 1.0, None, gpus=16))
    assert not _is_better(unpriced, replace(unpriced, gpu="A100-80GB", headroom=4))


def test_the_page_holds_the_table_and_no_script(here):
    outcome = run_cfglint("fit", "--across", "H100x8,RTX4090x2", "--output-format", "html", "train.yaml", cwd=here)
    assert re.search('<th scope="row">H100-80GBx8 <span class="chip[^>]*>best trade-off</span></th>', outcome.out)
    assert '<h1 class="tight">Fits with a change on H100-80GBx8; does not fit on RTX 4090x2</h1>' in outcome.out
    # The frame, the policy and the styles are those of every page.
    other = run_cfglint("estimate", "--format", "html", "train.yaml", cwd=here).out
    assert outcome.out.split("<title>")[0] == other.split("<title>")[0]
    assert re.findall("<style>.*?</style>", outcome.out, re.DOTALL) == re.findall(
        "<style>.*?</style>", other, re.DOTALL
    )
    assert "<script" not in outcome.out
    assert "no change to these files makes it fit" in outcome.out
    text = run_cfglint("fit", "--across", "H100x8,RTX4090x2", "train.yaml", cwd=here).lines
    assert any(line.startswith("* H100-80GBx8") for line in text)


@pytest.mark.parametrize(
    "flags",
    [
        *(("--gpu", "H100"), ("--write",), ("--diff",), ("--max", "micro_batch"), ("--nodes", "2")),
        *(("--tokens-per-second", "9"), ("--price-per-gpu-hour", "2")),
    ],
)
def test_flags_that_the_list_replaces_are_2(here, flags):
    outcome = run_cfglint("fit", "--across", "H100x8", *flags, "train.yaml", cwd=here)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"--across cannot be used with {flags[0]}" in outcome.err
    assert run_cfglint("fit", "--output-format", "html", "train.yaml", cwd=here).code == 2

"""Published measurements: bounds for the errors of the estimates, and no verdict that contradicts an outcome."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_train.calibration import foreign, measurements, peers, report
from cfglint_train.calibration.compare import PEAK, Comparison, compare
from cfglint_train.calibration.fit import fit_residuals, group_by_kind, is_booking_evidence, is_fit_evidence
from cfglint_train.calibration.report import count_outcomes, summarise_rows
from cfglint_train.calibration.rows import DATA_FOLDER, Row, Unreadable, parse_rows, read_rows
from cfglint_train.calibration.subject import COUNTERS, UnmappedError, build_subject, read_architecture
from cfglint_train.calibration.traced import build_plan
from cfglint_train.front.cli import main
from cfglint_train.memory import transients
from cfglint_train.memory.batch import Batch
from cfglint_train.memory.calibration import load_table
from cfglint_train.memory.comparable import find_residual
from cfglint_train.memory.formats import Formats
from cfglint_train.memory.layers.layer import compute_layer_cost
from cfglint_train.memory.layers.matrices import FUSED_PARTS, Mode
from cfglint_train.memory.losses import OTHER_LOSSES
from cfglint_train.memory.ranks import Ranks
from cfglint_train.memory.setup import Setup, Sharding
from cfglint_train.memory.setup_builder import read_setup as read_setup
from cfglint_train.memory.trained import Trained
from cfglint_train.memory.updates import Optimizer
from cfglint_train.models.architecture import Architecture
from cfglint_train.models.lookup import find_entry
from cfglint_train.plan.enumerations import list_choices
from cfglint_train.whatif import plan_file
from tests.memory.jobs import make_zero

ROWS = report.compare_published()
STATED = {row.id: row for row in read_rows() if isinstance(row, Row)}
SCHEMA = json.loads(Path(DATA_FOLDER, "row.schema.json").read_text(encoding="utf-8"))


def select_rows(counter: str, grade: str, single: bool) -> list[Comparison]:
    return [
        row
        for row in ROWS
        if (row.counter, row.grade) == (counter, grade)
        and report.is_single_gpu(row) == single
        and row.scope == PEAK
        and not row.bound
    ]


@pytest.mark.parametrize(
    ("counter", "single", "rows", "median", "p90"),
    [("allocated", True, 30, 0.01, 0.035), ("reserved", True, 25, 0.06, 0.20), ("reserved", False, 40, 0.06, 0.26)],
)
def test_exact_rows(counter: str, single: bool, rows: int, median: float, p90: float) -> None:
    """Keep the project's limits: median over groups of 3 % allocated and 6 % reserved, 12 % for nine rows of ten.

    The reserved counter misses the last one (docs/memory/accuracy.md lists the rows).
    """
    totals = summarise_rows(select_rows(counter, "exact", single))
    assert totals is not None
    assert totals.rows >= rows
    assert totals.median <= median
    assert totals.p90 <= p90


def test_intervals_are_the_residuals_of_comparable_rows() -> None:
    """Match `coefficients.json` with the residuals of the packaged rows and the rows that it names."""
    coefficients = {
        name: residual_
        for name, residual_ in load_table().residuals.items()
        if name.startswith(("published-", "booked-"))
    }
    residuals = fit_residuals(ROWS)
    assert set(coefficients) == set(residuals)
    for name, residual_ in coefficients.items():
        assert residual_.evidence == residuals[name].evidence
        assert residual_.frameworks == residuals[name].frameworks
        assert (residual_.low, residual_.high) == pytest.approx((residuals[name].low, residuals[name].high), abs=0.004)


def test_bounds_hold_what_they_promise() -> None:
    """Keep 95 % of the published figures below the upper bound that is fitted without their framework.

    The intervals are at most 35 % of the estimate wide. For each kind of training, 95 % of the figures that the margins
    are fitted to are within the memory to book.
    """
    rows = [row for row in ROWS if row.error is not None and not row.bound and row.booking is not None]
    assert len(rows) >= 300
    assert sum(not row.is_above for row in rows) >= 0.95 * len(rows)
    assert report.compute_median([row.width or 0.0 for row in rows]) <= 0.35
    for training in ("full", "adapters", "quantized"):
        alike = [row for row in rows if row.kind.endswith(training) and is_booking_evidence(row)]
        assert sum((row.measured or 0.0) <= (row.booking or 0.0) for row in alike) >= 0.95 * len(alike), training
    assert all(any(name.startswith("published-") for name in row.rests_on) for row in rows)


def test_a_row_names_what_its_interval_rests_on() -> None:
    """Name each coefficient of a step on a GPU, and each residual that depends on tokens, in at least one row."""
    used = {name for row in (*ROWS, *report.compare_measured()) for name in row.rests_on}
    required = {
        name for name, coefficient in load_table().coefficients.items() if name in VARYING or coefficient.verified
    }
    assert required | {"traced", "untraced", "compiled"} <= used
    by_id = {row.id: row for row in report.compare_measured()}
    assert "compiled" in by_id["compiled-1b"].rests_on
    assert "cached" in by_id["sft-1b-varying-ac"].rests_on
    assert not VARYING & set(by_id["sft-1b-amp-ac"].rests_on)


VARYING = {"records", "cached"}


def test_a_group_is_left_out_of_its_own_interval() -> None:
    table_of = {row.id: row for row in compare(STATED.values())}
    changed = [
        row
        for row in ROWS
        if is_fit_evidence(row) and (row.low, row.high) != (table_of[row.id].low, table_of[row.id].high)
    ]
    assert changed
    assert all(row.predicted == table_of[row.id].predicted for row in ROWS if row.id in table_of)


def test_a_kind_has_three_groups_or_the_wider_one() -> None:
    for kind, members in group_by_kind(ROWS).items():
        assert kind == "published-any" or len({row.group for row in members}) >= 3
    shape = find_entry("meta-llama/Llama-3.1-8B")
    assert shape is not None
    setup, _ = read_setup(make_zero(3, 8), shape)
    assert setup is not None
    assert find_residual(setup, load_table().residuals).id == "published-several"


def test_device_map() -> None:
    """Place 18 of Qwen-14B's layers on the first of two GPUs, and the head on the other, as accelerate does.

    ms-swift published both: 60.4 and 72.3 GiB, 132 GiB or 10 B per parameter together.
    """
    shape = find_entry("Qwen/Qwen-14B-Chat")
    assert shape is not None
    rows = [row for row in ROWS if row.id.startswith("swift-qwen-14b-full-")]
    assert len(rows) == 5
    assert all(abs(row.error or 1) < 0.06 for row in rows)
    stage = build_subject(STATED[rows[0].id]).architecture
    assert stage.layers == 22
    assert {item.part for item in stage.linears} == {"decoder", "head"}
    assert stage.parameters / shape.parameters == pytest.approx(72.31 / (60.42 + 72.31), abs=0.01)


def test_an_unpacked_weight_stays_for_the_backward_pass() -> None:
    """Keep 2 B per weight of each matrix: auto_gptq multiplies by a 16-bit tensor that it creates."""
    shape = find_entry("Qwen/Qwen-14B-Chat")
    assert shape is not None
    mode = Mode(trained=False, rank=64, targets=frozenset(("c_attn",)), quantized=True)
    plain, unpacked = (compute_layer_cost(shape, mode._replace(unpacks=value)) for value in (False, True))
    assert plain is not None
    assert unpacked is not None
    decoder = sum(item.elements for item in shape.linears if item.part == "decoder") / shape.layers
    assert unpacked.made - plain.made == 2 * decoder
    assert unpacked.saved == plain.saved


def test_what_fsdp_leaves_behind() -> None:
    """Let the cache that is left from building the units decide.

    fsdp_qlora published the same reserved figure at 512 as at 2,048 tokens. Its log says 3.72 GiB after wrapping,
    although the weights are less than 2.
    """
    rows = {row.id: row for row in ROWS}
    assert abs(rows["fsdpq-7b-lora-512"].error or 1) < 0.05
    assert abs(rows["fsdpq-7b-qlora-512"].error or 1) < 0.14
    assert abs(rows["axo-llama3-70b-qlora-fsdp"].error or 1) < 0.1
    assert rows["fsdpq-7b-lora-512"].predicted == pytest.approx(rows["fsdpq-7b-lora-2048"].predicted, rel=0.04)


def test_layers_of_two_sizes_leave_the_root_as_it_is() -> None:
    """Gather embedding, head and norm beside the layers: DeepSeek-V2-Lite's first layer is dense."""
    mapped = build_subject(STATED["titan-1513-dsv3-cp2-fullac"])
    setup, _ = read_setup(build_plan(mapped.fields), mapped.architecture)
    assert setup is not None
    shape = mapped.architecture
    assert transients.count_root_elements(setup) == 2 * shape.vocab * shape.hidden + shape.hidden


def test_groups_without_a_system() -> None:
    """Show no systematic error in a whole group of sweeps whose source states all that matters."""
    for group, limit in (("litgpt|rt-fsdp", 0.02), ("litgpt|rt-adapter", 0.01), ("qwen1|qwen-7b-loraemb", 0.07)):
        errors = [abs(row.error) for row in ROWS if row.group == group and row.error is not None]
        assert len(errors) >= 6
        assert report.compute_median(errors) <= limit


def test_buffers_for_the_worst_case() -> None:
    """Reserve HybridEP buffers for every token of four ranks, although a quarter is filled."""
    (row,) = [row for row in ROWS if row.id == "titan-3659-dsv3-hybridep"]
    assert row.is_inside
    assert abs(row.error or 1) < 0.13  # the buffer is one block, from which nothing is cut


def test_components() -> None:
    """Match the figures that benchmarks of loss heads printed."""
    rows = [row for row in ROWS if row.scope == "component" and row.error is not None]
    assert len(rows) >= 16
    assert all(row.smaller is None for row in rows)
    *exact, worst = sorted(abs(row.error or 0) for row in rows)
    assert exact[-1] < 0.005
    assert worst < 0.07  # xtuner's chunks, as a CPU traces them: docs/memory/accuracy.md


def test_a_unit_that_is_open_is_read_in_both_ways() -> None:
    """Compute an error for each reading of an ambiguous unit, and count a row as inside only if both readings are.

    If a figure of the same source would exceed its card in GiB, no figure of that source is in GiB.
    """
    content = {**STATED["qwen1-qwen-7b-lora-256"].content, "source": "a table", "flags": ["unit_ambiguous"]}
    row = Row("row", {**content, "measured_gib": 20.0, "measured_gib_lo": 20.0e9 / 2**30})
    comparison = next(iter(compare([row])))
    assert (comparison.measured, comparison.smaller) == (20.0, pytest.approx(18.63, abs=0.01))
    assert comparison.error is not None
    assert comparison.other_error == pytest.approx((1 + comparison.error) * 2**30 / 1e9 - 1)
    above = Row("above", {**content, "flags": ["over_capacity_if_binary"]})
    same, _ = compare([row, above])
    assert same.measured == pytest.approx(20.0 * 1000 / 1024)
    assert same.smaller == comparison.smaller
    between = comparison._replace(low=19.0, high=21.0)
    assert (between.is_inside, between.is_inside_by_one_unit) == (False, True)
    assert (
        comparison._replace(low=18.0, high=21.0).is_inside,
        comparison._replace(low=1.0, high=2.0).is_inside_by_one_unit,
    ) == (True, False)
    assert "or" in report._format_either(0.05, 0.12)


def test_a_length_that_is_a_limit_is_a_bound() -> None:
    """Exclude figures of batches that may have been shorter, or of another size, from errors and intervals."""
    for row in ROWS:
        flags = set(STATED[row.id].get_words("flags"))
        assert row.bound or not flags & {"seq_upper_bound_only", "mbs_unknown"}
        assert not (row.bound and is_fit_evidence(row))


def test_nothing_is_fitted_to_a_row_that_is_held_out() -> None:
    rows = [row for row in ROWS if row.framework.startswith("verl") and row.error is not None and not row.bound]
    assert len(rows) >= 5
    assert all(row.held_out and not is_fit_evidence(row) and not is_booking_evidence(row) for row in rows)
    good = {row.id: row.error or 0.0 for row in rows if row.grade == "good"}
    assert all(abs(error) < 0.05 for error in good.values()), good
    assert abs(good["verl-terr-8b-grpo-mini2"]) < 0.001


def test_what_making_a_model_takes_is_no_peak_of_training() -> None:
    rows = {row.id: row for row in ROWS if row.scope == "init" and row.error is not None}
    assert len(rows) >= 3
    assert all(row.phase.startswith("load") and not is_fit_evidence(row) for row in rows.values())
    assert abs(rows["tune-init-l32-3b"].error or 1) < 0.01


def test_no_false_fit() -> None:
    totals = count_outcomes(ROWS, "oom")
    assert totals.rows >= 5
    assert totals.fits == 0


def test_false_alarms_are_rare() -> None:
    totals = count_outcomes(ROWS, "fits")
    assert totals.rows >= 190
    assert totals.does_not_fit <= 0.05 * totals.rows


def test_more_is_not_allocated_than_was_reserved() -> None:
    """Keep the low bound of an exact reserved row below the measurement."""
    rows = [row for row in ROWS if row.counter == "reserved" and row.grade == "exact" and row.low is not None]
    above = [row.id for row in rows if row.low > row.measured]
    assert len(rows) >= 70
    assert above == []


def test_allocated_beside_reserved() -> None:
    """Match both counters of two rows of fsdp_qlora on two RTX 3090: 8.28 and 9.16 GiB allocated."""
    sizes = [(row, row.get_number("allocated_gib")) for row in STATED.values()]
    rows = [Row(row.id, {**row.content, "counter": "allocated", "measured_gib": size}) for row, size in sizes if size]
    comparisons = list(compare(rows))
    assert len(comparisons) == 2
    assert all(abs(row.error or 1) <= 0.01 for row in comparisons)


def test_errors_are_medians_of_groups_first() -> None:
    def make_row(name: str, group: str, measured: float) -> Comparison:
        return ROWS[0]._replace(id=name, group=group, measured=measured, predicted=10.0, skipped="")

    rows = [
        make_row("a", "one", 10.0),
        make_row("b", "one", 10.0),
        make_row("c", "one", 20.0),
        make_row("d", "two", 5.0),
    ]
    totals = summarise_rows(rows)
    assert totals is not None
    assert (totals.rows, totals.groups, totals.below) == (4, 2, 1)
    assert totals.median == pytest.approx((0.0 + 1.0) / 2)
    assert totals.worst == pytest.approx(1.0)
    assert totals.p90 == pytest.approx(1.0)


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "report", "--no-peers", "--verbose"]) == 0
    out = capsys.readouterr().out
    assert "allocated, exact, one GPU" in out
    assert "under-estimates" in out
    not_evaluated = out[out.index("not evaluated") :].splitlines()
    assert {row.id for row in ROWS if row.skipped} <= {line.strip() for line in not_evaluated}


def test_command_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    rows = list(STATED.values())[:40]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row.content) + "\n" for row in rows) + "no row\n", encoding="utf-8")
    assert main(["calibrate", "report", "--rows", str(path), "--format", "json", "--no-peers"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert len(output["rows"]) == 41
    assert {"id", "group", "grade", "measured", "predicted", "low", "high", "verdict", "skipped"} <= set(
        output["rows"][0]
    )
    assert output["rows"][-1]["skipped"].startswith("not valid JSON")
    assert output["totals"]["evaluated"] + sum(output["totals"]["skipped"].values()) == 41
    assert main(["calibrate", "report", "--rows", str(tmp_path / "none.jsonl")]) == 2


MAPPED = [row.id for row in STATED.values() if "plan" in row.content]

_VALUES = st.none() | st.booleans() | st.integers(-5, 10**12) | st.floats() | st.text(max_size=12)
_ANY = st.recursive(_VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(ROWS) - 1), st.dictionaries(st.sampled_from(sorted(SCHEMA["properties"])), _ANY, max_size=4))
def test_no_row_stops_a_report(index: int, changes: dict[str, Any]) -> None:
    """Evaluate a row with any value in any field, or skip it with a reason."""
    row = list(STATED.values())[index]
    comparison = next(iter(compare([Row(row.id, {**row.content, **changes})])))
    assert bool(comparison.skipped) != (comparison.predicted is not None)
    json.dumps(report.build_report([comparison], None), allow_nan=False)


@given(st.text(max_size=60))
def test_no_line_stops_a_report(line: str) -> None:
    for item in parse_rows(iter([line])):
        assert isinstance(item, Unreadable) or item.id


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(MAPPED), st.sampled_from(["plan", "shape", "mode", "setup"]), st.data())
def test_no_value_stops_a_report(name: str, field: str, data: st.DataObject) -> None:
    """Survive any value of any field that the memory model reads."""
    content = STATED[name].content
    stated = content.get(field) or {"layers": 1}
    key = data.draw(st.sampled_from(sorted(stated)))
    row = Row(name, {**content, field: {**stated, key: data.draw(_ANY)}})
    comparison = next(iter(compare([row])))
    json.dumps(report.build_report([comparison], None), allow_nan=False)


def test_rows_have_the_schema() -> None:
    """State a plan, a component, or the reason for neither in each row."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    assert [(row.id, error.message) for row in STATED.values() for error in validator.iter_errors(row.content)] == []
    assert len(STATED) == len(read_rows()) == 514
    keys = list(SCHEMA["properties"])
    source_keys, data = set(keys[: keys.index("plan")]), set(keys[keys.index("plan") :])
    for row in STATED.values():  # the source's words come first
        order = [key in data for key in row.content]
        assert set(row.content) <= source_keys | data
        assert order == sorted(order), row.id


def test_a_row_of_other_code_has_its_layers() -> None:
    """Use litgpt's own layers for Falcon-40B, which is a variant in transformers."""
    assert read_architecture(STATED["litgpt-rt-oom-falcon-40b-nf4-b1"]).formula == "litgpt:phi"


def test_the_schema_names_fields_of_the_memory_model() -> None:
    properties = SCHEMA["properties"]
    assert set(properties["shape"]["properties"]) <= {"like", "matrices", *Architecture._fields}
    assert set(properties["mode"]["properties"]) <= set(Mode._fields)
    records: tuple[Any, ...] = (Setup, Batch, Formats, Optimizer, Ranks, Sharding, Trained)
    assert set(properties["setup"]["properties"]) <= {name for record in records for name in record._fields}
    assert tuple(properties["counter"]["enum"]) == COUNTERS


def test_plans_have_values_of_their_fields() -> None:
    """Read them as `cfglint estimate --plan` does, except for losses of other code."""
    foreign.install()
    losses = {*(list_choices("activations.fused_loss") or ()), *OTHER_LOSSES}
    for name in MAPPED:
        plan = dict(STATED[name].get_table("plan"))
        assert plan.pop("activations.fused_loss", "none") in losses, name
        plan_file.parse_plan(plan, name)


def test_mapped_rows_are_mapped() -> None:
    for row in STATED.values():
        if row.id in MAPPED:
            assert build_subject(row).counter
        else:
            with pytest.raises(UnmappedError):
                build_subject(row)


def test_no_code_depends_on_which_row_it_is() -> None:
    """Put facts about one row into a field of that row."""
    for path in sorted(Path(report.__file__).parent.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert re.search(r"\.id\.\w+\(|\bin \w+\.id\b|\.id (==|!=|in)|\(.*r\".*\.id\)", text) is None, path.name
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "-" in node.value:
                assert not [name for name in STATED if name.startswith(node.value)], (path.name, node.value)


def make_measured(**config: Any) -> Row:
    """Build a row as the harness writes it."""
    case = {"model": "Qwen/Qwen2.5-0.5B", "sequence": 1024, "micro": 2, "strategy": "none", **config}
    content = {
        "schema": 1, "id": "case", "world": 2, "rank": 1, "config": case, "outcome": "ok",
        "device": {"name": "GPU", "memory": 80 * 2**30, "driver": "1"},
        "versions": {"torch": "2", "transformers": "5"},
        "peak": {"allocated": 12 * 2**30, "reserved": 13 * 2**30},
    }  # fmt: skip
    return Row("case", content)


def test_measured_rows_are_stated_as_published_ones() -> None:
    row = make_measured(strategy="zero2", lora=8, optimizer="8bit")
    assert list(measurements.find_problems(row.content)) == []
    published, reserved = measurements.convert_to_published(row)
    assert (reserved.id, reserved.get_number("measured_gib")) == ("case@1/2 (reserved)", 13.0)
    assert (published.id, published.get_number("measured_gib")) == ("case@1/2", 12.0)
    plan = build_subject(published).fields
    assert (plan["parallel.zero_stage"], plan["method.lora_rank"], plan["optimizer.state_bits"]) == (2, 8, 32)
    comparison = next(compare([row]))
    assert (comparison.skipped, comparison.counter, comparison.measured, comparison.verdict) == (
        "",
        "allocated",
        12.0,
        "fits",
    )
    assert next(compare([make_measured(model="no/model")])).skipped == "unknown model"
    one_rank = make_measured(strategy="fsdp2")
    alone = Row("case", {**one_rank.content, "world": 1})
    assert [comparison.skipped for comparison in compare([alone])] == ["FSDP on one rank"]


@pytest.mark.parametrize("micro", ["many", 0, None, True])
def test_measured_rows_without_a_batch_are_refused(micro: Any) -> None:
    assert list(measurements.find_problems(make_measured(micro=micro).content)) == [
        "config.micro is not a positive whole number"
    ]


def test_measured_rows_with_words_for_tables_are_refused() -> None:
    row = {**make_measured().content, "config": [1], "device": "x", "versions": 3, "peak": "all"}
    assert {"config.micro is not a positive whole number", "device.name is missing"} <= set(
        measurements.find_problems(row)
    )


MALFORMED = [
    ({"lengths": 5}, "2", "config.lengths is not a list of positive whole numbers"),
    ({"lengths": [0]}, "2", "config.lengths is not a list of positive whole numbers"),
    ({"lengths": [-1, -2]}, "2", "config.lengths is not a list of positive whole numbers"),
    ({"lengths": [512, "x"]}, "2", "config.lengths is not a list of positive whole numbers"),
    ({"trainer": "dpo"}, "", "versions.trl is not a release; the trainer dpo needs one"),
    ({"trainer": "dpo"}, "newest", "versions.trl is not a release; the trainer dpo needs one"),
    ({"trainer": "sft"}, None, "versions.trl is not a release; the trainer sft needs one"),
]


def make_trl_row(release: str | None, **config: Any) -> Row:
    content = make_measured(**config).content
    return Row("case", {**content, "versions": {**content["versions"], "trl": release}})


@pytest.mark.parametrize(("config", "trl", "reason"), MALFORMED)
def test_measured_rows_of_a_malformed_case_are_refused(config: dict[str, Any], trl: str | None, reason: str) -> None:
    assert list(measurements.find_problems(make_trl_row(trl, **config).content)) == [reason]


@pytest.mark.parametrize(("config", "trl"), [row[:2] for row in MALFORMED if row[0] != {"trainer": "sft"}])
def test_a_malformed_case_in_a_filed_row_stops_no_report(config: dict[str, Any], trl: str | None) -> None:
    (comparison,) = compare([make_trl_row(trl, **config)])
    assert comparison.skipped.startswith("not understood: ")


def test_a_release_of_trl_whose_loss_is_unknown_is_not_evaluated() -> None:
    row = make_trl_row("99.0", trainer="dpo")
    assert list(measurements.find_problems(row.content)) == []
    assert [comparison.skipped for comparison in compare([row])] == [
        "the size of the DPO logits in trl 99.0 is unknown"
    ]
    supported = make_trl_row("1.14.1", trainer="dpo")
    assert [comparison.skipped for comparison in compare([supported])] == ["", ""]


def test_filing_rows_says_which_are_new(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    content = make_measured().content
    lines = [json.dumps(row) for row in (content, {**content, "id": "another"}, content)]

    def add(*texts: str) -> tuple[int, str]:
        (tmp_path / "rows.jsonl").write_text("\n".join(texts), encoding="utf-8")
        code = main(["calibrate", "add", str(tmp_path / "rows.jsonl"), "--into", str(tmp_path / "filed")])
        return code, capsys.readouterr().out

    code, out = add(lines[0])
    (filed,) = (tmp_path / "filed").iterdir()
    assert (code, out) == (0, f"{filed}: 1 added, 0 already there\n")
    assert add(*lines) == (0, f"{filed}: 1 added, 2 already there\n")
    code, out = add(lines[0], "{}")
    assert code == 1
    assert out.endswith(f"{filed}: 0 added, 1 already there\n")
    assert len(filed.read_text("utf-8").splitlines()) == 2


def test_measured_rows_of_the_first_layers() -> None:
    """Estimate only the first layers of a model if the case builds only these."""
    whole, part = (
        build_subject(measurements.convert_to_published(make_measured(layers=layers))[0]).architecture
        for layers in (0, 6)
    )
    assert (whole.layers, part.layers) == (24, 6)
    of_layers = whole.parameters - part.parameters
    assert of_layers == 18 * whole.layer_parameters
    counts = {item.name: item.count for item in part.linears}
    assert (counts["q_proj"], counts["embed_tokens"]) == (6, 1)


@pytest.mark.slow
def test_documentation_states_the_report() -> None:
    """Show the table that the command prints on the memory model's page, and its figures in the README."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "memory" / "accuracy.md").read_text(encoding="utf-8")
    report_lines = list(report.render_markdown([*ROWS, *report.compare_measured()]))
    start = page.index("<!-- cfglint calibrate report --format markdown -->")
    tables = page[start : page.index("<!-- end -->")].splitlines()[2:]
    assert tables[: len(report_lines)] == report_lines
    others = peers.compare_peers(STATED.values(), ROWS)
    peer_lines = list(peers.render_peers_markdown(others))  # lists only the peers that are installed here
    assert set(peer_lines) <= set(tables[len(report_lines) :])
    fits, oom = count_outcomes(ROWS, "fits"), count_outcomes(ROWS, "oom")
    assert fits.does_not_fit == 0
    told_page, readme = (" ".join(text.split()) for text in (page, (root / "README.md").read_text(encoding="utf-8")))
    grades = f"{fits.tight} are *tight* and {fits.probably_does_not_fit} *probably do not fit*"
    assert f"reported as *does not fit*: of {fits.rows}, {grades}" in told_page
    assert f"None of the {oom.rows} that ran out of memory is reported as *fits*" in told_page
    unseen = [row for row in ROWS if row.error is not None and not row.bound]
    above, below = sum(row.is_above for row in unseen), sum(row.is_below for row in unseen)
    stated = (
        f"of the {len(unseen)} published figures, {above} are above the upper bound and {below} below the lower one"
    )
    assert stated in told_page
    assert stated in readme


@pytest.mark.parametrize(("keys", "selected"), [(2, 6944), (8, 7712)])
def test_compiled_code_keeps_what_its_recomputation_needs(keys: int, selected: int) -> None:
    """Match bytes per token of torchtitan's compiled block, counted in a run on a CPU (`derived-compile-selective`)."""
    foreign.install()
    llama = find_entry("meta-llama/Meta-Llama-3-8B")
    assert llama is not None
    shape = llama._replace(
        model_type="torchtitan:llama", hidden=512, heads=8, kv_heads=keys, head_dim=64, intermediate=1792
    )
    cost = compute_layer_cost(shape, Mode(attention="efficient", liger=FUSED_PARTS))
    assert cost is not None
    assert cost.saved == 18984
    assert 2 * 512 + cost.operations.kept - cost.operations.unused == selected

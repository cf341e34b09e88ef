"""The HTML page: complete, self-contained, and safe from the content of files."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import subprocess
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_train import api
from cfglint_train.fitting.places import choose_worse
from cfglint_train.foundation.sizes import format_gib
from cfglint_train.memory.budget import compute_verdict
from cfglint_train.memory.explanation import explain
from cfglint_train.reports import html
from cfglint_train.reports.html import markup, runs
from cfglint_train.reports.html.grid import build_grid
from cfglint_train.reports.html.summary import summarised
from cfglint_train.reports.style import Style
from tests.html.pages import ATTACKS, REPOSITORY, Reader, join_lines, render_file, render_folder, render_hostile_page
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL, REMOTE_CODE
from tests.support.hostile import PIECES, RESULTS
from tests.support.linting import FIXTURES, change_directory, isolate_folder

ASSETS = REPOSITORY / "lint" / "cfglint_train" / "reports" / "html"
TOOLS = REPOSITORY / "tools" / "plot"
CASES = FIXTURES / "cases"
FIRES = FIXTURES / "rules" / "MEM001" / "fires"


@pytest.fixture(scope="module")
def cases() -> str:
    return render_folder(CASES)


@pytest.fixture(scope="module")
def reader(cases) -> Reader:
    return Reader(cases)


def read_data(text: str) -> dict:
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(block)


# --- complete and self-contained -------------------------------------------------------------------------------------


def test_the_page_closes_what_it_opens(reader):
    tags = [tag for tag, _ in reader.elements]
    assert tags[:2] == ["html", "head"]
    assert tags.count("main") == tags.count("header") == tags.count("h1") == 1


def test_nothing_is_loaded_and_only_these_scripts_run(cases, reader):
    (policy,) = [
        meta["content"] for meta in reader.find_elements("meta") if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    scripts = re.findall(r"<script>(.*?)</script>", cases, re.DOTALL)
    hashes = [f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts]
    assert rules["script-src"] == " ".join(hashes)
    assert len(scripts) == 2
    # The policy precedes everything that it restricts.
    assert cases.index("Content-Security-Policy") < min(cases.index("<style"), cases.index("<script"))
    for tag, attributes in reader.elements:
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "srcset", "style")}
        if "href" in attributes:
            assert attributes["href"].startswith("#"), (tag, attributes)


def test_a_page_without_runs_draws_nothing(tmp_path):
    text = join_lines(html.report(api.lint(sources={"x.yaml": "a: 1\n"}).raw))
    assert "var Plot=" not in text
    assert len(text) < 30_000
    assert "No findings." in text


def test_the_page_is_the_same_every_time(cases):
    assert render_folder(CASES) == cases


# --- content ---------------------------------------------------------------------------------------------------------


def test_every_number_of_the_estimate_stands_in_the_page(cases, reader):
    result = api.estimate(isolate_folder(CASES), api.Options(isolated=True)).raw
    charts, components = read_data(cases)["charts"], read_data(cases)["components"]
    shown = reader.get_text("main")
    count = 0
    for number, written_run in enumerate(sorted(result.runs, key=lambda run: run.main.document.path)):
        run = choose_worse(written_run)
        for place in ("gpu", "host", "disk"):
            phases = [phase for phase in run.estimate.phases if getattr(phase, place) is not None]
            if not phases:
                assert f"run-{number}-{place}" not in charts
                continue
            chart = charts[f"run-{number}-{place}"]
            assert chart["capacity"] == run.hardware.get_capacity(place)
            assert [phase["name"] for phase in chart["phases"]] == [phase.name for phase in phases]
            for drawn, phase in zip(chart["phases"], phases):
                budget = getattr(phase, place)
                assert (drawn["low"], drawn["high"]) == (budget.low, budget.high)
                assert sum(size for _, size in drawn["parts"]) == budget.expected
                named = {components[component]: size for component, size in drawn["parts"]}
                assert named == {component.name: size for component, size in budget.sizes if size}
                for size in (budget.expected, budget.low, budget.high):
                    assert format_gib(size) in shown
                count += 1
            worst = max(phases, key=lambda phase: getattr(phase, place).expected)
            for part in explain(getattr(worst, place)):
                if part.bytes:
                    assert part.formula in shown
    assert count > 30


def test_the_grid_says_what_would_fit():
    config = isolate_folder(FIRES) / "axolotl.yaml"
    (run,) = api.estimate(config, api.Options(isolated=True)).raw.runs
    chart = read_data(render_file(config))["charts"]["run-0-grid"]
    micros, lengths = (
        [int(title) for title in chart["rows"]],
        [int(title.replace(",", "")) for title in chart["columns"]],
    )
    assert chart["own"] == [micros.index(run.plan.batch.micro), lengths.index(run.plan.sequence.length)]
    assert (chart["rowTitle"], chart["columnTitle"]) == ("micro batch", "sequence length")
    changed = run.replace_fields({"batch.micro": micros[-1], "sequence.length": lengths[0]})
    expected, low, high, judged, phase = chart["cells"][-1][0]
    budget = changed.estimate.find_phase(phase).gpu
    assert (expected, low, high) == (budget.expected, budget.low, budget.high)
    assert judged == compute_verdict(budget, run.hardware.get_capacity("gpu"))


def estimate_run(micro: int, length: int):
    text = AXOLOTL.replace("micro_batch_size: 1", f"micro_batch_size: {micro}") + f"sequence_len: {length}\n"
    with TemporaryDirectory() as empty, change_directory(Path(empty)):
        (run,) = api.estimate(None, api.Options(isolated=True), {"config.yaml": text}).raw.runs
    return run


@pytest.mark.parametrize(
    ("micro", "length", "micros", "lengths"),
    [
        (2, 2048, (1, 2, 4, 8), (512, 1024, 2048, 4096, 8192)),
        (1, 1000, (1, 2, 4, 8), (1000, 2000, 4000)),
        (16, 4096, (1, 2, 4, 8, 16, 32), (1024, 2048, 4096, 8192, 16384)),
        (48, 256, (4, 8, 16, 32, 48, 64), (256, 512, 1024)),
    ],
)
def test_the_usual_combinations_lie_around_the_runs_own(micro, length, micros, lengths):
    run = estimate_run(micro, length)
    axes = summarised(run).axes
    assert [axis.values for axis in axes] == [micros, lengths]
    grid = build_grid(run, axes)
    assert grid.current == (micros.index(micro), lengths.index(length))
    sizes = [[cell.budget.expected for cell in row] for row in grid.rows]
    assert all(row == sorted(row) for row in sizes)
    assert all(list(column) == sorted(column) for column in zip(*sizes))


def test_unknown_lengths_have_no_combinations():
    (run, *_) = api.estimate(isolate_folder(FIXTURES / "deepspeed") / "zero3_crlf.json").raw.runs
    assert summarised(run).axes == ()


def test_what_if_decides_the_grid():
    words = ["checkpointing=none,full", "micro_batch=1,16", "sequence=1024,2048,8192"]
    outcome = run_cfglint(
        "estimate", "axolotl.yaml", "--format", "html", "--what-if", *words, cwd=isolate_folder(FIRES)
    )
    assert outcome.code == 0
    chart = read_data(outcome.out)["charts"]["run-0-grid"]
    assert chart["columns"] == ["1,024", "2,048", "8,192"]
    assert chart["rows"] == ["none, 1", "none, 16", "full, 1", "full, 16"]
    assert chart["rowNames"][1] == "checkpointing none, micro_batch 16"
    assert chart["own"] == [3, 2]
    as_json = run_cfglint(
        "estimate", "axolotl.yaml", "--format", "json", "--what-if", *words, cwd=isolate_folder(FIRES)
    )
    expected_cells = [
        [alternative["expected"], alternative["low"], alternative["high"], alternative["verdict"], alternative["phase"]]
        for alternative in json.loads(as_json.out)["runs"][0]["what_if"]
    ]
    assert [cell for row in chart["cells"] for cell in row] == expected_cells


def test_a_single_axis_is_one_row():
    outcome = run_cfglint(
        "estimate", "axolotl.yaml", "--format", "html", "--what-if", "micro_batch=1,2", cwd=isolate_folder(FIRES)
    )
    chart = read_data(outcome.out)["charts"]["run-0-grid"]
    assert (chart["rows"], chart["rowTitle"], len(chart["cells"])) == ([""], "", 1)
    Reader(outcome.out)


def test_a_stated_plan_makes_a_page(tmp_path):
    plan = {
        "model": {"id": "Qwen/Qwen2.5-0.5B"},
        "method": {"tuning": "full"},
        "precision": {"params": "bf16", "compute": "bf16", "master": "none"},
        "optimizer": {"name": "adamw", "implementation": "fused"},
        "batch.micro": 1,
        "sequence.length": 2048,
        "parallel.strategy": "none",
        "launch": {"nodes": 1, "gpus_per_node": 1},
    }
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    outcome = run_cfglint("estimate", "--plan", "plan.json", "--format", "html", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    reader = Reader(outcome.out)
    assert "plan.json" in reader.get_text("h3")
    assert 'id="findings"' not in outcome.out
    assert {"run-0-gpu", "run-0-grid"} <= read_data(outcome.out)["charts"].keys()


def test_every_finding_stands_in_the_page_with_its_fix_as_a_diff():
    folder = FIXTURES / "rules" / "XFL001" / "fires"
    result = api.lint(isolate_folder(folder), api.Options(isolated=True))
    text = render_folder(folder)
    reader = Reader(text)
    assert [article["data-severity"] for article in reader.find_elements("article")] == [
        finding.severity for finding in result.findings
    ]
    body = reader.get_text("article")
    for finding in result.findings:
        assert finding.message.replace("`", "") in body
        assert finding.fix.message.replace("`", "") in body
    diff = api.fix(isolate_folder(folder), api.Options(isolated=True)).diff()
    removed = {line[1:].strip() for line in diff if line.startswith("-") and not line.startswith("---")}
    assert removed <= {line.strip() for line in reader.get_text("del").replace("- ", "\n").split("\n")}
    assert '"gradient_clipping": "auto",' in reader.get_text("ins")


def test_findings_come_first_in_a_lint_and_runs_in_an_estimate(tmp_path):
    lint = run_cfglint("--output-format", "html", cwd=isolate_folder(FIRES))
    estimate = run_cfglint("estimate", "--format", "html", ".", cwd=isolate_folder(FIRES))
    assert (lint.code, estimate.code) == (1, 0)
    assert lint.out.index('id="findings"') < lint.out.index('id="runs"')
    assert estimate.out.index('id="findings"') > estimate.out.index('id="runs"')
    target = tmp_path / "page.html"
    outcome = run_cfglint(
        "estimate", "--output-format", "html", "--output-file", target, ".", cwd=isolate_folder(FIRES)
    )
    assert (outcome.code, outcome.out) == (0, "")
    assert target.read_text() == estimate.out


def test_many_runs_are_folded_and_have_no_grids(tmp_path):
    sources = {f"{number}.yaml": AXOLOTL for number in range(runs.MAX_EXPANDED + 1)}
    with change_directory(tmp_path):
        many = join_lines(html.report(api.lint(sources=sources).raw))
        few = join_lines(html.report(api.lint(sources=dict(list(sources.items())[1:])).raw))
    assert many.count('<section class="run"') == runs.MAX_EXPANDED + 1
    assert many.count("<details><summary><h3") == runs.MAX_EXPANDED + 1
    assert "-grid" not in json.dumps(read_data(many))
    assert "<details><summary><h3" not in few


def test_many_files_are_shared_among_processes(tmp_path):
    (tmp_path / ".git").mkdir()
    for number in range(70):
        text = AXOLOTL.replace("micro_batch_size: 1", f"micro_batch_size: {number + 1}")
        (tmp_path / f"{number:02}.yaml").write_text(text)
    pages = [run_cfglint("--output-format", "html", "--jobs", jobs, cwd=tmp_path).out for jobs in ("1", "3")]
    assert pages[0] == pages[1]
    assert len(read_data(pages[0])["charts"]) >= 70


def test_what_is_kept_of_a_run_can_be_exchanged():
    for run in api.estimate(isolate_folder(CASES)).raw.runs:
        summary = summarised(run)
        assert pickle.loads(pickle.dumps(summary)) == summary


# --- accessibility ---------------------------------------------------------------------------------------------------


def test_headings_do_not_skip(reader):
    levels = [int(tag[1]) for tag, _ in reader.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:]))


def test_tables_figures_and_regions_have_names(cases, reader):
    tags = [tag for tag, _ in reader.elements]
    assert tags.count("table") == tags.count("caption")
    assert tags.count("figure") == tags.count("figcaption")
    assert all(attributes.get("scope") in ("row", "col") for attributes in reader.find_elements("th"))
    ids = [attributes["id"] for _, attributes in reader.elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    for tag, attributes in reader.elements:
        if "aria-labelledby" in attributes:
            assert attributes["aria-labelledby"] in ids, tag
        if tag == "a":
            assert attributes["href"].removeprefix("#") in ids
    assert reader.find_elements("html")[0]["lang"] == "en"
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in cases


def test_the_rules_pages_are_linked_where_somebody_says_where_they_are(tmp_path):
    with change_directory(tmp_path):
        result = api.lint(sources={"x.yaml": REMOTE_CODE}).raw
    linked = join_lines(html.report(result, Style(pages="https://example.org/{code}?a=1&b=2")))
    assert '<a href="https://example.org/SEC001?a=1&amp;b=2" rel="noreferrer">SEC001</a>' in linked
    for other in ("javascript:alert(1)", 'x"><script>'):
        unlinked = join_lines(html.report(result, Style(pages=other)))
        assert "<a" not in unlinked.split("<article")[1].split("</article")[0]


# --- attacks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(len(ATTACKS)), ids=lambda number: repr(ATTACKS[number]))
def test_attacks_stay_text(number):
    text = render_hostile_page(number)
    reader = Reader(text)
    assert [script.get("id") for script in reader.find_elements("script")] == ["data", None, None]
    assert len(reader.find_elements("style")) == 1
    assert reader.find_elements("img") == []
    assert all(not name.startswith("on") for _, attributes in reader.elements for name in attributes)
    read_data(text)
    visible = ATTACKS[number].split("\u2028")[0].split("\u202e")[0]
    assert visible in reader.get_text("main")
    assert not set("\u2028\u2029\u202e\x00\x1b") & set(text)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(RESULTS)
def test_any_result_makes_a_page(result):
    text = join_lines(html.report(result))
    reader = Reader(text)
    assert len(reader.find_elements("article")) == len(result.findings)
    assert [script.get("id") for script in reader.find_elements("script")] == ["data", None]
    articles = text.split("<article")[1:]
    for finding, article in zip(result.findings, articles):
        assert f'data-severity="{finding.severity}"' in article


@given(st.lists(PIECES, max_size=6).map("".join))
@settings(max_examples=300)
def test_text_reads_back_and_data_reads_back(piece):
    shown = markup.escape_html(piece)
    assert not set("<>\"'\n") & set(shown)
    assert Reader(f"<body>{shown}</body>").get_text() == markup.escape_text(piece)
    spelled = markup.encode_script_data({"a": [piece.encode("utf-8", "replace").decode()]})
    assert not set("<>&\u2028\u2029") & set(spelled)
    assert json.loads(spelled) == {"a": [piece.encode("utf-8", "replace").decode()]}


# --- the library -----------------------------------------------------------------------------------------------------


def test_the_library_is_the_one_that_is_recorded():
    record = json.loads((ASSETS / "plot.json").read_text())
    source = (ASSETS / "plot.min.js").read_bytes()
    assert sha256(source).hexdigest() == record["sha256"]
    assert len(source) == record["bytes"] <= 300_000
    assert all(package.isprintable() or package == "\n" for package in source.decode())
    wanted = json.loads((TOOLS / "package.json").read_text())["dependencies"]
    assert record["packages"]["@observablehq/plot"]["version"] == wanted["@observablehq/plot"]
    licenses = (ASSETS / "plot.licenses.txt").read_text()
    for name, package in record["packages"].items():
        assert f"\n{name} {package['version']} ({package['license']})\n" in licenses
        assert package["license"] in ("ISC", "BSD-3-Clause", "MIT")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="no npm")
def test_the_library_can_be_made_again(tmp_path: Path):
    work, output = tmp_path / "plot", tmp_path / "made"
    shutil.copytree(TOOLS, work, ignore=shutil.ignore_patterns("node_modules"))
    output.mkdir()
    fetched = subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
    )
    if fetched.returncode:
        pytest.skip(f"npm cannot fetch: {fetched.stderr[-200:]}")
    subprocess.run(["node", "bundle.mjs", str(output)], cwd=work, check=True)
    for name in ("plot.min.js", "plot.json", "plot.licenses.txt"):
        assert (output / name).read_bytes() == (ASSETS / name).read_bytes(), name

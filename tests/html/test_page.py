"""The HTML page: complete, self-contained, and safe from the content of files."""

from __future__ import annotations

import html as entities
import json
import pickle
import re
import shlex
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfglint_train import api
from cfglint_train.foundation.sizes import format_gib, format_parameters
from cfglint_train.memory.components import COMPONENTS
from cfglint_train.reports import html, timeline
from cfglint_train.reports.estimate import build_estimate
from cfglint_train.reports.html import markup
from cfglint_train.reports.html.page import MAX_SIZE
from cfglint_train.reports.style import Style
from cfglint_train.whatif.grid import choose_axes
from tests.html.pages import ATTACKS, Reader, join_lines, render_file, render_folder, render_hostile_page
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL, REMOTE_CODE
from tests.support.corpus import CORPUS, needs_corpus
from tests.support.hostile import PIECES, RESULTS
from tests.support.linting import FIXTURES, change_directory, isolate_folder

CASES = FIXTURES / "cases"
FIRES = FIXTURES / "rules" / "MEM001" / "fires"


@pytest.fixture(scope="module")
def cases() -> str:
    return render_folder(CASES)


@pytest.fixture(scope="module")
def reader(cases) -> Reader:
    return Reader(cases)


# --- complete and self-contained -------------------------------------------------------------------------------------


def test_the_page_closes_what_it_opens(reader):
    tags = [tag for tag, _ in reader.elements]
    assert tags[:2] == ["html", "head"]
    assert tags.count("main") == tags.count("header") == tags.count("h1") == 1


def test_nothing_is_loaded_and_nothing_runs(cases, reader):
    (policy,) = [
        meta["content"] for meta in reader.find_elements("meta") if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    (styles,) = re.findall(r"<style>(.*?)</style>", cases, re.DOTALL)
    assert rules["style-src"] == f"'sha256-{b64encode(sha256(styles.encode()).digest()).decode()}'"
    assert rules.keys() == {"default-src", "base-uri", "form-action", "style-src"}
    assert reader.find_elements("script") == []
    # The policy precedes everything that it restricts.
    assert cases.index("Content-Security-Policy") < cases.index("<style")
    for tag, attributes in reader.elements:
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "srcset", "style")}
        if "href" in attributes:
            assert attributes["href"].startswith("#"), (tag, attributes)


def test_a_page_without_runs_is_small(tmp_path):
    text = join_lines(html.report(api.lint(sources={"x.yaml": "a: 1\n"}).raw))
    assert len(text) < 12_000
    assert "No findings." in text


def test_the_page_is_the_same_every_time(cases):
    assert render_folder(CASES) == cases


# --- content ---------------------------------------------------------------------------------------------------------


STRIDE = 24
RECIPES = [
    path
    for folder, pattern in (("axolotl", "*.y*ml"), ("llamafactory", "*.yaml"), ("olmo", "*.yaml"), ("trl", "*.y*ml"))
    for path in sorted((CORPUS / folder).rglob(pattern))[7::STRIDE]
]
"""Every 24th file of a framework: its page, its JSON and its `fit` take half a second."""

NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def list_values(value: Any) -> Iterator[Any]:
    """Yield the plain values in a JSON document."""
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from list_values(item)
    else:
        yield value


def list_spellings(value: Any) -> Iterator[str]:
    """Yield every way in which the page may spell a number of the JSON, or the numbers in its text."""
    if isinstance(value, str):
        yield from NUMBER.findall(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from (str(value), f"{value:,}", f"{value / 2**30:,.1f}", str(round((value - 1) * 100)))
        yield from (format_gib(value).split()[0], format_parameters(value).split()[0])


def read_body(text: str) -> str:
    """Return the text of a page without its head, source lines, diffs and commands."""
    body = re.sub(r"<(pre|code)[ >].*?</\1>|<footer.*", " ", text.split("<body>")[1], flags=re.DOTALL)
    return entities.unescape(re.sub("<[^>]*>", " ", body.replace("&nbsp;", " ").replace("&#8239;", " ")))


def check_timeline(page: str, run: dict[str, Any], changes: dict[str, Any]) -> None:
    """Compare the bars of a page, row by row, with the timelines of `estimate` and of the change of `fit`.

    A change that leaves the GPU as it is has no bars.
    """
    after = (
        {}
        if changes["solution"] is None or changes["solution"]["timeline"] == run["timeline"]
        else {(moment["step"], moment["phase"]): moment for moment in changes["solution"]["timeline"]}
    )
    drawn = re.findall('<table class="time">.*?<tbody>(.*?)</tbody>', page, re.DOTALL)[0].strip().split("</tr>\n")
    assert len(drawn) >= len(run["timeline"]) > 2
    for row, moment in zip(drawn, run["timeline"]):
        changed = after.get((moment["step"], moment["phase"]))
        bars = re.findall('<svg class="(.*?)".*?>(.*?)</svg>', row)
        assert [kind for kind, _ in bars] == ["bar", "thin"][: 1 + (changed is not None)]
        for (_, bar), drawn_moment in zip(bars, filter(None, (moment, changed))):
            letters = [timeline.KINDS[kind].letter for kind in drawn_moment["kinds"]]
            shown = re.findall('<path class="([A-Z])"', bar)
            assert shown == [letter for letter in letters if letter in shown]
        numbers = [f"{format_gib(moment['expected'])} {moment['percent']:,} %"]
        ends = [f"{moment[end] / 2**30:,.1f}" for end in ("low", "high")]
        numbers += ["" if ends[0] == ends[1] else " to ".join(ends), moment["verdict"]]
        if changed is not None:
            numbers.append(f"{format_gib(changed['expected'])} {changed['verdict']}")
        cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall('<td(?: class="n[^>]*)?>(.*?)</td>', row)]
        assert [cell.replace("&#8239;", " ") for cell in cells] == numbers


def check_page(path: Path, *flags: str) -> None:
    """Compare a page with the JSON reports of the same run: every number, the verdicts, the cells; and its size."""
    folder, name = path.parent, path.name
    page = run_cfglint("estimate", "--format", "html", *flags, name, cwd=folder).out
    assert len(page.encode()) <= MAX_SIZE
    commands = re.findall(r"Other values: <code class=\"copy\">(.*?)</code>", page)
    words = shlex.split(entities.unescape(commands[0])) if commands else []
    words = words[words.index("--what-if") :] if words else []
    outcome = run_cfglint("estimate", "--format", "json", *flags, name, *words, cwd=folder)
    estimate = json.loads(outcome.out)
    fit = json.loads(run_cfglint("fit", "--format", "json", *flags, name, cwd=folder).out or "{}")
    lint = json.loads(run_cfglint("--output-format", "json", *flags, name, cwd=folder).out or "{}")
    counts = [len(lint.get("findings", ())), len(lint.get("files", ())), estimate["version"]]
    counts += [
        sum(finding["severity"] == kind for finding in lint["findings"]) for kind in ("error", "warning", "info")
    ]
    counts += [len(finding["rests_on"]) for finding in lint["findings"]] + [1, 2, 0]
    rooms = [run["worst"] for run in estimate["runs"] if run["worst"] and run["worst"]["verdict"] == "tight"]
    counts += [abs(room["capacity"] - room[size]) for room in rooms for size in ("expected", "high")]  # the margins
    allowed = {spelling for value in list_values([estimate, fit, lint, counts]) for spelling in list_spellings(value)}
    shown = set(NUMBER.findall(read_body(page)))
    assert shown <= allowed, sorted(shown - allowed)
    if len(estimate["runs"]) != 1:
        return
    (run,) = estimate["runs"]
    worst, headline = run["worst"], re.findall(r"<h1[^>]*>(.*?)</h1>", page)[0].replace("&nbsp;", " ")
    if worst is None or run["corrected"] is not None:
        return
    assert headline.lower().startswith(f"{worst['verdict']}: ")
    assert f"{format_gib(worst['capacity'])}" in headline
    assert headline.endswith(f"({worst['percent']:,} %)")
    (changes,) = fit["runs"]
    check_timeline(page, run, changes)
    (table,) = re.findall("<caption>Each change alone.*?</table>", page, re.DOTALL) or [""]
    cell = '<td class="number">(.*?)'
    rungs = re.findall(f'{cell}</td>{cell} (?:<br>)?<span class="badge.*?>(.*?)<', table)
    names = {"gpu": "", "host": " of host memory", "disk": " of disk"}
    assert rungs == [
        (format_gib(rung["saved"]), f"{format_gib(rung['after'])}{names[rung['place']]}", rung["verdict"])
        for rung in changes["rungs"]
    ]
    if worst["place"] == "gpu":
        assert (changes["verdict"], changes["expected"]) == (worst["verdict"], worst["expected"])
    if changes["solution"] is not None:
        assert f"<b>{format_gib(changes['solution']['expected'])}</b>" in page
    cells = re.findall(
        r'<td class="([\w?-]+)( own)?">(?:e )?([\d.,?]+)',
        "".join(re.findall('<table class="grid">.*?</table>', page, re.DOTALL)),
    )
    stated = run.get("what_if", [])
    assert [(kind, size) for kind, _, size in cells] == [
        (
            (item["verdict"] or "unknown").replace(" ", "-"),
            "?" if item["expected"] is None else format_gib(item["expected"]).removesuffix(" GiB"),
        )
        for item in stated
    ]
    if words:
        own = [item for item, (_, frame, _) in zip(stated, cells) if frame]
        assert [(item["changes"]["gpu"], item["verdict"]) for item in own] == [(run["gpu"], own[0]["verdict"])]


@needs_corpus
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.relative_to(CORPUS).as_posix())
def test_every_number_of_a_page_is_in_the_json(path):
    check_page(path, "--isolated", "--gpu", "A100-40GB", "--nodes", "1")


@pytest.mark.parametrize("name", ["axolotl.yaml", "llamafactory.yaml", "trl.sh"])
def test_every_number_of_a_page_is_in_the_json_where_a_run_does_not_fit(name):
    check_page(isolate_folder(FIRES) / name, "--host-memory", "100GB")


def test_a_change_for_the_host_states_the_host_memory_that_it_leaves():
    folder, flags = isolate_folder(CASES / "2-llamafactory-236b"), ("--isolated", "--host-memory", "300GB")
    name = "zero3-offload.yaml"
    page = run_cfglint("estimate", "--format", "html", *flags, name, cwd=folder).out
    (run,) = json.loads(run_cfglint("fit", "--format", "json", *flags, name, cwd=folder).out)["runs"]
    (before,), (after,), solution = run["elsewhere"], run["solution"]["elsewhere"], run["solution"]
    assert (before["verdict"], after["verdict"], solution["verdict"]) == ("does not fit", "tight", "fits")
    (change,) = re.findall('<section class="change">.*?</section>', page, re.DOTALL)
    assert (
        f"{format_gib(before['expected'])} of host memory does not fit → {format_gib(after['expected'])} of host "
        f"memory tight, {format_gib(solution['expected'])} of GPU memory fits"
    ) in re.sub("<[^>]*>", "", change)
    assert "As it is, the GPU memory is enough on <b>A100-80GB, " in page
    assert "the host memory is too small on each." in page
    assert page.index("Host and disk") < page.index("What each change would do")


def list_commands(page: str) -> list[list[str]]:
    """Return the words of the commands of cfglint that a page shows for copying."""
    texts = map(entities.unescape, re.findall(r'<code class="copy">(cfglint .*?)</code>', page))
    return [shlex.split(text) for text in texts]


@pytest.mark.parametrize("command", [("estimate", "--format", "html"), ("--output-format", "html")])
def test_the_commands_of_a_page_answer_its_question(tmp_path, command):
    """The command that writes the change proposes that of the page, for the facts of the command line."""
    name = "a run.yaml"
    (tmp_path / name).write_text(AXOLOTL.replace("micro_batch_size: 2", "micro_batch_size: 8"))
    flags = ("--gpu", "RTX4090", "--nodes", "1", "--gpus-per-node", "4", "--disk", "40TB", "--release", "torch=2.8")
    flags += ("--set", "sequence_len=8192", "--isolated")
    page = run_cfglint(*command, *flags, name, cwd=tmp_path).out
    commands = {words[1:3] == ["fit", "--write"]: words for words in list_commands(page)}
    proposed = re.search(r'<pre class="copy"><code>(.*?)</code></pre>', page, re.DOTALL)
    assert proposed is not None
    outcome = run_cfglint("fit", "--format", "json", *commands[True][3:], cwd=tmp_path)
    (fit,) = json.loads(outcome.out)["runs"]
    assert fit["solution"]["settings"] == entities.unescape(proposed[1]).split("\n")
    estimate = json.loads(run_cfglint(*commands[False][1:], "--format", "json", cwd=tmp_path).out)
    assert estimate["runs"][0]["gpu"] == "RTX 4090"
    assert estimate["runs"][0]["gpus_per_node"] == 4


def test_a_run_without_a_file_has_commands_without_one(tmp_path):
    flags = ("--model", "Qwen/Qwen3-8B", "--method", "full", "--no-checkpointing", "--gpu", "H100", "--length", "8192")
    page = run_cfglint("estimate", "--format", "html", *flags, cwd=tmp_path).out
    (words,) = list_commands(page)
    repeated = run_cfglint(*words[1:], "--format", "json", cwd=tmp_path)
    assert json.loads(repeated.out)["runs"][0]["worst"] is not None
    assert not list(tmp_path.iterdir())


def test_the_timeline_adds_up():
    """The kinds of a moment are its budget's components, and step 2 is the estimate of the phases."""
    (run,) = api.estimate(isolate_folder(FIRES) / "axolotl.yaml", api.Options(isolated=True)).raw.runs
    record = build_estimate(run)
    assert all(sum(moment.kinds.values()) == moment.expected for moment in record.timeline)
    assert [timeline.name_moment(moment) for moment in record.timeline] == [
        "load", "step 1 forward", "step 1 backward", "step 1 optimizer",
        "step 2 forward", "step 2 backward", "step 2 optimizer", "save",
    ]  # fmt: skip
    by_name = {timeline.name_moment(moment): moment for moment in record.timeline}
    first, second = by_name["step 1 backward"], by_name["step 2 backward"]
    assert "optimizer" not in first.kinds
    assert second.expected - first.expected == second.kinds["optimizer"]
    for phase in record.phases:
        moment = next(item for item in record.timeline if item.phase == phase.name and item.step != "step 1")
        assert phase.gpu is not None
        assert (moment.expected, moment.verdict) == (phase.gpu.expected, phase.gpu.verdict)


@pytest.mark.parametrize(
    ("pin", "name"), [("", "step 1"), ("deepspeed==0.13.2\n", "step 1"), ("deepspeed==0.13.1\n", "every step")]
)
def test_deepspeed_creates_optimizer_states_in_the_first_step_since_0_13_2(tmp_path, pin, name):
    (tmp_path / "requirements.txt").write_text(pin)
    (tmp_path / "zero.json").write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}')
    (tmp_path / "run.yaml").write_text(f"{AXOLOTL}deepspeed: zero.json\n")
    with change_directory(tmp_path):
        (run,) = api.estimate(["run.yaml"], api.Options(gpu="H100", nodes=1, gpus_per_node=2)).raw.runs
    moments = timeline.build_timeline(run)
    assert moments[1].step == name
    backward = [moment for moment in moments if moment.phase == "backward"]
    first, last = backward[0], backward[-1]
    assert ("optimizer" in first.kinds, "optimizer" in last.kinds) == (True, True)
    # The master weights exist from the start, the moments of Adam do not.
    assert (first.kinds["optimizer"] < last.kinds["optimizer"]) == (name == "step 1")


def test_every_component_of_a_gpu_has_a_kind():
    for component in COMPONENTS:
        if component.kind not in ("host", "disk"):
            assert list(timeline.sum_kinds([(component, 1)]).values()) == [1]


def compute_luminance(color: str) -> float:
    """Return the relative luminance of `#rrggbb` (WCAG 2.2)."""
    parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("back", ["#ffffff", "#12161f"])
def test_every_kind_of_memory_is_seen_on_both_backgrounds(back):
    for name, kind in timeline.KINDS.items():
        low, high = sorted(map(compute_luminance, (kind.color, back)))
        assert (high + 0.05) / (low + 0.05) >= 3, name
        steps = (0, 95, 135, 175, 215, 255)  # of the color cube of terminals
        place, gray = kind.code - 16, 8 + 10 * (kind.code - 232)
        parts = [gray] * 3 if gray > 0 else [steps[place // 36], steps[place // 6 % 6], steps[place % 6]]
        assert kind.color == "#" + "".join(f"{part:02x}" for part in parts), name
    assert len({kind.color for kind in timeline.KINDS.values()}) == len(timeline.KINDS)


def estimate_run(micro: int, length: int):
    text = AXOLOTL.replace("micro_batch_size: 1", f"micro_batch_size: {micro}") + f"sequence_len: {length}\n"
    with TemporaryDirectory() as empty, change_directory(Path(empty)):
        (run,) = api.estimate(None, api.Options(isolated=True), {"config.yaml": text}).raw.runs
    return run


@pytest.mark.parametrize(
    ("micro", "length", "micros", "lengths"),
    [
        (2, 2048, (1, 2, 4, 8), (512, 1024, 2048, 4096)),
        (1, 1000, (1, 2, 4, 8), (1000, 2000)),
        (64, 16384, (8, 16, 32, 64), (4096, 8192, 16384, 32768)),
        (3, 256, (1, 3, 6, 12), (256, 512)),
    ],
)
def test_the_usual_grid_contains_the_runs_own_values(micro, length, micros, lengths):
    run = estimate_run(micro, length)
    gpu, *axes = choose_axes(run)
    assert [axis.values for axis in axes] == [micros, lengths]
    assert gpu.values[0] == run.hardware.gpu
    assert len(set(gpu.values)) == len(gpu.values) == 5


def test_unknown_lengths_have_no_grid():
    (run, *_) = api.estimate(isolate_folder(FIXTURES / "deepspeed") / "zero3_crlf.json").raw.runs
    assert choose_axes(run) == []


def test_what_if_decides_the_grid():
    words = ["checkpointing=none,full", "micro_batch=1,16", "sequence=1024,2048,8192"]
    page = run_cfglint(
        "estimate", "axolotl.yaml", "--format", "html", "--what-if", *words, cwd=isolate_folder(FIRES)
    ).out
    assert re.findall(r"<caption><b>(.*?)</b>", page) == ["checkpointing none", "checkpointing full"]
    assert page.count('<th scope="col">8,192</th>') == 2
    one = run_cfglint(
        "estimate", "axolotl.yaml", "--format", "html", "--what-if", "micro_batch=1,2", cwd=isolate_folder(FIRES)
    ).out
    assert re.findall(r"<caption><b>(.*?)</b>", one) == ["What if"]
    Reader(one)


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
    assert "plan.json" in reader.get_text("header")
    assert 'id="findings"' not in outcome.out
    assert "Memory over the run" in outcome.out
    assert "On which GPU it fits" in outcome.out


def test_every_finding_stands_in_the_page_with_its_fix_as_a_diff(monkeypatch):
    monkeypatch.setattr("cfglint_train.reports.html.page.MAX_SIZE", 1_000_000)
    folder = FIXTURES / "rules" / "XFL001" / "fires"
    result = api.lint(isolate_folder(folder), api.Options(isolated=True))
    reader = Reader(render_folder(folder))
    classes = [article["class"] for article in reader.find_elements("article")]
    assert sorted(classes) == sorted(f"finding {finding.severity}" for finding in result.findings)
    body = reader.get_text("article")
    for finding in result.findings:
        assert finding.message.replace("`", "") in body
        assert finding.fix.message.replace("`", "") in body
    diff = api.fix(isolate_folder(folder), api.Options(isolated=True)).diff()
    removed = {line[1:].strip() for line in diff if line.startswith("-") and not line.startswith("---")}
    assert removed <= {line.strip() for line in reader.get_text("del").replace("- ", "\n").split("\n")}
    assert '"gradient_clipping": "auto",' in reader.get_text("ins")


def test_a_fix_shows_only_lines_that_change_and_no_rename_of_another_finding():
    text = render_folder(CASES / "5-axolotl-3b")
    (rename,) = re.findall(r"<article[^>]*>(?:(?!</article>).)*KEY001 unknown-key.*?</article>", text, re.DOTALL)
    (memory,) = re.findall(r"<article[^>]*>(?:(?!</article>).)*MEM001 step-exceeds.*?</article>", text, re.DOTALL)
    assert "<ins>+ sequence_len: " in rename
    assert re.findall(r"<(del|ins)>(.*?)</", memory) == [("ins", "+ gradient_checkpointing: true")]
    assert "; needs the fix of KEY001 too" in memory
    markdown = run_cfglint("--output-format", "markdown", ".", cwd=isolate_folder(CASES / "5-axolotl-3b")).out
    assert markdown.count("+sequence_len: ") == 1


def test_a_disk_that_is_too_small_comes_first():
    folder = isolate_folder(FIXTURES / "failures" / "full-disk")
    words = ("estimate", "--isolated", "--disk", "200GiB", "--format", "html", "axolotl.yaml")
    text = run_cfglint(*words, cwd=folder).out
    assert '<h1 class="does-not-fit">Does not fit: saving a checkpoint 494 of 200&nbsp;GiB of disk (247&nbsp;%)' in text
    assert text.index("<h2>Host and disk") < text.index("<h2>Memory over the run")
    assert text.count("<h2>Host and disk") == 1
    assert '>of 200 GiB</td><td><span class="badge does-not-fit">' in text
    (change,) = re.findall('<section class="change">.*?</section>', text, re.DOTALL)
    assert "unsafe: older checkpoints are deleted</p>" in change
    limits = re.findall("save_total_limit: 10 -&gt; ([0-9]+)", text)  # of the change, of its row, and of the finding
    assert limits == ["2", "2", "2"]
    # The change leaves the GPU as it is, so that there is nothing to compare.
    assert "after the change<" not in text


def test_a_tight_run_says_how_close_it_is():
    folder = isolate_folder(CASES / "3-openrlhf-16b" / "fixed")
    (run,) = api.estimate(folder / "train_ppo.sh", api.Options(isolated=True)).runs
    assert run.worst is not None
    assert run.worst.verdict == "tight"
    spare, short = run.worst.capacity - run.worst.expected, run.worst.high - run.worst.capacity
    margins = f"{format_gib(spare)} to spare in the optimizer step, at worst {format_gib(short)} short"
    sentence = f"None is needed, but the run is tight: {margins}."
    page = render_file(folder / "train_ppo.sh")
    assert f"<p>{sentence}</p>" in page
    shown = run_cfglint("fit", "--isolated", "train_ppo.sh", cwd=folder).out
    assert margins in shown


def test_the_table_of_runs_names_no_search(tmp_path):
    """Name the command for the eleventh run that does not fit, and say of one that fits that it needs no change."""
    micros = [*range(200, 211), 1]
    sources = {
        f"{micro}.yaml": AXOLOTL.replace("micro_batch_size: 1", f"micro_batch_size: {micro}") for micro in micros
    }
    with change_directory(tmp_path):
        text = join_lines(html.report(api.lint(sources=sources, options=api.Options(isolated=True)).raw))
    rows = re.findall("<tr>(.*?)</tr>", re.findall('<section id="runs">.*?</table>', text, re.DOTALL)[0])[1:]
    ends = [row.endswith("<td>run <code>cfglint fit</code> on it</td>") for row in rows]
    assert ends == [False] * 10 + [True, False]
    assert rows[-1].endswith("<td>none needed</td>")


def test_findings_come_first_in_a_lint_and_runs_in_an_estimate(tmp_path):
    lint = run_cfglint("--output-format", "html", cwd=isolate_folder(FIRES))
    estimate = run_cfglint("estimate", "--format", "html", ".", cwd=isolate_folder(FIRES))
    assert (lint.code, estimate.code) == (1, 0)
    for page in (lint.out, estimate.out):
        assert page.index('id="runs"') < min(page.index('id="run-0"'), page.index('id="findings"'))
    assert lint.out.index('id="findings"') < lint.out.index('id="run-0"')
    assert estimate.out.index('id="findings"') > estimate.out.index('id="run-0"')
    target = tmp_path / "page.html"
    outcome = run_cfglint(
        "estimate", "--output-format", "html", "--output-file", target, ".", cwd=isolate_folder(FIRES)
    )
    assert (outcome.code, outcome.out) == (0, "")
    assert target.read_text() == estimate.out


@pytest.mark.parametrize(("count", "folder"), [(10, "a"), (50, "a/b"), (150, "a/" + "long-name-of-a-folder/" * 4)])
def test_a_page_of_many_runs_names_or_counts_all_within_its_size(tmp_path, count, folder):
    """The worst runs come first, with their best change; the others are named by folder, and beyond that, counted."""
    change, micro = "micro_batch_size: 1", "micro_batch_size: {}"
    text = f"{AXOLOTL}trust_remote_code: true\n"
    sources = {
        f"{folder}/{number}.yaml": text.replace(change, micro.format(1 + number * 150 // count))
        for number in range(count)
    }
    with change_directory(tmp_path):
        result = api.lint(sources=sources, options=api.Options(isolated=True)).raw
        estimates = tuple(map(build_estimate, result.runs))
        pages = [join_lines(html.report(result)), join_lines(html.estimate(result.runs, (), result))]
    worst = max(estimates, key=lambda item: item.worst.expected)
    verdicts = Counter(item.worst.verdict for item in estimates)
    assert len(verdicts) > 1
    for text in pages:
        assert len(text.encode()) <= MAX_SIZE
        reader = Reader(text)
        assert all(str(number) in reader.get_text("h1") for number in (count, *verdicts.values()))
        rows = re.findall("<tr>(.*?)</tr>", re.findall('<section id="runs">.*?</table>', text, re.DOTALL)[0])[1:]
        assert len(rows) == min(count, 20)
        assert worst.path in rows[0]
        ranked = sorted(estimates, key=lambda item: -item.worst.expected)
        for row, item in zip(rows, ranked):
            assert f">{item.worst.verdict}<" in row
            assert f"{format_gib(item.worst.expected)} of {format_gib(item.worst.capacity)}" in row
            assert f"<small>{item.worst.percent} %</small>" in row
        assert " → " in rows[0]
        assert '<span class="badge fits">' in rows[0]
        names = re.findall(r"(\d+)\.yaml <small>", re.findall('<section id="runs">.*?</section>', text, re.DOTALL)[0])
        left = [int(number) for number in re.findall("<li>([0-9,]+) more: <code>cfglint estimate</code>", text)]
        assert len(rows) + len(names) + sum(left) == count
        assert f'id="run-0">\n<details><summary><h2>{worst.path}</h2>' in text
        assert "runs have details" in text
        shown = len(reader.find_elements("article"))
        counted = re.findall(r'"severity">(\d+) (?:error|warning|info)s?</span>', text)
        assert shown + sum(map(int, counted)) == len(result.findings) >= count
        assert ("more, by rule" in text) == bool(counted)


def test_many_files_are_shared_among_processes(tmp_path):
    (tmp_path / ".git").mkdir()
    for number in range(70):
        text = AXOLOTL.replace("micro_batch_size: 1", f"micro_batch_size: {number + 1}")
        (tmp_path / f"{number:02}.yaml").write_text(text)
    one, several = (run_cfglint("--output-format", "html", "--jobs", jobs, cwd=tmp_path).out for jobs in ("1", "3"))
    assert one == several
    assert len(re.findall(r"\d\d\.yaml", several.split("</section>")[0])) >= 70


def test_what_is_kept_of_a_run_can_be_exchanged():
    for record in html.summarize_runs(api.estimate(isolate_folder(CASES)).raw.runs):
        assert (record.fit is None) == (record.estimate.worst is None or record.estimate.worst.verdict == "fits")
        assert pickle.loads(pickle.dumps(record)) == record


def test_only_the_runs_with_details_search_for_a_change(tmp_path):
    """Estimate 14 runs that do not fit, of which the ten with the largest micro batches are the worst."""
    sources = {
        f"{number}.yaml": AXOLOTL.replace("micro_batch_size: 1", f"micro_batch_size: {number}")
        for number in range(200, 214)
    }
    with change_directory(tmp_path):
        runs = api.estimate(None, api.Options(isolated=True), sources).raw.runs
        records = html.summarize_runs(runs)
    assert [record.written.path for record in records] == list(sources)
    assert [record.estimate.worst.verdict for record in records] == ["does not fit"] * 14
    assert [record.fit is not None for record in records] == [False] * 4 + [True] * 10


# --- accessibility ---------------------------------------------------------------------------------------------------


def test_headings_do_not_skip(reader):
    levels = [int(tag[1]) for tag, _ in reader.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:]))


def test_tables_figures_and_regions_have_names(cases, reader):
    tags = [tag for tag, _ in reader.elements]
    assert tags.count("table") == tags.count("caption")
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
    assert '<a href="https://example.org/SEC001?a=1&amp;b=2" rel="noreferrer">SEC001 ' in linked
    for other in ("javascript:alert(1)", 'x"><script>'):
        unlinked = join_lines(html.report(result, Style(pages=other)))
        assert "<a" not in unlinked.split("<article")[1].split("</article")[0]


# --- attacks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(len(ATTACKS)), ids=lambda number: repr(ATTACKS[number]))
def test_attacks_stay_text(number):
    text = render_hostile_page(number)
    reader = Reader(text)
    assert reader.find_elements("script") == []
    assert len(reader.find_elements("style")) == 1
    assert reader.find_elements("img") == []
    assert all(not name.startswith("on") for _, attributes in reader.elements for name in attributes)
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
    assert reader.find_elements("script") == []
    classes = [article["class"] for article in reader.find_elements("article")]
    assert sorted(classes) == sorted(f"finding {finding.severity}" for finding in result.findings)


@given(st.lists(PIECES, max_size=6).map("".join))
@settings(max_examples=300)
def test_text_reads_back(piece):
    shown = markup.escape_html(piece)
    assert not set("<>\"'\n") & set(shown)
    assert Reader(f"<body>{shown}</body>").get_text() == markup.escape_text(piece)

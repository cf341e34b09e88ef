"""A third-party framework is one folder: the example of docs/contributing/framework.md works without other changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cfglint_train import frameworks as folders
from cfglint_train.frameworks import framework as frameworks
from cfglint_train.frameworks import registry
from cfglint_train.plan.fields import FIELDS
from tests.support.command import Outcome, run_cfglint
from tests.support.corpus import REPOSITORY
from tests.support.guest import install_frameworks
from tests.support.laws import build_config, check_get_put, check_put_get, find_lens
from tests.support.linting import build_options, fix, lint, list_parts, list_runs

GUEST = REPOSITORY / "tests" / "frameworks" / "guest"
SCHEMAS = GUEST / "schemas"

LARGE = """\
# Nightly.
trainer: guest
model: Qwen/Qwen2.5-7B
train:
  micro_batch: 16  # per GPU
  length: 4096
  strategy: fsdp
save:
  folder: out
"""
OLD = """\
# cfglint: guest=1.1
trainer: guest
model: Qwen/Qwen2.5-0.5B
train:
  batch: 2  # per GPU
save:
  folder: out
"""
WRONG = """\
trainer: guest
model: Qwen/Qwen2.5-0.5B
train:
  micro_batch_size: 2
  precision: half
save:
  weights_only: true
  resume: true
"""


@pytest.fixture
def guest() -> Iterator[None]:
    """Install the framework with its vocabulary."""
    with install_frameworks(GUEST.parent, SCHEMAS):
        yield


@pytest.fixture
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install the same framework without a vocabulary."""
    place = tmp_path_factory.mktemp("frameworks")
    shutil.copytree(GUEST, place / "guest", ignore=shutil.ignore_patterns("schemas"))
    listed = json.loads((GUEST / "framework.json").read_text())
    del listed["vocabulary"]
    (place / "guest" / "framework.json").write_text(json.dumps(listed))
    with install_frameworks(place, None):
        yield


@pytest.fixture(params=["guest", "bare"])
def either(request: pytest.FixtureRequest) -> None:
    """Install the framework with and without a vocabulary."""
    request.getfixturevalue(request.param)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def write_config(here: Path, text: str) -> Path:
    (here / "run.yaml").write_text(text)
    return here


def test_a_vocabulary_that_its_framework_does_not_name_is_told(tmp_path, monkeypatch):
    folder = tmp_path / "guest"
    folder.mkdir()
    (folder / "framework.json").write_text('{"title": "Guest", "clues": {}}')
    (folder / "vocabulary.json").write_text("{}")
    monkeypatch.setattr(folders, "__path__", [str(tmp_path)])
    with pytest.raises(ValueError, match=r"guest/framework\.json: `vocabulary` must name"):
        registry._read_manifests.__wrapped__()


@pytest.mark.usefixtures("either")
def test_its_files_become_plans(here):
    (run,) = list_runs(write_config(here, LARGE))
    assert (run.framework.title, run.plan.batch.micro, run.plan.sequence.length) == ("Guest", 16, 4096)
    assert (run.plan.parallel.strategy, run.plan.parallel.shard_size) == ("fsdp2", 8)
    assert run.find_place("batch.micro").span is not None
    assert run.spell_key("activations.checkpointing") == "train.recompute"


@pytest.mark.usefixtures("either")
def test_its_lenses_obey_the_laws():
    config = build_config("guest", LARGE)
    assert check_get_put(config) == len(frameworks.load("guest").lenses)
    for field, value in NEW.items():
        assert field in FIELDS
        assert check_put_get(config, {field: value}) is not None, field
    assert {field for lens in frameworks.load("guest").lenses for field in lens.fields} == NEW.keys()
    assert find_lens(config, "batch.micro").fields == ("batch.micro",)


NEW = {
    "model.id": "Qwen/Qwen2.5-0.5B",
    "batch.micro": 2,
    "batch.accumulation": 8,
    "sequence.length": 1024,
    "precision.compute": "fp16",
    "activations.checkpointing": "full",
    "parallel.strategy": "ddp",
    "checkpoint.interval": 10,
    "checkpoint.keep": 2,
    "checkpoint.model_only": True,
    "checkpoint.path": "elsewhere",
}


@pytest.mark.usefixtures("either")
def test_it_is_linted_and_fixed(here):
    cluster = build_options(gpu="H100", nodes="1", gpus_per_node="8")
    result = lint(write_config(here, LARGE), cluster)
    assert result.troubles == ()
    assert {"MEM001", "MEM002"} <= {finding.code for finding in list_parts(result)}
    assert not [finding for finding in result.findings if finding.code.startswith("KEY")]
    fix(here, cluster)
    assert (here / "run.yaml").read_text() == LARGE.replace("micro_batch: 16", "micro_batch: 1").replace(
        "  strategy: fsdp\n", "  strategy: fsdp\n  accumulation: 16\n"
    )
    memory_findings = [finding for finding in lint(here, cluster).findings if finding.code.startswith("MEM")]
    assert not [finding for finding in memory_findings if finding.severity != "info"]


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("form", ["text", "json", "html"])
def test_it_is_estimated(here, form):
    outcome = run_cfglint("estimate", "--format", form, "--gpu", "H100", "run.yaml", cwd=write_config(here, LARGE))
    assert (outcome.code, outcome.err) == (0, "")
    assert "backward" in outcome.out


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("form", ["concise", "json", "sarif", "github", "gitlab", "junit", "rdjson", "markdown"])
def test_every_report_takes_it(here, form):
    outcome = run_cfglint("--output-format", form, "run.yaml", cwd=write_config(here, LARGE))
    assert (outcome.code, outcome.err) == (1, "")
    assert "MEM001" in outcome.out


@pytest.mark.usefixtures("guest")
def test_its_keys_are_held_against_the_vocabulary(here):
    findings = lint(write_config(here, WRONG)).findings
    key_findings = [(finding.code, finding.start.line) for finding in findings if finding.code.startswith("KEY")]
    assert key_findings == [("KEY001", 4), ("KEY004", 5), ("KEY006", 7)]
    assert findings[0].intent is not None
    assert findings[0].intent.applicability == "unsafe", "guest 1.0 and 1.1 have no micro_batch"
    fix(here, build_options(guest="2.0"))
    assert (here / "run.yaml").read_text() == WRONG.replace("micro_batch_size", "micro_batch").replace(
        "resume: true", "resume: false"
    )


@pytest.mark.usefixtures("bare")
def test_without_a_vocabulary_no_key_is_reported(here):
    """Report its clauses even without a vocabulary."""
    result = lint(write_config(here, WRONG))
    assert ({finding.code for finding in result.findings}, result.troubles) == ({"CHK001", "KEY006"}, ())


@pytest.mark.usefixtures("guest")
def test_it_is_migrated(here):
    outcome = run_cfglint("migrate", "--to", "guest=2.0", "run.yaml", cwd=write_config(here, OLD))
    assert (outcome.code, outcome.err) == (0, "")
    assert (here / "run.yaml").read_text() == OLD.replace("1.1", "2.0").replace("batch:", "micro_batch:")


@pytest.mark.usefixtures("bare")
def test_without_a_vocabulary_there_is_nothing_to_migrate_to(here):
    outcome = run_cfglint("migrate", "--to", "guest=2.0", "run.yaml", cwd=write_config(here, OLD))
    assert outcome.code == 2
    assert "expected NAME=RELEASE; known: accelerate" in outcome.err
    assert (here / "run.yaml").read_text() == OLD


@pytest.mark.usefixtures("guest")
def test_the_release_is_what_the_keys_in_use_tell(here):
    (run,) = list_runs(write_config(here, OLD.split("\n", 1)[1]))
    assert run.releases.get("guest") == "1.1"


@pytest.mark.usefixtures("either")
def test_it_is_named_where_frameworks_are(here, monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "docs" / "build"))
    assert "Guest" in run_cfglint("--help", cwd=here).out.split("\nframeworks:\n")[1].split("\n\n")[0]
    assert ", guest, " in run_cfglint("--release", "x=1", cwd=here).err
    import framework_pages
    import settings_page

    assert "[Guest](frameworks/guest.md)" in framework_pages.build_framework_list()
    assert {"Guest": "frameworks/guest.md"} in framework_pages.build_navigation()
    assert framework_pages.build_pages()["frameworks/guest.md"].startswith("# Guest\n")
    assert "`guest`" in settings_page.build_pages()["settings.md"].split("\n## Packages\n")[1]


@pytest.mark.usefixtures("guest")
def test_its_vocabulary_is_a_schema(here):
    assert "\nguest         1.0 to 2.0  (train)\n" in run_cfglint("schema", cwd=here).out
    assert "guest" in run_cfglint("schema", "--help", cwd=here).out
    schema = json.loads(run_cfglint("schema", "guest", "--release", "1.1", cwd=here).out)
    assert {"batch", "length"} <= schema["$defs"]["Train"]["properties"].keys()
    assert "micro_batch" not in schema["$defs"]["Train"]["properties"]


START = """
import sys
import cfglint_schemas
from cfglint_train import frameworks
frameworks.__path__.append({place!r})
cfglint_schemas.__path__.append({schemas!r})
from cfglint_train.front.process import main
main()
"""


def run_in_process(here: Path, *arguments: str) -> Outcome:
    """Run the command in a separate process."""
    code = START.format(place=str(GUEST.parent), schemas=str(SCHEMAS))
    roots = os.pathsep.join(str(REPOSITORY / root) for root in ("lint", "rules", "schemas"))
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=here, env={**os.environ, "PYTHONPATH": roots}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr)


def test_as_a_command(here):
    """Pin the release in a requirements file; run lint, fix and estimate, each in its own process."""
    (here / "requirements.txt").write_text("guest-trainer==1.1\n")
    outcome = run_in_process(write_config(here, LARGE), "--output-format", "concise", "--gpu", "H100")
    assert (outcome.code, outcome.err) == (1, "")
    assert "run.yaml:5:3: error KEY002 " in outcome.out
    (here / "requirements.txt").write_text("guest-trainer>=2\n")
    assert run_in_process(here, "--fix", "--gpu", "H100", "--nodes", "1", "--gpus-per-node", "8").code == 0
    assert "accumulation: 16" in (here / "run.yaml").read_text()
    assert "fits" in run_in_process(here, "estimate", "--gpu", "H100", "run.yaml").out

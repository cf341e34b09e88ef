"""`--online` with a local Hub: a server on this machine that answers the requests of huggingface_hub.

huggingface_hub reads `HF_ENDPOINT` and similar variables when it is imported, so every case runs in its own process.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cfglint_train.models.online import is_hub_id
from tests.models.test_local import TINY, TINY_PARAMETERS

COMMIT = "8c22764a7e3675c50d4c7c9a4edb474456022b16"
needs_hub = pytest.mark.skipif(
    importlib.util.find_spec("huggingface_hub") is None,
    reason="--online needs huggingface_hub (pip install 'cfglint-train[online]')",
)


class Hub:
    """The repositories of a server, and the requests that it received."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.refusals: dict[str, tuple[int, str]] = {}
        """Repository -> status and X-Error-Code."""
        self.revisions = {"main"}
        self.delay = 0.0
        self.requests: list[tuple[str, str]] = []
        self.tokens: set[str] = set()

    def add(self, name: str, content: Any, file: str = "config.json") -> None:
        """Add a file to a repository."""
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.files[f"{name}/{file}"] = text

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body for a path of the form /organisation/name/resolve/revision/file."""
        repository, _, revision_and_file = path.strip("/").partition("/resolve/")
        revision, _, file = revision_and_file.partition("/")
        revision = revision.replace("%2F", "/")
        if repository in self.refusals:
            status, code = self.refusals[repository]
            return status, {"X-Error-Code": code, "X-Error-Message": "no"}, b""
        if not any(name.startswith(repository + "/") for name in self.files):
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        if revision not in self.revisions | {COMMIT}:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        body = self.files.get(f"{repository}/{file}")
        if body is None:
            return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, b""
        etag = hashlib.sha1(body).hexdigest()
        return 200, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Content-Type": "application/json"}, body


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub_ = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            hub_.requests.append((self.command, self.path))
            hub_.tokens.add(self.headers.get("authorization", ""))
            time.sleep(hub_.delay)
            status, headers, body = hub_.answer(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET = respond  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub_.url = f"http://127.0.0.1:{server.server_address[1]}"  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield hub_
    server.shutdown()
    server.server_close()


CONFIG = """\
base_model: {model}
adapter: lora
lora_r: 8
lora_target_linear: true
micro_batch_size: 1
gradient_accumulation_steps: 1
sequence_len: 1024
num_epochs: 1
datasets: [{{path: a/b, type: alpaca}}]
output_dir: out
bf16: true
"""


class CommandOutput:
    """Exit code, output and errors of a command."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr


def run_cfglint(hub: Hub | None, work: Path, *arguments: str, **variables: str) -> CommandOutput:
    """Run the command with an empty cache and no proxy."""
    environment = {name: value for name, value in os.environ.items() if not name.upper().startswith(("HF_", "HUGG"))}
    environment = {name: value for name, value in environment.items() if not name.lower().endswith("_proxy")}
    environment |= {"HF_HOME": str(work / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    if hub is not None:
        environment["HF_ENDPOINT"] = hub.url  # type: ignore[attr-defined]
    command = [sys.executable, "-m", "cfglint_train", *arguments]
    return CommandOutput(
        subprocess.run(command, capture_output=True, text=True, cwd=work, env={**environment, **variables}, check=False)
    )


def run_models(hub: Hub | None, work: Path, name: str, **variables: str) -> CommandOutput:
    """Run `cfglint models NAME --online`."""
    return run_cfglint(hub, work, "models", name, "--online", **variables)


def read_parameters(output: CommandOutput) -> int:
    """Read the count that `cfglint models` prints."""
    line = next(line for line in output.out.splitlines() if line.startswith("parameters"))
    return int(line.split()[1].replace(",", ""))


# --- what is fetched -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_hub
def test_a_model_is_fetched_once_and_then_known(hub: Hub, tmp_path: Path) -> None:
    hub.add("us/tiny", TINY)
    hub.add("us/tiny", b"\0" * 100, "model.safetensors")
    output = run_models(hub, tmp_path, "us/tiny")
    assert (output.code, output.err) == (0, "")
    assert read_parameters(output) == TINY_PARAMETERS
    assert {path for _, path in hub.requests} == {"/us/tiny/resolve/main/config.json"}  # nothing else
    assert (tmp_path / "hf/hub/models--us--tiny/snapshots" / COMMIT / "config.json").is_file()
    # From now on the model is in the cache: no network, and no --online.
    hub.requests.clear()
    assert read_parameters(run_cfglint(hub, tmp_path, "models", "us/tiny")) == TINY_PARAMETERS
    assert read_parameters(run_models(hub, tmp_path, "us/tiny", HF_HUB_OFFLINE="1")) == TINY_PARAMETERS
    assert hub.requests == []


@needs_hub
def test_known_models_and_paths_are_never_asked_for(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CONFIG.format(model="Qwen/Qwen3-8B"))
    (tmp_path / "b.yaml").write_text(CONFIG.format(model="./models/mine"))
    (tmp_path / "c.yaml").write_text(CONFIG.format(model="/data/models/mine"))
    run_cfglint(hub, tmp_path, "--isolated", "--online", ".")
    assert hub.requests == []


@needs_hub
def test_without_the_flag_nobody_is_asked(hub: Hub, tmp_path: Path) -> None:
    hub.add("us/tiny", TINY)
    (tmp_path / "a.yaml").write_text(CONFIG.format(model="us/tiny"))
    output = run_cfglint(hub, tmp_path, "estimate", "--isolated", "a.yaml")
    assert "not known: the shape of us/tiny" in output.out
    assert hub.requests == []


@needs_hub
def test_an_estimate_and_a_check(hub: Hub, tmp_path: Path) -> None:
    hub.add("us/tiny", TINY)
    (tmp_path / "a.yaml").write_text(CONFIG.format(model="us/tiny"))
    (tmp_path / "b.yaml").write_text(CONFIG.format(model="us/tiny"))
    output = run_cfglint(hub, tmp_path, "estimate", "--isolated", "--online", "--format", "json", "a.yaml", "b.yaml")
    runs = json.loads(output.out)["runs"]
    assert [run["model"] for run in runs] == [{"id": "us/tiny", "parameters": TINY_PARAMETERS}] * 2
    assert output.code == 0
    assert len([path for method, path in hub.requests if method == "GET"]) == 1
    assert run_cfglint(hub, tmp_path, "--isolated", "--online", "--exit-zero", "a.yaml").code == 0


@needs_hub
def test_a_plan(hub: Hub, tmp_path: Path) -> None:
    hub.add("us/tiny", TINY)
    plan = {"model.id": "us/tiny", "method.tuning": "full", "batch.micro": 1, "sequence.length": 64}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    output = run_cfglint(hub, tmp_path, "estimate", "--online", "--plan", "plan.json", "--format", "json")
    assert json.loads(output.out)["runs"][0]["model"] == {"id": "us/tiny", "parameters": TINY_PARAMETERS}


@needs_hub
def test_an_adapter_is_its_base_model(hub: Hub, tmp_path: Path) -> None:
    hub.add("us/base", TINY)
    hub.add("us/lora", {"base_model_name_or_path": "us/base", "r": 8}, "adapter_config.json")
    assert read_parameters(run_models(hub, tmp_path, "us/lora")) == TINY_PARAMETERS


@pytest.mark.slow
@needs_hub
def test_a_revision(hub: Hub, tmp_path: Path) -> None:
    hub.add("us/tiny", TINY)
    hub.revisions.add("v2")
    text = CONFIG.format(model="us/tiny") + "revision_of_model: v2\n"
    (tmp_path / "a.yaml").write_text(text)
    assert run_cfglint(hub, tmp_path, "estimate", "--isolated", "--online", "a.yaml").code == 0
    assert {path for _, path in hub.requests} == {"/us/tiny/resolve/v2/config.json"}
    (tmp_path / "a.yaml").write_text(text.replace("v2", "v3"))
    output = run_cfglint(hub, tmp_path, "estimate", "--isolated", "--online", "a.yaml")
    assert output.code == 2
    assert "a.yaml:1" in output.err
    assert "no revision v3" in output.err


@needs_hub
def test_a_token_is_the_hubs_own_affair(hub: Hub, tmp_path: Path) -> None:
    hub.add("us/tiny", TINY)
    run_models(hub, tmp_path, "us/tiny", HF_TOKEN="hf_secret")
    assert hub.tokens == {"Bearer hf_secret"}


# --- what goes wrong -------------------------------------------------------------------------------------------------


@needs_hub
@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        ((401, "GatedRepo"), "log in"),
        ((403, "GatedRepo"), "access to it is restricted"),
        ((401, "RepoNotFound"), "no such model, or it is private"),
        ((404, "RepoNotFound"), "no such model, or it is private"),
        ((500, ""), "answers 500"),
    ],
)
def test_a_refusal_is_told_with_its_remedy(hub: Hub, tmp_path: Path, refusal: tuple[int, str], words: str) -> None:
    hub.refusals["us/closed"] = refusal
    output = run_models(hub, tmp_path, "us/closed")
    assert output.code == 2
    assert output.err.startswith("cfglint: us/closed: ")
    assert words in output.err
    assert output.err.count("\n") == 1


@needs_hub
def test_a_run_whose_model_is_refused_is_still_checked(hub: Hub, tmp_path: Path) -> None:
    hub.refusals["us/closed"] = 401, "GatedRepo"
    (tmp_path / "a.yaml").write_text(CONFIG.format(model="us/closed") + "gradient_checkpoint: true\n")
    output = run_cfglint(hub, tmp_path, "--isolated", "--online", "a.yaml")
    assert output.code == 2
    assert "gradient_checkpoint" in output.out
    assert "us/closed: " in output.out + output.err


@needs_hub
def test_a_huge_configuration_is_left_where_it_is(hub: Hub, tmp_path: Path) -> None:
    hub.add("us/huge", b" " * (5 << 20))
    output = run_models(hub, tmp_path, "us/huge")
    assert (output.code, "too large for a model configuration" in output.err) == (2, True)
    assert [method for method, _ in hub.requests] == ["HEAD"]


@needs_hub
@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b"null"])
def test_a_broken_configuration_names_its_file(hub: Hub, tmp_path: Path, content: bytes) -> None:
    hub.add("us/broken", content)
    output = run_models(hub, tmp_path, "us/broken")
    assert output.code == 2
    assert "config.json: " in output.err


@needs_hub
def test_a_family_without_counts_is_unknown(hub: Hub, tmp_path: Path) -> None:
    hub.add("us/odd", {**TINY, "model_type": "of_our_own"})
    output = run_models(hub, tmp_path, "us/odd")
    assert output.code == 2
    assert "us/odd is not in the catalogue" in output.err


@needs_hub
def test_a_repository_without_a_configuration(hub: Hub, tmp_path: Path) -> None:
    hub.add("us/gguf", b"\0", "model.gguf")
    output = run_models(hub, tmp_path, "us/gguf")
    assert (output.code, "it has no config.json" in output.err) == (2, True)


@needs_hub
def test_offline(hub: Hub, tmp_path: Path) -> None:
    hub.add("us/tiny", TINY)
    output = run_models(hub, tmp_path, "us/tiny", HF_HUB_OFFLINE="1")
    assert (output.code, "HF_HUB_OFFLINE is set" in output.err) == (2, True)
    assert hub.requests == []


@needs_hub
def test_nobody_listens(tmp_path: Path) -> None:
    output = run_models(None, tmp_path, "us/tiny", HF_ENDPOINT="http://127.0.0.1:1")
    assert output.code == 2
    assert "http://127.0.0.1:1 does not answer" in output.err


@needs_hub
def test_a_server_that_sleeps_is_left(hub: Hub, tmp_path: Path) -> None:
    hub.add("us/tiny", TINY)
    hub.delay = 60
    start = time.monotonic()
    output = run_models(hub, tmp_path, "us/tiny", HF_HUB_ETAG_TIMEOUT="1", HF_HUB_DOWNLOAD_TIMEOUT="1")
    assert (output.code, "does not answer" in output.err) == (2, True)
    assert time.monotonic() - start < hub.delay


def test_without_the_package_the_remedy_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CONFIG.format(model="us/tiny"))
    hide = (
        "import sys; sys.modules['huggingface_hub'] = None; from cfglint_train.front.cli import main; sys.exit(main())"
    )
    for arguments in (["models", "us/tiny"], ["a.yaml"], ["estimate", "a.yaml"]):
        done = subprocess.run(
            [sys.executable, "-c", hide, *arguments, "--online"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 2, arguments
        assert "pip install 'cfglint-train[online]'" in done.stderr


@pytest.mark.parametrize("name", ["a/b", "Qwen/Qwen3-8B", "0x/y_z.w"])
def test_hub_ids(name: str) -> None:
    assert is_hub_id(name)


@pytest.mark.parametrize(
    "name", ["a", "a/b/c", "./a", "../a", "/a/b", "~/a", "a/../b", "a\\b/c", "a/b.git", "a/b\n", "é/b", "a/" + "b" * 99]
)
def test_what_is_no_hub_id(name: str) -> None:
    assert not is_hub_id(name)


# --- --model-config --------------------------------------------------------------------------------------------------


def run_estimate(work: Path, *arguments: str) -> CommandOutput:
    """Run `cfglint estimate a.yaml` with further arguments."""
    (work / "a.yaml").write_text(CONFIG.format(model="us/tiny"))
    return run_cfglint(None, work, "estimate", "--isolated", "--format", "json", "a.yaml", *arguments)


@pytest.mark.parametrize("path", ["config.json", ".", "sub/my.json"])
def test_a_model_configuration_that_the_user_names(tmp_path: Path, path: str) -> None:
    file = tmp_path / path
    file = file / "config.json" if file.is_dir() else file
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(TINY))
    output = run_estimate(tmp_path, "--model-config", path)
    assert (output.code, output.err) == (0, "")
    assert json.loads(output.out)["runs"][0]["model"] == {"id": "us/tiny", "parameters": TINY_PARAMETERS}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "there is no such file"),
        ("{", "Expecting property name"),
        ("[1]", "not a JSON object"),
        (json.dumps({**TINY, "model_type": "of_our_own"}), "family of_our_own"),
        (json.dumps({"model_type": "llama"}), "family llama"),
    ],
)
def test_a_model_configuration_that_says_nothing(tmp_path: Path, content: str | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "m.json").write_text(content)
    output = run_estimate(tmp_path, "--model-config", "m.json")
    assert output.code == 2
    assert output.err.startswith("cfglint: --model-config m.json: ")
    assert reason in output.err


def test_a_plan_takes_it_too(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(json.dumps(TINY))
    plan = {"method.tuning": "full", "batch.micro": 1, "sequence.length": 64}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    arguments = ("estimate", "--plan", "plan.json", "--model-config", "m.json", "--format", "json")
    output = run_cfglint(None, tmp_path, *arguments)
    assert json.loads(output.out)["runs"][0]["model"]["parameters"] == TINY_PARAMETERS


def test_a_broken_model_folder_is_named_and_the_rest_is_checked(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{")
    (tmp_path / "a.yaml").write_text(CONFIG.format(model="./model") + "gradient_checkpoint: true\n")
    output = run_cfglint(None, tmp_path, "--isolated", "a.yaml")
    assert output.code == 2
    assert "model/config.json: " in output.out + output.err
    assert "gradient_checkpoint" in output.out

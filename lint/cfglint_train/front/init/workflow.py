"""The GitHub workflow: annotations on every pull request, with read permission only."""

from __future__ import annotations

import os
import re
from typing import Final

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.expressions import compile_on_use
from cfglint_train.version import VERSION

FOLDER: Final = ".github/workflows"
NAME: Final = f"{FOLDER}/cfglint.yml"

_TEXT: Final = """\
name: cfglint

on:
  pull_request:
  push:
    branches: [main, master]

permissions: {}

concurrency:
  group: cfglint-${{ github.ref }}
  cancel-in-progress: true

jobs:
  cfglint:
    name: cfglint
    runs-on: ubuntu-latest
    timeout-minutes: 10
    permissions:
      contents: read
    steps:
      - uses: actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2
        with:
          persist-credentials: false

"""
_ACTION: Final = """\
      - uses: {action}
"""
_SOURCE: Final = """\
        with:
          source: "{requirement}"
"""
_STEPS: Final = """\
      - uses: actions/setup-python@a26af69be951a213d495a4c3e4e4022e16d87065 # v5.6.0
        with:
          python-version: "3.13"

      - name: Install cfglint
        run: python -m pip install "{requirement}"

      - name: Lint the training configurations
        run: cfglint --output-format github
"""
"""Steps without the action, if its repository is unknown or not on GitHub, which runs only actions that it hosts."""

_GITHUB: Final = compile_on_use(
    r"https://github\.com/(?P<name>[\w.-]+/[\w.-]+?)(?:\.git)?(?:@(?P<ref>[\w./-]+))?/?", re.ASCII
)


def render_workflow(requirement: str, home: str | None = None) -> str:
    """Return a workflow that uses the action, or that installs cfglint from a requirement if no action is known.

    `home`: URL of the project's repository, which has a tag for this version, or None if it is unknown.
    """
    source_repository = _GITHUB.fullmatch(requirement.partition(" @ git+")[2])
    if source_repository is not None and source_repository["ref"]:
        return _TEXT + _ACTION.format(action=f"{source_repository['name']}@{source_repository['ref']}")
    project = _GITHUB.fullmatch(home or "")
    if project is not None:
        action = _ACTION.format(action=f"{project['name']}@v{VERSION}")
        return _TEXT + action + _SOURCE.format(requirement=requirement)
    return _TEXT + _STEPS.format(requirement=requirement)


def find_workflow(root: str) -> str | None:
    """Return the path of a workflow that mentions cfglint, relative to `root`, or None."""
    folder = os.path.join(root, FOLDER)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return None
    for name in names:
        try:
            if name.endswith((".yml", ".yaml")) and b"cfglint" in regular_files.read(os.path.join(folder, name)):
                return f"{FOLDER}/{name}"
        except OSError:
            continue
    return None

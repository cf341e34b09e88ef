"""Continuous integration workflows: the commands that they run are for tests."""

from __future__ import annotations

import re

from cfglint_train.foundation.typed import Final

_WORKFLOW: Final = re.compile(
    r"/\.(?:github|gitlab|circleci|azure-pipelines|buildkite)/|/\.gitlab-ci\.ya?ml$|/azure-pipelines\.ya?ml$"
)


def is_workflow(path: str) -> bool:
    """Return whether a file, given by its absolute path, is a workflow of a CI service."""
    return _WORKFLOW.search(path) is not None

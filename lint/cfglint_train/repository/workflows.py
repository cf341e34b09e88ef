"""Files of the services that test what is committed: what they install and start is for the tests."""

from __future__ import annotations

import re

from cfglint_train.foundation.typed import Final

_WORKFLOW: Final = re.compile(
    r"/\.(?:github|gitlab|circleci|azure-pipelines|buildkite)/|/\.gitlab-ci\.ya?ml$|/azure-pipelines\.ya?ml$"
)


def is_workflow(path: str) -> bool:
    """Whether a file, by its absolute path, is one of such a service."""
    return _WORKFLOW.search(path) is not None

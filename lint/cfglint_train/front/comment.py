"""One comment on the pull request, which the Action updates if the workflow hands over a token.

Source: GitHub's REST API, "Issue comments" (2022-11-28): a pull request is an issue, and a body has at most 65,536
characters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from json import dumps, loads
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from cfglint_train.foundation import regular_files
from cfglint_train.foundation.typed import Any, Final

MAX_BODY: Final = 60_000
"""Maximum size of the comment in bytes."""
_MARK: Final = "<!-- cfglint: changed runs -->"
"""First line of the comment, by which the next run recognizes it."""
_ACTIONS_USER: Final = "github-actions[bot]"
"""Author of comments that are made with the token of a workflow, which may not ask for its user."""
_PAGE: Final = 100
_MAX_PAGES: Final = 10
_SECONDS: Final = 20


class CommentError(Exception):
    """Failure to write the comment; the message gives the reason."""


class _NoRedirects(HTTPRedirectHandler):
    """Refusal of redirects, which could send the token elsewhere."""

    def redirect_request(self, *arguments: Any) -> None:
        """Return None, so that the redirect becomes an error."""


class _Service:
    """GitHub's API for one repository."""

    def __init__(self, environment: Mapping[str, str], token: str) -> None:
        """Read the addresses that the runner sets. Raise CommentError if one is missing."""
        self._address, self._token = environment.get("GITHUB_API_URL", ""), token
        self.repository = environment.get("GITHUB_REPOSITORY", "")
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", self.repository) or not re.match("https?://", self._address):
            raise CommentError("GITHUB_API_URL or GITHUB_REPOSITORY is not set")

    def send(self, method: str, path: str, content: Mapping[str, str] | None = None) -> Any:
        """Return the answer to a request. Raise CommentError."""
        data = None if content is None else dumps(content).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/vnd.github+json"}
        request = Request(f"{self._address}{path}", data, headers, method=method)
        try:
            with build_opener(_NoRedirects).open(request, timeout=_SECONDS) as answer:
                return loads(answer.read())
        except HTTPError as error:
            need = "; the job needs `pull-requests: write`" if error.code in (401, 403, 404) else ""
            raise CommentError(f"GitHub answered {error.code}{need}") from None
        except (URLError, OSError, ValueError) as error:
            raise CommentError(f"GitHub did not answer: {type(error).__name__}") from None


def update_comment(environment: Mapping[str, str], token: str, body: str | None) -> None:
    """Write the comment of the event's pull request; None means that no run changed.

    A comment is created only if a run changed, and only the token's own comment is edited. Raise CommentError.
    """
    number = _read_number(environment)
    if number is None:
        return
    service = _Service(environment, token)
    comment = _find_comment(service, number)
    content = {"body": f"{_MARK}\n{'No run changes.' if body is None else body}"}
    if comment is not None:
        service.send("PATCH", f"/repos/{service.repository}/issues/comments/{comment}", content)
    elif body is not None:
        service.send("POST", f"/repos/{service.repository}/issues/{number}/comments", content)


def _read_number(environment: Mapping[str, str]) -> int | None:
    """Return the number of the event's pull request, or None if the event concerns none."""
    try:
        event = loads(regular_files.read(environment.get("GITHUB_EVENT_PATH", "")))
        number = event["pull_request"]["number"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return number if type(number) is int else None


def _find_comment(service: _Service, number: int) -> int | None:
    """Return the id of the comment that an earlier run wrote, or None. Raise CommentError."""
    try:
        author = service.send("GET", "/user")["login"]
    except CommentError:
        author = _ACTIONS_USER
    for page in range(1, _MAX_PAGES + 1):
        path = f"/repos/{service.repository}/issues/{number}/comments?per_page={_PAGE}&page={page}"
        comments = service.send("GET", path)
        for comment in comments:
            if str(comment.get("body")).startswith(_MARK) and (comment.get("user") or {}).get("login") == author:
                return int(comment["id"])
        if len(comments) < _PAGE:
            break
    return None

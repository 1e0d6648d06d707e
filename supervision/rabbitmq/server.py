"""Two doors to a RabbitMQ server: `rabbitmqctl` and the HTTP API of its management plugin. Both take the same definitions."""

from __future__ import annotations

import http.client
import json
import shlex
import ssl
import subprocess
import urllib.error
import urllib.request
from base64 import b64encode
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlsplit

PATIENCE_SECONDS = 60


class ServerError(Exception):
    """The server could not be asked, or refused. The message is one line."""


class Server(Protocol):
    """What the setup of users needs of a server."""

    def users(self) -> dict[str, list[str]]:
        """The names of all users, each with its tags."""

    def load(self, definitions: dict[str, Any]) -> None:
        """Apply users, permissions and topic permissions. What is there already and not named stays."""

    def delete_user(self, name: str) -> None:
        """Delete this user with its permissions, and close its connections."""


class Ctl:
    """`rabbitmqctl` on this machine, or behind another command. command: split as a shell does."""

    def __init__(self, command: str = "rabbitmqctl") -> None:
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            raise ServerError(f"--rabbitmqctl: {error}") from None
        if not self._command:
            raise ServerError("--rabbitmqctl: expected a command")

    def _run(self, *arguments: str, given: str | None = None) -> str:
        try:
            done = subprocess.run(
                [*self._command, *arguments], input=given, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServerError(f"{self._command[0]}: {str(error).splitlines()[0]}") from None
        if done.returncode:
            said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            raise ServerError(f"{self._command[0]} {arguments[0]}: {said[0].strip() if said else f'it ended with {done.returncode}'}")
        return done.stdout

    def users(self) -> dict[str, list[str]]:
        try:
            return {row["user"]: list(row["tags"]) for row in json.loads(self._run("-q", "list_users", "--formatter", "json"))}
        except (ValueError, KeyError, TypeError) as error:
            raise ServerError(f"{self._command[0]} list_users: its answer cannot be read: {error}") from None

    def load(self, definitions: dict[str, Any]) -> None:
        self._run("-q", "import_definitions", given=json.dumps(definitions))

    def delete_user(self, name: str) -> None:
        self._run("-q", "delete_user", name)


class Api:
    """The management plugin's HTTP API. url: `http://user:password@host:15672`, of an administrator.

    tls: Celery's `broker_use_ssl`, whose authorities and certificate are used for https, too. The server is always checked.
    """

    def __init__(self, url: str, tls: Any = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or not parts.username:
            raise ServerError("--api: expected http://user:password@host:15672")
        self._base = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}/api"
        known = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        self._context = _context(tls if isinstance(tls, dict) else {}) if parts.scheme == "https" else None
        self._headers = {"Authorization": f"Basic {b64encode(known.encode()).decode()}", "Content-Type": "application/json"}

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._base}{path}", data, self._headers, method=method)  # noqa: S310 - the scheme is checked
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS, context=self._context) as answer:  # noqa: S310  # nosemgrep: call-without-a-door
                content = answer.read()
                return json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            why = (
                "the user is no administrator, or its password is wrong"
                if error.code in (401, 403)
                else error.read(300).decode("utf-8", "replace")
            )
            raise ServerError(f"{self._base}: {error.code}: {why}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ServerError(f"{self._base}: {getattr(error, 'reason', None) or str(error).strip() or type(error).__name__}") from None

    def users(self) -> dict[str, list[str]]:
        tags = {row["name"]: row["tags"] for row in self._ask("GET", "/users")}
        return {name: given if isinstance(given, list) else [tag for tag in given.split(",") if tag] for name, given in tags.items()}

    def load(self, definitions: dict[str, Any]) -> None:
        self._ask("POST", "/definitions", definitions)

    def delete_user(self, name: str) -> None:
        self._ask("DELETE", f"/users/{quote(name, safe='')}")


def _context(tls: dict[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.get("ca_certs"))
    if tls.get("certfile"):
        context.load_cert_chain(tls["certfile"], tls.get("keyfile"))
    return context

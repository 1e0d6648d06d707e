"""A plugin that is loaded before pytest-django reads the settings: it chooses the database and values of the tests.

With DATABASE_URL set, the tests use that server. Without it, an embedded PostgreSQL runs for the session in a temporary
directory. The settings can name it before it runs, because its address follows from the directory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from sasproject.embedded import EmbeddedPostgres, database_url
from sasproject.pgbinaries import EmbeddedPostgresError

os.environ.setdefault("SECRET_KEY", "for-tests-only-and-long-enough-to-be-taken-for-a-real-one")
os.environ.setdefault("SECURE_SSL_REDIRECT", "0")
os.environ.setdefault("CELERY_BROKER_URL", "memory://")
os.environ.setdefault("ALLOW_FAILPOINTS", "1")

# Workers of pytest-xdist inherit DATABASE_URL from the session that started the server.
_state_dir = None if os.environ.get("DATABASE_URL") else tempfile.mkdtemp(prefix="sas-tests-")
if _state_dir is not None:
    os.environ["DATABASE_URL"] = database_url(_state_dir)
# The tests' journal goes to a temporary directory.
_journal_dir = None if os.environ.get("JOURNAL_DIR") else tempfile.mkdtemp(prefix="sas-journal-")
os.environ.setdefault("JOURNAL_DIR", _journal_dir or "")
_server: EmbeddedPostgres | None = None

# Tests that start whole shops: a dozen processes each, with deadlines. Two at once would slow each other past them.
WHOLE_SHOPS = (
    "tests/browser/",
    "tests/chaos/test_short_chaos.py",
    "tests/e2e/",
    "tests/governed/",
    "tests/hazards/test_deaf_workers.py",
    "tests/journal/test_roles.py",
    "tests/stack/",
)


class OneShopAtATime(LoadScopeScheduling):  # type: ignore[misc]
    """Distribute files over pytest-xdist's processes; all files that start whole shops go to one process and begin first."""

    def _split_scope(self, nodeid: str) -> str:
        return "whole shops" if nodeid.startswith(WHOLE_SHOPS) else nodeid.split("::", 1)[0]

    def _assign_work_unit(self, node: Any) -> None:
        if "whole shops" in self.workqueue:
            self.workqueue.move_to_end("whole shops", last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Start the server, unless DATABASE_URL names one."""
    global _server
    if _state_dir is None or session.config.option.collectonly:
        return
    _server = EmbeddedPostgres(_state_dir, fast=True)
    try:
        _server.start()
    except EmbeddedPostgresError as problem:
        pytest.exit(f"no database for the tests: {problem}", returncode=3)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server and delete its data, after all other plugins have closed their connections."""
    if _server is not None:
        _server.stop()
        shutil.rmtree(_server.socket_dir, ignore_errors=True)
    for mine in filter(None, (_state_dir, _journal_dir)):
        shutil.rmtree(mine, ignore_errors=True)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneShopAtATime | None:
    """The scheduler for `--dist loadfile`, which keeps files together."""
    return OneShopAtATime(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Replace half characters: pytest-xdist sends reports as UTF-8, and one in a test's log would end the whole run."""
    return _encodable((yield))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return type(value)(map(_encodable, value)) if isinstance(value, list | tuple) else value


def pytest_report_header(config: pytest.Config) -> str:
    """The database of this session."""
    return f"database: {'embedded PostgreSQL' if _state_dir is not None else 'DATABASE_URL'}"

"""A journal for each test: real commits, a temporary directory, writers in this process and in others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from supervision import testing
from supervision.journal import files
from supervision.runtime import failpoints
from tests.engine.conftest import store_database, tuned
from tests.journal.kit import Processes

TABLES = ("journalentry", "journalfile", "writerlease", "notification", "cachedresult", "incident")


def empty_the_journal() -> None:
    statements = [f"DELETE FROM supervision_{table}" for table in TABLES]  # noqa: S608 - the names above
    with connection.cursor() as cursor:
        cursor.execute(";".join(statements))


@pytest.fixture
def journal_dir(store_database: None, django_db_blocker: Any, settings: Any, tmp_path: Path) -> Iterator[Path]:
    """An empty journal and its directory."""
    settings.SUPERVISION = {**settings.SUPERVISION, "JOURNAL_DIR": str(tmp_path / "journal")}
    with django_db_blocker.unblock(), testing.quiet():
        empty_the_journal()
        try:
            yield tmp_path / "journal"
        finally:
            failpoints.load({})
            empty_the_journal()
            testing.renew_session()


@pytest.fixture
def another_machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function: after its call this process believes that it runs on another machine."""

    def move(name: str = "elsewhere/12345678") -> None:
        monkeypatch.setattr("supervision.journal.statements.host", lambda: name)
        monkeypatch.setattr("supervision.journal.writer.host", lambda: name)
        monkeypatch.setattr("supervision.journal.verify.host", lambda: name)

    assert files.host()
    return move


@pytest.fixture(scope="session")
def _forker() -> Iterator[Processes]:
    with Processes() as processes:
        yield processes


@pytest.fixture
def processes(_forker: Processes, journal_dir: Path) -> Iterator[Processes]:
    """Starts writers as separate processes on this test's database and directory."""
    _forker.use(str(connection.settings_dict["NAME"]), journal_dir)
    yield _forker
    _forker.kill_all()


__all__ = ["store_database", "tuned"]

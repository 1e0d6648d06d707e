"""readyz tells the truth: it writes, it names what is wrong, and many probes at once are one."""

from __future__ import annotations

import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from orders.api import readiness
from orders.api.readiness import Readiness, look
from supervision.api import errors
from tests.engine import kit
from tests.shopping import a_client

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server() -> Iterator[psycopg.Connection[Any]]:
    """Another session, which every look can meet."""
    with kit.another_connection(autocommit=True) as other:
        yield other


def test_ready_means_that_a_row_was_written_and_a_table_has_grown(monkeypatch):
    executed: list[str] = []
    fetch = readiness.db.fetch
    monkeypatch.setattr(readiness.db, "fetch", lambda statement, *rest: executed.append(statement) or fetch(statement, *rest))

    assert look()[0] == 200
    assert kit.fetch("SELECT id, written_at > now() - interval '10 s' FROM supervision_writeprobe") == [(1, True)]
    kit.fetch("UPDATE supervision_writeprobe SET written_at = '2020-01-01', allocated_at = '2020-01-01'")
    executed.clear()
    assert look()[0] == 200
    assert kit.fetch("SELECT written_at > now() - interval '10 s' FROM supervision_writeprobe") == [(True,)]
    assert set(readiness._ALLOCATE) <= set(executed)
    assert kit.fetch("SELECT count(*) FROM supervision_writeprobepage") == [(0,)]


def test_a_database_that_takes_no_writes_is_not_ready(server):
    name = connection.settings_dict["NAME"]
    server.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    connection.close()  # the next one has the setting
    try:
        status, document = look()
    finally:
        server.execute("SET default_transaction_read_only = off")
        server.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')

    assert (status, document["database"]) == (503, "read-only")
    assert look()[0] == 200


@pytest.fixture
def hidden(server) -> Iterator[None]:
    """The database's new sessions look for tables in another schema."""
    name = connection.settings_dict["NAME"]
    server.execute(f'ALTER DATABASE "{name}" SET search_path = elsewhere')
    connection.close()
    try:
        yield
    finally:
        server.execute(f'ALTER DATABASE "{name}" RESET search_path')
        connection.close()


def test_tables_that_the_search_path_does_not_reach_are_not_said_to_lack_a_migration(hidden):
    status, document = look()

    assert (status, document["database"]) == (503, "search path")
    assert document["detail"].startswith("the tables are in the schema public, where ")
    assert document["detail"].endswith("its search_path is elsewhere")


@pytest.mark.parametrize("path", ["/", "/api/v1/orders/"])
def test_a_request_that_finds_no_table_by_the_search_path_is_answered_503_and_the_log_says_why(hidden, caplog, path):
    client = a_client()
    client.raise_request_exception = False

    answer = client.get(path, headers={"Authorization": "Token x"})

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, str(errors.RETRY_AFTER_SECONDS))
    assert "its search_path is elsewhere -> ALTER ROLE ... SET search_path" in caplog.text


def test_a_full_disk_is_not_ready(tmp_path: Path):
    with full_disk(tmp_path) as tablespace:
        kit.fetch(f"ALTER TABLE supervision_writeprobepage SET TABLESPACE {tablespace}")
        try:
            kit.fetch("UPDATE supervision_writeprobe SET allocated_at = '2020-01-01', written_at = '2020-01-01'")
            assert look()[0] == 200
            filled = tmp_path / "disk" / "filler"
            with pytest.raises(OSError, match="No space"):
                filled.write_bytes(b"x" * 2_000_000)
            kit.fetch("UPDATE supervision_writeprobe SET allocated_at = '2020-01-01', written_at = '2020-01-01'")
            status, document = look()
            again = look()  # a load balancer asks every second, and a page is allocated every five
            filled.unlink()
        finally:
            (tmp_path / "disk" / "filler").unlink(missing_ok=True)
            kit.fetch("ALTER TABLE supervision_writeprobepage SET TABLESPACE pg_default")
    assert (status, document["database"]) == (503, "disk full")
    assert (again[0], again[1]["database"]) == (503, "disk full")


class full_disk:  # noqa: N801 - a context manager
    """A tablespace on a file system of one megabyte. Skips where this user cannot make one for this server."""

    def __init__(self, directory: Path) -> None:
        self.place = directory / "disk"
        self.name = f"full_{uuid.uuid4().hex[:8]}"  # tablespaces belong to the whole server

    def __enter__(self) -> str:
        data = Path(kit.fetch("SHOW data_directory")[0][0])
        self.place.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", self.place], capture_output=True, check=False)
        if mounted.returncode or not data.exists():
            if not mounted.returncode:
                subprocess.run(["umount", "--lazy", self.place], check=True)
            pytest.skip("a small file system for a server on this machine needs the right to mount one")
        owner = data.stat()
        subprocess.run(["chown", f"{owner.st_uid}:{owner.st_gid}", self.place], check=True)
        for parent in self.place.parents[:-2]:
            parent.chmod(parent.stat().st_mode | 0o011)
        kit.fetch(f"CREATE TABLESPACE {self.name} LOCATION '{self.place}'")
        return self.name

    def __exit__(self, *_: object) -> None:
        try:
            kit.fetch(f"DROP TABLESPACE {self.name}")
        finally:
            subprocess.run(["umount", "--lazy", self.place], check=True)


def test_a_write_that_waits_for_a_lock_is_not_ready_for_long():
    look()
    kit.fetch("UPDATE supervision_writeprobe SET written_at = '2020-01-01'")
    with kit.another_connection() as other:
        other.execute("SELECT FROM supervision_writeprobe FOR UPDATE")
        began = time.monotonic()
        status, document = look()

    assert (status, document["database"]) == (503, "too slow")
    assert time.monotonic() - began < readiness.WITHIN_SECONDS


def test_a_backup_that_reads_every_table_leaves_it_ready(server):
    look()
    kit.fetch("UPDATE supervision_writeprobe SET allocated_at = '2020-01-01', written_at = '2020-01-01'")
    with kit.another_connection() as backup:
        backup.execute("LOCK TABLE supervision_writeprobepage IN ACCESS SHARE MODE")
        assert look()[0] == 200


@pytest.mark.parametrize(("answered", "cause"), [(True, "no answer"), (False, "unreachable")])
def test_many_probes_at_once_are_one_and_a_look_that_hangs_holds_none_up(monkeypatch, answered, cause):
    looks, go_on = [], threading.Event()

    def hangs(reached: Callable[[], object]) -> Any:
        looks.append(1)
        if answered:
            reached()
        go_on.wait(60)
        return 200, {"status": "ok"}

    monkeypatch.setattr(readiness, "look", hangs)
    monkeypatch.setattr(readiness, "WITHIN_SECONDS", 0.3)
    probe, answers = Readiness(), []
    probes = [threading.Thread(target=lambda: answers.append(probe.answer())) for _ in range(20)]
    for thread in probes:
        thread.start()
    for thread in probes:
        thread.join(30)

    assert looks == [1]
    assert {(status, document["database"]) for status, document in answers} == {(503, cause)}
    go_on.set()
    monkeypatch.setattr(readiness, "WITHIN_SECONDS", 30.0)
    monkeypatch.setattr(readiness, "KEEP_SECONDS", 0.0)
    assert probe.answer()[0] == 200


def test_a_look_whose_write_is_not_confirmed_has_reached_the_server(monkeypatch):
    reached = threading.Event()
    with monkeypatch.context() as patched, kit.another_connection() as other:
        kit.fetch(readiness._WRITE, {"every": 5})
        kit.fetch("UPDATE supervision_writeprobe SET written_at = '2020-01-01'")
        other.execute("SELECT FROM supervision_writeprobe FOR UPDATE")
        patched.setattr(readiness, "_LIMITS", "SELECT set_config('lock_timeout', '50ms', true)")
        assert look(reached.set)[0] == 503
    assert reached.is_set()


def test_alive_means_no_question_to_the_database(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert a_client().get("/healthz").status_code == 200

"""`manage.py migrate` that is killed, that meets another one, and that meets long transactions and autovacuum of others."""

from __future__ import annotations

import re
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from chaos.look import until
from chaos.shop import scratch_database
from supervision.embedded.server import EmbeddedPostgres
from tests.support.migrating import answer, manage, managing, probing

pytestmark = pytest.mark.timeout(900)
INDEX = "step_awaiting"  # supervision.0033 builds it
VALID = "SELECT (SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('step_awaiting'))"
WAITS = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX%%' AND wait_event_type = 'Lock' AND datname = current_database()"


@contextmanager
def old_snapshot(url: str) -> Iterator[psycopg.Connection]:
    """A report that began before, for which `CREATE INDEX CONCURRENTLY` waits at its end."""
    with psycopg.connect(url) as report:
        report.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        report.execute("SELECT count(*) FROM supervision_run")
        yield report


def builder(url: str) -> int:
    """The server process that builds the index, as soon as it waits for the report."""
    with psycopg.connect(url, autocommit=True) as database:

        def waiting() -> tuple[int] | None:
            return database.execute(WAITS).fetchone() if answer(url, VALID) is False else None

        found = until(waiting, within=120, what="the build to wait for the report")
    return int(found[0])


@pytest.fixture(scope="module")
def without_the_index(migrated: str) -> Iterator[str]:
    """The name of a database in which the index is still to build, to copy."""
    with scratch_database(migrated) as url:
        assert manage(url, "migrate", "supervision", "0032", "-v0").returncode == 0
        assert answer(url, VALID) is None
        yield urlsplit(url).path.removeprefix("/")


@pytest.fixture
def before(without_the_index: str) -> Iterator[str]:
    """A copy of it."""
    with scratch_database(without_the_index) as copy:
        yield copy


@pytest.mark.parametrize(
    "valid",
    [pytest.param(False, id="not finished"), pytest.param(True, id="finished and not recorded", marks=pytest.mark.nightly)],
)
def test_an_index_that_a_killed_migrate_left_is_built_again(before: str, valid: bool):
    with old_snapshot(before) as report, managing(before, "migrate") as first:
        pid = builder(before)
        first.kill()
        first.wait(30)
        if not valid:
            answer(before, f"SELECT pg_terminate_backend({pid}, 10000)")
        report.rollback()
    until(lambda: answer(before, f"SELECT pid FROM pg_stat_activity WHERE pid = {pid} UNION ALL SELECT 0") == 0, within=120)  # noqa: S608 - a number
    assert answer(before, VALID) is valid

    again = manage(before, "migrate")

    assert again.returncode == 0, again.stderr
    assert f"dropped the index {INDEX}, which an earlier migrate did not finish" in again.stderr
    assert answer(before, VALID) is True
    assert manage(before, "migrate", "--check").returncode == 0


def test_an_undoing_that_was_cut_off_is_repeated_too(url: str):
    """supervision.0007 builds an index in both directions, and drops the half one itself; orders.0024 does not."""
    name = "orders_order_account_id_cf843c80"
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(f"CREATE INDEX {name} ON orders_order (account_id)")

    ran = manage(url, "migrate", "orders", "0023", "--lose-data")

    assert ran.returncode == 0, ran.stderr
    assert f"dropped the index {name}" in ran.stderr
    assert answer(url, VALID.replace(INDEX, name)) is True


@pytest.mark.nightly
def test_two_at_once_wait_for_each_other_and_do_nothing_twice(before: str):
    with old_snapshot(before) as report, managing(before, "migrate") as first:
        builder(before)
        with managing(before, "migrate") as second:
            said = second.stderr.readline() if select.select([second.stderr], [], [], 90)[0] else "nothing"
            report.rollback()
            rest = second.communicate(timeout=120)[1]
            assert (first.wait(120), second.returncode) == (0, 0), rest

    assert said == "another migrate works on this database; waiting for it\n"
    assert "dropped" not in rest
    assert answer(before, VALID) is True


@pytest.mark.nightly
def test_writers_go_on_while_a_migration_waits_for_a_long_transaction(url: str):
    assert manage(url, "migrate", "supervision", "0040", "-v0").returncode == 0
    tries: list[str] = []
    letter = "INSERT INTO supervision_deadletter (source, body, reason) VALUES ('s', '', 'r')"

    with psycopg.connect(url) as report, psycopg.connect(url, autocommit=True) as writer, managing(url, "migrate") as migrate:
        report.execute("LOCK TABLE supervision_deadletter IN ACCESS SHARE MODE")
        writer.execute("SET statement_timeout = '15s'")  # the report does not end before the writer has written
        reader = threading.Thread(target=lambda: tries.extend(iter(migrate.stderr.readline, "")), daemon=True)
        reader.start()
        written = 0
        while sum("trying again" in line for line in tries) < 3:
            writer.execute(letter)
            written += 1
            assert migrate.poll() is None
        report.rollback()
        assert migrate.wait(120) == 0
        reader.join(10)

    assert written > 3
    assert re.search(r"no lock within 0\.1 s, this migration is rolled back", "".join(tries))
    assert answer(url, "SELECT count(*) FROM supervision_deadletter WHERE blanked_at IS NULL") == written


@pytest.mark.nightly
def test_an_autovacuum_gives_way_to_a_migration(tmp_path: Path):
    with EmbeddedPostgres(tmp_path, fast=True) as server, psycopg.connect(server.url, autocommit=True) as database:
        for setting in ("autovacuum_naptime = 1", "autovacuum_vacuum_cost_limit = 1", "autovacuum_vacuum_cost_delay = 100"):
            database.execute(f"ALTER SYSTEM SET {setting}")
        database.execute("SELECT pg_reload_conf()")
        assert manage(server.url, "migrate", "supervision", "0040", "-v0").returncode == 0
        database.execute("INSERT INTO supervision_deadletter (source, body, reason) SELECT 's', '', 'r' FROM generate_series(1, 50000)")
        database.execute("DELETE FROM supervision_deadletter")
        vacuum = "SELECT count(*) FROM pg_stat_progress_vacuum WHERE relid = 'supervision_deadletter'::regclass"
        until(lambda: answer(server.url, vacuum) == 1, within=90, what="the autovacuum")

        ran = manage(server.url, "migrate", "--lock-tries", "5")

        assert ran.returncode == 0, ran.stderr
        assert "trying again (4 left)" in ran.stderr


LOOKING = """
import os
from pathlib import Path
import psycopg
from django.db import migrations
from django.db.migrations.operations.base import Operation

class Look(Operation):
    reversible = True
    def state_forwards(self, app_label, state):
        pass
    def database_forwards(self, app_label, editor, before, after):
        with psycopg.connect(os.environ["DATABASE_URL"]) as other:
            held = other.execute(
                "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
                " WHERE d.datname = current_database() AND l.relation = 'orders_order'::regclass"
            ).fetchone()[0]
        Path(os.environ["LOOKED"]).write_text(str(held))

def read(apps, editor):
    with editor.connection.cursor() as cursor:
        cursor.execute("SELECT count(probe) FROM orders_order")

class Migration(migrations.Migration):
    operations = [
        migrations.RunSQL("ALTER TABLE orders_order ADD COLUMN probe int"),
        Look(),
        migrations.RunPython(read),
        migrations.RunSQL("ALTER TABLE orders_order ADD COLUMN probe_too int"),
    ]
"""


def test_no_lock_is_held_while_django_computes_the_next_statement(url: str, tmp_path: Path):
    looked = tmp_path / "looked"

    ran = manage(url, "migrate", **probing(tmp_path, {"0001_looks": LOOKING}), LOOKED=str(looked))

    assert ran.returncode == 0, ran.stderr
    assert looked.read_text() == "0"
    assert answer(url, "SELECT count(*) FROM pg_attribute WHERE attrelid = 'orders_order'::regclass AND attname LIKE 'probe%'") == 2

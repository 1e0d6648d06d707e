"""`manage.py migrate` on databases of any age, beside transactions that hold locks. Each run is a process of its own."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from django.db.migrations.loader import MigrationLoader

from tests.support.migrating import answer, manage, probing

TABLES = "SELECT count(*) FROM pg_class WHERE relname ~ '^(supervision|orders)_' AND relkind = 'r'"
OURS = ("supervision", "orders")
FUNCTIONS = "SELECT count(*) FROM pg_proc WHERE proname ~ '^supervision_'"
PROBE = """
from django.db import migrations
class Migration(migrations.Migration):
    atomic = {atomic}
    dependencies = [{after}]
    operations = [migrations.RunSQL("{sql}")]
"""


def with_the_old_names(url: str, *, but: int = 0) -> None:
    """Let the database have been migrated by the migrations that were replaced; but: without the last of them."""
    disk = MigrationLoader(None).disk_migrations
    assert manage(url, "migrate", "supervision", "0001", "--lose-data", "-v0").returncode == 0
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("DELETE FROM django_migrations WHERE app IN ('supervision', 'orders')")
        for (app, _), migration in disk.items():
            if app in OURS:
                for _, old in migration.replaces[: len(migration.replaces) - (but if app == "supervision" else 0)]:
                    database.execute("INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, now())", [app, old])


def test_the_tables_of_orders_have_no_index_that_no_query_uses(url: str):
    for_like = "SELECT string_agg(indexdef, '; ') FROM pg_indexes WHERE tablename ~ '^orders_(order|stock)' AND indexdef ~ '_pattern_ops'"
    room = "SELECT count(*) FROM pg_class WHERE relname ~ '^supervision_' AND 'fillfactor=50' = ANY(reloptions)"

    assert re.findall(r"\((.+?) \w+_pattern_ops\)", answer(url, for_like)) == ["lower((email)::text)"]
    assert answer(url, room) == 4  # submissions, runs, steps, webhooks


@pytest.mark.nightly
def test_a_database_with_all_replaced_migrations_goes_on(url: str):
    with_the_old_names(url)
    disk = MigrationLoader(None).disk_migrations
    later = sorted(f"{app}.{name}" for (app, name), migration in disk.items() if app in OURS and not migration.replaces)

    ran = manage(url, "migrate")

    assert ran.returncode == 0, ran.stderr
    assert sorted(re.findall(r"Applying (\S+)\.\.\. OK", ran.stdout)) == later


def test_rows_of_other_programs_get_the_shops_workflow_from_the_shop_and_none_from_the_engine(url: str):
    insert = "INSERT INTO supervision_submission (public_id, payload) VALUES (md5(random()::text), '{}') RETURNING workflow"
    assert answer(url, insert) == "fulfil-order"

    assert manage(url, "migrate", "orders", "0001").returncode == 0

    with pytest.raises(psycopg.errors.NotNullViolation, match="workflow"):
        answer(url, insert)
    assert manage(url, "migrate").returncode == 0
    assert answer(url, insert) == "fulfil-order"


@pytest.mark.nightly
def test_a_database_between_them_is_told_what_to_do(url: str):
    with_the_old_names(url, but=3)

    ran = manage(url, "migrate")

    assert ran.returncode != 0
    assert re.findall(r"\(supervision\.E\w+\) (.*)\n\tHINT: (.{22})", ran.stderr) == [
        (
            "The database lacks 3 of the migrations that supervision.0001_squashed_0021_plain_label replaces,"
            " the first: 0019_standing_alerts.",
            "First run `migrate` wi",
        )
    ]
    assert "Traceback" not in ran.stderr


@pytest.mark.nightly
def test_the_initial_migrations_can_be_undone(url: str):
    assert answer(url, FUNCTIONS) > 5

    for app in ("orders", "supervision"):
        assert manage(url, "migrate", app, "zero", "--lose-data").returncode == 0

    assert (answer(url, TABLES), answer(url, FUNCTIONS)) == (0, 0)


def test_a_lock_that_is_not_free_is_tried_again_and_holds_nothing_up(url: str, tmp_path: Path):
    waits = "CREATE TABLE probe_{} AS SELECT current_setting('lock_timeout') AS waits"
    add = "ALTER TABLE orders_order ADD COLUMN probe int"
    migrations = {
        "0001_atomic": PROBE.format(atomic=True, after="", sql=waits.format("a")),
        "0002_concurrent": PROBE.format(atomic=False, after="('probe', '0001_atomic')", sql=waits.format("b")),
        "0003_locking": PROBE.format(atomic=True, after="('probe', '0002_concurrent')", sql=add),
    }
    settings = probing(tmp_path, migrations)

    with psycopg.connect(url) as reader:
        reader.execute("LOCK TABLE orders_order IN ACCESS SHARE MODE")
        ran = manage(url, "migrate", "--lock-timeout", "0.25", "--lock-tries", "2", **settings)

    assert ran.returncode == 1, ran.stderr
    assert re.search(r"no lock within 0\.25 s.*trying again \(1 left\).*no lock within.*pg_stat_activity", ran.stderr, re.S)
    assert "Traceback" not in ran.stderr
    assert 0 < int(answer(url, "SELECT waits FROM probe_a").removesuffix("ms")) <= 250  # what is left of it
    assert answer(url, "SELECT waits FROM probe_b") == "0"
    again = manage(url, "migrate", **settings)
    assert again.returncode == 0, again.stderr
    assert re.findall(r"Applying (\S+)\.\.\. OK", again.stdout) == ["probe.0003_locking"]

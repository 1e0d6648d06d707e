"""The doctor says what a failover may lose, by the settings of a real primary with its replica."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from chaos.replica import Follower
from sasproject.roles import ROOT
from supervision.embedded.binaries import find_binaries
from supervision.embedded.server import USER, EmbeddedPostgres
from tests import services
from tests.support import forked
from tests.support.migrating import answer, environment
from tests.support.shop import until

ASK = """
import django; django.setup()
from supervision.operations import doctor
for finding in doctor.failover(): print(finding.level.value, finding.message, sep=": ")
"""


@pytest.fixture(scope="module")
def primary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    found = find_binaries()
    services.require_service("pg_basebackup", Path(found["pg_basebackup"]).exists(), "set SAS_PG_BIN to a PostgreSQL that has it")
    postgres = EmbeddedPostgres(tmp_path_factory.mktemp("postgres"))
    postgres.start()
    follower = Follower(postgres)
    try:
        follower.start()
        yield postgres
    finally:
        follower.close()
        postgres.stop()


def said(primary: EmbeddedPostgres, names: str, commit: str, role: str | None = None) -> str:
    """What the doctor says under these settings, connected as this role."""
    statements = [
        f"ALTER SYSTEM SET synchronous_standby_names = '{names}'",
        f"ALTER SYSTEM SET synchronous_commit = '{commit}'",
        "SELECT pg_reload_conf()",
    ]
    with psycopg.connect(primary.url, autocommit=True) as database:
        for statement in statements:
            database.execute(statement)
        if role is not None:
            database.execute(f"CREATE ROLE {role} LOGIN")
    until(lambda: answer(primary.url, "SHOW synchronous_standby_names") == names, within=60, what="the new settings")
    standbys = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
    until(lambda: names != "*" or answer(primary.url, standbys) == 1, within=60, what="the standby")
    url = primary.url.replace(f"://{USER}@", f"://{role}@") if role else primary.url
    return forked.run([sys.executable, "-c", ASK], env=environment(url, DJANGO_SETTINGS_MODULE="sasproject.settings"), cwd=ROOT).stdout


LOST = "a failover may lose accepted orders"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("names", "commit", "told"),
    [
        ("", "on", f"warn: {LOST}: synchronous_standby_names is empty"),
        ("*", "local", f"warn: {LOST}: synchronous_commit is local"),
        ("*", "off", "warn: a crash or a failover may lose accepted orders"),
        ("nowhere", "on", "warn: no synchronous standby is connected, so every commit waits"),
        ("*", "on", "ok: loses no accepted order: synchronous_standby_names is *"),
        ("*", "remote_apply", "ok: loses no accepted order: "),
        ("*", "remote_write", "ok: loses no accepted order, unless the standby's machine crashes at the same moment: "),
    ],
)
def test_the_doctor_says_what_a_failover_may_lose(primary: EmbeddedPostgres, names: str, commit: str, told: str):
    assert said(primary, names, commit).startswith(told)


@pytest.mark.timeout(300)
def test_a_role_that_sees_no_standbys_is_not_told_that_there_is_none(primary: EmbeddedPostgres):
    told = said(primary, "*", "on", role="asker")

    assert told.startswith("ok: loses no accepted order: synchronous_standby_names is *; whether a standby is connected is shown to")

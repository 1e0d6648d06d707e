"""The database's roles: each may do what `sasproject.grants` declares, and nothing else. The roles are rolled back after each test."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from psycopg.errors import InsufficientPrivilege

from sasproject import database_roles
from sasproject.database import SESSION
from sasproject.database_roles import ROLES
from sasproject.doctor_probes import database_role
from sasproject.grants import TABLES, VERBS
from supervision.operations.doctor import Level

PREFIX = "tried"
pytestmark = pytest.mark.django_db


def execute(statement: str, params: Any = None) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def roles(db: None) -> None:
    call_command("database_roles", "--apply", "--prefix", PREFIX, stdout=StringIO())


def denied(role: str, statement: str) -> bool:
    """Whether the database refuses this role the right; any other error is not what the test is about."""
    try:
        with transaction.atomic():
            execute(f"SET LOCAL ROLE {PREFIX}_{role}")
            execute(statement)
            transaction.set_rollback(True)
    except DatabaseError as error:
        if not isinstance(error.__cause__, InsufficientPrivilege):
            raise
        return True
    return False


def test_every_table_is_declared():
    with connection.cursor() as cursor:
        assert sorted(TABLES) == sorted(connection.introspection.table_names(cursor))


@pytest.mark.parametrize("role", ROLES[1:])
def test_each_role_has_the_declared_rights_on_each_table_and_no_others(roles, role):
    verbs = [*VERBS.values(), "TRUNCATE", "REFERENCES", "TRIGGER"]
    found = execute(
        "SELECT t, v FROM unnest(%s::text[]) t, unnest(%s::text[]) v WHERE has_table_privilege(%s, t, v)",
        [list(TABLES), verbs, f"{PREFIX}_{role}"],
    )

    wanted = {
        (table, VERBS[verb]) for table, grant in TABLES.items() for verb in getattr(grant, role) if role != "read" or not grant.hidden
    }
    assert set(found) == wanted
    if role == "read":
        assert {verb for _table, verb in found} == {"SELECT"}


HISTORY = (
    "UPDATE supervision_stepevent SET why = ''",
    "TRUNCATE supervision_stepevent",
    "ALTER TABLE supervision_stepevent DISABLE TRIGGER USER",
    "ALTER TABLE django_admin_log DISABLE TRIGGER USER",
    "DROP TRIGGER events_kept ON supervision_stepevent",
    "CREATE OR REPLACE FUNCTION supervision_refuse_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    "SET session_replication_role = replica",
)
SCHEMA = ("CREATE TABLE mine ()", "DROP TABLE orders_order", "ALTER TABLE orders_order ADD COLUMN mine text", "CREATE SCHEMA mine")
MAY_NOT = {
    "web": (
        *HISTORY,
        *SCHEMA,
        "DELETE FROM supervision_stepevent",
        "DELETE FROM django_admin_log",
        "DELETE FROM django_migrations",
        "DELETE FROM supervision_run",
        "DELETE FROM supervision_effect",
        "DELETE FROM supervision_submission",
        "DELETE FROM supervision_approval",
        "DELETE FROM orders_order",
        "DELETE FROM orders_document",
        "UPDATE supervision_journalfile SET length = 0",
        "UPDATE supervision_leaderlease SET holder = 'web'",
        "UPDATE supervision_heartbeat SET role = 'web'",
    ),
    "worker": (
        *HISTORY,
        *SCHEMA,
        "UPDATE auth_user SET is_superuser = true",
        "INSERT INTO auth_user_user_permissions (user_id, permission_id) VALUES (1, 1)",
        "SELECT * FROM knox_authtoken",
        "INSERT INTO django_session (session_key, session_data, expire_date) VALUES ('k', '', now())",
        "INSERT INTO auth_user (username) VALUES ('u')",
        "UPDATE supervision_webhookendpoint SET url = 'https://evil.example'",
        "UPDATE supervision_webhookendpoint SET secret = ''",
        "DELETE FROM supervision_webhookendpoint",
        "UPDATE supervision_channel SET address = 'https://evil.example'",
        "INSERT INTO supervision_replytoken (token_hash, client, queue) VALUES ('h', 'c', 'q')",
        "SELECT * FROM mfa_authenticator",
    ),
    "read": (
        *HISTORY,
        *SCHEMA,
        "SELECT password FROM auth_user",
        "SELECT * FROM auth_user",
        "SELECT digest FROM knox_authtoken",
        "SELECT session_data FROM django_session",
        "SELECT secret FROM supervision_webhookendpoint",
        "SELECT secret FROM supervision_channel",
        "SELECT token_hash FROM supervision_replytoken",
        "SELECT value FROM sas_cache",
        "INSERT INTO supervision_runnote (run_key, author, text) VALUES ('k', 'a', 't')",
        "UPDATE orders_product SET available = 0",
        "DELETE FROM orders_order",
        "SELECT nextval('supervision_run_id_seq')",
    ),
}


@pytest.mark.parametrize(("role", "statement"), [(role, statement) for role, some in MAY_NOT.items() for statement in some])
def test_what_a_role_may_not_do_is_refused(roles, role, statement):
    assert denied(role, statement)


def test_what_the_roles_need_is_allowed(roles):
    assert not denied(
        "read", "SELECT username, email FROM auth_user; SELECT * FROM supervision_stepevent; SELECT url FROM supervision_webhookendpoint"
    )
    for role in ("web", "worker"):
        insert = "INSERT INTO supervision_stepevent (run_id, seq, to_state, actor, at) VALUES (1, 1, 'Pending', 'x', now())"
        assert not denied(role, "UPDATE supervision_webhookendpoint SET failures = 0; UPDATE supervision_channel SET last_error = ''")
        assert not denied(role, f"{insert}; SELECT setval('supervision_run_id_seq', 7); CREATE TEMP TABLE mine ()")


def test_the_command_prints_what_it_would_do_and_a_second_time_changes_nothing(roles):
    before = rights()

    out = StringIO()
    call_command("database_roles", stdout=out)
    call_command("database_roles", "--apply", stdout=StringIO())

    assert rights() == before
    assert out.getvalue().startswith("BEGIN;")
    assert out.getvalue().endswith("COMMIT;\n")
    assert not re.search("CREATE ROLE|OWNER TO", out.getvalue())


def rights() -> list[Any]:
    return execute(
        "SELECT relname, relowner::regrole::text, (SELECT array_agg(a::text ORDER BY a::text) FROM unnest(relacl) a)"
        " FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1"
    )


def test_the_roles_have_the_sessions_settings_that_a_pooler_takes_from_no_client(roles):
    found = dict(
        execute(
            "SELECT r.rolname::text, s.setconfig FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole"
            " JOIN pg_database d ON d.oid = s.setdatabase WHERE d.datname = current_database() AND r.rolname LIKE %s",
            [f"{PREFIX}\\_%"],
        )
    )
    wanted = sorted(f"{setting}={value}" for setting, value in SESSION.items())
    assert {role: sorted(settings) for role, settings in found.items()} == {f"{PREFIX}_{role}": wanted for role in ROLES}


def test_a_table_that_a_later_migration_makes_gets_its_owner_and_its_rights(roles, monkeypatch):
    from sasproject.grants import Grant

    execute("CREATE TABLE later (id int)")
    monkeypatch.setitem(TABLES, "later", Grant("s", "si"))

    database_roles.grant_after_migrate("default")

    assert execute("SELECT relowner::regrole::text FROM pg_class WHERE relname = 'later'") == [(f"{PREFIX}_migrate",)]
    assert not denied("worker", "INSERT INTO later VALUES (1)")
    assert denied("web", "INSERT INTO later VALUES (1)")


def test_a_database_without_the_roles_is_left_as_it_is(db):
    before = rights()

    database_roles.grant_after_migrate("default")

    assert rights() == before


def levels() -> set[Level]:
    return {finding.level for finding in database_role()}


def test_the_doctor_tells_of_a_process_that_may_change_the_history_and_of_rights_that_are_missing(db):
    [finding] = database_role()
    assert (finding.level, "superuser" in finding.message) == (Level.WARN, True)

    call_command("database_roles", "--apply", "--prefix", PREFIX, stdout=StringIO())
    assert Level.WARN in levels()  # the test still is a superuser
    for role in ROLES:
        execute(f"SET LOCAL ROLE {PREFIX}_{role}")
        assert levels() == {Level.OK}, role
        execute("RESET ROLE")
    execute(f"REVOKE INSERT ON supervision_stepevent FROM {PREFIX}_worker")
    execute(f"SET LOCAL ROLE {PREFIX}_worker")
    [finding] = database_role()
    assert (finding.level, finding.message) == (Level.FAIL, f"{PREFIX}_worker may not INSERT supervision_stepevent")


def test_the_former_owner_goes_on_until_its_processes_have_their_roles(db):
    execute("CREATE ROLE tried_former")
    execute("ALTER TABLE orders_product OWNER TO tried_former")

    call_command("database_roles", "--apply", "--prefix", PREFIX, stdout=StringIO())

    assert not denied("former", "UPDATE supervision_leaderlease SET term = 1")
    execute("SET LOCAL ROLE tried_former")
    assert Level.WARN in levels()


@pytest.mark.parametrize("wrong", [["--prefix", "No; DROP"], ["--prefix", "9"], ["--passwords", "folder"]])
def test_a_wrong_option_is_told_in_one_line(db, wrong):
    with pytest.raises(CommandError, match=r"^--prefix: expected|^--passwords needs --apply"):
        call_command("database_roles", *wrong, stdout=StringIO())


def test_passwords_are_made_once_and_reach_the_server_as_digests(db, tmp_path):
    call_command("database_roles", "--apply", "--prefix", PREFIX, "--passwords", str(tmp_path / "p"), stdout=StringIO())
    made = {file.name: file.read_text() for file in (tmp_path / "p").iterdir()}
    call_command("database_roles", "--apply", "--passwords", str(tmp_path / "p"), stdout=StringIO())

    assert {file.name: file.read_text() for file in (tmp_path / "p").iterdir()} == made
    assert len(set(made.values())) == len(ROLES) == len(made)
    assert all(file.stat().st_mode & 0o077 == 0 for file in (tmp_path / "p").iterdir())
    kept = execute("SELECT rolpassword FROM pg_authid WHERE rolname LIKE 'tried\\_%%'", [])
    assert all(password.startswith("SCRAM-SHA-256$") for (password,) in kept)

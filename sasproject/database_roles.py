"""The database's roles and the SQL that makes them: who owns the schema, and what web, worker and read may do in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db import connections, transaction
from django.db.backends.utils import CursorWrapper
from psycopg import sql

from sasproject.database import SESSION
from sasproject.grants import TABLES, VERBS

MIGRATE, WEB, WORKER, READ = ROLES = ("migrate", "web", "worker", "read")
DEFAULT_PREFIX = "sas"
LOCK_TIMEOUT = "3s"
# Relations and routines of the schemas, with their owners. Those of extensions are left out.
_OBJECTS = """
SELECT CASE WHEN c.relkind = 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, n.nspname, c.relname, NULL, pg_get_userbyid(c.relowner)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = ANY (%(schemas)s) AND c.relkind IN ('r', 'p', 'S', 'v', 'm')
   AND NOT EXISTS (SELECT FROM pg_depend d
                    WHERE d.objid = c.oid AND (d.deptype = 'e' OR (c.relkind = 'S' AND d.deptype IN ('a', 'i') AND d.refobjsubid > 0)))
UNION ALL
SELECT 'ROUTINE', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid), pg_get_userbyid(p.proowner)
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = ANY (%(schemas)s) AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
UNION ALL
SELECT 'TYPE', n.nspname, t.typname, NULL, pg_get_userbyid(t.typowner)
  FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
 WHERE n.nspname = ANY (%(schemas)s) AND t.typtype IN ('e', 'd') OR (n.nspname = ANY (%(schemas)s) AND t.typtype = 'c'
   AND (SELECT c.relkind FROM pg_class c WHERE c.oid = t.typrelid) = 'c')
 ORDER BY 1, 2, 3, 4
"""
_OWNER = "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = to_regclass('django_migrations')"


def name(prefix: str, role: str) -> str:
    """A role's name in the database."""
    return f"{prefix}_{role}"


def prefix_in_use(cursor: CursorWrapper) -> str | None:
    """The prefix of the roles that this database has; None before `database_roles --apply`."""
    cursor.execute(_OWNER)
    row = cursor.fetchone()
    owner = row and row[0]
    return owner.removesuffix(f"_{MIGRATE}") if owner and owner.endswith(f"_{MIGRATE}") else None


def statements(cursor: CursorWrapper, prefix: str) -> Iterator[sql.Composable]:
    """All that brings the database to the declared roles. Repeating it changes nothing; execute it in one transaction."""
    yield sql.SQL("SET LOCAL lock_timeout = {}").format(LOCK_TIMEOUT)
    cursor.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY (%s)", [[name(prefix, role) for role in ROLES]])
    known = {row[0] for row in cursor.fetchall()}
    for role in ROLES:
        if name(prefix, role) not in known:
            yield sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE").format(sql.Identifier(name(prefix, role)))
    # Queues in `pgmq` belong to the role that made them; `migrate` grants their rights.
    yield sql.SQL("GRANT {}, {} TO {}").format(*(sql.Identifier(name(prefix, role)) for role in (WEB, WORKER, MIGRATE)))
    for owner in _former_owners(cursor, prefix):
        yield sql.SQL("GRANT {} TO {}").format(sql.Identifier(name(prefix, MIGRATE)), sql.Identifier(owner))
    # A new owner needs the right to create in the schema, unless a superuser makes it the owner.
    yield sql.SQL("GRANT USAGE, CREATE ON SCHEMA public TO {}").format(sql.Identifier(name(prefix, MIGRATE)))
    yield from transfers(cursor, prefix)
    yield from grants(cursor, prefix)
    # A pooler in transaction mode, which may come later, takes no session's settings from a client.
    for role in ROLES:
        yield from session_settings(cursor, sql.Identifier(name(prefix, role)))


def session_settings(cursor: CursorWrapper, role: sql.Composable) -> Iterator[sql.Composable]:
    """Give our session's settings to a role in this database."""
    cursor.execute("SELECT current_database()")
    database = sql.Identifier(cursor.fetchone()[0])
    for setting, value in SESSION.items():
        yield sql.SQL("ALTER ROLE {} IN DATABASE {} SET {} = {}").format(role, database, sql.Identifier(setting), sql.Literal(value))


def _former_owners(cursor: CursorWrapper, prefix: str) -> list[str]:
    """Who owns tables and is no superuser: such a role becomes a member of `migrate`, so that processes that still use it go on."""
    cursor.execute(
        "SELECT DISTINCT r.rolname::text FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner"
        " WHERE c.relnamespace = 'public'::regnamespace AND NOT r.rolsuper AND r.rolname <> ALL (%s)"
        " UNION SELECT rolname FROM pg_roles WHERE rolname = current_user AND NOT rolsuper AND rolname <> ALL (%s) ORDER BY 1",
        [[name(prefix, role) for role in ROLES]] * 2,
    )
    return [row[0] for row in cursor.fetchall()]


def transfers(cursor: CursorWrapper, prefix: str) -> Iterator[sql.Composable]:
    """Give what another role owns in the schemas to `migrate`. In `pgmq` every role makes queues, and owns those that it makes."""
    owner = name(prefix, MIGRATE)
    made = {name(prefix, role) for role in ROLES}
    if "pgmq" in _schemas(cursor):
        cursor.execute("SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'pgmq'")
        if cursor.fetchone()[0] != owner:
            yield sql.SQL("ALTER SCHEMA pgmq OWNER TO {}").format(sql.Identifier(owner))
    cursor.execute(_OBJECTS, {"schemas": _schemas(cursor)})
    for kind, schema, what, arguments, owned_by in cursor.fetchall():
        if owned_by == owner or (schema == "pgmq" and owned_by in made):
            continue
        signature = sql.SQL("({})").format(sql.SQL(arguments)) if arguments is not None else sql.SQL("")
        yield sql.SQL("ALTER {} {}{} OWNER TO {}").format(sql.SQL(kind), sql.Identifier(schema, what), signature, sql.Identifier(owner))


def grants(cursor: CursorWrapper, prefix: str) -> Iterator[sql.Composable]:
    """The rights of each role, as `sasproject.grants` declares them and no others."""
    migrate, web, worker, read = (sql.Identifier(name(prefix, role)) for role in ROLES)
    everyone = sql.SQL(", ").join([web, worker, read])
    cursor.execute(
        "SELECT current_database(), pg_has_role(current_user, datdba, 'USAGE') FROM pg_database WHERE datname = current_database()"
    )
    database, owns_database = cursor.fetchone()
    if owns_database:  # `migrate` itself may not own it; database_roles has granted this before
        here = sql.Identifier(database)
        yield sql.SQL("REVOKE CREATE ON DATABASE {} FROM PUBLIC").format(here)
        yield sql.SQL("GRANT CONNECT, TEMPORARY ON DATABASE {} TO {}, {}").format(here, migrate, everyone)
        yield sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(here, migrate)
        yield sql.SQL("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        yield sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(everyone)
    yield sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC, {}").format(everyone)
    cursor.execute(
        "SELECT table_name::text, array_agg(column_name::text ORDER BY ordinal_position)"
        " FROM information_schema.columns WHERE table_schema = 'public' AND table_name = ANY (%s) GROUP BY 1 ORDER BY 1",
        [list(TABLES)],
    )
    for table, columns in cursor.fetchall():
        grant = TABLES[table]
        for role, verbs in ((web, grant.web), (worker, grant.worker), (read, "" if grant.hidden else grant.read)):
            if verbs:
                named = sql.SQL(", ").join(sql.SQL(VERBS[verb]) for verb in verbs)
                yield sql.SQL("GRANT {} ON TABLE {} TO {}").format(named, sql.Identifier("public", table), role)
        if grant.worker_columns:
            named = sql.SQL(", ").join(map(sql.Identifier, grant.worker_columns))
            yield sql.SQL("GRANT UPDATE ({}) ON TABLE {} TO {}").format(named, sql.Identifier("public", table), worker)
        if grant.hidden:
            seen = sql.SQL(", ").join(sql.Identifier(column) for column in columns if column not in grant.hidden)
            # Revoking a table's privilege does not revoke that of a column that is hidden since.
            yield sql.SQL("REVOKE SELECT ({}) ON TABLE {} FROM {}").format(
                sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier("public", table), read
            )
            yield sql.SQL("GRANT SELECT ({}) ON TABLE {} TO {}").format(seen, sql.Identifier("public", table), read)
    # A new epoch sets the sequences, and any process may be the first that notices it.
    yield sql.SQL("GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA public TO {}, {}").format(web, worker)
    if "pgmq" in _schemas(cursor):
        yield from _of_pgmq(migrate, web, worker)


def _of_pgmq(migrate: sql.Identifier, web: sql.Identifier, worker: sql.Identifier) -> Iterator[sql.Composable]:
    """Messages are hints, and each process creates the queues that it uses: web and worker may do all in this schema."""
    both = sql.SQL("{}, {}").format(web, worker)
    yield sql.SQL("GRANT USAGE, CREATE ON SCHEMA pgmq TO {}").format(both)
    for what in ("TABLES", "SEQUENCES"):
        for role in (migrate, web, worker):
            yield sql.SQL("ALTER DEFAULT PRIVILEGES FOR ROLE {} IN SCHEMA pgmq GRANT ALL ON {} TO {}").format(role, sql.SQL(what), both)
        yield sql.SQL("GRANT ALL ON ALL {} IN SCHEMA pgmq TO {}").format(sql.SQL(what), both)


def _schemas(cursor: CursorWrapper) -> list[Any]:
    cursor.execute("SELECT array_agg(nspname::text ORDER BY nspname DESC) FROM pg_namespace WHERE nspname IN ('public', 'pgmq')")
    return list(cursor.fetchone()[0])


def grant_after_migrate(using: str) -> None:
    """Give new tables to their owner and grant their rights, in a database that has the roles. Called at the end of `migrate`."""
    # In one transaction: running processes keep their rights while these are revoked and granted again.
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        if (prefix := prefix_in_use(cursor)) is None:
            return
        for build in (transfers, grants):
            for statement in list(build(cursor, prefix)):
                cursor.execute(statement)

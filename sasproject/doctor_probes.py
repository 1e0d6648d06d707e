"""The doctor's checks of the database role that this process connects as, and of the connections that all processes need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from django.conf import settings
from django.db import connection
from django.db.backends.utils import CursorWrapper

from sasproject import capacity
from sasproject.database_roles import MIGRATE, ROLES, WEB, WORKER, name, prefix_in_use
from sasproject.env import env_int
from sasproject.grants import TABLES, VERBS
from supervision.operations.doctor import SILENT_AFTER, Finding, Level, register
from supervision.postgres import db
from supervision.postgres.params import DIRECT

ABOUT = "database role"
MAKE = "manage.py database_roles --apply, then give each process the URL of its role (docs/operations.md, 'Database roles')"
GRANT = "manage.py database_roles --apply as a superuser, or manage.py migrate as the role that owns the tables"


def database_role() -> Iterator[Finding]:
    """Whether this process may change the schema or the history, and whether the roles have the declared rights."""
    with connection.cursor() as cursor:
        prefix = prefix_in_use(cursor)
        cursor.execute("SELECT current_user, rolsuper FROM pg_roles WHERE rolname = current_user")
        me, superuser = cursor.fetchone()
        if prefix is None:
            text = f"{me} {'is a superuser' if superuser else 'owns the tables or shares their owner'}: each process may change the schema"
            yield Finding(ABOUT, Level.WARN, text, MAKE)
            return
        owner = name(prefix, MIGRATE)
        cursor.execute("SELECT pg_has_role(current_user, %s, 'MEMBER')", [owner])
        if superuser or (me != owner and cursor.fetchone()[0]):
            text = f"{me} is {'a superuser' if superuser else f'a member of {owner}'}, and may change the schema and the history"
            yield Finding(ABOUT, Level.WARN, text, "give this process the DATABASE_URL of its role (docs/operations.md, 'Database roles')")
        cursor.execute(
            "SELECT count(*), min(relname) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " AND relkind IN ('r', 'p') AND relowner <> %s::regrole",
            [owner],
        )
        count, table = cursor.fetchone()
        if count:
            yield Finding(ABOUT, Level.FAIL, f"{count} tables do not belong to {owner}, the first: {table}", GRANT)
        wanted = [
            (name(prefix, role), table, VERBS[verb])
            for table, grant in TABLES.items()
            for role in ROLES[1:]
            for verb in getattr(grant, role)
            if role != "read" or not grant.hidden
        ]
        cursor.execute(
            "SELECT w.role, w.verb, w.tab FROM unnest(%s::text[], %s::text[], %s::text[]) w(role, tab, verb)"
            " WHERE to_regclass(w.tab) IS NOT NULL AND NOT has_table_privilege(w.role, to_regclass(w.tab), w.verb) ORDER BY 1, 3 LIMIT 1",
            [list(column) for column in zip(*wanted, strict=True)],
        )
        if lacking := cursor.fetchone():
            yield Finding(ABOUT, Level.FAIL, "{} may not {} {}".format(*lacking), GRANT)
        elif not count:
            yield Finding(ABOUT, Level.OK, f"{me}; the tables belong to {owner}, and the roles have their rights")


register(ABOUT, database_role, needs_database=True)


def connections() -> Iterator[Finding]:
    """Whether PostgreSQL can hold the connections of all processes: those of SAS_PROCESSES, else those that live now."""
    if DIRECT in settings.DATABASES:
        yield Finding("connections", Level.OK, "a pooler shares them: docs/capacity.md says how many reach the server")
        return
    counts, whose = capacity.configured(), f"{capacity.PROCESSES} needs"
    if not counts:
        counts, whose = _living(), "the living processes need"
    needed = sum(need.connections for need in capacity.needs(counts))
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('max_connections')::int,"
            " current_setting('superuser_reserved_connections')::int + coalesce(current_setting('reserved_connections', true), '0')::int,"
            " (SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database())"
        )
        most, reserved, limit = cursor.fetchone()
        limits = [] if limit is None else [("the database", "ALTER DATABASE ...", needed, limit)]
        limits += [(f"the role {role}", f"ALTER ROLE {role}", its, few) for role, its, few in _limited_roles(cursor, counts)]
    text = f"{whose} up to {needed}, and max_connections is {most}, of which {reserved} are reserved"
    found = [
        Finding(
            "connections",
            Level.WARN,
            f"{whose} up to {its}, and {what} takes {few}",
            f"{change} CONNECTION LIMIT {its + capacity.COMMANDS}, or -1",
        )
        for what, change, its, few in limits
        if its + capacity.COMMANDS > few
    ]
    if needed + capacity.COMMANDS > most - reserved:
        todo = f"max_connections = {needed + capacity.COMMANDS + reserved} or more, fewer processes, or PgBouncer (docs/capacity.md)"
        found.append(Finding("connections", Level.WARN, text, todo))
    yield from found or [Finding("connections", Level.OK, text)]


def _limited_roles(cursor: CursorWrapper, counts: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """The database roles of these processes that have a limit: name, what their processes need, and the limit. A superuser has none."""
    prefix = prefix_in_use(cursor)
    cursor.execute("SELECT session_user")
    [me] = cursor.fetchone()
    needed: Counter[str] = Counter()
    for need in capacity.needs(counts):
        needed[me if prefix is None else name(prefix, WEB if need.role == "web" else WORKER)] += need.connections
    cursor.execute(
        "SELECT rolname, rolconnlimit FROM pg_roles WHERE rolname = ANY (%s) AND rolconnlimit >= 0 AND NOT rolsuper ORDER BY 1",
        [list(needed)],
    )
    return [(role, needed[role], limit) for role, limit in cursor.fetchall()]


def _living() -> dict[str, int]:
    """The processes of each role with a heartbeat, and those of one `web`, which has none."""
    rows = db.fetch(
        "SELECT split_part(role, '-', 1), count(*) FROM supervision_heartbeat"
        " WHERE seen_at > clock_timestamp() - make_interval(secs => %(seconds)s) GROUP BY 1",
        {"seconds": SILENT_AFTER},
    )
    return {"web": env_int("WEB_CONCURRENCY", 1, minimum=1), **{role: count for role, count in rows if role in capacity.ROLES}}


register("connections", connections, needs_database=True)

"""Whether this server and this session can do what the engine asks of them: settings that a database or a role has, tables, space."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import DatabaseError, Error, OperationalError, transaction
from psycopg.errors import UndefinedTable

from supervision.postgres import db


@dataclass(frozen=True)
class Wanted:
    """A setting of a session without which the engine does not work, or not well."""

    name: str
    value: str
    otherwise: str  # what happens
    needed: bool = True


WANTED = (
    Wanted("DateStyle", "ISO", "no time can be read, so workers end and no order is taken"),
    Wanted("standard_conforming_strings", "on", "PGMQ sends no message, so steps wait for a sweep or for ever"),
    Wanted("array_nulls", "on", "steps cannot be recorded, and fail again and again"),
    Wanted("default_transaction_isolation", "read committed", "statements that meet in one row fail and are repeated", needed=False),
)
_ROWS = 100  # of 1 kB: more than the free pages of a small table
_GROW = (
    "SET LOCAL temp_tablespaces = ''",
    "CREATE TEMPORARY TABLE sas_room ON COMMIT DROP AS SELECT repeat(md5(n::text), 32) AS filler FROM generate_series(1, %(rows)s) n",
)
_HIDDEN = """
SELECT current_setting('search_path'), current_user, string_agg(n.nspname, ', ' ORDER BY n.nspname)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relname = 'supervision_run' AND c.relkind IN ('r', 'p') AND to_regclass('supervision_run') IS NULL
HAVING count(*) > 0
"""
SEEN = "ALTER ROLE ... SET search_path, or GRANT USAGE ON SCHEMA; then start the processes again. migrate would make other tables"

HELD_SECONDS = 5.0  # our own transactions are shorter
_HOLDERS = """
WITH waits AS (
  SELECT l.pid, min(l.waitstart) AS since FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
   WHERE NOT l.granted AND a.datname = current_database() AND l.waitstart < clock_timestamp() - %(seconds)s::float8 * interval '1 s'
   GROUP BY 1
)
SELECT b.pid, coalesce(b.usename, ''), coalesce(nullif(b.application_name, ''), b.backend_type, '?'), count(*),
       extract(epoch FROM clock_timestamp() - min(w.since))::float8
  FROM waits w CROSS JOIN unnest(pg_blocking_pids(w.pid)) AS blocking(pid) JOIN pg_stat_activity b ON b.pid = blocking.pid
 WHERE NOT EXISTS (SELECT FROM pg_locks l WHERE l.pid = b.pid AND NOT l.granted)
 GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1 LIMIT 5
"""


@dataclass(frozen=True)
class Holder:
    """A session of the server that holds a lock for which others wait, and itself waits for none."""

    pid: int
    user: str
    application: str
    waiting: int  # sessions
    seconds: float  # the longest wait

    def __str__(self) -> str:
        many = "1 session waits" if self.waiting == 1 else f"{self.waiting} sessions wait"
        return f"{many}, up to {self.seconds:.0f} s, for a lock of {self.application} (process {self.pid}, user {self.user})"


def holders() -> list[Holder]:
    """The sessions for whose locks sessions of this database have waited longer than HELD_SECONDS."""
    return [Holder(*row) for row in db.fetch(_HOLDERS, {"seconds": HELD_SECONDS})]


def odd_settings() -> list[tuple[Wanted, str]]:
    """The settings that this session has otherwise, with their values."""
    found = db.fetch("SELECT name, current_setting(name) FROM unnest(%(names)s::text[]) name", {"names": [one.name for one in WANTED]})
    values = dict(found)
    return [(one, values[one.name]) for one in WANTED if values[one.name].partition(",")[0] != one.value]


def no_room() -> str | None:
    """What the server says if it takes no writes or no table can grow there; None where one can. It leaves nothing behind."""
    if db.fetch("SELECT current_setting('transaction_read_only')")[0][0] == "on":
        return "takes no writes: default_transaction_read_only is on"
    try:
        with transaction.atomic():
            db.fetch(_GROW[0])
            db.fetch(_GROW[1], {"rows": _ROWS})
            transaction.set_rollback(True)
    except OperationalError as problem:
        return str(problem).strip().partition("\n")[0]
    except DatabaseError:
        return None  # a role without the right to make temporary tables, which has to tell nothing of the disk
    return None


def hidden() -> str | None:
    """Where the engine's tables are, if this session does not find them by their names; None if it does, or there are none."""
    for path, user, schemas in db.fetch(_HIDDEN):
        return f"the tables are in the schema {schemas}, where {user} does not find them: its search_path is {path}"
    return None


def hides(problem: BaseException) -> str | None:
    """What `hidden` says, if this is the error of a statement that found no table."""
    if not isinstance(problem.__cause__, UndefinedTable):
        return None
    try:
        return hidden()
    except Error:  # in a transaction that has failed
        return None

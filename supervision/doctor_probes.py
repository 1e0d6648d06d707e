"""The doctor's probes of how the database is reached, and of what a failover may lose."""

from __future__ import annotations

from collections.abc import Iterator

from supervision.operations.doctor import Finding, Level, register
from supervision.postgres import db, pooling


def sessions() -> Iterator[Finding]:
    """Whether what needs a session reaches the server itself, and gets what our start-up parameters ask for."""
    wrong = pooling.flaw()
    if wrong is not None:
        yield Finding("sessions", Level.FAIL, *wrong.split(": ", 1))
        return
    through = pooling.way()
    yield Finding("sessions", Level.OK, "straight to the server" if through is pooling.Way.DIRECT else f"a pooler in {through} mode")
    if db.fetch("SELECT current_setting('idle_in_transaction_session_timeout')")[0][0] == "0":
        text = "idle_in_transaction_session_timeout is 0: a process that freezes in a transaction holds its locks for ever"
        yield Finding("sessions", Level.WARN, text, "manage.py migrate sets it for the role; then reload the pooler")


_LOSSES = {
    "off": "a crash or a failover may lose accepted orders: synchronous_commit is off",
    "local": "a failover may lose accepted orders: synchronous_commit is local, so no standby is waited for",
    "": "a failover may lose accepted orders: synchronous_standby_names is empty",
}


def failover() -> Iterator[Finding]:
    """What a failover may lose, by the server's settings."""
    [(commit, names, standbys)] = db.fetch(
        "SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),"
        " (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))"
    )
    loss = _LOSSES.get(commit) or (_LOSSES[""] if not names.strip() else None)
    if loss is not None:
        yield Finding("failover", Level.WARN, loss, "docs/operations.md, High availability: what each setting may lose")
    elif not standbys:
        text = f"no synchronous standby is connected, so every commit waits: synchronous_standby_names is {names}"
        yield Finding("failover", Level.WARN, text, "start the standby (pg_stat_replication shows it to superusers and pg_monitor)")
    else:
        yield Finding("failover", Level.OK, f"loses no accepted order: synchronous_standby_names is {names}")


register("sessions", sessions, needs_database=True)
register("failover", failover, needs_database=True)

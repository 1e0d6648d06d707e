"""The limit that this PostgreSQL sets: one-row commits on one connection, one after the other."""

from __future__ import annotations

import time

from benchmarks.lab import Lab
from benchmarks.plan import Entry, Facts, Profile, Row


def commits(lab: Lab, profile: Profile) -> Facts:
    """Commits a second, each forced to disk before the next."""
    seconds = min(profile.seconds, 3.0)
    lab.fresh_database("ours")
    with lab.connect("ours") as connection:
        connection.execute("CREATE TABLE floor (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload jsonb)")
        count, began = 0, time.monotonic()
        while time.monotonic() - began < seconds:
            connection.execute("INSERT INTO floor (payload) VALUES (%s)", ('{"email": "ada@example.com"}',), prepare=True)
            count += 1
        return {"commits_per_second": count / (time.monotonic() - began)}


ROW = Row("floor", "One-row commits on one connection", lambda profile: [Entry("commits", "PostgreSQL, one-row INSERT", commits)])

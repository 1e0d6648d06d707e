"""Deletes rows that are no longer needed (delivered, or consumed and archived), in batches, oldest first. Used by `archive`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from supervision.postgres import db

_DONE_WITH = {
    # Kept longer than its order, for the idempotency key. A dead letter's submission is kept, because it may be requeued.
    "submission": "t.consumed_at IS NOT NULL AND t.created_at < {before}"
    " AND EXISTS (SELECT FROM supervision_archivedrun a WHERE a.key = t.public_id)",
    "notification": "coalesce(t.delivered_at, t.given_up_at) < {before}",
    "delivery": "coalesce(t.delivered_at, t.given_up_at) < {before}",
}
_TIDY = """
WITH page AS MATERIALIZED (
    SELECT id, created_at FROM supervision_{table} WHERE id > %(after)s ORDER BY id LIMIT %(page)s),
over AS MATERIALIZED (
    SELECT t.id FROM supervision_{table} t JOIN page ON page.id = t.id WHERE {done_with}
     ORDER BY t.id {lock}),
gone AS ({act})
SELECT coalesce((SELECT max(id) FROM page), 0), coalesce((SELECT max(created_at) FROM page) < {before}, false),
       (SELECT count(*) FROM gone)
"""


def batches(table: str, older_than: timedelta, *, size: int, dry_run: bool = False) -> Iterator[int]:
    """Delete rows of that age that are no longer needed, batch by batch, oldest first; yields the size of each batch."""
    before = "now() - %(days)s::float8 * interval '1 day'"
    delete = f"DELETE FROM supervision_{table} t USING over WHERE t.id = over.id RETURNING t.id"  # noqa: S608
    statement = _TIDY.format(
        table=table,
        before=before,
        done_with=_DONE_WITH[table].format(before=before),
        lock="" if dry_run else "FOR UPDATE OF t SKIP LOCKED",
        act="SELECT id FROM over" if dry_run else delete,
    )
    after, more = 0, True
    while more:
        after, more, gone = db.run(statement, {"after": after, "page": size, "days": older_than / timedelta(days=1)})[0]
        if gone:
            yield gone

"""Does one piece of work at a time for `benchmarks.growth`: its name in, a line of JSON with milliseconds and pages out.

What the work changes is put back afterwards, so that each round finds the same rows; what was archived is not.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402 - needs the applications
from django.db import connection  # noqa: E402
from django.test import Client  # noqa: E402

from supervision import tasks  # noqa: E402
from supervision.operations import archive  # noqa: E402
from supervision.postgres import db  # noqa: E402
from supervision.recovery import supervisor  # noqa: E402
from supervision.runtime import tidying  # noqa: E402
from supervision.store import claiming  # noqa: E402
from supervision.wakeup import hints  # noqa: E402

SIZE = 200
_AGAIN = """
UPDATE supervision_stepstate SET process_state = 'Pending', locked_by = NULL, complete_by = NULL, started_at = NULL, failure_count = 0,
       dispatch_count = 0, not_before = now() - interval '1 hour', turn_at = now() - interval '1 hour'
 WHERE run_id IN (SELECT run_id FROM supervision_stepstate WHERE process_state = 'Processing' AND locked_by <> 'agents-1@bench'
                  UNION SELECT run_id FROM supervision_stepstate WHERE process_state = 'Pending' AND attempt > 0)
   AND (process_state = 'Processing' OR attempt > 0)
"""
_EXPIRE = """
UPDATE supervision_stepstate SET complete_by = now() - interval '1 s'
 WHERE process_state = 'Processing' AND locked_by <> 'agents-1@bench'
"""


def main() -> None:
    """Answer until the input ends."""
    hints.enabled = False
    assert tasks  # it imports everything that registers what is tidied
    user, _made = User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(user)
    ((order,),) = db.fetch("SELECT id FROM orders_order WHERE id = 77")

    def get(path: str) -> None:
        answer = client.get(path, secure=True)
        assert answer.status_code == 200, (path, answer.status_code)

    def claim() -> None:
        taken = sum(map(len, claiming.claim(SIZE).values()))
        assert taken == SIZE, taken

    def swept() -> None:
        report = supervisor.sweep_once()
        assert report.overdue == SIZE, report

    batches = archive.batches(timedelta(days=1), size=SIZE, keep_orders=True)

    def archived() -> None:
        assert any(one.runs for one in batches), "nothing to archive"

    def to_claim() -> None:
        db.fetch(_AGAIN)

    def to_sweep() -> None:
        db.fetch(_AGAIN)
        claim()
        db.fetch(_EXPIRE)

    work: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "claim": (to_claim, claim),
        "sweep": (to_sweep, swept),
        "idle sweep": (to_claim, supervisor.sweep_once),
        "landing page": (_nothing, lambda: get("/admin/")),
        "list of orders": (_nothing, lambda: get("/admin/orders/order/")),
        "order page": (_nothing, lambda: get(f"/admin/orders/order/{order}/change/")),
        "archive": (_nothing, archived),
        "retention": (_nothing, lambda: tidying.turn(60.0)),
    }
    for line in sys.stdin:
        prepare, act = work[line.strip()]
        prepare()
        before = _touched()
        began = time.perf_counter()
        act()
        spent = (time.perf_counter() - began) * 1000
        print(json.dumps({"ms": spent, "pages": max(_touched() - before, 1)}), flush=True)


def _nothing() -> None:
    """There is nothing to prepare."""


def _touched() -> int:
    """The pages that statements of this database have touched so far."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


if __name__ == "__main__":
    main()

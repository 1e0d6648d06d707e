"""Reads pages of the list of orders for `benchmarks.lists`: a line of JSON in, a line of JSON out."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import Any

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402 - needs the applications
from django.db import connection  # noqa: E402
from django.test import Client  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402

from benchmarks.lists import INCIDENT  # noqa: E402

LIST = "/admin/orders/order/"


def values() -> dict[str, str]:
    """What stands for the braces in the filters' values."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(created_at) - interval '1 day', min(created_at) + interval '100 days' FROM orders_order")
        recent, old = cursor.fetchone()
        cursor.execute("SELECT created_at + interval '1 day' FROM orders_order WHERE created_at > %s ORDER BY created_at LIMIT 1", [old])
        (older,) = cursor.fetchone()
        cursor.execute("SELECT id FROM supervision_incident WHERE cause = %s", [INCIDENT])
        (incident,) = cursor.fetchone()
        cursor.execute("SELECT number FROM orders_order WHERE id = 777")
        (number,) = cursor.fetchone()
    moments = {name: at.isoformat().replace("+00:00", "Z") for name, at in (("recent", recent), ("old", old), ("older", older))}
    return {**moments, "incident": str(incident), "number": number}


def pages_of(seen: list[dict[str, Any]]) -> int:
    """How many pages the statements touch."""
    total = 0
    for query in seen:
        if not query["sql"].lstrip().upper().startswith(("SELECT", "WITH", "(SELECT")):
            continue
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) " + query["sql"].replace("%", "%%"), [])
            first = re.search(r"Buffers: (.*)", "\n".join(row[0] for row in cursor.fetchall()))
        total += sum(map(int, re.findall(r"(?:hit|read)=(\d+)", first[1]))) if first else 0
    return total


def main() -> None:
    """Answer until the input ends."""
    user, _made = User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)
    client, known = Client(), values()
    client.force_login(user)
    for line in sys.stdin:
        asked = json.loads(line)
        query = {name: value.format(**known) for name, value in asked["query"].items()}
        began = time.perf_counter()
        answer = client.get(LIST, query, secure=True)
        spent = (time.perf_counter() - began) * 1000
        assert answer.status_code == 200, (query, answer.status_code)
        pages = 0
        if asked["pages"]:
            with CaptureQueriesContext(connection) as seen:
                client.get(LIST, query, secure=True)
            pages = pages_of(seen.captured_queries)
        print(json.dumps({"ms": spent, "pages": pages, "kb": len(answer.content) / 1000}), flush=True)


if __name__ == "__main__":
    main()

"""A person with canary values, everything that may happen to the orders, and a search through the whole database for the canaries."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path

from django.contrib.sessions.models import Session
from django.db import connection

NAME, SURNAME = "Zephyrine", "Quoxley"
EMAIL = "Zephyrine.Quoxley@canary.example"
PHONE, LINE1, LINE2, CITY, CODE = "+39 011 7788990", "Via Xanthippe 77", "Scala Vortigern", "Borgo Wumpus", "97531"
# Not the postal code: five digits are in many a moment.
CANARIES = ("zephyrine", "quoxley", "canary.example", "7788990", "xanthippe", "vortigern", "wumpus")
ADDRESS = {"name": f"{NAME} {SURNAME}", "line1": LINE1, "line2": LINE2, "city": CITY, "postal_code": CODE, "country": "IT"}

_COLUMNS = """
SELECT c.table_name, c.column_name FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
 WHERE table_schema = 'public' AND t.table_type = 'BASE TABLE' ORDER BY 1, 2
"""


def hits(canaries: Collection[str] = CANARIES) -> dict[str, int]:
    """How many rows of each column of the whole database have one of the canaries: as text, or as bytes in hexadecimal digits."""
    found = {}
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS)
        for table, column in cursor.fetchall():
            text = f'lower("{column}"::text)'
            wanted = " OR ".join([f"{text} LIKE %s"] * len(canaries) + [f"{text} LIKE %s"] * len(canaries))
            params = [f"%{word}%" for word in canaries] + [f"%{word.encode().hex()}%" for word in canaries]
            cursor.execute(f'SELECT count(*) FROM "{table}" WHERE {wanted}', params)  # noqa: S608 - names of our own tables
            [(count,)] = cursor.fetchall()
            if count:
                found[f"{table}.{column}"] = count
    sessions = sum(any(word in _text(row) for word in canaries) for row in Session.objects.all())
    return found | ({"django_session.session_data": sessions} if sessions else {})


def _text(session: Session) -> str:
    return json.dumps(session.get_decoded(), ensure_ascii=False).lower()


def in_files(folder: Path) -> Iterator[str]:
    """The files below this folder that have one of the canaries."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and any(word.encode() in path.read_bytes().lower() for word in CANARIES):
            yield path.name

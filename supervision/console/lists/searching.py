"""One search field for all that names a run: the ways to understand what was typed, each answered by an index.

The ways are tried from the most particular to the most general. The first that finds a row is what the console says it understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from supervision.insight.filters import FEW, LONGEST, Filters
from supervision.models import Run

# What comes along when text is copied: marks of the direction of writing, and other signs without a width. Joiners belong to names.
_MARKS = re.compile("[\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
_JOINERS = re.compile("[\u200c\u200d]")
_SPACES = re.compile(r"[^\S ]+")


@dataclass(frozen=True)
class Way:
    """One way to understand a term. runs: the ids of the runs that it names; None: the term cannot mean this."""

    label: Any
    runs: Callable[[str], QuerySet[Any] | None]


@dataclass(frozen=True)
class Understood:
    """What a term was taken for. run_ids: the runs that it names, at most `FEW`; more: there are more, so they are not all."""

    term: str
    label: Any
    run_ids: Sequence[int]
    more: bool = False


def ways(filters: Filters) -> Iterator[Way]:
    """The engine's own ways: public id, and code and text of an error."""
    yield Way(_("public id"), lambda term: Run.objects.filter(key=term).values_list("pk", flat=True))
    yield Way(_("error code"), lambda term: filters.source("error_code", term))
    yield Way(_("error text"), lambda term: filters.source("error_text", term))


def understood(term: str, offered: Sequence[Way]) -> Understood | None:
    """What this term means: the first way that finds a run. None if no way does."""
    said = _SPACES.sub(" ", _MARKS.sub("", term)).strip()
    if not said or len(said) > LONGEST or not _JOINERS.sub("", said).isprintable():
        return None
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")  # as in `Filters.fewest`
        for way in offered:
            source = way.runs(said)
            found = list(source[: FEW + 1]) if source is not None else []
            if found:
                break
        cursor.execute("SET LOCAL enable_seqscan TO DEFAULT")
    return Understood(said, way.label, found[:FEW], len(found) > FEW) if found else None

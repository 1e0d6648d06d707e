"""Takes one person out of the engine's rows. The caller's application knows which orders are the person's, and by which words it is named.

An order that has ended leaves the hot tables first: into the archive, as every night, only earlier. So nothing of a run, of its steps or
of its append-only history is ever changed in place: the archived row is, and what is left beside it. An order that has not ended, or
that the archive holds for another reason, stays as it is and is said to wait.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.db.models import JSONField

from supervision.deadletters.dead_letters import blank
from supervision.intake import erased_keys
from supervision.models import ArchivedRun, Child, DeadLetter, Submission
from supervision.operations import archive
from supervision.postgres import db
from supervision.privacy.words import MASK, Words

BATCH = 500
LETTERS = 100  # their bodies are read one by one, and may be large
ERASED = '{"erased": true}'

_STILL_HERE = """
SELECT key FROM supervision_run WHERE key = ANY (%(keys)s)
UNION SELECT public_id FROM supervision_submission WHERE public_id = ANY (%(keys)s) AND consumed_at IS NULL
"""


def leave(keys: Sequence[str]) -> None:
    """Archive the runs with these public ids, and those below them, now, as far as they have ended and nothing holds them."""
    archive.take([*keys, *_below(keys)])


def here(keys: Sequence[str]) -> set[str]:
    """Those of these runs that are not in the archive, or a run below them is not, because it has not ended or is held."""
    below = _below(keys)
    return {below.get(key, key) for (key,) in db.run(_STILL_HERE, {"keys": [*keys, *below]})}


def family(keys: Sequence[str]) -> list[str]:
    """These runs and all below them, by their public ids."""
    return [*keys, *_below(keys)]


def _below(keys: Sequence[str]) -> dict[str, str]:
    """The keys of all runs below these, each with the one of these that it is below. An archived run names its children itself."""
    found = {key: key for key in keys}
    new = list(keys)
    while new:
        pairs = list(Child.objects.filter(parent_key__in=new).values_list("parent_key", "key"))
        for parent, children in ArchivedRun.objects.filter(key__in=new).values_list("key", "body__children"):
            pairs += [(parent, child["key"]) for child in children or ()]
        fresh = {key: found[parent] for parent, key in pairs if key not in found}
        found |= fresh
        new = list(fresh)
    return {key: top for key, top in found.items() if key != top}


@dataclass(frozen=True)
class Place:
    """Rows of one table that belong to a run. by: the column with its public id, or `run_id`.

    own: (a column whose values are unique, the column that is added to what is left of such a value). Without the words that name
    them, the values of two persons may be the same.
    """

    table: str
    by: str
    columns: tuple[str, ...]
    own: tuple[str, str] | None = None


# What is left of an archived run, beside the archive.
LEFT = (
    Place("supervision_submission", "public_id", ("cancelled_by", "cancel_reason", "session_key")),
    Place("supervision_strayreply", "run_id", ("detail", "actor")),
    Place("supervision_notification", "run_id", ("payload", "last_error")),
    Place("supervision_delivery", "run_id", ("body", "last_error", "log")),
    Place("supervision_finding", "order_key", ("detail", "last_error", "settled_by", "reason", "outcome")),
    Place("supervision_approval", "order_key", ("arguments", "reason", "asked_by", "decided_by", "decision_reason", "outcome")),
    Place("supervision_jobresult", "key", ("message",)),
)
# Rows that may name the person without belonging to one of the orders: they are read whole, page by page, and looked through for the
# words that name no other person.
ELSEWHERE = (
    Place("supervision_notification", "", ("payload", "last_error")),
    Place("supervision_delivery", "", ("body", "last_error", "log")),
    Place("supervision_telling", "", ("last_error", "log")),
    Place("supervision_exchange", "", ("asked", "answered")),
    Place("supervision_finding", "", ("detail", "last_error", "settled_by", "reason", "outcome")),
    Place("supervision_approval", "", ("arguments", "reason", "asked_by", "decided_by", "decision_reason", "outcome")),
    Place("supervision_incident", "", ("cause", "title", "acknowledged_by", "acknowledge_reason", "owner"), own=("cause", "id")),
    Place("supervision_incidentnote", "", ("author", "text")),
    Place("supervision_runnote", "", ("author", "text")),
    Place("supervision_pause", "", ("reason", "paused_by", "lifted_by", "lift_reason")),
    Place("supervision_job", "", ("filter", "changes", "reason", "started_by", "stopped_by", "stop_reason")),
    Place("supervision_jobresult", "", ("message",)),
    Place("supervision_savedview", "", ("of", "name", "query"), own=("name", "id")),
    Place("supervision_strayreply", "", ("detail", "actor")),
    Place("supervision_signal", "", ("payload", "sent_by", "reason")),
    Place("supervision_journalentry", "", ("body", "error")),
    Place("supervision_channel", "", ("last_error",)),
    Place("supervision_resource", "", ("last_error", "suspects")),
)
BODY = Place("supervision_archivedrun", "key", ("body",))


def runs(keys: Sequence[str], words: Words, fields: Collection[str], actors: Collection[str]) -> int:
    """Take the person out of these runs, which have left the hot tables, and out of what belongs to them, in the caller's transaction.

    fields: the names in orders' payloads whose texts all go. actors: the person's names in histories; what they say there goes whole.
    Returns how many rows were changed or deleted.
    """
    every = [*keys, *_below(keys)]
    run_ids = list(ArchivedRun.objects.filter(key__in=every).values_list("run_id", flat=True))
    changed = _keys(every, words) + _say_nothing(every, actors) + _clean(BODY, "key = ANY (%(keys)s)", {"keys": every}, words, fields)
    for place in LEFT:
        belongs = f"{place.by} = ANY (%({'runs' if place.by == 'run_id' else 'keys'})s)"
        changed += _clean(place, belongs, {"keys": every, "runs": run_ids}, words, fields)
    of_runs = {"keys": every, "runs": run_ids, "erased": ERASED}
    # The hash of the request stays: a repetition under its key is still known.
    changed += len(
        db.fetch(
            "UPDATE supervision_submission SET payload = %(erased)s"
            " WHERE public_id = ANY (%(keys)s) AND consumed_at IS NOT NULL AND payload <> %(erased)s RETURNING 1",
            of_runs,
        )
    )
    changed += len(db.fetch("DELETE FROM supervision_exchange WHERE run_id = ANY (%(runs)s) RETURNING 1", of_runs))
    changed += len(db.fetch("DELETE FROM supervision_runnote WHERE run_key = ANY (%(keys)s) RETURNING 1", of_runs))
    for letter in DeadLetter.objects.filter(public_id__in=every, blanked_at=None).select_for_update():
        blank(letter, words.out_of)
        changed += 1
    return changed


def _keys(keys: Sequence[str], words: Words) -> int:
    """Keep a digest in the place of a client's key that names the person: a repetition under the key makes no second order."""
    changed = 0
    for row in Submission.objects.filter(public_id__in=keys, client_key__isnull=False).select_for_update():
        key = row.client_key or ""
        if not key.startswith(erased_keys.MARK) and words.out_of(key) != key:
            row.client_key = erased_keys.kept(row.client, key)
            row.save(update_fields=["client_key"])
            changed += 1
    return changed


_CANCELLED = """
UPDATE supervision_submission SET cancel_reason = %(mask)s
 WHERE public_id = ANY (%(keys)s) AND cancelled_by = ANY (%(actors)s) AND NOT cancel_reason IN ('', %(mask)s) RETURNING 1
"""


def _say_nothing(keys: Sequence[str], actors: Collection[str]) -> int:
    """Take the words of these actors out of archived histories, and out of a cancellation that came before its run."""
    changed = len(db.fetch(_CANCELLED, {"keys": keys, "actors": list(actors), "mask": MASK}))
    for archived in ArchivedRun.objects.filter(key__in=keys).select_for_update():
        said = [
            event for event in archived.body.get("events") or () if event.get("actor") in actors and event.get("why") not in (None, MASK)
        ]
        for event in said:
            event["why"] = MASK
        if said:
            archived.save(update_fields=["body"])
            changed += 1
    return changed


def page(number: int, after: int, words: Words) -> tuple[int, int, int]:
    """Look through one page of the rows elsewhere, in the caller's transaction, for words that name no other person.

    number, after: the place, and the id after which to go on; both 0 at first. Returns (number, after) of the next page, with a number
    beyond `pages()` at the end, and how many rows were changed.
    """
    if number == 0:
        return _letters(after, words)
    if number == 1:
        return _archived(after, words)
    place = ELSEWHERE[number - 2]
    last, changed = _page(place, after, words)
    return (number + 1, 0, changed) if last is None else (number, last, changed)


def pages() -> int:
    """The highest number of a page."""
    return len(ELSEWHERE) + 1


def log_of(
    after: int, accounts: Collection[int], objects: Iterable[tuple[str, Sequence[str]]], words: Words, named: Words
) -> tuple[int | None, int]:
    """Blank one page of the operators' log, after this id. A message goes whole, never a part of it.

    Entries of these accounts go; so do those about `objects`, the (model, ids or names) of the person's rows, with any of `words`; and all
    that have one of `named`. Returns the id to go on after, None at the end; and how many.
    """
    mine = {(model, pk) for model, ids in objects for pk in ids}
    rows = list(LogEntry.objects.filter(pk__gt=after).order_by("pk").select_related("content_type")[:BATCH])
    found = [
        row.pk
        for row in rows
        if row.change_message != MASK
        and (
            row.user_id in accounts
            or named.are_in(row.change_message)
            or named.are_in(row.object_repr)
            or (
                not mine.isdisjoint((row.content_type.model if row.content_type else "", one) for one in (row.object_id, row.object_repr))
                and (words.are_in(row.change_message) or words.are_in(row.object_repr))
            )
        )
    ]
    LogEntry.objects.filter(pk__in=found).update(change_message=MASK, object_repr=MASK)
    return (rows[-1].pk if len(rows) == BATCH else None), len(found)


def _letters(after: int, words: Words) -> tuple[int, int, int]:
    rows = list(DeadLetter.objects.filter(pk__gt=after).order_by("pk").select_for_update()[:LETTERS])
    changed = 0
    for letter in rows:
        texts = (json.dumps(letter.headers, ensure_ascii=False), json.dumps(letter.delivery, ensure_ascii=False), letter.reason)
        if any(map(words.are_in, (*texts, letter.resolution))) or words.are_in_bytes(bytes(letter.body)):
            blank(letter, words.out_of)
            changed += 1
    return (0, rows[-1].pk, changed) if len(rows) == LETTERS else (1, 0, changed)


def _archived(after: int, words: Words) -> tuple[int, int, int]:
    """Other people's archived runs: their texts lose the words, and nothing else."""
    found = db.fetch(
        "SELECT run_id FROM supervision_archivedrun WHERE run_id > %(after)s ORDER BY run_id LIMIT %(batch)s",
        {"after": after, "batch": BATCH},
    )
    ids = [run_id for (run_id,) in found]
    changed = _clean(BODY, "run_id = ANY (%(ids)s)", {"ids": ids}, words, ()) if ids else 0
    return (1, ids[-1], changed) if len(ids) == BATCH else (2, 0, changed)


def _page(place: Place, after: int, words: Words) -> tuple[int | None, int]:
    found = db.fetch(
        f"SELECT id FROM {place.table} WHERE id > %(after)s ORDER BY id LIMIT %(batch)s",  # noqa: S608 - our own names
        {"after": after, "batch": BATCH},
    )
    ids = [pk for (pk,) in found]
    changed = _clean(place, "id = ANY (%(ids)s)", {"ids": ids}, words, ()) if ids else 0
    return (ids[-1] if len(ids) == BATCH else None), changed


def _clean(place: Place, where: str, params: dict[str, Any], words: Words, fields: Collection[str]) -> int:
    """Take the words out of these columns of these rows. The rows are locked until the caller's transaction ends."""
    return clean(place.table, place.columns, where, params, words, fields, place.own)


def clean(
    table: str,
    columns: Sequence[str],
    where: str,
    params: dict[str, Any],
    words: Words,
    fields: Collection[str] = (),
    own: tuple[str, str] | None = None,
) -> int:
    """Take the words out of these columns (text or JSON) of the rows that the condition finds, in the caller's transaction.

    fields: names in JSON values whose texts all go. own: see `Place`. Returns how many rows were changed.
    """
    unique, adds = own or ("", "NULL")
    names = ", ".join(columns)
    changed = 0
    rows = db.fetch(f"SELECT ctid::text, {adds}::text, {names} FROM {table} WHERE {where} FOR UPDATE", params)  # noqa: S608 - our own names
    for ctid, added, *values in rows:
        new = {name: cleaned for name, value in zip(columns, values, strict=True) if (cleaned := _without(value, words, fields)) != value}
        if unique in new:
            new[unique] = f"{new[unique]} {added}"
        if new:
            sets = ", ".join(f"{name} = %({name})s" for name in new)
            facts = {name: json.dumps(value) if name in _json_columns(table) else value for name, value in new.items()}
            db.fetch(f"UPDATE {table} SET {sets} WHERE ctid = %(row)s::tid RETURNING 1", {**facts, "row": ctid})  # noqa: S608
            changed += 1
    return changed


@cache
def _json_columns(table: str) -> frozenset[str]:
    model = next(model for model in apps.get_models() if model._meta.db_table == table)
    return frozenset(field.column for field in model._meta.concrete_fields if isinstance(field, JSONField))


def _without(value: Any, words: Words, fields: Collection[str]) -> Any:
    return value if value is None else words.out_of_json(value, fields)

"""Where else a person's data may be: archived orders without rows of the shop, sessions, counts of tries, the operators' log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from orders.models import Erasure, Order, Return
from orders.privacy import rows
from orders.privacy.people import Person
from supervision.models import Approval, ArchivedRun, DeadLetter, Finding, Submission
from supervision.postgres import db
from supervision.privacy import erasing as engine
from supervision.privacy.words import MASK, Words

PAGE = 500
_ARCHIVED = """
WITH page AS MATERIALIZED (
    SELECT run_id, key, body FROM supervision_archivedrun WHERE run_id > %(after)s ORDER BY run_id LIMIT %(page)s),
found AS (
    SELECT key, body, body->'application'->>'order' AS of_order FROM page
     WHERE lower(body->'application'->>'email') = ANY (%(emails)s)
        OR (body->'application'->>'account' = ANY (%(accounts)s) AND body->'application'->>'email' <> %(mask)s)
        OR (lower(body->'run'->'payload'->>'email') = ANY (%(emails)s) AND body->'application' ? 'order')),
owned AS (
    SELECT key, body, CASE WHEN of_order IS NULL THEN body->'application'->>'account'
                           ELSE coalesce((SELECT o.account_id::text FROM orders_order o WHERE o.public_id = of_order),
                                         (SELECT a.body->'application'->>'account' FROM supervision_archivedrun a WHERE a.key = of_order))
                      END AS account
      FROM found),
told AS (
    SELECT key, jsonb_build_object('body', body, 'own', account IS NULL OR account = ANY (%(accounts)s) OR account IN (
               SELECT u.user_id::text FROM auth_user_groups u JOIN auth_group g ON g.id = u.group_id WHERE g.name = 'client')) AS facts
      FROM owned)
SELECT (SELECT max(run_id) FROM page), (SELECT count(*) FROM page), (SELECT coalesce(jsonb_object_agg(key, facts), '{}') FROM told)
"""
_ADDRESSES = """
SELECT email FROM supervision_archivedrun, LATERAL (VALUES (body->'application'->>'email'), (body->'run'->'payload'->>'email')) v(email)
 WHERE strpos(email, '@') > 0 GROUP BY 1
"""
_COUNTS = "DELETE FROM orders_requestcount WHERE lower(bucket) = ANY (%(buckets)s) RETURNING 1"


class Archived(NamedTuple):
    """An archived run with one of the person's addresses or accounts: its names and addresses; whether it is an order, others came
    later for one; and whether it is the person's own. Of another account's order the address alone is the person's."""

    texts: list[str]
    is_order: bool
    own: bool


def archived(person: Person, after: int) -> tuple[dict[str, Archived], int | None]:
    """Archived runs of the person, by public id, one page after this id; and the id after which to go on, None at the end."""
    params = {"after": after, "page": PAGE, "emails": person.emails, "accounts": [str(pk) for pk in person.accounts], "mask": MASK}
    last, count, found = db.fetch(_ARCHIVED, params)[0]
    runs = {
        key: Archived(list(rows.words_in(facts["body"])), "lines" in (facts["body"].get("application") or {}), facts["own"])
        for key, facts in found.items()
    }
    return runs, last if count == PAGE else None


def archived_keys(person: Person) -> Iterator[str]:
    """Public ids of all archived orders of the person."""
    after: int | None = 0
    while after is not None:
        found, after = archived(person, after)
        yield from (key for key, run in found.items() if run.is_order and run.own)


def is_older(person: Person, than: datetime) -> bool:
    """Whether an order or an account of the person is from before this moment."""
    if (person.own_orders() | person.named_in()).filter(created_at__lte=than).exists():
        return True
    if User.objects.filter(pk__in=person.accounts, date_joined__lte=than).exists():
        return True
    if Submission.objects.filter(public_id__in=submitted(person), created_at__lte=than).exists():
        return True
    after: int | None = 0
    while after is not None:
        found, after = archived(person, after)
        if ArchivedRun.objects.filter(key__in=list(found), finished_at__lte=than).exists():
            return True
    return False


def addresses() -> Iterator[str]:
    """The mail addresses of orders that are in the archive alone, or that no consumer has taken up yet. Reads the whole archive."""
    yield from (email for (email,) in db.fetch(_ADDRESSES))
    for payload in Submission.objects.filter(consumed_at=None).values_list("payload", flat=True).iterator():
        try:
            said = json.loads(payload)
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict) and isinstance(said.get("email"), str):
            yield said["email"]


def submitted(person: Person, *, own: bool = False) -> list[str]:
    """Accepted orders that no consumer has taken up yet: the person's own, and without `own` those of others that name the person."""
    mine = {f"user:{pk}" for pk in person.accounts}
    found = Q(client__in=mine)
    for email in person.typed or person.emails:
        found |= Q(payload__icontains=email)
    waiting = Submission.objects.filter(found, consumed_at=None) if found else Submission.objects.none()
    of_shops = {f"user:{pk}" for pk in User.objects.filter(groups__name="client").values_list("pk", flat=True)}
    keys = []
    for key, client, payload in waiting.values_list("public_id", "client", "payload"):
        its = client in mine or (is_order_of(payload.encode(), person.surely) and (not client.startswith("user:") or client in of_shops))
        if its or (not own and person.surely.are_in(payload)):
            keys.append(key)
    return keys


def is_order_of(body: bytes, words: Words) -> bool:
    """Whether these bytes are one order, in JSON, with a mail address of the person. Other bytes may name other people, too."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and words.are_in(str(said.get("email")))


def is_of(session: Mapping[str, Any], person: Person) -> bool:
    """Whether a session is one of the person's accounts, or has a mail address of the person."""
    if str(session.get(SESSION_KEY)) in {str(pk) for pk in person.accounts}:
        return True
    return person.surely.are_in(json.dumps(session, ensure_ascii=False, default=str))


def counts_of(person: Person) -> int:
    """Delete the counts of mails to the person and of a guest's orders, in the caller's transaction."""
    return len(db.fetch(_COUNTS, {"buckets": [f"{kind}:{email}" for kind in ("mail", "guest") for email in person.emails]}))


def objects_of(erasure: Erasure, person: Person) -> Iterator[tuple[str, Sequence[str]]]:
    """The person's rows that the operators' log may be about: the model's name, with ids, and names of those that have no row any more."""
    orders = list(Order.objects.filter(email=erasure.pseudonym).values_list("pk", "run_id", "public_id"))
    keys = [*(key for _pk, _run, key in orders), *person.archived]
    later = rows.later_runs(keys)
    every = engine.family([*keys, *later["returns"], *later["others"]])
    runs = list(ArchivedRun.objects.filter(key__in=every).values_list("run_id", "reference"))
    names = [name for _run, name in runs if name]
    of = {"order_key__in": every}
    yield "order", [*(str(pk) for pk, _run, _key in orders), *names]
    yield "return", [*_ids(Return.objects.filter(**of)), *names]
    yield "run", [str(run) for run in [*(run for _pk, run, _key in orders), *(run for run, _name in runs)]]
    yield "archivedrun", every
    yield "submission", _ids(Submission.objects.filter(public_id__in=every))
    yield "finding", _ids(Finding.objects.filter(**of))
    yield "approval", _ids(Approval.objects.filter(**of))
    yield "user", [str(pk) for pk in person.accounts]
    yield "deadletter", _ids(DeadLetter.objects.filter(public_id__in=every))


def _ids(found: QuerySet[Any]) -> list[str]:
    return [str(pk) for pk in found.values_list("pk", flat=True)]


def kept_until(year: int) -> int:
    """The year at whose end documents of this year are deleted."""
    return year + int(settings.DOCUMENT_YEARS)

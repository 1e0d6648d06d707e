"""Takes a person out of the shop's rows of orders that have ended, and of what came later for them. Lines, totals and documents stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db.models.functions import Lower

from orders.models import MailAgain, Order, Refund, Return
from orders.privacy.people import Person
from orders.records import leaving
from supervision.models import ArchivedRun
from supervision.postgres import db
from supervision.privacy import erasing
from supervision.privacy.words import MASK, Words, is_address

FIELDS = frozenset({"email", "shipping_address", "customer", "to"})  # of an order's payload
OF_RETURNS = FIELDS | {"reason"}  # the customer's own words

# (table, the column that names the order or the return, columns that may name the person)
_TEXTS = (
    ("orders_return", "order_key", ("asked_by",)),
    ("orders_refund", "order_key", ("reason", "asked_by")),
    ("orders_mailagain", "order_key", ("reason", "asked_by")),
    ("orders_paymentadjustment", "order_key", ("reason",)),
    ("orders_paymentevent", "order_key", ("outcome",)),
    ("orders_returncorrection", "return_key", ("reason", "asked_by")),
)


# The rows of an order that left for the archive left with it. Its own archive names what they were about.
_LATER = """
SELECT DISTINCT kind, t->>'id' FROM supervision_archivedrun a, unnest(ARRAY['returns', 'refunds', 'mails_again']) kind,
       jsonb_array_elements(nullif(a.body->'application'->kind, 'null')) t
 WHERE a.key = ANY (%(orders)s::text[]) AND t->>'id' <> ''
"""


def later_runs(orders: Sequence[str]) -> dict[str, list[str]]:
    """The public ids of returns, and of refunds and mails sent again, of these orders."""
    of = {"order_key__in": orders}
    returns = set(Return.objects.filter(**of).values_list("public_id", flat=True))
    others = {*Refund.objects.filter(**of).values_list("public_id", flat=True)}
    others |= {*MailAgain.objects.filter(**of).values_list("public_id", flat=True)}
    for kind, key in db.run(_LATER, {"orders": list(orders)}):
        (returns if kind == "returns" else others).add(key)
    return {"returns": sorted(returns), "others": sorted(others)}


def leave(orders: Sequence[str]) -> None:
    """Archive the runs of these orders now, after those that came later for them, as far as they have ended."""
    later = later_runs(orders)
    erasing.leave([*later["returns"], *later["others"]])
    erasing.leave(orders)


def waiting(orders: Sequence[str]) -> set[str]:
    """Those of these orders that have to wait, in the caller's transaction, which has locked them."""
    return erasing.here(orders) | set(leaving.busy(list(orders)))


def words_of(orders: Sequence[str]) -> Iterator[str]:
    """Names, addresses and mail addresses in these orders, which are archived."""
    for email, customer in Order.objects.filter(public_id__in=orders).values_list("email", "customer"):
        yield from (email, customer)
    yield from MailAgain.objects.filter(order_key__in=orders).values_list("email", flat=True)
    for body in ArchivedRun.objects.filter(key__in=orders).values_list("body", flat=True):
        yield from words_in(body)


def words_in(body: Mapping[str, Any]) -> Iterator[str]:
    """Names, addresses and mail addresses in an archived order."""
    payload, facts = body["run"].get("payload") or {}, body.get("application") or {}
    yield from (str(payload.get("email") or ""), str(facts.get("email") or ""))
    yield from (str(mail.get("number") or "") for mail in facts.get("mails_again") or ())
    yield from _of_address(payload.get("shipping_address"))


def _of_address(address: Any) -> Iterator[str]:
    if not is_address(address):
        return
    for name in ("name", "line1", "line2", "city", "country_area"):
        yield str(address.get(name) or "")
    code = str(address.get("postal_code") or "")
    if len(code) > 3:
        yield code


def erase(orders: Sequence[str], person: Person, pseudonym: str) -> int:
    """Take the person out of these orders of the person's own, in the caller's transaction. Returns how many rows were changed."""
    later = later_runs(orders)
    words, actors = person.all_words, person.actors
    changed = erasing.runs([*orders, *later["others"]], words, FIELDS, actors) + erasing.runs(later["returns"], words, OF_RETURNS, actors)
    changed += len(db.fetch(_REASONS, {"orders": list(orders), "mask": MASK}))
    changed += _texts(orders, later["returns"], words)
    changed += Return.objects.filter(order_key__in=orders).exclude(reason=MASK).update(reason=MASK)
    changed += MailAgain.objects.filter(order_key__in=orders).exclude(email=pseudonym).update(email=pseudonym)
    changed += Order.objects.filter(public_id__in=orders).exclude(email=pseudonym).update(email=pseudonym, customer="")
    entries = [f"{key}:received" for key in orders]  # entries of earlier versions had the customer's name
    changed += len(db.fetch(_JOURNAL, {"events": entries}))
    return changed


# What customers wrote of their returns stands in the archive of the order, too.
_REASONS = """
UPDATE supervision_archivedrun a
   SET body = jsonb_set(a.body, '{application,returns}', (
              SELECT jsonb_agg(t || jsonb_build_object('reason', %(mask)s::text) ORDER BY place)
                FROM jsonb_array_elements(a.body->'application'->'returns') WITH ORDINALITY r(t, place)))
 WHERE a.key = ANY (%(orders)s::text[])
   AND EXISTS (SELECT FROM jsonb_array_elements(nullif(a.body->'application'->'returns', 'null')) t WHERE t->>'reason' <> %(mask)s)
RETURNING 1
"""
_JOURNAL = """
UPDATE supervision_journalentry SET body = (body::jsonb || '{"customer": ""}')::text
 WHERE key = 'accounting' AND event_id = ANY (%(events)s) AND body::jsonb ? 'customer' AND body::jsonb->>'customer' <> '' RETURNING 1
"""


def erase_address(orders: Sequence[str], words: Words, pseudonym: str) -> int:
    """Take the person's mail address out of these orders of other people, in the caller's transaction."""
    later = later_runs(orders)
    every = [*orders, *later["returns"], *later["others"]]
    changed = erasing.clean("supervision_archivedrun", ("body",), "key = ANY (%(keys)s)", {"keys": every}, words)
    changed += len(db.fetch(_PAYLOADS, {"keys": every, "erased": erasing.ERASED}))
    changed += _texts(orders, later["returns"], words)
    return changed + Order.objects.filter(public_id__in=orders).update(email=pseudonym)


def sent_again(person: Person) -> list[str]:
    """Public ids of the mails that operators have sent again to one of the person's addresses, of any order."""
    mails = MailAgain.objects.annotate(to=Lower("email")).filter(to__in=person.emails)
    return list(mails.order_by("pk").values_list("public_id", flat=True))


def erase_sent_again(person: Person, pseudonym: str) -> tuple[int, int]:
    """Take the person's address out of these mails, in the caller's transaction. Returns how many rows were changed, and how many mails
    have not ended yet. The rest of the erasure takes it out of the archive."""
    keys = sent_again(person)
    waiting = erasing.here(keys)
    ended = [key for key in keys if key not in waiting]
    changed = len(db.fetch(_PAYLOADS, {"keys": ended, "erased": erasing.ERASED}))
    return changed + MailAgain.objects.filter(public_id__in=ended).update(email=pseudonym), len(waiting)


_PAYLOADS = """
UPDATE supervision_submission SET payload = %(erased)s
 WHERE public_id = ANY (%(keys)s) AND consumed_at IS NOT NULL AND payload <> %(erased)s RETURNING 1
"""


def _texts(orders: Sequence[str], returns: Sequence[str], words: Words) -> int:
    keys: Mapping[str, Sequence[str]] = {"order_key": orders, "return_key": returns}
    return sum(erasing.clean(table, columns, f"{by} = ANY (%(keys)s)", {"keys": list(keys[by])}, words) for table, by, columns in _TEXTS)

"""Charges: compares our books with the payment service's lists.

The lists of charges, refunds and disputes show which orders to check; `comparing` says how they are checked.

Payments without `metadata[order]` are not the shop's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from orders.gateways import payment
from orders.gateways.payment import Broken, Intent, Rejected, Unavailable
from orders.payments import codes
from orders.reconciliation import again, books, listing, payment_verbs
from orders.reconciliation.asking import SETTLING_SECONDS, asking, patiently
from orders.reconciliation.books import Book
from orders.reconciliation.charges import AGENT, SERVICE, Charge, agrees, judge, named
from orders.reconciliation.comparing import CLOCKS, Comparison, Done
from supervision.ledger.reconciliation import Found, batched, register
from supervision.postgres import db

REFUNDS = timedelta(days=35)  # how long after its creation a refund may fail
DISPUTES = timedelta(days=130)  # how long a dispute may take


@dataclass
class Suspect:
    """An order to check closely, and the payments that the lists or a finding give it. disputed: ask for disputes too."""

    order: str
    intents: set[str] = field(default_factory=set)
    disputed: bool = False


class PaymentSource(Comparison[Suspect, Charge]):
    """Stripe, or a service with the same API."""

    service = SERVICE

    def look(self, since: datetime) -> Iterator[Found]:
        """Every difference between the charges, refunds and disputes since then and our books."""
        with asking():
            listing.begin()
            _note_refunds(since)
            for batch in batched(payment.listed(since - CLOCKS)):
                listing.see((intent.id, intent.order, "") for intent in batch if intent.order)
                listing.suspect(_suspects(batch))
            for ids in _refunded_before():
                listing.suspect(_owners(ids))
            for keys in listing.unseen(AGENT, "intent", since):
                listing.suspect(keys)
            for keys in listing.ended_late([codes.STEP, codes.AUTHORISE], since - CLOCKS):
                listing.suspect(keys)
            disputed = (one.intent for one in payment.disputes_listed(since - DISPUTES) if one.hurts)
            for ids in batched(disputed):
                listing.suspect(_owners(ids), disputed=True)
            for suspects in listing.suspects():
                shown = listing.seen(order for order, _ in suspects)
                yield from self.closely(Suspect(order, set(shown[order]), asks) for order, asks in suspects)
            listing.forget()

    def suspects(self, found: Sequence[Found]) -> Iterable[Suspect]:
        """The orders of these findings, with the payments that the findings name."""
        suspects: dict[str, Suspect] = {}
        for one in found:
            suspect = suspects.setdefault(one.order, Suspect(one.order))
            suspect.intents |= {one.external_id} if one.external_id.startswith("pi_") else set()
            suspect.disputed |= one.kind == "dispute"
        return suspects.values()

    def held(self, suspect: Suspect, book: Book) -> list[Charge]:
        """Every existing payment of this order, in its present state."""
        return list(_charges(suspect, book))

    def judge(self, book: Book, held: Sequence[Charge]) -> Iterator[Found]:
        """How the books and these payments of one order differ."""
        return iter(judge(book, held))

    def settle(self, found: Found, verb: str, *, by: str, reason: str, tries: int) -> str:
        """As for every service; then our books hear of a refund that was made again."""
        said = super().settle(found, verb, by=by, reason=reason, tries=tries)
        if found.kind == "refund_failed" and found.external_id.startswith("re_"):
            with asking(SETTLING_SECONDS):
                again.note(found, by)
        return said

    def act(self, found: Found, verb: str, *, by: str, tries: int) -> Done:
        """Refund, cancel or adopt it."""
        return payment_verbs.act(found, verb, by=by, tries=tries)


def _charges(suspect: Suspect, book: Book) -> Iterator[Charge]:
    found = {one.id for one in patiently(partial(payment.of_order, suspect.order), Broken, Unavailable)}
    for name in sorted(found | suspect.intents | named(book)):
        intent = _get(name)
        if intent is None or intent.order != suspect.order:
            continue
        refunds = patiently(partial(payment.refunds_of, name), Broken, Unavailable) if intent.received else []
        disputes = patiently(partial(payment.disputes_of, name), Broken, Unavailable) if suspect.disputed else []
        yield Charge(intent, tuple(refunds), tuple(one for one in disputes if one.hurts))


def _get(name: str) -> Intent | None:
    try:
        return patiently(partial(payment.get, name), Broken, Unavailable)
    except Rejected:
        return None  # the service has no payment of this id


def _suspects(intents: Sequence[Intent]) -> list[str]:
    """The orders of these payments that do not clearly agree with the books."""
    ours = {intent.id: (intent, intent.order) for intent in intents if intent.order}
    known = books.of(order for _, order in ours.values())
    given_back = _given_back(list(ours))
    return [order for intent, order in ours.values() if not agrees(intent, known[order], given_back.get(intent.id, 0))]


def _owners(intents: Iterable[str]) -> list[str]:
    """The orders of these payments. The payments are noted as seen."""
    owned = [(intent.id, intent.order, "") for intent in map(_get, intents) if intent is not None and intent.order]
    listing.see(owned)
    return [order for _, order, _ in owned]


# -------------------------------------------------------------------------------------------------- refunds

_REFUNDS = """
CREATE TEMP TABLE IF NOT EXISTS reconciling_refund
    (id text PRIMARY KEY, intent text NOT NULL, amount bigint NOT NULL, look boolean NOT NULL)
"""
_NOTE_REFUNDS = """
INSERT INTO reconciling_refund
SELECT * FROM unnest(%(ids)s::text[], %(intents)s::text[], %(amounts)s::bigint[], %(looks)s::boolean[]) ON CONFLICT DO NOTHING
"""
_GIVEN_BACK = "SELECT intent, sum(amount) FROM reconciling_refund WHERE intent = ANY (%(ids)s) GROUP BY intent"
_REFUNDED_BEFORE = """
SELECT DISTINCT r.intent FROM reconciling_refund r
 WHERE r.look AND r.intent > %(after)s AND NOT EXISTS (SELECT 1 FROM reconciling_seen s WHERE s.external_id = r.intent)
 ORDER BY r.intent LIMIT 200
"""


def _note_refunds(since: datetime) -> None:
    """Note the refunds, and the payments to check because of them: those with a new refund or a failed one."""
    db.run(_REFUNDS)
    db.run("CREATE INDEX IF NOT EXISTS reconciling_refund_of ON reconciling_refund (intent)")
    db.run("TRUNCATE reconciling_refund")
    for batch in batched(payment.refunds_listed(since - REFUNDS)):
        db.run(
            _NOTE_REFUNDS,
            {
                "ids": [one.id for one in batch],
                "intents": [one.intent for one in batch],
                "amounts": [one.amount if one.gives_back else 0 for one in batch],
                "looks": [not one.gives_back or one.created is None or one.created >= since - CLOCKS for one in batch],
            },
        )


def _given_back(ids: Sequence[str]) -> Mapping[str, int]:
    return {intent: int(amount) for intent, amount in db.run(_GIVEN_BACK, {"ids": list(ids)})}


def _refunded_before() -> Iterator[list[str]]:
    """Payments that are older than the list but must be checked because of a refund, in batches."""
    after = ""
    while ids := [name for (name,) in db.run(_REFUNDED_BEFORE, {"after": after})]:
        yield ids
        after = ids[-1]


register(PaymentSource())

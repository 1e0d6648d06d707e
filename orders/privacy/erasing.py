"""The erasure of a person: planned, begun, and worked at in small transactions until nothing is left. It may be killed at any moment.

`begin` writes the erasure's row and empties the account, in one transaction. From then on `work` goes on where the row says: the orders,
100 in a transaction, then sessions, the rows elsewhere and the operators' log. Each transaction holds the lock of the row,
so two processes never work at one erasure, and changes rows and place together, so nothing is left out after a kill. An order that
has not ended waits; so do one whose return or refund runs, and one whose invoice is not issued. At the end the whole is looked for once
more, under the lock: what was placed meanwhile is found. The last commit takes the person out of the row.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from orders.documents.tables import Document
from orders.models import Erasure, Order
from orders.privacy import closing, rows, traces
from orders.privacy.people import Person
from supervision.errors import Refused
from supervision.models import Run
from supervision.operations.audit_log import Actor, log, name_of
from supervision.postgres import db
from supervision.privacy import erasing as engine
from supervision.runtime import failpoints

logger = logging.getLogger(__name__)

BATCH = 100
LONGEST_REASON = 1000
FIRST = "orders"


@dataclass(frozen=True)
class Plan:
    """What an erasure would do. waiting: orders that have not ended. documents: invoices and credit notes, which the law keeps until
    the end of the year `documents_until`."""

    orders: int
    waiting: int
    addresses: int
    accounts: int
    named_in: int
    documents: int
    documents_until: int | None
    under_way: int | None


def plan(person: Person) -> Plan:
    """What the erasure of this person would change, what it would keep, and whether one is under way already."""
    own = person.own_orders()
    keys = own.values_list("public_id", flat=True)
    documents = Document.objects.filter(order_key__in=keys)
    last = documents.order_by("-year").values_list("year", flat=True).first()
    known = Erasure.objects.filter(digests=person.digests, done_at=None).first()
    return Plan(
        orders=own.count(),
        waiting=len(_unfinished(person)),
        addresses=sum(account.addresses.count() for account in User.objects.filter(pk__in=person.accounts)),  # type: ignore[attr-defined]
        accounts=len(person.accounts),
        named_in=person.named_in().count(),
        documents=documents.count(),
        documents_until=None if last is None else traces.kept_until(last),
        under_way=known.pk if known else None,
    )


def begin(person: Person, *, by: Actor, reason: str, when_ended: bool = False) -> Erasure:
    """Begin to erase this person: from now on the account is closed. Returns the erasure, or the one that is under way already.

    when_ended: orders that have not ended wait and are erased later. Raises Refused without it where there are any, where nothing is
    known of the person, and for a bad reason.
    """
    if not reason.strip() or len(reason) > LONGEST_REASON or "\0" in reason:
        raise Refused(_("Give a reason of 1 to %(most)d characters.") % {"most": LONGEST_REASON})
    known = Erasure.objects.filter(digests=person.digests, done_at=None).first()
    if known is not None:
        return known
    waiting = _unfinished(person)
    if waiting and not when_ended:
        raise Refused(
            _("Orders of this person that have not ended: %(n)d, such as %(first)s. Cancel them, or let the erasure wait.")
            % {"n": len(waiting), "first": waiting[0]}
        )

    def write() -> Erasure:
        with transaction.atomic():
            erasure = Erasure.objects.create(
                digests=person.digests, subject=asdict(person), reason=reason.strip(), asked_by=name_of(by), step=FIRST
            )
            closing.close(person.accounts, erasure.pk, get_language())
            log(by, erasure, "began to erase a person")
            return erasure

    try:
        return write()
    except IntegrityError:  # another one began at the same moment
        return Erasure.objects.get(digests=person.digests, done_at=None)


def _unfinished(person: Person) -> list[str]:
    """Public ids of the person's orders that have not ended, whether they are runs yet or not."""
    own = (
        person.own_orders()
        .filter(run__in=Run.objects.filter(finished_at=None).values("pk"))
        .order_by("pk")
        .values_list("public_id", flat=True)
    )
    return [*own, *traces.submitted(person, own=True)]


# What the database role `web` may do, which begins an erasure, and `worker`, which goes on with it. The owner may do both.
_CLOSE = "SELECT has_table_privilege('auth_user', 'UPDATE') AND has_table_privilege('knox_authtoken', 'SELECT, DELETE')"
_WORK = "SELECT has_table_privilege('supervision_archivedrun', 'UPDATE')"


def may_close() -> bool:
    """Whether the database role of this process may close accounts, without which the erasure of one cannot begin."""
    return bool(db.fetch(_CLOSE)[0][0])


def may_work() -> bool:
    """Whether the database role of this process may archive orders and erase them there. If not, the supervisor's role does the work."""
    return bool(db.fetch(_WORK)[0][0])


# ------------------------------------------------------------------------------------------------------------- the work


def work(pk: int, seconds: float = 10.0) -> bool:
    """Work at this erasure for so long at most. True if there is more to do at once; False if it is done, waits, or another works at it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not _turn(pk):
            return False
    return True


def turn(seconds: float = 30.0) -> None:
    """Work at all erasures that are not done, the one that was left longest first. Called by the periodic task."""
    end = time.monotonic() + seconds
    for pk in Erasure.objects.filter(done_at=None).order_by("tried_at", "pk").values_list("pk", flat=True)[:100]:
        try:
            work(pk, max(0.0, end - time.monotonic()))
        except Exception as error:
            if db.passes(error):
                raise
            logger.exception("erasure %d failed; it is tried again", pk)
            Erasure.objects.filter(pk=pk).update(tried_at=Now())


def _turn(pk: int) -> bool:
    """One batch. True if there is more to do at once."""
    erasure = Erasure.objects.filter(pk=pk, done_at=None).first()
    if erasure is None:
        return False
    if erasure.step == FIRST:
        # Each batch of the archive is a transaction of its own.
        rows.leave(_next_orders(erasure) or rows.sent_again(Person.of(erasure.subject)))
    return bool(db.transact(lambda: _batch(pk)))


def _batch(pk: int) -> bool:
    erasure = Erasure.objects.select_for_update(skip_locked=True).filter(pk=pk, done_at=None).first()
    if erasure is None:
        return False
    person = Person.of(erasure.subject)
    step = erasure.step
    changed, more = STEPS[step](erasure, person)
    if erasure.done_at is None:
        erasure.subject = asdict(person)
    erasure.counts = {**erasure.counts, step: erasure.counts.get(step, 0) + changed}
    erasure.save()
    Erasure.objects.filter(pk=pk).update(tried_at=Now())
    failpoints.hit("erasure.before_commit")
    return more


def _go_on(erasure: Erasure, step: str, place: Sequence[Any] = ()) -> None:
    erasure.step, erasure.place = step, list(place)


def _next_orders(erasure: Erasure) -> list[str]:
    """The next batch: own orders first, then those of others that have the address."""
    person, after = Person.of(erasure.subject), (erasure.place or [0])[0]
    left = Q(pk__gt=after) & ~Q(email=erasure.pseudonym)
    every = person.own_orders().filter(left) | person.named_in().filter(left)
    return list(every.order_by("pk").values_list("public_id", flat=True)[:BATCH])


def _orders(erasure: Erasure, person: Person) -> tuple[int, bool]:
    keys = _next_orders(erasure)
    if not keys:
        return _end_of_orders(erasure, person)
    locked = dict(Order.objects.filter(public_id__in=keys).order_by("pk").select_for_update().values_list("public_id", "pk"))
    waiting = rows.waiting(list(locked))
    ready = [key for key in locked if key not in waiting]
    mine = set(person.own_orders().filter(public_id__in=ready).values_list("public_id", flat=True))
    person.learn(rows.words_of(sorted(mine)))
    changed = rows.erase(sorted(mine), person, erasure.pseudonym)
    changed += rows.erase_address([key for key in ready if key not in mine], person.surely, erasure.pseudonym)
    erasure.place = [max(locked.values()), (erasure.place or [0, 0])[1] + len(waiting)]
    return changed, True


def _end_of_orders(erasure: Erasure, person: Person) -> tuple[int, bool]:
    """All orders were looked at. Those that wait are looked at again with the next turn."""
    changed, mails = rows.erase_sent_again(person, erasure.pseudonym)
    waits = (erasure.place or [0, 0])[1] + len(traces.submitted(person)) + mails
    erasure.waits = waits or None
    _go_on(erasure, FIRST if waits else "archive")
    return changed, not waits


def _archive(erasure: Erasure, person: Person) -> tuple[int, bool]:
    """Orders whose rows of the shop are in the archive alone."""
    after = (erasure.place or [0])[0]
    found, last = traces.archived(person, after)
    for key, run in found.items():
        if run.own:
            person.learn(run.texts)
            person.archived = sorted({*person.archived, key})
            rows.erase([key], person, erasure.pseudonym)
        else:
            rows.erase_address([key], person.surely, erasure.pseudonym)
    if last is None:
        _go_on(erasure, "mail")
    else:
        erasure.place = [last]
    return len(found), True


def _mail(erasure: Erasure, person: Person) -> tuple[int, bool]:
    """The last mail needs the address, which the next steps take away."""
    if closing.tells(erasure.pk):
        return 0, False
    _go_on(erasure, "sessions")
    return closing.forget(erasure.pk), True


def _sessions(erasure: Erasure, person: Person) -> tuple[int, bool]:
    after = (erasure.place or [""])[0]
    page = list(Session.objects.filter(session_key__gt=after).order_by("session_key")[:500])
    gone = [row.session_key for row in page if traces.is_of(row.get_decoded(), person)]
    Session.objects.filter(session_key__in=gone).delete()
    if len(page) == 500:
        erasure.place = [page[-1].session_key]
    else:
        _go_on(erasure, "elsewhere", [0, 0])
    return len(gone), True


def _elsewhere(erasure: Erasure, person: Person) -> tuple[int, bool]:
    number, after, changed = engine.page(erasure.place[0], erasure.place[1], person.surely)
    if number > engine.pages():
        _go_on(erasure, "log", [0])
        changed += traces.counts_of(person)
    else:
        erasure.place = [number, after]
    return changed, True


def _log(erasure: Erasure, person: Person) -> tuple[int, bool]:
    after, changed = engine.log_of(erasure.place[0], person.accounts, traces.objects_of(erasure, person), person.all_words, person.surely)
    _go_on(erasure, "end" if after is None else "log", [after or 0])
    return changed, True


def _end(erasure: Erasure, person: Person) -> tuple[int, bool]:
    """Look once more; what came meanwhile is erased as the rest was. Otherwise it is done, and the row names no person any more."""
    person.look_again()
    again = (person.own_orders() | person.named_in()).exclude(email=erasure.pseudonym).exists()
    if again or traces.submitted(person) or rows.sent_again(person):
        _go_on(erasure, FIRST)
        return 0, True
    erasure.reason, erasure.asked_by = person.all_words.out_of(erasure.reason), person.all_words.out_of(erasure.asked_by)
    erasure.state, erasure.subject, erasure.waits = Erasure.State.DONE, {}, None
    erasure.done_at = db.fetch("SELECT now()")[0][0]
    _go_on(erasure, "end")
    return 0, False


STEPS: dict[str, Callable[[Erasure, Person], tuple[int, bool]]] = {
    FIRST: _orders,
    "archive": _archive,
    "mail": _mail,
    "sessions": _sessions,
    "elsewhere": _elsewhere,
    "log": _log,
    "end": _end,
}


def progress(erasure: Erasure) -> str:
    """How far it is, in one line."""
    if erasure.state == Erasure.State.DONE:
        return _("done")
    if erasure.waits:
        return _("waits for orders that have not ended, or cannot leave yet: %(n)d") % {"n": erasure.waits}
    return _("at work: step %(step)s") % {"step": erasure.step}


__all__ = ["Plan", "begin", "may_close", "may_work", "plan", "progress", "turn", "work"]

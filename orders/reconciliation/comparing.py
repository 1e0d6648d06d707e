"""The steps that the comparison of our books with every service has in common.

1. The service's lists show which orders to check: those that do not clearly agree with the books.
2. Each of these orders is checked on its own: read the books, ask the service, read the books again. An order whose state
   changed in between is left for the next comparison. So a finding is true of one moment, however long the lists took.
3. An order that has not ended is not judged: its agents look before they act, or an operator takes care of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Generic, Protocol, TypeVar

from orders.reconciliation import books
from orders.reconciliation.asking import SETTLING_SECONDS, asking
from orders.reconciliation.books import Book
from supervision.ledger.reconciliation import CannotSettle, Found, batched, note

CLOCKS = timedelta(minutes=5)  # by how much the service's clock may differ from ours
CLOSELY = 50  # orders checked between two reads of the books


@dataclass(frozen=True)
class Done:
    """What a verb did. changed: the difference must be gone by now."""

    words: str
    changed: bool = True


class _OfAnOrder(Protocol):
    @property
    def order(self) -> str: ...


S = TypeVar("S", bound=_OfAnOrder)  # an order to check, and what the lists or a finding give it
H = TypeVar("H")  # one thing that the service holds for an order


class Comparison(ABC, Generic[S, H]):
    """The books beside one service's list."""

    service: str
    look_back = timedelta(days=3)

    @abstractmethod
    def suspects(self, found: Sequence[Found]) -> Iterable[S]:
        """The orders of these findings, with what the findings name."""

    @abstractmethod
    def held(self, suspect: S, book: Book) -> Sequence[H]:
        """All that the service holds for this order now."""

    @abstractmethod
    def judge(self, book: Book, held: Sequence[H]) -> Iterator[Found]:
        """How books and service differ for one order."""

    @abstractmethod
    def act(self, found: Found, verb: str, *, by: str, tries: int) -> Done:
        """Do what the verb says. Raises CannotSettle, or the gateway's error where it is unknown whether it was done."""

    def closely(self, suspects: Iterable[S]) -> Iterator[Found]:
        """Judge these orders by the present state of the service and of the books."""
        for batch in batched(suspects, CLOSELY):
            before = books.of(one.order for one in batch)
            seen = {one.order: self.held(one, before[one.order]) for one in batch if before[one.order].judged}
            after = books.of(seen)
            for order, held in seen.items():
                if after[order].state == before[order].state:
                    yield from self.judge(after[order], held)

    def again(self, found: Sequence[Found]) -> list[Found]:
        """The findings among these that still exist."""
        wanted = {one.identity for one in found}
        with asking():
            return [one for one in self.closely(self.suspects(found)) if one.identity in wanted]

    def settle(self, found: Found, verb: str, *, by: str, reason: str, tries: int) -> str:
        """Check the finding again, do what the verb says, and check that the difference is gone.

        found: as it is stored. A second operator may have approved its amount, so no more than that is moved.
        """
        now = next(iter(self.again([found])), None)
        if now is None:
            return "gone: the difference no longer exists"
        if verb not in now.verbs:
            raise CannotSettle(f"it has changed: {now.detail}; what settles it now: {', '.join(now.verbs) or '-'}")
        if is_more(now, found):
            note(self.service, [now])
            raise CannotSettle(f"it has changed: {now.amount} {now.currency} now. Look again, and settle that")
        with asking(SETTLING_SECONDS):
            done = self.act(now, verb, by=by, tries=tries)
        if done.changed and any(one.identity == now.identity for one in self.again([now])):
            raise CannotSettle(f"it is still there after this: {done.words}")
        return done.words


def is_more(now: Found, than: Found) -> bool:
    """Whether this difference is of more money than it was, or of another currency."""
    amount, before = now.amount or Decimal(0), than.amount or Decimal(0)
    return amount > (before if now.currency == than.currency else 0)

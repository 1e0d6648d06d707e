"""What a correction of a report on a return would do: to its lines, the stock, and the money. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders.models import Return, ReturnLine
from orders.payments import transfers
from orders.returns import codes, goods
from supervision import EffectOutcome
from supervision.errors import Refused
from supervision.models import Effect, StepState
from supervision.states import Direction, ProcessState, RunState

NOTHING = Decimal("0.00")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the return, and what it becomes. holds: the pieces that are paid for, or will be; restocked: those put into stock."""

    was: ReturnLine
    accepted: int
    refused: int
    holds: int
    restocked: int

    @property
    def id(self) -> int:
        """Of the row."""
        return self.was.pk

    def told(self) -> dict[str, Any]:
        """Before and after, as JSON values."""
        was = self.was
        return {
            "sku": was.sku,
            "unit_price": str(was.unit_price),
            "accepted": [was.accepted or 0, self.accepted],
            "refused": [was.refused or 0, self.refused],
            "paid": [was.holds, self.holds],
            "restocked": [was.restocked, self.restocked],
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a correction would do. version: the corrections so far. paid: whether the return was paid already.

    further: what the missed pieces are worth, which is paid if the return was. too_much: by how much more is paid for pieces that did
    not come; negative if less. goes_out: by how much more than before the return will pay, if it was not paid yet.
    """

    version: int
    currency: str
    paid: bool
    lines: Sequence[Line]
    intent: str | None

    @property
    def further(self) -> Decimal:
        return self._sum(lambda line: max(0, line.holds - line.was.holds)) if self.paid else NOTHING

    @property
    def goes_out(self) -> Decimal:
        return NOTHING if self.paid else max(NOTHING, self.worth(1) - self.worth(0))

    @property
    def too_much(self) -> Decimal:
        if not self.paid:
            return NOTHING
        return self._sum(lambda line: (line.holds - line.accepted) - (line.was.holds - (line.was.accepted or 0)))

    @property
    def stock(self) -> Mapping[str, int]:
        """The pieces that go into stock, by product; negative: out of it."""
        return self._pieces(lambda line: line.restocked - line.was.restocked)

    @property
    def held(self) -> Mapping[str, int]:
        """The pieces that the order counts as returned more than before, by product."""
        return self._pieces(lambda line: line.holds - line.was.holds)

    def worth(self, after: int) -> Decimal:
        """What the accepted pieces are worth before (0) and after (1)."""
        return self._sum(lambda line: line.accepted if after else line.was.accepted or 0)

    def pieces(self, after: int) -> int:
        """The accepted pieces before (0) and after (1)."""
        return sum(line.accepted if after else line.was.accepted or 0 for line in self.lines)

    def in_words(self) -> str:
        """One line for operators."""
        said = [
            _("%(sku)s at %(price)s: accepted %(accepted)d, before %(before)d")
            % {"sku": line.was.sku, "price": line.was.unit_price, "accepted": line.accepted, "before": line.was.accepted or 0}
            for line in self.lines
        ]
        said += [_("stock of %(sku)s %(change)+d") % {"sku": sku, "change": change} for sku, change in self.stock.items() if change]
        money = {"currency": self.currency}
        if not self.paid:
            words = _("%(worth)s %(currency)s are paid back instead of %(before)s")
            said.append(words % {**money, "worth": self.worth(1), "before": self.worth(0)})
        if self.further:
            words = _("%(further)s %(currency)s go back to the card for pieces that were missed")
            if not self.intent:
                words = _("%(further)s %(currency)s have to be paid out at the bank for pieces that were missed")
            said.append(words % {**money, "further": self.further})
        if self.too_much > 0:
            words = _("%(amount)s %(currency)s were paid for pieces that did not come, and stay paid")
            said.append(words % {**money, "amount": self.too_much})
        return "; ".join(said)

    def _sum(self, count: Any) -> Decimal:
        return sum((line.was.unit_price * count(line) for line in self.lines), NOTHING)

    def _pieces(self, count: Any) -> Mapping[str, int]:
        found = Counter[str]()
        for line in self.lines:
            found[line.was.sku] += count(line)
        return dict(found)


def plan_of(row: Return, run: Any, report: Mapping[str, Any]) -> Plan:
    """The plan for this return and its run as they are. Raises Unreadable, and Refused where the report cannot be corrected."""
    lines = list(row.lines.order_by("pk"))
    paid = _is_paid(run, lines)
    came = goods.read(report, {(line.sku, line.unit_price): line.quantity for line in lines})
    steps = {step.name: step for step in run.steps}
    restocked = _was_restocked(steps.get(codes.RESTOCK), lines)
    planned = []
    for line in lines:
        new = came[line.sku, line.unit_price]
        planned.append(
            Line(
                was=line,
                accepted=new.accepted,
                refused=new.refused,
                holds=max(line.holds, new.accepted) if paid else new.accepted,
                restocked=new.accepted if restocked else line.restocked,
            )
        )
    found = Plan(version=row.corrections, currency=row.currency, paid=paid, lines=planned, intent=run.run.payload.get("intent"))
    if all((one.accepted, one.refused) == (one.was.accepted, one.was.refused) for one in planned):
        raise Refused(_("The report says this already: nothing would change."), codes.NOTHING_CHANGES)
    if not paid and not found.pieces(1):
        raise Refused(_("No piece would be accepted, and nothing was paid yet: cancel the return instead."), codes.NOTHING_ACCEPTED)
    return found


def _is_paid(run: Any, lines: Sequence[ReturnLine]) -> bool:
    """Whether the return is done. Raises Refused where its report cannot be corrected in its present state."""
    if run.run.process_state == RunState.CANCELLED or run.run.direction == Direction.UNDO:
        raise Refused(_("This return is cancelled or being undone: nothing of it counts."), codes.UNDONE)
    if any(line.accepted is None for line in lines):
        raise Refused(_("There is no report on this return yet: report what came."), codes.NOT_REPORTED)
    if run.run.process_state == RunState.PROCESSED:
        return True
    steps = {step.name: step for step in run.steps}
    restock, refund = steps[codes.RESTOCK], steps[codes.REFUND]
    rests = refund.process_state == ProcessState.ERROR and restock.process_state != ProcessState.PROCESSING
    waits = refund.process_state == ProcessState.PENDING and (refund.awaits == codes.PAID_OUT or not refund.attempt)
    waits = waits and restock.process_state != ProcessState.PROCESSING
    gone = Effect.objects.filter(run=run.run).exclude(outcome__in=[EffectOutcome.REFUSED, EffectOutcome.UNDONE])
    if not (rests or waits) or gone.filter(service__in=["payment", "bank"]).exists() or transfers.recorded(run.run.key):
        text = _("This return is on its way, or money of it may have gone out: correct its report once it has ended.")
        raise Refused(text, codes.ON_ITS_WAY)
    return False


def _was_restocked(step: StepState | None, lines: Sequence[ReturnLine]) -> bool:
    """Whether accepted pieces of this return are in stock. If none were accepted, no step had to put them there."""
    nothing = not any(line.accepted for line in lines)
    return nothing or any(line.restocked for line in lines) or (step is not None and step.process_state == ProcessState.PROCESSED)

"""What a job's verb moves or forgoes in money, over all its orders: above APPROVAL_ABOVE another operator has to approve the job."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from supervision import conf
from supervision.approvals import gate, stakes
from supervision.jobs import selection
from supervision.models import Approval, Job, JobResult, Run, StepState


def at_stake(verb: str, runs: Sequence[int], step: str = "", *, always: bool = False) -> dict[str, Decimal]:
    """By currency. Empty where nothing is, and where no limit is set, unless `always`: then no application is asked.

    The application says for one order of each group of like orders whether the verb moves money; then the worth of all of them is
    at stake.
    """
    if not (conf.get().approval_above or always):
        return {}
    total: dict[str, Decimal] = {}
    for group in selection.preview(verb, selection.of_runs(runs, step)).differ:
        one = _of_one(verb, group)
        worth = dict(group.held) or {currency: amount * group.orders for currency, amount in one.items()}
        for currency, amount in worth.items() if one else ():
            total[currency] = total.get(currency, Decimal(0)) + amount
    return total


def budget(job: Job) -> gate.Budget:
    """What the job may move in all: what was approved for it, or what needs no approval; and what it has moved."""
    approval = Approval.objects.filter(pk=job.approval).first() if job.approval else None
    return gate.Budget(_read(approval.stake) if approval else None, _read(job.moved))


def left_to_ask(job: Job) -> dict[str, Decimal]:
    """What the job has moved and would move by its other orders as they are now, if another operator has to approve that; else empty."""
    allowed = budget(job)
    money = allowed.after(of_the_rest(job))
    return money if allowed.is_beyond(money) else {}


def of_the_rest(job: Job, *, always: bool = False) -> dict[str, Decimal]:
    """What the job would move by its other orders as they are now. always: see `at_stake`."""
    rest = list(JobResult.objects.filter(job=job.pk, number__gt=job.position).order_by("number").values_list("run_id", flat=True))
    return at_stake(job.verb, rest, job.filter.get("step", ""), always=always)


def _read(amounts: Sequence[Sequence[str]]) -> dict[str, Decimal]:
    return {currency: Decimal(amount) for amount, currency in amounts}


def _of_one(verb: str, group: selection.Group) -> dict[str, Decimal]:
    run = Run.objects.get(pk=group.runs[0])
    steps = list(StepState.objects.filter(run=run).order_by("direction", "position"))
    about = [step for step in steps if step.name in group.steps and step.direction == run.direction]
    return stakes.stake_of(stakes.Operation(verb=verb, subject=run.key, order=run.key, run=run, about=about, steps=steps))

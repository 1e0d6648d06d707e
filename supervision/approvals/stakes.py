"""What a verb means in money. The engine has no notion of money: the application's function says it, APPROVAL_ABOVE is the limit.

An application registers its function with `money_at_stake`. It gets an `Operation` before the verb acts, under the lock of the
run, and returns the amounts that the verb moves or forgoes, by currency; empty for a verb that does neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from supervision import conf
from supervision.models import Run, StepState

Money = Mapping[str, Decimal]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A verb that is about to act.

    verb: its name; those of the engine are in `docs/operations.md`, and an application may have others. subject: the public id of
    the order, or the number of the finding. arguments: what the verb is called with again once it is approved, as JSON values.
    about: the steps that it acts on; steps: all steps of the run. plan_version: of the run as it is.
    stake: the amounts, where the verb itself knows them; then the application is not asked. order: the order's public id, if any.
    """

    verb: str
    subject: str
    order: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    run: Run | None = None
    about: Sequence[StepState] = ()
    steps: Sequence[StepState] = ()
    plan_version: str | None = None
    stake: Money | None = None


AtStake = Callable[[Operation], Money]
_functions: list[AtStake] = []


def money_at_stake(function: AtStake) -> AtStake:
    """Register the application's function."""
    _functions.append(function)
    return function


def stake_of(operation: Operation) -> dict[str, Decimal]:
    """What the operation moves or forgoes, by currency."""
    found = [operation.stake] if operation.stake is not None else [function(operation) for function in _functions]
    total: dict[str, Decimal] = {}
    for amounts in found:
        for currency, amount in amounts.items():
            total[currency] = total.get(currency, Decimal(0)) + amount
    return {currency: amount for currency, amount in sorted(total.items()) if amount > 0}


def exceeds(stake: Money) -> bool:
    """Whether one of the amounts is above the limit that APPROVAL_ABOVE has for its currency.

    The limit under the empty name holds for every currency without one of its own. A currency without any limit always exceeds.
    """
    known = conf.get().approval_above
    return bool(known) and any(amount > known.get(currency, known.get("", Decimal(-1))) for currency, amount in stake.items())


def in_words(stake: Money) -> str:
    """`812.00 EUR, 1000 JPY`."""
    return ", ".join(f"{amount} {currency}" for currency, amount in sorted(stake.items()))

"""Stripe, through its official package: the calls that the shop makes, and their errors sorted by their meaning.

Amounts are in minor units. Callers pass complete keys: `K:<operation>`. The package's own retries are off, because the
agent decides when a repetition is safe. Its calls go through this process's one HTTP client and keep within its budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import stripe
from django.conf import settings

from orders.gateways import http
from orders.gateways.http import GatewayError, RefusesUs

# The meaning of an intent's status.
LIVE = frozenset({"requires_payment_method", "requires_confirmation", "requires_action", "requires_capture"})
PAID, CANCELLED, ACTION, RESERVED = "succeeded", "canceled", "requires_action", "requires_capture"
SEARCH_PAGE = 20
LIST_PAGE = 100  # the largest page that Stripe returns
GIVEN_BACK = frozenset({"succeeded", "pending"})  # a refund in any other state gave nothing back
OVER = frozenset({"won", "lost", "warning_closed", "prevented"})  # the final states of a dispute


class Declined(GatewayError):
    """The card was refused. `reason` is the bank's or Stripe's code for it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the card was declined ({reason})")
        self.reason = reason


class Rejected(GatewayError):
    """Stripe does not accept these parameters; it did nothing."""


class WrongState(GatewayError):
    """The payment is not in a state that allows this; nothing was done."""


class KeyConflict(GatewayError):
    """The key was first used with other parameters, or is in use right now."""


class Unavailable(GatewayError):
    """Stripe does not take the call now; it did nothing. `retry_after`: the pause it asks for, in seconds."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class KeyRefused(Unavailable, RefusesUs):
    """Stripe does not accept our API key, or does not let it do this; it did nothing."""


class Broken(GatewayError):
    """Stripe answered with a server error. The call may or may not have had its effect, and the key will replay this answer."""


@dataclass(frozen=True, kw_only=True)
class Intent:
    """A payment as Stripe sees it.

    refusal: why its last confirmation was refused, if it was. order: the public id that it was made for.
    received: what was charged, in minor units. action_url: the page on which the customer has to confirm it.
    """

    id: str
    status: str
    amount: int
    currency: str
    refusal: str | None = None
    step_key: str | None = None
    order: str | None = None
    received: int = 0
    created: datetime | None = None
    action_url: str | None = None

    @property
    def live(self) -> bool:
        """Whether it can still be charged."""
        return self.status in LIVE

    @property
    def confirmable(self) -> bool:
        """Whether it has to be confirmed, or confirmed again, before it can be charged."""
        return self.live and self.status not in (ACTION, RESERVED)


@dataclass(frozen=True, kw_only=True)
class _AgainstIntent:
    """What a refund and a dispute have in common."""

    id: str
    intent: str
    status: str
    amount: int
    currency: str
    reason: str | None = None
    created: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Refund(_AgainstIntent):
    """A refund. Only `succeeded` and `pending` count as given back; a refund may fail weeks later.

    of_return, step_key: the return that it was made for, and the first key of the call that made it.
    replaces: the failed refund whose money it gives back.
    """

    of_return: str | None = None
    step_key: str | None = None
    replaces: str | None = None

    @property
    def gives_back(self) -> bool:
        """Whether the customer gets the money, by the refund's present status."""
        return self.status in GIVEN_BACK


class Dispute(_AgainstIntent):
    """A dispute: the customer asks the bank for the money back."""

    @property
    def over(self) -> bool:
        """Whether it is decided or withdrawn."""
        return self.status in OVER

    @property
    def hurts(self) -> bool:
        """Whether the shop may lose this money, or has lost it."""
        return not self.over or self.status == "lost"


def create(*, amount: int, currency: str, order: str, step_key: str, key: str, reserve: bool = False) -> Intent:
    """Create an intent: no money moves. reserve: its confirmation only reserves the amount, which `capture` then charges."""
    params: dict[str, Any] = {
        "amount": amount,
        "currency": currency.lower(),
        "payment_method_types": ["card"],
        "metadata": {"order": order, "step_key": step_key},
    }
    if reserve:
        params["capture_method"] = "manual"
    return _intent(_call(lambda client: client.v1.payment_intents.create(params, {"idempotency_key": key})))  # type: ignore[arg-type]


def confirm(intent: str, *, payment_method: str, key: str, return_url: str = "") -> Intent:
    """Charge the intent, reserve its amount, or learn that the customer has to confirm it. Raises Declined if the card is refused.

    return_url: where the bank's page sends the customer back to.
    """
    options: dict[str, Any] = {"idempotency_key": key}
    params: dict[str, Any] = {"payment_method": payment_method, **({"return_url": return_url} if return_url else {})}
    call = lambda client: client.v1.payment_intents.confirm(intent, params, options)  # type: ignore[arg-type]  # noqa: E731
    return _intent(_call(call))


def capture(intent: str, *, amount: int, key: str) -> Intent:
    """Charge what the intent has reserved. Raises WrongState if it was charged before, was cancelled, or has lapsed."""
    params: dict[str, Any] = {"amount_to_capture": amount}
    return _intent(_call(lambda client: client.v1.payment_intents.capture(intent, params, {"idempotency_key": key})))  # type: ignore[arg-type]


def cancel(intent: str, *, key: str) -> Intent:
    """Make sure that the intent can never be charged; what it has reserved is released.

    Raises WrongState if it was charged, or cancelled before.
    """
    return _intent(_call(lambda client: client.v1.payment_intents.cancel(intent, {}, {"idempotency_key": key})))


def get(intent: str) -> Intent:
    """The intent as it is now."""
    return _intent(_call(lambda client: client.v1.payment_intents.retrieve(intent)))


def of_order(order: str) -> list[Intent]:
    """The order's intents, newest first. Stripe's search may lag behind by a minute."""
    quoted = order.replace("\\", "\\\\").replace("'", "\\'")  # a payment that is not ours may name anything
    query = f"metadata['order']:'{quoted}'"
    found = _call(lambda client: client.v1.payment_intents.search({"query": query, "limit": SEARCH_PAGE}))
    return [_intent(one) for one in found.data]


def refund(intent: str, *, key: str, amount: int | None = None, metadata: Mapping[str, str] | None = None) -> str:
    """Refund `amount`, or all that was not refunded before; returns the refund's id. Raises WrongState if nothing is left.

    metadata: kept with the refund: `return`, `step_key` and `replaces` (`Refund`).
    """
    params: dict[str, Any] = {"payment_intent": intent} if amount is None else {"payment_intent": intent, "amount": amount}
    params |= {"metadata": dict(metadata)} if metadata else {}
    return str(_call(lambda client: client.v1.refunds.create(params, {"idempotency_key": key})).id)  # type: ignore[arg-type]


def refunded(intent: str) -> int:
    """How much was paid back."""
    return sum(one.amount for one in refunds_of(intent) if one.gives_back)


def refund_of(name: str) -> Refund:
    """The refund with this id, as it is now."""
    return _refund(_call(lambda client: client.v1.refunds.retrieve(name)))


def refunds_of(intent: str) -> list[Refund]:
    """Every refund of a payment, newest first, failed ones included."""
    found = _call(lambda client: client.v1.refunds.list({"payment_intent": intent, "limit": LIST_PAGE}))
    return [_refund(one) for one in found.data]


def listed(since: datetime) -> Iterator[Intent]:
    """Every payment created since then, newest first. Unlike the search, the list does not lag behind.

    Read page by page within the caller's budget. The times are Stripe's: callers must allow for a clock that differs from ours.
    """
    return map(_intent, _listed(since, lambda client: client.v1.payment_intents))


def refunds_listed(since: datetime) -> Iterator[Refund]:
    """Every refund created since then, newest first."""
    return map(_refund, _listed(since, lambda client: client.v1.refunds))


def disputes_listed(since: datetime) -> Iterator[Dispute]:
    """Every dispute created since then, newest first."""
    return map(_dispute, _listed(since, lambda client: client.v1.disputes))


def disputes_of(intent: str) -> list[Dispute]:
    """Every dispute of a payment, newest first."""
    found = _call(lambda client: client.v1.disputes.list({"payment_intent": intent, "limit": LIST_PAGE}))
    return [_dispute(one) for one in found.data]


def _listed(since: datetime, service: Callable[[stripe.StripeClient], Any]) -> Iterator[Any]:
    """The objects of one list, one page in memory at a time."""
    query: dict[str, Any] = {"created": {"gte": int(since.timestamp())}, "limit": LIST_PAGE}
    while True:
        page = _call(lambda client: service(client).list(dict(query)))
        yield from page.data
        if not page.has_more or not page.data:
            return
        query["starting_after"] = page.data[-1].id


class _Transport(stripe.HTTPClient):
    """The transport of Stripe's package: this process's HTTP client."""

    name = "httpx2"

    def request(
        self, method: str, url: str, headers: Mapping[str, str] | None, post_data: Any = None, **_: Any
    ) -> tuple[str, int, Mapping[str, str]]:
        reply = http.send("payment", method, url, headers or {}, post_data)
        return reply.body.decode("utf-8", "replace"), reply.status, reply.headers

    def close(self) -> None:
        """Do nothing: the whole process shares the HTTP client."""


@lru_cache(maxsize=4)
def _client(base: str, key: str) -> stripe.StripeClient:
    stripe.enable_telemetry = False
    return stripe.StripeClient(key, base_addresses={"api": base}, http_client=_Transport(), max_network_retries=0)


def _call(call: Callable[[stripe.StripeClient], Any]) -> Any:
    try:
        return call(_client(settings.STRIPE_API_BASE, settings.STRIPE_API_KEY))
    except stripe.CardError as problem:
        details = (problem.json_body or {}).get("error", {})  # type: ignore[attr-defined]
        raise Declined(str(details.get("decline_code") or problem.code or "declined")[:100]) from problem
    except stripe.IdempotencyError as problem:
        raise KeyConflict("says the idempotency key was used with other parameters") from problem
    except stripe.RateLimitError as problem:
        raise Unavailable("refuses calls for its rate limit (429)", _retry_after(problem)) from problem
    except (stripe.AuthenticationError, stripe.PermissionError) as problem:
        raise KeyRefused(f"refuses our API key ({problem.http_status}): check STRIPE_API_KEY") from problem
    except stripe.InvalidRequestError as problem:
        if problem.code in ("payment_intent_unexpected_state", "charge_already_refunded"):
            raise WrongState(str(problem.user_message)[:300]) from problem
        raise Rejected(str(problem.user_message)[:300]) from problem
    except stripe.StripeError as problem:
        if problem.http_status == 409:
            raise KeyConflict("says the idempotency key is in use") from problem
        raise Broken(f"failed ({problem.http_status or 'unreadable answer'})") from problem


def _retry_after(problem: stripe.StripeError) -> float | None:
    wish = str(problem.headers.get("retry-after", "")) if problem.headers else ""
    return float(wish) if wish.isdecimal() else None


def _intent(found: Any) -> Intent:
    error = found.last_payment_error
    return Intent(
        id=found.id,
        status=found.status,
        amount=found.amount,
        currency=found.currency,
        refusal=(getattr(error, "decline_code", None) or getattr(error, "code", None) or "declined") if error else None,
        step_key=getattr(found.metadata, "step_key", None),
        order=getattr(found.metadata, "order", None),
        received=found.amount_received or 0,
        created=_moment(found.created),
        action_url=_page_of(found),
    )


def _page_of(found: Any) -> str | None:
    """The page on which the customer confirms; None where there is nothing to confirm, or no page for it."""
    redirect = getattr(getattr(found, "next_action", None), "redirect_to_url", None)
    url = str(getattr(redirect, "url", None) or "")
    return url if url.startswith(("https://", "http://")) else None


def _refund(found: Any) -> Refund:
    noted = getattr(found, "metadata", None)
    return Refund(
        **_money_back(found),
        reason=getattr(found, "failure_reason", None),
        of_return=getattr(noted, "return", None),
        step_key=getattr(noted, "step_key", None),
        replaces=getattr(noted, "replaces", None),
    )


def _dispute(found: Any) -> Dispute:
    return Dispute(**_money_back(found), reason=found.reason)


def _money_back(found: Any) -> dict[str, Any]:
    return {
        "id": found.id,
        "intent": str(found.payment_intent),
        "status": found.status,
        "amount": found.amount,
        "currency": found.currency,
        "created": _moment(found.created),
    }


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)

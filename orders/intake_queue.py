"""Order requests and signals from the intake queue, with the same validation, prices and permissions as in the API.

The broker has checked the producer's name (`user_id`), which is the name of a client account here. The message id is the
order's idempotency key, in the same name space as the API's header: the same request sent both ways is one order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.utils.translation import gettext as _
from rest_framework.exceptions import APIException

from orders import services
from orders.api.errors import refusal
from orders.api.permissions import is_client
from orders.services import Item, Placed
from supervision.api.requests import BoundedJSONParser
from supervision.errors import Refused, UnknownRun
from supervision.insight.directory import demand_of_client
from supervision.intake.amqp import Incoming, reader
from supervision.models import Submission
from supervision.signals.sending import send_signal

JSON_TYPES = ("application/json", "application/json; charset=utf-8")
SIGNAL = "signal"
ENCODINGS = ("utf-8", "utf8", "binary")


class _Refused(Exception):
    """This message cannot be accepted as an order request."""


@dataclass
class _Request:
    """A message of the batch: its place there, and its order request."""

    place: int
    item: Item


@reader
def take(messages: Sequence[Incoming]) -> list[str | None]:
    """Accept these in the caller's transaction; returns for each the reason of its refusal, or None."""
    accounts = _accounts({message.user_id for message in messages if message.user_id})
    answers: list[str | None] = [None] * len(messages)
    by_account: dict[str, list[_Request]] = {}
    for place, message in enumerate(messages):
        try:
            name = _producer(message, accounts)
            item = _item(message)
            if message.kind == SIGNAL:
                _send(item, accounts[name])
            else:
                by_account.setdefault(name, []).append(_Request(place, item))
        except _Refused as why:
            answers[place] = str(why)
    for name, requests in by_account.items():
        outcomes = services.place_orders([request.item for request in requests], account=accounts[name])
        for request, outcome in zip(requests, outcomes, strict=True):
            if not isinstance(outcome, Placed):
                answers[request.place] = _in_words(outcome)
    return answers


def _accounts(names: set[str]) -> dict[str, AbstractBaseUser]:
    users = get_user_model().objects.filter(username__in=names, is_active=True)
    return {user.get_username(): user for user in users}


def _producer(message: Incoming, accounts: Mapping[str, AbstractBaseUser]) -> str:
    if not message.user_id:
        raise _Refused(_("user_id: missing; it names the client account"))
    account = accounts.get(message.user_id)
    if account is None:
        raise _Refused(_("user_id: there is no active account %(name)s") % {"name": message.user_id})
    if not is_client(account):
        raise _Refused(_("user_id: the account %(name)s is not a client and may not send orders here") % {"name": message.user_id})
    return message.user_id


def _item(message: Incoming) -> Item:
    if not message.message_id:
        raise _Refused(_("message_id: missing; it is the idempotency key"))
    kind = (message.content_type or JSON_TYPES[0]).lower()
    if kind not in JSON_TYPES:
        raise _Refused(_("content_type: expected application/json, not %(kind)s") % {"kind": message.content_type})
    if (message.content_encoding or ENCODINGS[0]).lower() not in ENCODINGS:
        raise _Refused(_("content_encoding: expected utf-8, not %(kind)s") % {"kind": message.content_encoding})
    try:
        data = BoundedJSONParser().parse(BytesIO(message.body))
    except APIException as error:
        raise _Refused(str(error.detail)) from None
    return Item(data=data, idempotency_key=message.message_id)


def _send(item: Item, account: AbstractBaseUser) -> None:
    """Send the signal {"order", "name", "payload"} to an order of this account, in the caller's transaction."""
    data: Any = item.data
    unknown = set(data) - {"order", "name", "payload"} if isinstance(data, dict) else {"(no object)"}
    if unknown or not isinstance(data.get("order"), str) or not isinstance(data.get("name"), str):
        raise _Refused(_("expected {order: text, name: text, payload: object}, and nothing else"))
    if not Submission.objects.filter(public_id=data["order"], client=services.client_of(account, None)).exists():
        raise _Refused(str(UnknownRun(data["order"])))
    try:
        demand_of_client(data["name"])
        payload, by = data.get("payload", {}), account.get_username()
        send_signal(data["order"], data["name"], payload, key=item.idempotency_key, sent_by=by, by_client=True)
    except (Refused, UnknownRun) as refusal:
        raise _Refused(str(refusal)) from None


def _in_words(outcome: services.InvalidOrder | services.Conflict | services.KeyReused) -> str:
    status, members = refusal(outcome)
    words = str(members.get("detail") or outcome)
    errors = members.get("errors")
    return f"{words}\n\n{status} {json.dumps(errors, default=str, ensure_ascii=False)}" if errors else words

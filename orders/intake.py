"""The workflow's intake: how submissions become runs. It is on the hot path: plain Python, two statements per batch.

`read` trusts no submission, because it may come from another program or an older release. But it checks only what the
columns and the agents need: `orders.services` has validated the rest. `write` inserts orders and their lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from orders import accounting
from orders.parcels import splitting
from orders.payments import beside
from orders.payments.codes import AFTER_BOOKING
from orders.records import leaving, returning
from orders.validation import MAX_LINES, MAX_QUANTITY, PRIORITIES, AmendSerializer
from supervision.errors import UnreadableSubmission
from supervision.journal import entries
from supervision.workflow import AcceptedRun, Intake, NewRun

_PRICE = re.compile(r"[0-9]{1,8}(\.[0-9]{1,2})?")
_TOTAL = re.compile(r"[0-9]{1,10}(\.[0-9]{1,2})?")
_ADDRESS = ("name", "line1", "city", "postal_code", "country")
_MAX_ID = 2**31 - 1
# Numbers: older orders have nine digits (from their runs' ids), new ones ten, so the two never meet.
_FIRST = 2_000_000_000
_PRIME = 7_999_999_957  # the largest below 8 * 10**9: multiplication by a number below it is one to one
_FACTOR = 387_420_489
_BACK = pow(_FACTOR, -1, _PRIME)
RESERVES_AT_CHECKOUT = 2  # the version of `fulfil-order` that charges after the goods are booked


@dataclass(frozen=True, slots=True)
class Facts:
    """The values for the shop's own tables."""

    account: int | None
    email: str
    total: str
    currency: str
    lines: list[dict[str, Any]]
    customer: str = ""


def read(body: str, submission: int | None = None) -> NewRun:
    """Read one submission, with this id. For any body that cannot be read it raises UnreadableSubmission, and no other exception."""
    try:
        data = json.loads(body, parse_constant=_no_constant)
    except (ValueError, TypeError, RecursionError):
        raise UnreadableSubmission("the body is not JSON", {"": ["expected a JSON object"]}) from None
    if type(data) is not dict:
        raise UnreadableSubmission("the body is not a JSON object", {"": ["expected a JSON object"]})
    email = _text(data, "email", 254)
    lines = _lines(data)
    total = _amount(data, "total", "total", _TOTAL)
    currency = _text(data, "currency", 3)
    payload = {
        "email": email,
        "lines": lines,
        "total": total,
        "currency": currency,
        "shipping_address": (address := _address(data)),
        "payment_method": _text(data, "payment_method", 200),
    }
    if submission is not None:
        payload["number"] = order_number(submission)
    if language := _optional(data, "language"):
        payload["language"] = language
    session_key = _optional(data, "session_key")
    reply_to = _optional(data, "reply_to")
    # NUL and lone surrogates, which the database cannot store, can come only from \u escapes.
    if "\\u" in body:
        _storable([payload, session_key, reply_to])
    return NewRun(
        payload=payload,
        priority=_priority(data),
        session_key=session_key,
        reply_to=reply_to,
        facts=Facts(_account(data), email, total, currency, lines, address["name"]),
        version=_version(data) if "warehouse" not in lines[0] else splitting.version_for(lines, _version(data)),
    )


def write(runs: Sequence[AcceptedRun]) -> None:
    """Insert the orders of these runs with their lines, and their accounting events: two statements, in the runs' transaction."""
    if not runs:
        return
    keys, numbers, run_ids, accounts, emails, totals, currencies, times, names_of = [], [], [], [], [], [], [], [], []
    line_runs, skus, names, quantities, prices = [], [], [], [], []
    for run in runs:
        facts: Facts = run.new.facts
        keys.append(run.key)
        numbers.append(number_of(run.new.payload, run.run_id))
        run_ids.append(run.run_id)
        accounts.append(facts.account)
        emails.append(facts.email)
        totals.append(facts.total)
        currencies.append(facts.currency)
        times.append(run.submitted_at)
        names_of.append(facts.customer)
        for line in facts.lines:
            line_runs.append(run.run_id)
            skus.append(line["sku"])
            names.append(line["name"])
            quantities.append(line["quantity"])
            prices.append(line["unit_price"])
    orders: list[Any] = [keys, numbers, run_ids, accounts, emails, totals, currencies, times, names_of]
    with connection.cursor() as cursor:
        cursor.execute(_FILE_ORDERS, [*orders, line_runs, skus, names, quantities, prices])
    entries.append(accounting.KEY, accounting.received(runs, numbers))


# If the account was deleted meanwhile, the order has none. The join also saves one query per order.
_FILE_ORDERS = """
WITH filed AS (
    INSERT INTO orders_order (public_id, number, run_id, account_id, email, total, currency, created_at, customer)
    SELECT o.public_id, o.number, o.run_id, u.id, o.email, o.total::numeric, o.currency, o.created_at, o.customer
    FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::int[], %s::text[], %s::text[], %s::text[],
                %s::timestamptz[], %s::text[])
         WITH ORDINALITY AS o (public_id, number, run_id, account_id, email, total, currency, created_at, customer, place)
    LEFT JOIN auth_user u ON u.id = o.account_id
    ORDER BY o.place
    RETURNING id, run_id
)
INSERT INTO orders_orderline (order_id, sku, name, quantity, unit_price)
SELECT filed.id, l.sku, l.name, l.quantity, l.unit_price::numeric
FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::int[], %s::text[])
     WITH ORDINALITY AS l (run_id, sku, name, quantity, unit_price, place)
JOIN filed ON filed.run_id = l.run_id
ORDER BY l.place
"""


def order_number(submission: int) -> str:
    """The number of this submission's order, for mails and calls: unique, and not sequential.

    It is no secret: the constants are public, so who knows them reads the submission's id from it, and about how many orders exist.
    The order has it from its acceptance, and at each delivery of the submission.
    """
    return grouped(str(_FIRST + submission * _FACTOR % _PRIME))


def submission_of(number: str) -> int | None:
    """The id of the submission that has this number, if there is one; None for numbers of nine digits."""
    digits = re.sub(r"[^0-9]", "", number)
    place = int(digits) - _FIRST if len(digits) == 10 else -1
    return place * _BACK % _PRIME if 0 < place < _PRIME else None


def number_of(payload: Mapping[str, Any], run_id: int) -> str:
    """The number of the order with this run. Runs without it in their payload have the number of their id."""
    return payload.get("number") or grouped(f"{(run_id * 387420489 + 123456791) % 1000000007:09d}")


def grouped(digits: str) -> str:
    """The digits as a number is written: in groups of three."""
    return "-".join(part for part in (digits[:3], digits[3:6], digits[6:9], digits[9:]) if part)


def _no_constant(word: str) -> None:
    raise ValueError(word)


def _wrong(name: str, expectation: str) -> UnreadableSubmission:
    return UnreadableSubmission(f"{name}: {expectation}", {name: [expectation]})


def _text(data: dict[str, Any], name: str, most: int, path: str = "") -> str:
    value = data.get(name)
    if type(value) is not str or not value or len(value) > most:
        raise _wrong(path or name, f"expected a string of 1 to {most} characters")
    return value


def _optional(data: dict[str, Any], name: str) -> str | None:
    return None if data.get(name) is None else _text(data, name, 200)


def _amount(data: dict[str, Any], name: str, path: str, shape: re.Pattern[str]) -> str:
    value = data.get(name)
    if type(value) is not str or not shape.fullmatch(value):
        raise _wrong(path, 'expected an amount as a decimal string, such as "25.80"')
    return value


def _priority(data: dict[str, Any]) -> int:
    word = data.get("priority", "normal")
    if type(word) is not str or word not in PRIORITIES:
        raise _wrong("priority", "expected low, normal or high")
    return PRIORITIES[word]


def _version(data: dict[str, Any]) -> int | None:
    """The version of the workflow that the order was placed with: None for the usual one."""
    capture = data.get("capture")
    if capture is None:
        return None
    if capture != AFTER_BOOKING:
        raise _wrong("capture", f"expected {AFTER_BOOKING}, or nothing")
    return RESERVES_AT_CHECKOUT


def _account(data: dict[str, Any]) -> int | None:
    account = data.get("account")
    if account is not None and (type(account) is not int or not 0 < account <= _MAX_ID):
        raise _wrong("account", "expected the number of an account, or null")
    return account


def _address(data: dict[str, Any]) -> dict[str, str]:
    given = data.get("shipping_address")
    if type(given) is not dict:
        raise _wrong("shipping_address", "expected an object")
    address = {name: _text(given, name, 200, f"shipping_address.{name}") for name in _ADDRESS}
    line2 = given.get("line2") or ""
    if type(line2) is not str or len(line2) > 200:
        raise _wrong("shipping_address.line2", "expected a string of at most 200 characters")
    address["line2"] = line2
    if given.get("country_area"):
        address["country_area"] = _text(given, "country_area", 100, "shipping_address.country_area")
    return address


def _lines(data: dict[str, Any]) -> list[dict[str, Any]]:
    given = data.get("lines")
    if type(given) is not list or not 0 < len(given) <= MAX_LINES:
        raise _wrong("lines", f"expected a list of 1 to {MAX_LINES} lines")
    lines = []
    for index, line in enumerate(given):
        path = f"lines[{index}]"
        if type(line) is not dict:
            raise _wrong(path, "expected an object")
        quantity = line.get("quantity")
        if type(quantity) is not int or not 0 < quantity <= MAX_QUANTITY:
            raise _wrong(f"{path}.quantity", f"expected a whole number from 1 to {MAX_QUANTITY}")
        lines.append(
            {
                "sku": _text(line, "sku", 64, f"{path}.sku"),
                "name": _text(line, "name", 200, f"{path}.name"),
                "quantity": quantity,
                "unit_price": _amount(line, "unit_price", f"{path}.unit_price", _PRICE),
            }
        )
        if "warehouse" in line:
            lines[-1]["warehouse"] = _text(line, "warehouse", 64, f"{path}.warehouse")
    return lines


def _storable(value: Any, path: str = "the body") -> None:
    if type(value) is str:
        if "\x00" in value or any("\ud800" <= character <= "\udfff" for character in value):
            raise _wrong(path, "expected text without NUL and lone surrogates")
    elif type(value) is dict:
        for name, part in value.items():
            _storable(part, name)
    elif type(value) is list:
        for part in value:
            _storable(part, path)


def check_amendment(changed: Mapping[str, Any]) -> None:
    """Check an operator's corrections by the rules of an order request. Raises UnreadableSubmission."""
    serializer = AmendSerializer(data=changed)
    if not serializer.is_valid():
        raise UnreadableSubmission(f"the correction is not valid: {json.dumps(serializer.errors)}", serializer.errors)


class OrderIntake(Intake):
    """The functions of this module, and the facts that an order leaves behind in the archive."""

    read, read_submission, write = staticmethod(read), staticmethod(read), staticmethod(write)
    check_amendment, check_resubmission = staticmethod(check_amendment), staticmethod(beside.check_resubmission)
    held, archive, forget = staticmethod(leaving.held), staticmethod(leaving.archive), staticmethod(leaving.forget)
    bring_back = staticmethod(returning.bring_back)

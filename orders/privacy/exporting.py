"""Everything that is held about one person, as one ZIP: `data.json` and the invoices and credit notes as PDF. No other person's data.

Operators' names and the names of processes and hosts are left out, as in everything that owners see.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Collection, Iterator, Sequence
from typing import IO, Any

from django.contrib.auth.models import User
from knox.models import AuthToken

from orders import queries
from orders.accounts.signing_in import is_verified
from orders.api.events import read_all
from orders.documents import pdf
from orders.documents.issuing import of_order as documents_of
from orders.models import MailAgain, Refund
from orders.privacy import traces
from orders.privacy.people import GUEST, Person
from orders.queries import OrderView
from orders.records import recalled
from orders.returns import answers
from supervision.insight.queries import iso
from supervision.models import ApiRequest, DeadLetter, Notification, Submission
from supervision.postgres import db

PAGE = 100
_OF_MACHINES = frozenset({"locked_by", "incident", "last_error", "complete_by", "not_before", "waiting_because"})


def may_read() -> bool:
    """Whether the database role of this process may read accounts with their tokens, which are a part of an account's export."""
    return bool(db.fetch("SELECT has_table_privilege('auth_user', 'SELECT') AND has_table_privilege('knox_authtoken', 'SELECT')")[0][0])


def write(person: Person, out: IO[bytes], *, order: str | None = None) -> int:
    """Write the ZIP. order: this order alone, by its public id. Returns how many orders are in it. Raises OSError."""
    count = 0
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        keys = list(_keys(person, order))  # once: it reads the whole archive
        with archive.open("data.json", "w", force_zip64=True) as data:
            for part, added in _json(person, keys, whole=order is None):
                data.write(part.encode())
                count += added
        for key in keys:
            for document in documents_of(key):
                archive.writestr(f"documents/{document.name}.pdf", pdf.printed(document))
    return count


def _json(person: Person, keys: Sequence[str], *, whole: bool) -> Iterator[tuple[str, int]]:
    """The parts of data.json, order by order, so that many orders need little memory; each with the orders that it adds."""
    reader = person.names[0] if person.names else GUEST
    yield "{\n", 0
    if whole:
        for name, value in _of_person(person, keys):
            yield f"{json.dumps(name)}: {_text(value)},\n", 0
    yield '"orders": [', 0
    for number, key in enumerate(keys):
        view = queries.order_view(key)
        if view is not None:
            yield f"{',' if number else ''}\n{_text(_of_order(view, reader))}", 1
    yield "\n]}\n", 0


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1, default=str)


def _keys(person: Person, order: str | None) -> Iterator[str]:
    """Public ids of the person's own orders, the oldest first: of those with rows, of waiting ones, and of archived ones."""
    after, known = 0, set()
    while page := list(person.own_orders().filter(pk__gt=after).order_by("pk").values_list("pk", "public_id")[:PAGE]):
        after = page[-1][0]
        for _pk, key in page:
            known.add(key)
            if order in (None, key):
                yield key
    for key in [*traces.submitted(person, own=True), *traces.archived_keys(person)]:
        if key not in known and order in (None, key):
            known.add(key)
            yield key


def _of_order(view: OrderView, reader: str) -> dict[str, Any]:
    facts = {name: value for name, value in queries.answer(view).items() if name not in _OF_MACHINES}
    facts["steps"] = [{name: value for name, value in step.items() if name not in _OF_MACHINES} for step in facts["steps"]]
    key = view.public_id
    refunds, mails = [*Refund.objects.filter(order_key=key).order_by("pk")], [*MailAgain.objects.filter(order_key=key).order_by("pk")]
    if view.archived is not None:
        refunds, mails = recalled.refunds_of(view.archived) + refunds, recalled.mails_of(view.archived) + mails
    return {
        **facts,
        "history": read_all(key, reader),
        "returns": [
            {name: value for name, value in answers.answer(one).items() if name not in _OF_MACHINES}
            for one in answers.of_order(key, view.archived)
        ],
        "refunds": [
            {"number": one.number, "amount": str(one.amount), "currency": one.currency, "at": iso(one.created_at)} for one in refunds
        ],
        "mails_sent_again": [{"email": one.email, "created_at": one.created_at} for one in mails],
        "documents": [{"name": one.name, "kind": one.kind, "total": str(one.total), "content": one.body} for one in documents_of(key)],
        "request": _request(key),
    }


def _request(key: str) -> Any:
    """The exact text that the order was accepted with, while it is kept."""
    return Submission.objects.filter(public_id=key).values_list("payload", flat=True).first()


def _of_person(person: Person, keys: Sequence[str]) -> Iterator[tuple[str, Any]]:
    yield "emails", person.emails
    yield "accounts", [_of_account(account) for account in User.objects.filter(pk__in=person.accounts).order_by("pk")]
    yield (
        "addressed_to_you",
        list(person.named_in().order_by("pk").values("number", "created_at")),
    )  # other people's orders: no more than the mails said
    yield (
        "messages",
        [
            {"kind": one.kind, "at": one.created_at, "content": one.payload}
            for one in Notification.objects.filter(payload__email__in=person.typed).order_by("pk")
        ],
    )
    yield (
        "requests_of_programs",
        list(
            ApiRequest.objects.filter(account_id__in=person.accounts).order_by("pk").values("at", "method", "path", "status", "order_key")
        ),
    )
    yield "unreadable_messages", _letters(person, set(keys))


def _of_account(account: User) -> dict[str, Any]:
    addresses: Any = account.addresses  # type: ignore[attr-defined]
    tokens = AuthToken.objects.filter(user=account).select_related("grant").order_by("created")
    return {
        "username": account.username,
        "first_name": account.first_name,
        "last_name": account.last_name,
        "email": account.email,
        "email_verified": is_verified(account),
        "opened_at": iso(account.date_joined),
        "last_signed_in_at": iso(account.last_login) if account.last_login else None,
        "addresses": list(
            addresses.order_by("pk").values(
                "name", "line1", "line2", "postal_code", "city", "country_area", "country", "is_default", "created_at"
            )
        ),
        "tokens": [
            {"name": one.grant.name if hasattr(one, "grant") else "", "made_at": iso(one.created), "ends_at": one.expiry} for one in tokens
        ],
    }


def _letters(person: Person, keys: Collection[str]) -> Sequence[dict[str, Any]]:
    """Dead letters that name this person, and no other person that the shop knows: an order with the address, for example."""
    words = person.surely
    return [
        {"at": letter.created_at, "content": bytes(letter.body).decode("utf-8", "backslashreplace")}
        for letter in DeadLetter.objects.filter(blanked_at=None).order_by("pk").iterator(chunk_size=PAGE)
        if letter.public_id in keys or traces.is_order_of(bytes(letter.body), words)
    ]

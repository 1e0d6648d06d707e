"""Dead letters: messages and submissions that could not be used, kept byte for byte until an operator decides about them.

`source` says where a letter came from, and so how a requeue returns it: `submission` (its row waits again under its
public id), `intake` (an order request from a queue: it is read again), `queue NAME` (a message for the workers: it is
published again to that queue as it was).
"""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import InterfaceError, OperationalError
from django.db.models import F
from django.db.models.functions import Coalesce, Now

from supervision.models import DeadLetter
from supervision.postgres import db
from supervision.postgres.json_safe import storable, text

SUBMISSION, INTAKE, QUEUE = "submission", "intake", "queue "
MOST_REASON = 16_000


@dataclass(frozen=True, kw_only=True)
class Letter:
    """One dead letter to be kept. delivery: queue, routing and message properties. repeated: it was delivered before."""

    source: str
    body: bytes
    reason: str
    content_type: str = ""
    headers: Mapping[str, Any] = field(default_factory=dict)
    delivery: Mapping[str, Any] = field(default_factory=dict)
    deliveries: int = 1
    repeated: bool = False

    @property
    def headline(self) -> str:
        """The reason in one line, for a log."""
        return (self.reason.splitlines() or [""])[0][:300]


def keep(source: str, body: bytes, reason: str, *, content_type: str = "", headers: Mapping[str, Any] | None = None) -> DeadLetter:
    """Keep these exact bytes with the reason they could not be used."""
    letter = Letter(source=source, body=body, reason=reason, content_type=content_type, headers=headers or {})
    return DeadLetter.objects.get(pk=keep_all([letter])[0])


def keep_task(request: Any, args: list[Any], reason: str) -> DeadLetter:
    """Keep a task's invalid arguments, for a message that our own consumer has not checked before."""
    headers = {"id": getattr(request, "id", None), "delivery": getattr(request, "delivery_info", None)}
    body = json.dumps(args, default=repr).encode()
    return keep(f"task {getattr(request, 'task', '')}", body, reason, content_type="application/json", headers=headers)


def keep_all(letters: Sequence[Letter]) -> list[int]:
    """Keep these in one transaction; returns their ids. A message that comes again after a lost acknowledgement stays one."""

    return db.transact(lambda: [(_known(letter) if letter.repeated else None) or _write(letter) for letter in letters])


_KEEP = """
INSERT INTO supervision_deadletter (source, body, reason, content_type, headers, delivery, deliveries)
VALUES (%(source)s, %(body)s, %(reason)s, %(content_type)s, %(headers)s::jsonb, %(delivery)s::jsonb, %(deliveries)s)
RETURNING id
"""


def _write(letter: Letter) -> int:
    row = _row(letter)
    [(pk,)] = db.fetch(_KEEP, {**row, "headers": json.dumps(row["headers"]), "delivery": json.dumps(row["delivery"])})
    return int(pk)


def keep_whatever(letters: Sequence[Letter]) -> None:
    """Keep these. Raises only if the database is away. A letter that it refuses is kept with source, body and reason only."""
    try:
        keep_all(letters)
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        if len(letters) > 1:
            for letter in letters:
                keep_whatever([letter])
            return
        [letter] = letters
        reason = f"{letter.reason}\n\nKept without its headers: {traceback.format_exc()}"
        keep_all([Letter(source=letter.source, body=letter.body, reason=reason)])


def because(error: BaseException | str) -> str:
    """A reason: one line, and the traceback where there is one."""
    if isinstance(error, str):
        return error
    words = str(error) if getattr(error, "plain", False) else f"{type(error).__name__}: {error}"
    if error.__traceback__ is None or getattr(error, "plain", False):
        return words
    return f"{words}\n\n{''.join(traceback.format_exception(error))}"


BLANKED = "blanked: personal data is erased"


def blank(letter: DeadLetter, without: Callable[[str], str]) -> None:
    """Erase the bytes of this letter, its headers and properties; the digest of the bytes stays. An open letter is settled by it.

    without: takes personal data out of the letter's words, also of one that is blanked already. Its submission, which cannot be
    read either, is blanked, too.
    """
    blanked = DeadLetter.objects.filter(pk=letter.pk, blanked_at=None).update(
        digest=hashlib.sha256(bytes(letter.body)).hexdigest(),
        body=b"",
        headers={},
        delivery={},
        resolved_at=Coalesce("resolved_at", Now()),
        blanked_at=Now(),
    )
    DeadLetter.objects.filter(pk=letter.pk).update(
        reason=without((letter.reason.splitlines() or [""])[0]), resolution=without(letter.resolution) or BLANKED
    )
    if blanked and letter.public_id:
        db.fetch(_BLANK_SUBMISSION, {"key": letter.public_id})


# One that was put back has a run, and is not touched.
_BLANK_SUBMISSION = """
UPDATE supervision_submission u SET payload = '{"erased": true}'
 WHERE u.public_id = %(key)s AND u.consumed_at IS NOT NULL AND NOT EXISTS (SELECT FROM supervision_run r WHERE r.key = u.public_id)
RETURNING 1
"""


def _row(letter: Letter) -> dict[str, Any]:
    return {
        "source": text(letter.source),
        "body": letter.body,
        "reason": text(letter.reason)[:MOST_REASON],
        "content_type": text(letter.content_type),
        "headers": storable(letter.headers),
        "delivery": storable(letter.delivery),
        "deliveries": letter.deliveries,
    }


def _known(letter: Letter) -> int | None:
    """The open letter of this very message, if it was kept before and its acknowledgement did not arrive."""
    row = _row(letter)
    same = DeadLetter.objects.filter(resolved_at__isnull=True, **{name: row[name] for name in ("source", "body", "content_type")})
    for pk, headers in same.values_list("pk", "headers")[:20]:
        if _but_marks(headers) == _but_marks(row["headers"]):
            DeadLetter.objects.filter(pk=pk).update(deliveries=F("deliveries") + 1)
            return int(pk)
    return None


def _but_marks(headers: Any) -> Any:
    """Headers without those that brokers add when they deliver a message again."""
    if not isinstance(headers, dict):
        return headers
    return {name: value for name, value in headers.items() if name not in ("redelivered", "x-delivery-count", "x-death")}


def hex_dump(body: bytes) -> str:
    """Offset, digits and printable characters, as `xxd` shows them."""
    lines = []
    for start in range(0, len(body), 16):
        row = body[start : start + 16]
        digits = " ".join(f"{byte:02x}" for byte in row)
        printable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:06x}  {digits:<48} {printable}")
    return "\n".join(lines)

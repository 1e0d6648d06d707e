"""What attempts said to services, and what these answered: masked, cut, written after the attempt, and removed after some days.

Written by the thread of an agents process that writes notes, several attempts in one statement: no order waits for it, and
one whose agents report nothing costs nothing. If the process dies before, the record is lost: nothing depends on it. The
record is of no use to the engine; the effect ledger says what may exist at a service.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from urllib.parse import parse_qsl

from supervision import conf
from supervision.effects import Said
from supervision.models import Exchange
from supervision.plans import personal
from supervision.postgres import db
from supervision.postgres.json_safe import text as safe
from supervision.runtime import tidying
from supervision.states import Claim
from supervision.telemetry.masking import MASK, without_addresses
from supervision.workflow import StepPosition

LONGEST = 4000  # characters of a request or an answer that are kept
PARSED = 200_000  # a longer one is not looked into, and not kept
# Fields that are never kept, whichever service they are for: secrets, data of cards, data of people.
_SECRETS = """
authorization api_key apikey key_secret client_secret secret password token access_token refresh_token signature
card number cvc cvv exp_month exp_year iban account_number payment_method source payment_method_data fingerprint last4
name first_name last_name email receipt_email phone to body address shipping_address billing_details shipping line1 line2
city postal_code birthday ip_address receipt_url url
"""
SECRET = frozenset(_SECRETS.split())
_CARD = re.compile(r"\b(?:\d[ -]?){13,19}\b")
BATCH = 5000

_KEEP = """
INSERT INTO supervision_exchange (run_id, direction, position, attempt, service, call, asked, answered, status, seconds)
SELECT * FROM unnest(%(runs)s::bigint[], %(directions)s::text[], %(positions)s::smallint[], %(attempts)s::int[], %(services)s::text[],
                     %(calls)s::text[], %(asked)s::text[], %(answered)s::text[], %(statuses)s::int[], %(seconds)s::float8[])
"""
_DELETE_OLD = """
WITH old AS MATERIALIZED (
    SELECT id FROM supervision_exchange WHERE at < now() - %(days)s::float8 * interval '1 day'
     ORDER BY at LIMIT %(batch)s FOR UPDATE SKIP LOCKED)
DELETE FROM supervision_exchange e USING old WHERE e.id = old.id RETURNING e.id
"""


def keep(told: Sequence[tuple[StepPosition, Claim, Sequence[Said]]]) -> None:
    """Write these exchanges, masked and cut, in one statement."""
    rows = [(place, claim, one) for place, claim, said in told for one in said]
    marks = {place: frozenset(place.step.personal) for place, _claim, _said in told}
    db.run(
        _KEEP,
        {
            "runs": [claim.run_id for _place, claim, _one in rows],
            "directions": [str(place.direction) for place, _claim, _one in rows],
            "positions": [place.position for place, _claim, _one in rows],
            "attempts": [claim.attempt for _place, claim, _one in rows],
            "services": [safe(one.service) for _place, _claim, one in rows],
            "calls": [safe(one.call)[:200] for _place, _claim, one in rows],
            "asked": [shown(one.asked, marks[place]) for place, _claim, one in rows],
            "answered": [shown(one.answered, marks[place], prose=True) for place, _claim, one in rows],
            "statuses": [one.status for _place, _claim, one in rows],
            "seconds": [one.seconds for _place, _claim, one in rows],
        },
    )


def shown(text: str, marks: Collection[str] = (), *, prose: bool = False) -> str:
    """The text as people may see it: of JSON and forms the marked fields are masked. prose: other text is kept, too."""
    if len(text) > PARSED:
        return f"[{len(text)} characters]"
    names = SECRET | frozenset(marks)
    try:
        value = json.loads(text)
    except ValueError:
        pairs = parse_qsl(text) if "=" in text and "\n" not in text and " " not in text else []
        if pairs:
            found = "\n".join(f"{name}={MASK if _is_marked(name, names) else value}" for name, value in pairs)
        else:
            found = text if prose or not text else f"[{len(text)} characters]"
    else:
        found = json.dumps(personal.masked(value, names), indent=1, ensure_ascii=False).replace(personal.MASK, MASK)
    found = safe(without_addresses(_CARD.sub(MASK, found)))
    return found if len(found) <= LONGEST else f"{found[:LONGEST]}…"


def _is_marked(name: str, names: Collection[str]) -> bool:
    """Whether a part of a form's field name, such as `card[number]`, is marked."""
    return any(part in names for part in re.split(r"[\[\].]+", name))


def of(run_id: int) -> list[Exchange]:
    """The exchanges of this run, in order."""
    return list(Exchange.objects.filter(run_id=run_id).order_by("pk"))


def forget(run_id: int) -> int:
    """Remove what was said about this run, at a person's request; returns how many exchanges it were."""
    return Exchange.objects.filter(run_id=run_id).delete()[0]


@tidying.tidier("exchanges")
def delete_old() -> bool:
    """Remove one batch of what is older than EXCHANGE_DAYS; returns whether there may be more."""
    days = conf.get().keep_exchanges.total_seconds() / 86_400
    return len(db.run(_DELETE_OLD, {"days": days, "batch": BATCH})) == BATCH

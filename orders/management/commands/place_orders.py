"""Submit many orders: made-up ones, or those of a file."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from orders import queries, services
from orders.management.order_requests import Request, Unreadable, made_up, read_file
from orders.services import InvalidOrder, Item, Placed
from supervision.management.acting import find_user
from supervision.management.base import Command as Base
from supervision.management.base import at_least, positive_seconds
from supervision.management.progress import Progress

BATCH = 200


class Command(Base):
    """Places orders in batches, one commit each, and prints the line of each refused order."""

    help = (
        "Submit orders in batches, with the same checks as the API. --count makes up orders of the catalogue's products, "
        "the same ones for the same --seed; --file reads one order per line: JSON order requests (.jsonl, optionally with "
        "idempotency_key) or a table (.csv) with the columns email, name, line1, line2, city, postal_code, country, sku, "
        "quantity, payment_method and, if wanted, idempotency_key and priority. Prints the ids and a summary; exits 1 when "
        "a line was refused."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--count", type=at_least(1), metavar="N", help="place N made-up orders")
        what.add_argument("--file", type=Path, metavar="F", help="the orders of this .csv or .jsonl file")
        parser.add_argument(
            "--batch-key",
            metavar="KEY",
            help="gives each line without an idempotency_key the key KEY:LINE: the file can be placed again and nothing is placed twice",
        )
        parser.add_argument("--rate", type=positive_seconds, metavar="R", help="orders per second (default: no limit)")
        parser.add_argument("--batch", type=at_least(1), default=BATCH, metavar="N", help=f"orders per commit (default {BATCH})")
        parser.add_argument("--seed", type=int, default=1, metavar="N", help="another seed makes up other orders (default 1)")
        parser.add_argument("--account", metavar="USER", help="the account that places the orders (default: guest orders)")
        parser.add_argument("--email", default="customer@example.com", help="the customer of made-up orders")
        parser.add_argument("--json", action="store_true", help="the summary as one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        account = find_user(options["account"]) if options["account"] else None
        requests, total = self.requests(options)
        tally = Tally()
        with self.progress(total, "orders") as progress:
            for batch in paced(requests, options["batch"], options["rate"]):
                self.place(batch, account, tally, progress)
        self.report(tally, progress.seconds, as_json=options["json"], quiet=options["verbosity"] == 0)
        if tally.errors:
            raise CommandError(f"{len(tally.errors)} of {tally.seen} orders were refused")

    def requests(self, options: dict[str, Any]) -> tuple[Iterable[Request | Unreadable], int | None]:
        """The requests to place, and their number if it is known."""
        if options["file"]:
            try:
                read = list(read_file(options["file"]))
            except (OSError, ValueError) as problem:
                raise CommandError(f"{options['file']}: {getattr(problem, 'strerror', None) or problem}") from None
            if not read:
                raise CommandError(f"{options['file']}: no orders in it")
            return [keyed(request, options["batch_key"]) for request in read], len(read)
        if options["batch_key"]:
            raise CommandError("--batch-key belongs to --file")
        on_sale = list(queries.products().filter(available__gt=0).order_by("sku").values_list("sku", "warehouse"))
        products = [sku for sku, warehouse in on_sale if warehouse == on_sale[0][1]]  # orders of one parcel
        if not products:
            raise CommandError("nothing is on sale: run manage.py seed_catalogue, or set_stock")
        return made_up(options["count"], products, seed=options["seed"], email=options["email"]), options["count"]

    def place(self, batch: list[Request | Unreadable], account: Any, tally: Tally, progress: Progress) -> None:
        """Place one batch in one commit; note its refusals by line."""
        good = [request for request in batch if isinstance(request, Request)]
        items = [Item(data=request.data, idempotency_key=request.idempotency_key) for request in good]
        outcomes = services.place_orders(items, account=account) if items else []
        tally.seen += len(batch)
        tally.errors += [(bad.line, bad.problem) for bad in batch if isinstance(bad, Unreadable)]
        for request, outcome in zip(good, outcomes, strict=True):
            if isinstance(outcome, Placed):
                tally.ids.append(outcome.public_id)
                tally.replayed += outcome.replayed
            else:
                tally.errors.append((request.line, in_words(outcome)))
        tally.errors.sort()
        progress.advance(len(batch))

    def report(self, tally: Tally, seconds: float, *, as_json: bool, quiet: bool) -> None:
        """Print the ids, the refusals and the summary."""
        if as_json:
            self.say_json(
                {
                    "accepted": len(tally.ids),
                    "replayed": tally.replayed,
                    "refused": len(tally.errors),
                    "seconds": round(seconds, 3),
                    "ids": tally.ids,
                    "errors": [{"line": line, "message": message} for line, message in tally.errors],
                }
            )
            return
        if not quiet:
            for public_id in tally.ids:
                self.stdout.write(public_id)
        for line, message in tally.errors:
            self.stderr.write(f"line {line}: {message}")
        again = f", {tally.replayed} of them placed before" if tally.replayed else ""
        rate = len(tally.ids) / max(seconds, 0.001)
        self.stdout.write(f"{len(tally.ids)} orders accepted{again} in {seconds:.1f} s ({rate:,.0f}/s)")


@dataclass
class Tally:
    """The results so far."""

    seen: int = 0
    replayed: int = 0
    ids: list[str] = field(default_factory=list)
    errors: list[tuple[int, str]] = field(default_factory=list)


def keyed(request: Request | Unreadable, batch_key: str | None) -> Request | Unreadable:
    """The request with an idempotency key: its own, or one made of the batch's key and its line."""
    if batch_key is None or isinstance(request, Unreadable) or request.idempotency_key is not None:
        return request
    return replace(request, idempotency_key=f"{batch_key}:{request.line}")


def paced(requests: Iterable[Request | Unreadable], size: int, rate: float | None) -> Iterator[list[Request | Unreadable]]:
    """Batches, at no more than `rate` orders a second. Slow rates get smaller batches, so that the load stays even."""
    if rate is not None:
        size = max(1, min(size, int(rate / 10)))
    waiting, began, sent = iter(requests), time.monotonic(), 0
    while batch := list(islice(waiting, size)):
        if rate is not None:
            time.sleep(max(0.0, began + sent / rate - time.monotonic()))
        yield batch
        sent += len(batch)


def in_words(refusal: services.OrderRefused) -> str:
    """Why one order was refused, in one line."""
    errors = getattr(refusal, "errors", None)
    details = "; ".join(flat(errors)) if errors else ""
    return details if details and isinstance(refusal, InvalidOrder) else ": ".join(filter(None, (str(refusal), details)))


def flat(errors: Any, path: str = "") -> Iterator[str]:
    """Nested errors as `lines[0].sku: ...`."""
    if isinstance(errors, dict):
        for name, inner in errors.items():
            place = f"[{name}]" if str(name).isdecimal() else f".{name}" if path else str(name)
            yield from flat(inner, f"{path}{place}")
    elif isinstance(errors, list):
        for index, inner in enumerate(errors):
            yield from flat(inner, f"{path}[{index}]" if isinstance(inner, dict) else path)
    else:
        yield f"{path}: {errors}" if path else str(errors)

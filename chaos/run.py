"""One run: start the shop, inject faults while customers and an operator use it, heal it, wait for rest, check it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg

from chaos import checker, report
from chaos.bot import Bot
from chaos.brokers import Broker, broker_of
from chaos.client import Client, Door
from chaos.evidence import Evidence, deadlocks, gather
from chaos.journal import Journal
from chaos.look import until
from chaos.nemesis import Nemesis
from chaos.plan import PROCESSES, Pace, plan
from chaos.shop import Shop
from chaos.traffic import SCARCE
from supervision.embedded.server import EmbeddedPostgres

QUIET_SECONDS = 240.0  # the longest wait for rest after everything is healed
REPEAT_SECONDS = 30.0  # how long after the end customers repeat unanswered requests


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a run."""

    minutes: float
    seed: int
    broker: str
    rate: float
    complete_by: float
    directory: Path
    keep: bool = False


class Outside(threading.Thread):
    """The customers and the operator. They run on their own event loop in their own thread."""

    def __init__(self, shop: Shop, tokens: dict[str, str], journal: Journal, options: Options) -> None:
        super().__init__(name="outside", daemon=True)
        self.urls = [shop.url_of(name) for name in PROCESSES if name.startswith("web")]
        self.tokens, self.journal, self.options = tokens, journal, options
        self.bot: Bot | None = None
        self.ordering = threading.Event()
        self.ordering.set()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.ordering.clear()

    async def _run(self) -> None:
        seed, ends = self.options.seed, time.monotonic() + self.options.minutes * 60
        doors = {name: Door(self.urls, token) for name, token in self.tokens.items()}
        client = Client(doors["shop"], self.journal, seed, self.options.rate, ends=ends, gives_up=ends + REPEAT_SECONDS)
        self.bot = Bot(doors["operator"], self.journal, seed)
        working = asyncio.create_task(self.bot.run())
        await client.run()
        self.ordering.clear()
        await working
        for door in doors.values():
            await door.close()


def run(options: Options) -> int:
    """Run it and print the report; 0 when every check holds."""
    options.directory.mkdir(parents=True, exist_ok=True)
    facts = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(options).items()}
    (options.directory / "options.json").write_text(json.dumps(facts, indent=1) + "\n")
    journal = Journal(options.directory / "log.jsonl")
    with ExitStack() as stack:
        stack.callback(journal.close)
        postgres = EmbeddedPostgres(options.directory / "postgres")
        postgres.start()
        stack.callback(_remove, postgres, options)
        broker = stack.enter_context(broker_of(options.broker, postgres.url, options.directory))
        evidence, times = _story(options, postgres, broker, journal, stack)
    found = checker.violations(evidence)
    numbers = report.figures(evidence, found, broker=options.broker, seed=options.seed, minutes=options.minutes, **times)
    report.write(options.directory, numbers, found)
    print(report.text(numbers, found))
    print(f"\nlog, report and the processes' own logs: {options.directory}")
    return int(any(found.values()))


def _remove(postgres: EmbeddedPostgres, options: Options) -> None:
    data = getattr(postgres, "data_dir", None)
    postgres.stop()
    if not options.keep and data is not None:
        shutil.rmtree(data, ignore_errors=True)


def _story(
    options: Options, postgres: EmbeddedPostgres, broker: Broker, journal: Journal, stack: ExitStack
) -> tuple[Evidence, dict[str, float]]:
    shop = Shop(
        postgres.url,
        broker.url,
        options.directory,
        first_port=22000 + os.getpid() % 10000,
        SUPERVISION_COMPLETE_WITHIN=str(options.complete_by),
        SUPERVISION_SWEEP_SECONDS="1",
        LOG_LEVEL=os.environ.get("LOG_LEVEL", "INFO"),
    )
    stack.callback(shop.close)
    print(f"chaos: building the shop in {options.directory}", flush=True)
    shop.open(*PROCESSES)
    tokens = {name: shop.token(name) for name in ("shop", "operator")}
    # About 60 % of the pieces that customers will order.
    shop.manage("set_stock", SCARCE, str(max(5, int(options.rate * options.minutes * 60 * 0.08 * 2 * 0.6))))
    stock = dict(shop.rows("SELECT sku, available FROM orders_product"))
    outside = Outside(shop, tokens, journal, options)
    nemesis = Nemesis(shop, postgres, broker, journal)
    length = options.minutes * 60
    faults = plan(options.seed, Pace(length=length - 1, complete_by=options.complete_by), broker.harms)
    (options.directory / "plan.json").write_text(json.dumps([asdict(fault) for fault in faults], indent=1) + "\n")
    print(f"chaos: {options.minutes} minutes, seed {options.seed}, {options.broker}, {len(faults)} faults", flush=True)
    outside.start()
    nemesis.run(faults, length)
    healed = time.monotonic()
    if outside.bot is not None:
        outside.bot.healed = True
    print("chaos: healed; waiting for rest", flush=True)
    _wait_for_rest(shop, nemesis, outside, options)
    rest = time.monotonic() - healed
    audit = until(lambda: shop.manage("audit", check=False), within=30, what="the audit")
    lines = [] if "all hold" in audit else audit.splitlines()
    evidence = gather(journal, shop.ledger_file, postgres.url, stock)
    evidence.audit = lines
    evidence.deadlocks = deadlocks(postgres.log)
    return evidence, {"rest_after_s": round(rest, 1)}


def _wait_for_rest(shop: Shop, nemesis: Nemesis, outside: Outside, options: Options) -> None:
    """Wait until every order has ended and every customer has an answer, or time is up. Then wait three times `complete_by`
    more, which is the longest freeze: a process that wakes up so late may still act on an expired claim.
    """
    deadline = time.monotonic() + QUIET_SECONDS
    look = 0.0
    while time.monotonic() < deadline:
        nemesis.turn()
        if time.monotonic() < look:
            continue
        look = time.monotonic() + 1.0
        if not outside.ordering.is_set() and _open_orders(shop) == 0:
            break
    if outside.bot is not None:
        outside.bot.stopped = True
    outside.join(30)
    if outside.error is not None:
        raise RuntimeError("the customers' side of the run failed") from outside.error
    until_late = time.monotonic() + 3 * options.complete_by
    while time.monotonic() < until_late:
        nemesis.turn()


def _open_orders(shop: Shop) -> int:
    query: Any = (
        "SELECT (SELECT count(*) FROM supervision_run WHERE process_state NOT IN ('Processed', 'Cancelled'))"
        " + (SELECT count(*) FROM supervision_submission WHERE consumed_at IS NULL)"
    )
    try:
        return int(shop.rows(query)[0][0])
    except psycopg.Error:
        return -1

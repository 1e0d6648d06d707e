"""A running shop for the crash matrix: all processes are long-lived except the workers, which are forked for each case."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sasproject.roles import ROOT
from supervision.wakeup import notify
from tests.support import forked
from tests.support.shop import WORKERS, Shop, first_port, order, role_of, scratch_database, until

PIECES, PRICE = 2, 2580  # an order's pieces of MUG-BLUE, and their total in cents

LOCAL_PICKUP = "SUPERVISION_LOCAL_PICKUP"
MANAGE = (sys.executable, "-c", "from tests.crash import warm; warm.manage()")


class Lane(Shop):
    """A shop whose workers get the failpoint at which they die."""

    def open(self, *roles: str) -> None:
        """Prepare the shop and start the processes that live through all cases."""
        self.given: dict[str, dict[str, str]] = {}  # what each worker's environment has besides the lane's
        self.warm = forked.Server(self.env, warm="tests.crash.warm")
        super().open("beat", "web")
        self.shopper = self.headers()
        self.stock = self.available()

    def close(self) -> None:
        """End all processes."""
        super().close()
        self.warm.close()

    # -- workers --------------------------------------------------------------------------------------------------

    def work(self, name: str, **environ: str) -> None:
        """Run a worker (`agents`, `agents.2`) with exactly this environment; a running one that has it is kept."""
        if self.lives(name) and self.given[name] == environ:
            return
        self.end(name)
        self.given[name] = environ
        with (self.directory / f"{name}.log").open("wb") as log:
            env = {**self.env, "SAS_ROLE": role_of(name), **environ}
            command = [*MANAGE, "work", role_of(name)]
            self.processes[name] = forked.Popen(command, server=self.warm, env=env, cwd=ROOT, stdout=log, stderr=log)
        self._ready(name)

    def pid(self, name: str) -> int:
        """The process id of this worker."""
        return self.processes[name].pid

    def lives(self, name: str) -> bool:
        """Whether this worker's process exists, frozen or not."""
        return name in self.processes and self.processes[name].poll() is None

    def end(self, name: str) -> None:
        """kill -9 this worker, if it runs."""
        if self.lives(name):
            self.kill9(name)

    def dies(self, name: str, *, within: float = 30.0, meanwhile: Callable[[], object] = lambda: None) -> int:
        """Wait until this worker has ended, calling `meanwhile` again and again; returns its exit status."""
        until(lambda: (meanwhile(), not self.lives(name))[1], within=within, what=f"{name} to die")
        return int(self.processes[name].returncode)

    def ring(self) -> None:
        """Notify the listeners that an order waits."""
        self.rows("SELECT pg_notify(%s, '')", notify.CHANNEL)

    def web(self, **environ: str) -> None:
        """Replace the web process by one with these additions to its environment."""
        self.kill9("web")
        before = self.env
        self.env = {**before, **environ}
        try:
            self.start("web")
        finally:
            self.env = before

    def all_work(self, *but: str, **environ: str) -> None:
        """Every role works, without failpoints."""
        for role in WORKERS:
            if role not in but:
                self.work(role, **environ)

    # -- orders and their results ---------------------------------------------------------------------------------

    def buy(self, client_key: str | None = None) -> str:
        """One order over the API."""
        headers = {**self.shopper, "Idempotency-Key": client_key or uuid.uuid4().hex}
        answer = self.http.post("/api/v1/orders/", json=order(), headers=headers)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def available(self) -> int:
        """The number of mugs in stock."""
        return int(self.rows("SELECT available FROM orders_product WHERE sku = 'MUG-BLUE'")[0][0])

    def did(self, service: str, key: str) -> list[str]:
        """The operations of this order that had an effect at the services, in order."""
        return [str(entry["operation"]) for entry in self.ledger(service, key)]

    def is_done_once(self, key: str, *, mails: int = 1) -> None:
        """Check that the order is Processed: one charge of the right amount, one shipment, this many mails."""
        self.ends(key, "Processed", within=40)
        charges = [entry["amount"] for entry in self.ledger("payment", key) if entry["operation"] in ("confirm", "refund")]
        assert charges == [PRICE], self.ledger("payment", key)
        assert self.did("carrier", key) == ["create"]
        assert self.did("mail", key) == ["deliver"] * mails

    def is_undone_to_nothing(self, key: str) -> None:
        """Check that the order is Cancelled: at most one charge and its refund, no shipment, one mail about the cancellation."""
        self.ends(key, "Cancelled", within=40)
        did = self.did("payment", key)
        assert did.count("confirm") == did.count("refund") <= 1, did
        assert self.did("carrier", key) in ([], ["delete"], ["create", "delete"])
        until(lambda: self.did("mail", key), what="the mail about the cancellation")
        assert self.did("mail", key) == ["deliver"]

    def audit(self) -> None:
        """Check every invariant of the store, and that the stock is short of exactly the pieces of the Processed orders."""
        sold = PIECES * self.rows("SELECT count(*) FROM supervision_run WHERE process_state = 'Processed'")[0][0]
        assert self.available() == self.stock - sold
        audit = forked.run([*MANAGE, "audit"], server=self.warm, env=self.env, cwd=ROOT)
        assert "all hold" in audit.stdout, audit


@contextmanager
def open_lane(directory: Path, broker_url: str = "pgmq://", **environ: str) -> Iterator[Lane]:
    """A lane on a scratch database that is dropped afterwards. A refusal for good undoes the order here."""
    settings = {
        "SUPERVISION_COMPLETE_WITHIN": "1.5",
        "SUPERVISION_SWEEP_SECONDS": "0.5",
        "SUPERVISION_LEASE_SECONDS": "1.5",
        "SUPERVISION_FAILURE_THRESHOLD": "20",
        "SUPERVISION_ON_PERMANENT": "compensate",
        "ALLOW_FAILPOINTS": "1",
        LOCAL_PICKUP: "0",  # the test must know which process schedules an order
        **environ,
    }
    with scratch_database(directory) as database_url:
        lane = Lane(database_url, broker_url, directory, first_port=first_port(), **settings)
        try:
            lane.open()
            yield lane
        finally:
            lane.close()

"""A running shop for the crash matrix: all processes are long-lived except the workers, which are forked for each case."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from sasproject.roles import ROOT
from supervision.wakeup import notify
from tests.support.shop import WORKERS, Shop, order, role_of, scratch_database, until

PIECES, PRICE = 2, 2580  # an order's pieces of MUG-BLUE, and their total in cents

LOCAL_PICKUP = "SUPERVISION_LOCAL_PICKUP"


class Lane(Shop):
    """A shop whose workers get the failpoint at which they die."""

    def open(self, *roles: str) -> None:
        """Prepare the shop and start the processes that live through all cases."""
        super().open("beat", "web")
        self.zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.zygote"],
            env=self.env,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert json.loads(self.zygote.stdout.readline()) == "ready"
        self.workers: dict[str, tuple[int, dict[str, str]]] = {}
        self.shopper = self.headers()
        self.stock = self.available()

    def close(self) -> None:
        """End all processes."""
        for role in tuple(getattr(self, "workers", ())):
            self.end(role)
        if hasattr(self, "zygote"):
            self.zygote.kill()
            self.zygote.wait(10)
        super().close()

    # -- workers --------------------------------------------------------------------------------------------------

    def _ask(self, **request: Any) -> Any:
        self.zygote.stdin.write(json.dumps(request) + "\n")
        self.zygote.stdin.flush()
        return json.loads(self.zygote.stdout.readline())

    def fork(self, name: str, arguments: list[str], **environ: str) -> int:
        """Fork a process that writes to NAME.log; returns its process id."""
        log = self.directory / f"{name}.log"
        log.write_text("")
        return int(self._ask(fork=arguments, environ={"SAS_ROLE": role_of(name), **environ}, log=str(log)))

    def exit_code(self, pid: int) -> int | None:
        """The process's exit status, None while it runs."""
        return self._ask(poll=pid)  # type: ignore[no-any-return]

    def work(self, name: str, **environ: str) -> None:
        """Run a worker (`agents`, `agents.2`) with exactly this environment; a running one that has it is kept."""
        role = role_of(name)
        pid, given = self.workers.get(name, (0, {}))
        if pid and given == environ and self.exit_code(pid) is None:
            return
        self.end(name)
        pid = self.fork(name, ["work", role], **environ)
        self.workers[name] = (pid, environ)

        def ready() -> bool:
            assert self.exit_code(pid) is None, f"{name} ended: {self.log(name)[-3000:]}"
            return " ready." in self.log(name)

        until(ready, within=30, what=f"{name} to get ready")

    def pid(self, name: str) -> int:
        """The process id of this worker."""
        return self.workers[name][0]

    def lives(self, name: str) -> bool:
        """Whether this worker's process exists, frozen or not."""
        return name in self.workers and self.exit_code(self.workers[name][0]) is None

    def end(self, name: str) -> None:
        """kill -9 this worker, if it runs."""
        pid, _ = self.workers.pop(name, (0, {}))
        if pid and self.exit_code(pid) is None:
            os.kill(pid, signal.SIGKILL)
            until(lambda: self.exit_code(pid) is not None, what=f"{name} to end")

    def dies(self, name: str, *, within: float = 30.0, meanwhile: Callable[[], object] | None = None) -> int:
        """Wait until this worker has ended, calling `meanwhile` again and again; returns its exit status."""
        pid, _ = self.workers.pop(name)

        def ended() -> int | None:
            if meanwhile is not None:
                meanwhile()
            return self.exit_code(pid)

        return int(until(ended, within=within, what=f"{name} to die"))

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
        pid = self.fork("audit", ["audit"])
        until(lambda: self.exit_code(pid) is not None, what="the audit")
        assert "all hold" in self.log("audit"), self.log("audit")


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
    # Lanes that open at the same time (pytest-xdist) search different port ranges.
    first_port = 21000 + 300 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    with scratch_database(directory) as database_url:
        lane = Lane(database_url, broker_url, directory, first_port=first_port, **settings)
        try:
            lane.open()
            yield lane
        finally:
            lane.close()


def transport_error() -> type[Exception]:
    """The error that a client gets when the web process dies during its request."""
    return httpx2.TransportError

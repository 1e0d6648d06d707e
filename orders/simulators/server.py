"""The simulators' process: payment, carrier and control over HTTP, mail over SMTP.

GET  /                                  an HTML page: faults, counts, the newest entries
GET  /ledger/{payment|carrier|mail}     every call received, JSON lines; ?order=ID for one order's, ?last=N
GET, POST, DELETE /faults               see `faults`; DELETE /faults?service=NAME removes one service's faults
GET, DELETE /stats                      calls and how many were in flight at most; DELETE resets the counts
GET, POST   /behaviour                  the behaviour without faults: see `behaviour`
POST /forget/{payment|carrier}          the service forgets every idempotency key
POST /refunds/ID/fail                   a pending or succeeded refund fails
POST /payments/ID/expire                the amount that a payment has reserved lapses
POST /disputes {"payment_intent", "reason"?}, POST /disputes/ID/{won|lost}
POST /shipments/ID/{picked_up|delivered|returned}   a parcel travels on, and the carrier tells it
POST /webhook {"url", "service"?}       the payment service (or `carrier`) tells events to this address from now on; empty: to none
GET  /bank/INTENT                       the page on which a customer confirms a payment: see `bank`
GET  /healthz
"""

from __future__ import annotations

import gc
import json
import time
from pathlib import Path
from typing import Any

from django.template.loader import render_to_string

from orders.simulators import bank
from orders.simulators.behaviour import BadBehaviour, Behaviour
from orders.simulators.carrier import JOURNEY, Carrier
from orders.simulators.faults import AFTER_EFFECT, ALL, About, BadFault, Faults, Meter, Mode
from orders.simulators.intents import Problem
from orders.simulators.ledger import SERVICES, Ledger
from orders.simulators.mail import Mail, MailServer
from orders.simulators.payment import Payment
from orders.simulators.web import Answer, Connection, Outcome, Request, Server
from orders.simulators.webhooks import PARCELS, Teller

SHOWN = 40  # entries per service on the page


def spare_what_is_remembered() -> None:
    """Avoid full garbage collections in this process: its state only grows, and each full collection stops all threads.

    After 8,000 orders one took 0.7 s. The requests sent meanwhile were then read all at once: the meter saw requests within
    one second that their senders had spread over two.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, 1_000_000)


class Simulators:
    """All simulators in one process. Ports may be 0: the operating system then chooses a free one.

    webhook, carrier_webhook: the address to which the service tells its events, and the secret under which it signs them.
    """

    def __init__(
        self,
        *,
        host: str,
        port: int,
        smtp_port: int,
        ledger: Path,
        behaviour: Behaviour | None = None,
        webhook: tuple[str, str] = ("", ""),
        carrier_webhook: tuple[str, str] = ("", ""),
    ) -> None:
        self.ledger = Ledger(ledger)
        self.faults, self.meter = Faults(), Meter()
        self.behaviour = behaviour or Behaviour()
        teller = Teller(self.ledger, self.behaviour, url=webhook[0], secret=webhook[1])
        self.payment = Payment(self.ledger, self.behaviour, teller)
        of_parcels = Teller(self.ledger, self.behaviour, url=carrier_webhook[0], secret=carrier_webhook[1], form=PARCELS)
        self.carrier = Carrier(self.ledger, of_parcels)
        self.mail = Mail(self.ledger, self.behaviour)
        remember = {"payment": self.payment.remember, "carrier": self.carrier.remember, "mail": self.mail.remember}
        for service, _, memory in self.ledger.replay():
            remember[service](memory)
        self._http = Server((host, port), type("Bound", (_Connection,), {"simulators": self}))
        try:
            self._smtp = MailServer(self.mail, self.faults, self.meter, host, smtp_port)
        except OSError:
            self._http.server_close()
            raise
        self.url = f"http://{host}:{self._http.server_address[1]}"
        self.smtp_url = f"smtp://{host}:{self._smtp.port}"

    def run(self) -> None:
        """Serve until `stop`."""
        spare_what_is_remembered()
        self._smtp.start()
        self.payment.teller.start()
        self.carrier.teller.start()
        self._http.serve_forever(poll_interval=0.1)

    def stop(self) -> None:
        """Stop serving and write the pending entries. Must not be called by the thread in `run`."""
        self._http.shutdown()
        self._http.server_close()
        self._smtp.stop()
        self.payment.teller.stop()
        self.carrier.teller.stop()
        self.ledger.close()


class _Connection(Connection):
    simulators: Simulators

    def answer(self, request: Request) -> Answer | None:
        service = _service(request.path)
        if request.path.startswith("/bank/"):
            return bank.answer(self.simulators.payment, request)
        if service is None:
            return _control(self.simulators, request)
        with self.simulators.meter.call(service) as flying:
            return self._serve(service, request, flying)

    def _serve(self, service: str, request: Request, flying: int) -> Answer | None:
        app: Payment | Carrier = getattr(self.simulators, service)
        faults = self.simulators.faults
        about = app.about(request) if faults.are_narrow(service) else {}
        fault = faults.roll(service, about)
        if fault.mode is Mode.DOWN:
            self.reset_connection()
            return None
        if fault.delay:
            time.sleep(fault.delay)
        outcome: Outcome = app.handle(request, fault, flying)
        if outcome.written is not None:
            outcome.written.result()
        if outcome.changed and fault.mode is Mode.RESET_AFTER_EFFECT:
            self.reset_connection()
            return None
        if outcome.changed and fault.mode is Mode.TIMEOUT_AFTER_EFFECT:
            self._hold(service, about, fault.hold)
            return None
        return outcome.answer

    def _hold(self, service: str, about: About, seconds: float) -> None:
        """Give no answer until the time is over, the client closes the connection, or the fault is removed."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.simulators.faults.now(service, about).mode in AFTER_EFFECT:
            if self.client_left(min(0.1, max(0.0, end - time.monotonic()))):
                return


def _service(path: str) -> str | None:
    if path.startswith(("/v1/payment_intents", "/v1/refunds", "/v1/disputes")):
        return "payment"
    return "carrier" if path.startswith(("/v1/shipments", "/v1/rates")) else None


def _control(simulators: Simulators, request: Request) -> Answer | None:
    try:
        return _controlled(simulators, request)
    except (BadFault, BadBehaviour, ValueError) as problem:
        return Answer.json(400, {"error": str(problem)})
    except Problem as problem:
        return problem.answer


def _controlled(simulators: Simulators, request: Request) -> Answer:
    faults, meter = simulators.faults, simulators.meter
    match request.method, request.parts():
        case "GET", [""]:
            return Answer(200, _page(simulators).encode(), content_type="text/html; charset=utf-8")
        case "GET", ["healthz"]:
            return Answer.json(200, {"status": "ok"})
        case "GET", ["ledger", service] if service in SERVICES:
            last = int(request.query.get("last") or 0)
            body = simulators.ledger.show(service, request.query.get("order"), last)
            return Answer(200, body, content_type="application/x-ndjson")
        case "GET", ["faults"]:
            return Answer.json(200, faults.describe())
        case "POST", ["faults"]:
            faults.put(_body(request))
            return Answer.json(200, faults.describe())
        case "DELETE", ["faults"]:
            faults.clear(request.query.get("service", ALL))
            return Answer(204)
        case "GET", ["stats"]:
            return Answer.json(200, meter.describe())
        case "DELETE", ["stats"]:
            meter.reset()
            return Answer(204)
        case "GET", ["behaviour"]:
            return Answer.json(200, simulators.behaviour.describe())
        case "POST", ["behaviour"]:
            simulators.behaviour.put(_body(request))
            return Answer.json(200, simulators.behaviour.describe())
        case "POST", ["webhook"]:
            _told_at(simulators, _body(request))
            return Answer(204)
        case "POST", [("forget" | "refunds" | "payments" | "disputes" | "shipments"), *_]:
            return _happen(simulators, request)
    return Answer.json(404, {"error": f"{request.method} {request.path} is unknown here"})


def _happen(simulators: Simulators, request: Request) -> Answer:
    """Changes that do not come from the shop: forgotten keys, failed refunds, disputes, parcels on their way."""
    match request.parts():
        case ["forget", ("payment" | "carrier") as service]:
            app: Payment | Carrier = getattr(simulators, service)
            app.forget().result()
            return Answer(204)
        case ["shipments", shipment, state] if state in JOURNEY:
            outcome = simulators.carrier.move(shipment, state)
        case ["refunds", refund, "fail"]:
            outcome = simulators.payment.fail_refund(refund)
        case ["payments", intent, "expire"]:
            outcome = simulators.payment.expire(intent)
        case ["disputes"]:
            wanted = _body(request)
            if not isinstance(wanted, dict) or not isinstance(wanted.get("payment_intent"), str):
                raise BadBehaviour("payment_intent: expected a string")
            outcome = simulators.payment.dispute(wanted["payment_intent"], str(wanted.get("reason", "fraudulent")))
        case ["disputes", dispute, ("won" | "lost") as status]:
            outcome = simulators.payment.close_dispute(dispute, status)
        case _:
            return Answer.json(404, {"error": f"{request.method} {request.path} is unknown here"})
    if outcome.written is not None:
        outcome.written.result()
    return outcome.answer


def _told_at(simulators: Simulators, wanted: Any) -> None:
    url, service = _address(wanted), wanted.get("service", "payment")
    if service not in ("payment", "carrier"):
        raise BadBehaviour("service: expected payment or carrier")
    (simulators.carrier if service == "carrier" else simulators.payment).teller.url = url


def _address(wanted: Any) -> str:
    url = wanted.get("url") if isinstance(wanted, dict) else None
    if not isinstance(url, str) or (url and not url.startswith(("http://", "https://"))):
        raise BadBehaviour("url: expected an http or https address, or an empty text")
    return url


def _body(request: Request) -> Any:
    try:
        return request.json()
    except ValueError:
        raise ValueError("the body is not JSON") from None


def _page(simulators: Simulators) -> str:
    stats, faults = simulators.meter.describe(), simulators.faults.describe()
    services: list[dict[str, Any]] = []
    for service in SERVICES:
        lines = simulators.ledger.show(service, last=SHOWN).splitlines()
        entries = [json.loads(line) for line in reversed(lines)]
        services.append({"name": service, "fault": faults[service], "stats": stats[service], "entries": entries})
    return render_to_string("orders/simulators/page.html", {"services": services, "simulators": simulators})

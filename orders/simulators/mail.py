"""The mail server: takes messages by SMTP and delivers them.

In the ledger `key` is the Message-ID's local part (percent-decoded), `order` the X-Order-ID header, `to` the
recipients; the operation is `deliver`. The setting `repeated_mail` of `behaviour` decides about a repeated Message-ID.
Real servers deliver it again, and so does this one (`250 (repeated)`) unless it is set to `drop` (`250 (delivered before)`).
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Mapping
from email import message_from_bytes
from email.header import decode_header, make_header
from email.message import Message
from typing import Any
from urllib.parse import unquote

from aiosmtpd.smtp import SMTP, Envelope, Session

from orders.simulators.behaviour import Behaviour
from orders.simulators.faults import AFTER_EFFECT, Faults, Meter, Mode
from orders.simulators.ledger import Entry, Ledger

MAX_SIZE = 10_000_000

# aiosmtpd logs every command of every session, with addresses. The ledger already has the useful part.
logging.getLogger("mail.log").setLevel(logging.ERROR)


class Mail:
    """The mail service: all delivered messages."""

    def __init__(self, ledger: Ledger, behaviour: Behaviour) -> None:
        self._ledger, self._behaviour = ledger, behaviour
        self._lock = threading.Lock()
        self._delivered: set[str] = set()

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Apply one ledger entry's memory to the state: after a message, or when a restart reads the ledger."""
        if "delivered" in memory:
            self._delivered.add(memory["delivered"])

    def deliver(self, envelope: Envelope, mode: Mode, flying: int) -> tuple[bool, Any]:
        """Accept one message; returns whether it is delivered, and the future of its ledger entry."""
        message = message_from_bytes(bytes(envelope.original_content or b""))
        message_id = str(message.get("Message-ID", "")).strip().strip("<>")
        with self._lock:
            repeated = bool(message_id) and message_id in self._delivered
            effect = not (repeated and self._behaviour.drops_repeated_mail)
            memory = {"delivered": message_id} if effect and message_id else {}
            self.remember(memory)
            entry = Entry(
                service="mail",
                key=unquote(message_id.rpartition("@")[0] or message_id),
                order=message.get("X-Order-ID"),
                operation="deliver",
                effect=effect,
                answer=_said(effect, repeated, mode),
                extra={
                    "to": list(envelope.rcpt_tos),
                    "subject": _header(message, "Subject"),
                    "links": _links(message),
                    "in_flight": flying,
                },
                memory=memory,
            )
            return effect, self._ledger.append(entry)

    def refuse(self, envelope: Envelope, address: str, answer: str) -> Any:
        """Write a refusal to the ledger: nothing was delivered."""
        extra = {"to": [*envelope.rcpt_tos, address], "subject": ""}
        entry = Entry(service="mail", key="", order=None, operation="deliver", effect=False, answer=answer, extra=extra)
        return self._ledger.append(entry)


def _said(effect: bool, repeated: bool, mode: Mode) -> str:
    if not effect:
        return "250 (delivered before)"
    if mode in AFTER_EFFECT:
        return f"none or error, {mode}"
    return "250 (repeated)" if repeated else "250"


def _header(message: Message, name: str) -> str:
    return str(make_header(decode_header(message.get(name, ""))))


def _links(message: Message) -> list[str]:
    """The first addresses in a mail of plain text, so that people and tests can open them."""
    text = "" if message.is_multipart() else bytes(message.get_payload(decode=True) or b"").decode("utf-8", "replace")  # type: ignore[arg-type]
    return re.findall(r"https?://\S+", text)[:3]


def _abort(server: SMTP) -> None:
    if isinstance(server.transport, asyncio.Transport):
        server.transport.abort()


class Handler:
    """The callbacks of aiosmtpd."""

    def __init__(self, mail: Mail, faults: Faults, meter: Meter) -> None:
        self._mail, self._faults, self._meter = mail, faults, meter

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Accept a recipient, unless a fault refuses it."""
        fault = self._faults.roll("mail")
        refusal = {Mode.DECLINE: "550 5.1.1 No such mailbox", Mode.ERROR_BEFORE: "451 4.3.0 Try again later"}.get(fault.mode)
        if refusal:
            await asyncio.wrap_future(self._mail.refuse(envelope, address, refusal))
            return refusal
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options.extend(options)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Deliver one message, and answer as the active fault demands."""
        with self._meter.call("mail") as flying:
            fault = self._faults.roll("mail")
            if fault.delay:
                await asyncio.sleep(fault.delay)
            new, written = self._mail.deliver(envelope, fault.mode, flying)
            await asyncio.wrap_future(written)
            if new and fault.mode is Mode.ERROR_AFTER_EFFECT:
                return "451 4.3.0 Try again later"
            if new and fault.mode is Mode.RESET_AFTER_EFFECT:
                _abort(server)
                return "421 4.3.2 Never sent"
            if new and fault.mode is Mode.TIMEOUT_AFTER_EFFECT:
                await self._hold(fault.hold)
                _abort(server)
                return "421 4.3.2 Never sent"
        return "250 2.0.0 Delivered"

    async def _hold(self, seconds: float) -> None:
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end and self._faults.now("mail").mode is Mode.TIMEOUT_AFTER_EFFECT:
            await asyncio.sleep(0.1)


class Door(SMTP):
    """aiosmtpd's server, which refuses connections with 421 while the service is down."""

    def __init__(self, handler: Handler, faults: Faults) -> None:
        super().__init__(handler, enable_SMTPUTF8=True, data_size_limit=MAX_SIZE, ident="Simulator", hostname="localhost")
        self._faults = faults
        self._shut = False

    def connection_made(self, transport: Any) -> None:
        """Greet the client, or refuse it with 421."""
        self._shut = self._faults.roll("mail").mode is Mode.DOWN
        if self._shut:
            transport.write(b"421 4.3.2 Service not available\r\n")
            transport.close()
        else:
            super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Clean up, except after a refused client: aiosmtpd has no session for it."""
        if not self._shut:
            super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Handle input, except from a refused client."""
        if not self._shut:
            super().data_received(data)

    def eof_received(self) -> bool | None:
        """Handle the end of input, except from a refused client."""
        return None if self._shut else super().eof_received()


class MailServer:
    """The SMTP server on an event loop and a thread of its own."""

    def __init__(self, mail: Mail, faults: Faults, meter: Meter, host: str, port: int) -> None:
        self._loop = asyncio.new_event_loop()
        handler = Handler(mail, faults, meter)
        listening = self._loop.create_server(lambda: Door(handler, faults), host, port, backlog=512)
        try:
            self._server = self._loop.run_until_complete(listening)
        except OSError:
            listening.close()
            self._loop.close()
            raise
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, name="smtp", daemon=True)

    def start(self) -> None:
        """Start the server."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the server."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

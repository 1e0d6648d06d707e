"""The customers of a run. They order at their own pace, and repeat unanswered requests under the same idempotency key.

Open loop: a customer sends an order when it is due, not when the order before it was answered. Each answer is noted as
`ok`, `refused` or `indeterminate`. A customer repeats an indeterminate request until it is `ok` or `refused`, or time is up.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from typing import Any

import httpx2

from chaos.journal import Journal
from chaos.traffic import Wish, wish

PATIENCE_SECONDS = 8.0  # the timeout of one request
LONGEST_PAUSE = 3.0


class Door:
    """HTTP calls to the copies of the web role, to each in turn."""

    def __init__(self, urls: list[str], token: str) -> None:
        self._urls = itertools.cycle(urls)
        limits = httpx2.Limits(max_connections=200, max_keepalive_connections=50)
        self._http = httpx2.AsyncClient(
            timeout=PATIENCE_SECONDS, limits=limits, trust_env=False, headers={"Authorization": f"Token {token}"}
        )

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int | None, Any]:
        """The status and the answer. The status is None where the outcome is unknown: a connection error or a status from 500."""
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        try:
            answer = await self._http.request(
                method, next(self._urls) + path, content=content, headers={"Content-Type": "application/json", **headers}
            )
            return (None if answer.status_code >= 500 else answer.status_code), _body(answer)
        except httpx2.HTTPError as error:
            return None, type(error).__name__

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def _body(answer: httpx2.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return answer.text[:200]


class Client:
    """All customers of one run."""

    def __init__(self, door: Door, journal: Journal, seed: int, rate: float, *, ends: float, gives_up: float) -> None:
        """ends, gives_up: `time.monotonic()` values. No customer orders after `ends`, or repeats a request after `gives_up`."""
        self.door, self.journal = door, journal
        self.seed, self.rate, self.ends, self.gives_up = seed, rate, ends, gives_up
        self._dice = random.Random(f"{seed}:client")

    async def run(self) -> None:
        """Order until `ends`, then wait for the customers that have no answer yet."""
        due = time.monotonic()
        async with asyncio.TaskGroup() as customers:
            for number in itertools.count():
                one = wish(self.seed, number, self.rate)
                due += one.wait
                if due > self.ends:
                    return
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                customers.create_task(self._order(one))

    def key(self, one: Wish) -> str:
        """The customer's idempotency key."""
        return f"chaos-{self.seed}-{one.number}"

    async def _order(self, one: Wish) -> None:
        if one.again is not None:
            first, _ = await asyncio.gather(self._place(one, one.body, "first"), self._again(one, one.again))
        else:
            first = await self._place(one, one.body, "first")
        if first and one.other is not None:
            await self._place(one, one.other, "other-body")
        if first and one.cancel is not None:
            await asyncio.sleep(one.cancel)
            await self._cancel(one, first)

    async def _again(self, one: Wish, after: float) -> None:
        await asyncio.sleep(after)
        await self._place(one, one.body, "twice")

    async def _place(self, one: Wish, body: Any, what: str) -> str | None:
        """Send one order until the shop answers; returns the order's id if the shop accepted it."""
        key = self.key(one)
        for attempt in itertools.count(1):
            sent = time.monotonic()
            status, answer = await self.door.call("POST", "/api/v1/orders/", body, **{"Idempotency-Key": key})
            facts = {"key": key, "as": what, "attempt": attempt, "took": round(time.monotonic() - sent, 3)}
            if attempt == 1:
                facts |= {"traits": one.traits, "lines": body.get("lines") if isinstance(body, dict) else None}
            if status == 202:
                self.journal.note("client", "ok", id=answer["id"], **facts)
                return str(answer["id"])
            if status is not None:
                self.journal.note("client", "refused", status=status, answer=str(answer)[:300], **facts)
                return None
            self.journal.note("client", "indeterminate", why=str(answer)[:100], **facts)
            if not await self._pause(attempt):
                return None
        return None

    async def _cancel(self, one: Wish, order: str) -> None:
        for attempt in itertools.count(1):
            status, answer = await self.door.call("POST", f"/api/v1/orders/{order}/cancel/", {"reason": "changed my mind"})
            what = {202: "cancel-ok", None: "cancel-indeterminate"}.get(status, "cancel-refused")
            self.journal.note("client", what, key=self.key(one), id=order, status=status, answer=str(answer)[:200], attempt=attempt)
            if status is not None or not await self._pause(attempt):
                return

    async def _pause(self, attempt: int) -> bool:
        """Wait with back-off before a repetition; returns false once `gives_up` has passed."""
        await asyncio.sleep(min(LONGEST_PAUSE, 0.2 * 2**attempt) * (0.5 + self._dice.random() / 2))
        return time.monotonic() < self.gives_up

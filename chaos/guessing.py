"""Password guessing at every door that asks for one, twelve at once, and a product's page meanwhile.

Each door gets an account of its own, because wrong passwords count by account.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx2

from chaos.shop import Shop

AT_ONCE = 12
BURSTS = 5
BURST_SECONDS = 2.0  # from one burst to the next
IDLE_SECONDS = 5.0
MOST_LOOKED_AT = 9
MOST_TIMES = 2.0
PASSWORD = "correct-horse-battery"  # noqa: S105 - of accounts that the drill makes
PAGE = "/products/MUG-BLUE/"


class Door(NamedTuple):
    """A page that asks for a password. signed_in: by the account itself. field: that of the password. more: the form's other fields."""

    name: str
    path: str
    group: str
    field: str
    signed_in: bool = True
    more: tuple[tuple[str, str], ...] = ()


NEW = "another-horse-battery"
DOORS = (
    Door("console", "/admin/login/", "operator", "password", signed_in=False),
    Door("shop", "/accounts/login/", "customer", "password", signed_in=False),
    Door("own password", "/accounts/password_change/", "customer", "old_password", more=(("new_password1", NEW), ("new_password2", NEW))),
    Door("tokens", "/accounts/tokens/", "customer", "password", more=(("name", "mine"), ("scope", "read"), ("days", "1"))),
    Door("mail address", "/accounts/email/", "customer", "password", more=(("email", "other@example.com"),)),
)


class Visitor(threading.Thread):
    """Asks for the product's page again and again. took: seconds of each answer."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url, self.took, self.stopped = url, list[float](), threading.Event()

    def run(self) -> None:
        """Ask until stopped, and at least once."""
        with _client(self.url) as http:
            while not (self.took and self.stopped.wait(0.02)):
                began = time.monotonic()
                http.get(PAGE).raise_for_status()
                self.took.append(time.monotonic() - began)


@contextmanager
def visiting(url: str) -> Iterator[Visitor]:
    """A visitor for so long."""
    visitor = Visitor(url)
    visitor.start()
    try:
        yield visitor
    finally:
        visitor.stopped.set()
        visitor.join(30)


def drill(shop: Shop, *, say: Callable[[str], None]) -> tuple[dict[str, Any], list[str]]:
    """Guess at each door; returns the figures, and one line for each thing that is wrong."""
    figures: dict[str, Any] = {}
    wrong: list[str] = []
    for number, door in enumerate(DOORS):
        say(f"guessing at {door.name}, {AT_ONCE} at once")
        name = f"owner{number}"
        shop.manage("create_user", name, "--group", door.group, "--password", PASSWORD, "--email", f"{name}@example.com")
        with _client(shop.url) as http:
            http.get("/accounts/login/")  # it sets the cookie that each form is compared with
            if door.signed_in:
                answer = _send(http, "/accounts/login/", {"username": name, "password": PASSWORD})
                if answer.status_code != 302:
                    raise RuntimeError(f"{name} cannot sign in: {answer.status_code}")
            with visiting(shop.url) as calm:
                time.sleep(IDLE_SECONDS)
            with visiting(shop.url) as beside:
                answers = _guess(http, door, name)
        looked_at = sum(count for status, count in answers.items() if status not in (429, 503))
        times = statistics.median(beside.took) / statistics.median(calm.took)
        longest = max(beside.took) * 1000
        figures[door.name] = f"{looked_at} of {sum(answers.values())} looked at; page {times:.2f} x, at most {longest:.0f} ms"
        if not 0 < looked_at <= MOST_LOOKED_AT or not answers[429]:
            wrong.append(f"{door.name}: {looked_at} passwords were looked at; the answers were {dict(answers)}")
        if times > MOST_TIMES:
            wrong.append(f"{door.name}: the page of a product took {times:.1f} x as long meanwhile")
    return figures, wrong


def _client(url: str) -> httpx2.Client:
    """Each request has a connection of its own: the server closes idle ones, perhaps just as the next request is sent."""
    return httpx2.Client(base_url=url, timeout=60, trust_env=False, limits=httpx2.Limits(max_keepalive_connections=0))


def _guess(http: httpx2.Client, door: Door, name: str) -> Counter[int]:
    """Send wrong passwords in bursts; how many answers had which status."""
    answers: Counter[int] = Counter()
    more = dict(door.more) if door.signed_in else {"username": name}
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for burst in range(BURSTS):
            began = time.monotonic()

            def one(number: int, burst: int = burst) -> int:
                return _send(http, door.path, {**more, door.field: f"guess-{burst}-{number}"}).status_code

            answers.update(threads.map(one, range(AT_ONCE)))
            time.sleep(max(0.0, BURST_SECONDS - (time.monotonic() - began)))
    return answers


def _send(http: httpx2.Client, path: str, form: dict[str, str]) -> httpx2.Response:
    return http.post(path, data={**form, "csrfmiddlewaretoken": http.cookies["csrftoken"]})

"""A fixture: name servers that answer no question about a host of `.example`."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from chaos.look import until
from supervision.runtime import names


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """They answer once the test is over. The names that they were asked for. Other hosts are found as usual."""
    asked: list[str] = []
    over = threading.Event()
    usual = socket.getaddrinfo

    def wait(host: Any, *rest: Any, **more: Any) -> Any:
        if not str(host).endswith(".example"):
            return usual(host, *rest, **more)
        asked.append(host)
        over.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", wait)
    yield asked
    over.set()
    until(lambda: not names._looking, what="the end of the lookups")

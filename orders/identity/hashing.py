"""Passwords are hashed one at a time in a process, and only a few requests may wait for it, so that sign-ins cannot block the web role.

One hash takes a third of a second of a core. Without a limit, twelve sign-ins at once took every thread of the process, and a
product page waited for seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher

PATIENCE_SECONDS = 5.0
_turn = threading.Semaphore(1)
_places = threading.Semaphore(1 + max(1, settings.WEB_THREADS // 3))


class HashingBusy(Exception):
    """Other sign-ins are under way: this one has to be tried again, its password was not looked at."""


class OneAtATime(PBKDF2PasswordHasher):
    """Django's own hasher; it waits for its turn. Raises HashingBusy when too many wait already, or for too long."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        """The encoded hash."""
        with _my_turn():
            return super().encode(password, salt, iterations)


@contextmanager
def _my_turn() -> Iterator[None]:
    if threading.current_thread() is threading.main_thread():  # a command: it has no other requests to think of
        yield
        return
    if not _places.acquire(blocking=False):
        raise HashingBusy
    try:
        if not _turn.acquire(timeout=PATIENCE_SECONDS):
            raise HashingBusy
        try:
            yield
        finally:
            _turn.release()
    finally:
        _places.release()

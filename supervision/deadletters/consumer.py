"""Messages that cannot become a task are kept byte for byte as dead letters, and only then acknowledged.

A periodic task that only another release knows is dropped: while two releases run side by side, beat of the newer one sends it.

Celery logs such messages and drops them; some end the worker. This consumer checks each message before Celery does. A
separate thread writes the bad ones to the database, so that a database that does not answer holds up no other message.
The consumer acknowledges such a message only after that commit: if the process ends before, the broker still has it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from celery import signals
from celery.worker.consumer import Consumer as CeleryConsumer
from django.db import connection, transaction

from supervision.deadletters import dead_letters
from supervision.deadletters.dead_letters import Letter
from supervision.deadletters.validation import OfAnotherRelease, Unusable, check, letter_of, watched

log = logging.getLogger(__name__)


@dataclass
class _Held:
    """A message that waits to be written as a dead letter."""

    letter: Letter
    message: Any
    consumer: Any


class DeadLetterWriter:
    """Writes messages as dead letters on a thread of its own, and acknowledges them after the commit."""

    RETRY_SECONDS = 1.0
    AT_ONCE = 100

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[_Held] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def take(self, held: _Held) -> None:
        """Write this message: at once if the consumer has no event loop (then it polls the same database), else on the thread."""
        if held.consumer.hub is None and self._kept(held):
            return
        self._waiting.put(held)
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._loop, name="dead-letters", daemon=True)
                self._thread.start()

    def _kept(self, held: _Held) -> bool:
        try:
            with transaction.atomic():
                dead_letters.keep_whatever([held.letter])
        except Exception as error:
            log.info("a dead letter has to wait: %s", str(error).strip().splitlines()[:1])
            connection.close()
            return False
        _acknowledge(held.message)
        return True

    def _loop(self) -> None:
        while True:
            batch = [self._waiting.get()]
            while len(batch) < self.AT_ONCE and not self._waiting.empty():
                batch.append(self._waiting.get())
            self._keep(batch)
            for held in batch:
                held.consumer.call_soon_ack(partial(_acknowledge, held.message))

    def _keep(self, batch: list[_Held]) -> None:
        letters = [held.letter for held in batch]
        while True:
            try:
                return dead_letters.keep_whatever(letters)
            except Exception as error:
                # The messages are not acknowledged: the broker still has them even if this process ends.
                log.warning("%d dead letters wait for the database: %s", len(batch), str(error).strip().splitlines()[:1])
                connection.close()
                time.sleep(self.RETRY_SECONDS)


writer = DeadLetterWriter()


def _acknowledge(message: Any) -> None:
    try:
        message.ack()
    except Exception as error:
        # Its channel is closed. The broker delivers it again, and `keep_all` finds that it is kept already.
        log.info("a message could not be acknowledged: %s", error)


class Consumer(CeleryConsumer):
    """Celery's consumer, but it keeps every message that it cannot handle."""

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Any:
        """The function that is called with each message."""
        handle = super().create_task_handler(*args, **kwargs)
        tasks = self.app.tasks

        def on_message(message: Any) -> None:
            try:
                with watched(message):
                    check(message, tasks)
            except OfAnotherRelease as error:
                log.warning("beat of another release sent this; dropped, because it is sent again when it is due: %s", error)
                _acknowledge(message)
                return
            except Exception as error:
                self.set_aside(message, error)
                return
            try:
                handle(message)
            except (*self.connection_errors, *self.channel_errors):
                raise
            except Exception as error:
                log.exception("a message could not be handed to its task")
                if not message.acknowledged:
                    self.set_aside(message, error)

        return on_message

    def set_aside(self, message: Any, why: BaseException | str) -> None:
        """Keep this message, then acknowledge it."""
        letter = letter_of(message, why)
        log.error("a message from %s is set aside: %s", letter.delivery["queue"], letter.headline)
        writer.take(_Held(letter, message, self))
        signals.task_rejected.send(sender=self, message=message, exc=why if isinstance(why, Exception) else None)

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Its body cannot be decoded."""
        self.set_aside(message, exc)

    def on_unknown_message(self, body: Any, message: Any) -> None:
        """It is no task message."""
        self.set_aside(message, Unusable("this is no task message"))

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:
        """No task of its name is registered."""
        self.set_aside(message, Unusable(f"there is no task {exc}"))

    def on_invalid_task(self, body: Any, message: Any, exc: Exception) -> None:
        """Its parts are invalid."""
        self.set_aside(message, exc)

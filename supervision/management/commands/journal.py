"""The journal's command: show what waits, write it now, wait for one event, verify the files."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision import conf
from supervision.journal import entries, verify
from supervision.journal.writer import Writer
from supervision.management.base import Command as Base
from supervision.management.base import positive_seconds
from supervision.management.progress import Progress
from supervision.runtime.humanize import utc

POLL_SECONDS = 0.2


class Command(Base):
    """status, flush, wait, verify."""

    help = (
        "Look after the journal, whose events exactly one writer at a time appends to CSV files. status: per key what waits, who "
        "writes, what is wrong. flush: have everything appended so far written, by this process unless another is the writer. "
        "wait: until one event is written. verify: read the files again and compare them with the rows; exit 1 when one is wrong."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", nargs="?", choices=("status", "flush", "wait", "verify"), default="status")
        parser.add_argument("event_id", nargs="?", metavar="EVENT_ID", help="wait: the event")
        patience = "flush, wait: give up after (default 30)"
        parser.add_argument("--timeout", type=positive_seconds, default=30.0, metavar="SECONDS", help=patience)
        parser.add_argument("--key", help="verify: only the files of this key")
        parser.add_argument("--json", action="store_true", help="status: JSON with every file and its acknowledged length")

    def handle(self, *args: Any, **options: Any) -> None:
        action, event_id = options["action"], options["event_id"]
        if (action == "wait") != (event_id is not None):
            raise CommandError("wait needs the id of an event" if action == "wait" else f"{action} takes no event id")
        match action:
            case "status":
                self._status(as_json=options["json"])
            case "flush":
                self._flush(options["timeout"])
            case "wait":
                self._wait(event_id, options["timeout"])
            case _:
                self._verify(options["key"])

    def _status(self, *, as_json: bool) -> None:
        keys = verify.status()
        if as_json:
            directory = str(conf.get().journal_dir.absolute())
            self.say_json({"directory": directory, "keys": [asdict(key) for key in keys], "files": verify.files()})
            return
        if not keys:
            self.stdout.write("Nothing was ever written down.")
            return
        rows = [
            (key.key, key.waiting, f"{key.oldest_seconds:.0f} s", key.failed, key.entries, key.files, _moment(key.flushed_at), key.holder)
            for key in keys
        ]
        self.say_table(("KEY", "WAITING", "OLDEST", "FAILED", "WRITTEN", "FILES", "LAST FLUSH", "WRITER"), rows)
        for key in keys:
            if key.failing_since:
                self.stdout.write(f"{key.key} cannot be written since {_moment(key.failing_since)}: {key.last_error}")

    def _flush(self, timeout: float) -> None:
        until = time.monotonic() + timeout
        writer = Writer()
        limits = {status.key: verify.waiting_up_to(status.key)[1] for status in verify.status()}
        total = sum(verify.waiting_up_to(key, highest)[0] for key, highest in limits.items())
        try:
            with self.progress(total, "events") as progress:
                for key, highest in limits.items():
                    self._flush_key(writer, key, highest, until, progress)
        finally:
            writer.hand_over()
        self.stdout.write(f"{total} events are settled.")

    def _flush_key(self, writer: Writer, key: str, highest: int, until: float, progress: Progress) -> None:
        before, _ = verify.waiting_up_to(key, highest)
        while before:
            done = writer.flush(key)
            if done is not None and done.trouble:
                raise CommandError(f"{key} cannot be written: {done.trouble}")
            left, _ = verify.waiting_up_to(key, highest)
            progress.advance(before - left)
            before = left
            if left and time.monotonic() > until:
                raise CommandError(f"{left} events of {key} still wait: another writer has the lease")
            if left and done is None:
                time.sleep(POLL_SECONDS)

    def _wait(self, event_id: str, timeout: float) -> None:
        found = entries.wait(event_id, timeout)
        match found.state:
            case entries.State.WRITTEN:
                self.stdout.write(f"written to {found.file} on {found.host.partition('/')[0]} at {_moment(found.at)}")
            case entries.State.FAILED:
                raise CommandError(f"event {event_id} cannot be written: {found.reason}")
            case entries.State.UNKNOWN:
                raise CommandError(f"no event is named {event_id}")
            case _:
                raise CommandError(f"event {event_id} is still waiting after {timeout:g} s: is the supervisor role running?")

    def _verify(self, key: str | None) -> None:
        wrong = seen = events = 0
        with self.progress(None, "files") as progress:
            for found in verify.verify(key):
                seen, events = seen + 1, events + found.entries
                progress.advance()
                for problem in found.problems:
                    self.stdout.write(f"{found.path}: {problem}")
                if found.elsewhere:
                    self.stdout.write(f"{found.path}: not looked at, it is on {found.host.partition('/')[0]}")
                wrong += bool(found.problems)
        if wrong:
            raise CommandError(f"{wrong} of {seen} files are wrong")
        self.stdout.write(f"{seen} files are whole, {events} events.")


def _moment(at: Any) -> str:
    return utc(at) or "never"

"""A progress line for commands that take a while."""

from __future__ import annotations

import time

from supervision.management.terminal import SafeOutput


class Progress:
    """How far a long work is: one line, rewritten at most ten times a second."""

    def __init__(self, total: int | None, what: str, *, stream: SafeOutput) -> None:
        self.total, self.what, self.stream = total, what, stream
        self.watching = stream.isatty()
        self.done = 0
        self._began = time.monotonic()
        self._shown_at = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.watching:
            self._show()
            self.stream.write("")

    @property
    def seconds(self) -> float:
        """Time since the work began."""
        return time.monotonic() - self._began

    def advance(self, by: int = 1) -> None:
        """Count so many more items as done."""
        self.done += by
        if self.watching and time.monotonic() - self._shown_at >= 0.1:
            self._show()

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        rate = self.done / max(self.seconds, 0.001)
        if self.total:
            filled = min(30, 30 * self.done // self.total)
            bar = "#" * filled + "." * (30 - filled)
            line = f"\r{self.what} [{bar}] {self.done}/{self.total}  {rate:,.0f}/s"
        else:
            line = f"\r{self.what} {self.done}  {rate:,.0f}/s"
        self.stream.draw(f"{line}\x1b[K")
        self.stream.flush()

"""The log of one run, as JSON lines. Any thread may write; each line is flushed at once. The checker reads it."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any


class Journal:
    """Appends facts to one file. Each line has the time (seconds since 1970), the party that notes it, and the fact."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()
        self.facts: list[dict[str, Any]] = []

    def note(self, who: str, what: str, **facts: Any) -> None:
        """Write one fact."""
        line = {"t": round(time.time(), 3), "who": who, "what": what, **facts}
        with self._lock:
            self.facts.append(line)
            self._file.write(json.dumps(line) + "\n")

    def of(self, who: str, *what: str) -> list[dict[str, Any]]:
        """The facts that one party noted. what: only facts of these kinds."""
        with self._lock:
            return [fact for fact in self.facts if fact["who"] == who and (not what or fact["what"] in what)]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

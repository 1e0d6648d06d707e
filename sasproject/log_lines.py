"""How the processes write their log: one line for each message, with its time in UTC."""

from __future__ import annotations

import logging
import time

FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"
DATE_FORMAT = "%Y-%m-%dT%H:%M:%S"


class OneLine(logging.Formatter):
    """Breaks of lines and other control characters in a message are written as escapes, so that no text of others begins a line."""

    converter = time.gmtime  # type: ignore[assignment]  # its type says that it takes no argument

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        """The line, without the traceback that may follow."""
        record.message = "".join(character if character.isprintable() else _escaped(character) for character in record.message)
        return super().formatMessage(record)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")

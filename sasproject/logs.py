"""The settings of logging: one line of text or one JSON object per record, each with what it is about."""

from __future__ import annotations

import logging
import time
from textwrap import indent
from typing import Any

from pythonjsonlogger.json import JsonFormatter

FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"
DATE_FORMAT = "%Y-%m-%dT%H:%M:%S"
FIELDS = ("role", "host", "order", "run", "step", "attempt", "trace")


class Line(logging.Formatter):
    """Text for a terminal, with times in UTC. Control characters are escaped and tracebacks are indented: no value forges a line."""

    converter = time.gmtime  # type: ignore[assignment]  # its type says that it takes no argument

    def format(self, record: logging.LogRecord) -> str:
        """The record as text; the traceback follows on lines of its own."""
        kept = record.msg, record.args
        record.msg, record.args = _one_line(record.getMessage()), None
        try:
            return super().format(record)
        finally:
            record.msg, record.args = kept

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the library's name
        """The traceback, indented."""
        return indent("\n".join(map(_one_line, super().formatException(ei).splitlines())), "    ")


class Json(JsonFormatter):
    """One JSON object a line: time, level, logger, message, role, host; where they apply order, run, step, attempt and trace."""

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """Leave out what does not apply."""
        return {name: value for name, value in log_data.items() if name not in FIELDS or value not in (None, "")}


def _one_line(message: str) -> str:
    if message.isprintable():
        return message
    return "".join(char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode() for char in message)


def settings(form: str | None, level: str) -> dict[str, Any]:
    """LOGGING. form: `json` or `line`."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"context": {"()": "supervision.telemetry.log_context.Context"}},
        "formatters": {
            "line": {"()": "sasproject.logs.Line", "format": FORMAT, "datefmt": DATE_FORMAT},
            "json": {
                "()": "sasproject.logs.Json",
                "fmt": ["levelname", "name", "message", *FIELDS],
                "style": ",",
                "rename_fields": {"levelname": "level", "name": "logger"},
                "timestamp": "time",
            },
        },
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": form, "filters": ["context"]}},
        "root": {"handlers": ["console"], "level": level},
        "loggers": {
            "celery.worker.strategy": {"level": "WARNING"},  # one line per message received and per task done is noise
            "celery.app.trace": {"level": "WARNING"},
            "httpx2": {"level": "WARNING"},
            "stripe": {"level": "WARNING"},
            "kombu.connection": {"level": "ERROR"},  # warns of a missing host whenever pgmq:// connects
            "stamina": {"level": "ERROR"},  # every retry within a call would be a line
            "opentelemetry": {"level": "ERROR"},  # a receiver of spans that is away is no trouble of an order
        },
    }

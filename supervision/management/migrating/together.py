"""Sends the statements of a migration together at its end, so that no lock is held while Django computes the next one.

Between two operations Django renders its models anew, which takes a tenth of a second and more. Locks of the statements before would
be held meanwhile. So statements of DDL are kept until another kind of statement comes, or until the migration ends, and are sent as
one message. All waits for locks of one message together take no longer than one may.
"""

from __future__ import annotations

import re
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

_DDL = re.compile(r"\s*(ALTER|CREATE|DROP|COMMENT|GRANT|REVOKE)\b", re.IGNORECASE)
# What is left of the time for waiting. statement_timestamp() is when the whole message came. PostgreSQL takes 0 for "without limit".
_LEFT = (
    "SELECT set_config('lock_timeout', greatest(1, {ms} - extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000)::int"
    " || 'ms', true)"
)


def let_send_together(connection: BaseDatabaseWrapper, seconds: float) -> None:
    """Let the schema editors of this connection do so. seconds: how long a migration may wait for its locks, all in all."""
    base: Any = type(connection).SchemaEditorClass

    class Editor(base):  # type: ignore[misc]
        """The backend's editor. A migration that is not atomic sends each statement at once."""

        def __enter__(self) -> Any:
            self._kept: list[str] = []
            self._waiting = self.connection.execute_wrapper(self._after_the_kept)
            self._waiting.__enter__()
            return super().__enter__()

        def execute(self, sql: Any, params: Any = ()) -> None:
            if self.atomic_migration and not self.collect_sql and _DDL.match(str(sql)):
                self._kept.append(str(sql) if params is None else self.connection.ops.compose_sql(str(sql), params))
            else:
                super().execute(sql, params)

        def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
            try:
                if kind is None:
                    for sql in self.deferred_sql:
                        self.execute(sql, None)
                    self._send()
            except BaseException as error:
                self._ended(type(error), error, error.__traceback__)
                raise
            self._ended(kind, value, traceback)

        def _ended(self, kind: Any, value: Any, traceback: Any) -> None:
            self._kept.clear()
            self._waiting.__exit__(None, None, None)
            self.deferred_sql: list[Any] = []
            super().__exit__(kind, value, traceback)

        def _after_the_kept(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
            """Another statement comes, of a look at the tables or of a function in Python: it has to find them changed."""
            self._send()
            return execute(sql, params, many, context)

        def _send(self) -> None:
            kept, self._kept = self._kept, []
            if kept:
                limit = _LEFT.format(ms=int(seconds * 1000))
                reset = f"SELECT set_config('lock_timeout', '{int(seconds * 1000)}ms', true)"
                super().execute(";\n".join([*(f"{limit};\n{sql.rstrip().rstrip(';')}" for sql in kept), reset]), None)

    connection.SchemaEditorClass = Editor

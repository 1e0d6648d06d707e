"""The signals to a run that no step has taken. They are facts all the same: an undo and an application's pages may have to count them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from supervision.postgres import db
from supervision.store import sleeping

Asked = tuple[str, str, str | None]  # the run's key, the signal's name, and the step whose last wait counts as well

_OF = """
SELECT v.run, v.name, v.step, g.payload
  FROM unnest(%(runs)s::text[], %(names)s::text[], %(steps)s::text[]) v(run, name, step)
  JOIN supervision_signal g ON g.run_key = v.run AND g.name = v.name
 WHERE g.taken_by IS NULL
    OR (g.taken_by = v.step
        AND EXISTS (SELECT FROM supervision_run r JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do'
                     WHERE r.key = v.run AND s.name = v.step AND g.taken_attempt > s.awaits_attempt))
 ORDER BY g.id
"""


def payloads(run: str, name: str, step: str | None = None) -> list[Mapping[str, Any]]:
    """The payloads of the signals of this name to the run of this key that no step has taken, the oldest first. step: as in `of`."""
    return of([(run, name, step)])[run, name, step]


def of(asked: Sequence[Asked]) -> dict[Asked, list[Mapping[str, Any]]]:
    """The same for several. Where a step is named, with the signal that it took in its last wait: its agent may have noted nothing."""
    found: dict[Asked, list[Mapping[str, Any]]] = {each: [] for each in asked}
    runs, names, steps = (list(column) for column in zip(*found, strict=True))
    for run, name, step, payload in db.run(_OF, {"runs": runs, "names": names, "steps": steps}):
        found[run, name, step].append(payload)
    return found


def wait_for_senders(runs: Sequence[str]) -> None:
    """Wait until those who send signals to these runs at this moment have committed. Until the transaction ends, no other one begins."""
    db.fetch(sleeping.ALONE, {"keys": sorted(runs)})

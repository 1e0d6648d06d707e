"""What an attempt under way writes about itself: checkpoints, and a later deadline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from supervision.postgres import db
from supervision.states import Claim
from supervision.store import step_sql
from supervision.store.step_verbs import budget
from supervision.workflow import StepPosition


def save_checkpoints(items: Sequence[tuple[StepPosition, Claim, Mapping[str, Any]]]) -> set[tuple[int, str, int, int]]:
    """Merge checkpoints into their steps; returns those whose claim still stood, as (run, direction, position, attempt)."""
    rows = db.run(
        step_sql.CHECKPOINT,
        {
            "runs": [claim.run_id for _, claim, _ in items],
            "directions": [place.direction for place, _, _ in items],
            "positions": [place.position for place, _, _ in items],
            "attempts": [claim.attempt for _, claim, _ in items],
            "data": [json.dumps(data) for _, _, data in items],
        },
    )
    return {(row[0], row[1], row[2], row[3]) for row in rows}


def extend(items: Sequence[tuple[StepPosition, Claim]]) -> list[tuple[Any, ...]]:
    """Extend the deadlines of these attempts by their steps' budgets, up to each step's `longest`, for those whose claim still stands.

    A row for each of them: run, direction, position, attempt; seconds until its deadline; whether its order still wants the step.
    """
    return db.run(
        step_sql.HEARTBEAT,
        {
            "runs": [claim.run_id for _, claim in items],
            "directions": [place.direction for place, _ in items],
            "positions": [place.position for place, _ in items],
            "attempts": [claim.attempt for _, claim in items],
            "budgets": [budget(place.step.complete_within) for place, _ in items],
            "longest": [(place.step.longest or place.step.complete_within).total_seconds() for place, _ in items],
        },
    )

"""Partitioned queues: an agent's work is spread over `agent.<name>.<n>` by a stable hash.

The hash covers the run's partition (its intake may name one: a producer, a country) or else its key. It is the same in every
process. Messages are hints, so the number of queues may change at any time: a claim whose message stays in a queue without a
consumer is dispatched again when its lease expires.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from supervision import conf
from supervision.agent import Agent, agents
from supervision.postgres import db
from supervision.states import Claim

_ENTITIES = "SELECT id, coalesce(partition, key) FROM supervision_run WHERE id = ANY (%(runs)s)"


def count(agent: Agent) -> int:
    """How many queues this agent's work is spread over; 1: only the queue with the agent's own name."""
    return conf.get().partitions.get(agent.name, 1)


def queues(agent: Agent) -> list[str]:
    """Every queue that may carry this agent's work."""
    return [agent.queue] if count(agent) == 1 else [f"{agent.queue}.{number}" for number in range(count(agent))]


def of_workers(consumed: Sequence[str]) -> list[str]:
    """The further queues for a worker that consumes these: all partitions of the agents whose queues are among them."""
    return [queue for agent in agents() if agent.queue in consumed for queue in queues(agent) if queue not in consumed]


def number_of(entity: str, of: int) -> int:
    """The partition of an entity, the same in every process."""
    return crc32(entity.encode()) % of


def spread(agent: Agent, claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    """These claims, grouped by the queue that carries their message."""
    number = count(agent)
    if number == 1:
        return {agent.queue: list(claims)}
    entities: dict[int, str] = dict(db.run(_ENTITIES, {"runs": [claim.run_id for claim in claims]}))  # type: ignore[arg-type]
    parts: dict[str, list[Claim]] = {}
    for claim in claims:
        queue = f"{agent.queue}.{number_of(entities.get(claim.run_id, ''), number)}"
        parts.setdefault(queue, []).append(claim)
    return parts

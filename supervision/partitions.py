"""Partitioned queues: an agent's work spread over `agent.<name>.<n>` by a stable hash of what the order belongs to.

The hash is of the run's partition (its intake may name one: a producer, a country) or of its key, and the same in every
process. Messages are hints, so the number of queues may change at any time: what waits in a queue that nobody consumes
any more is sent again when its claim's lease is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from supervision import conf, db
from supervision.agent import Agent, agents
from supervision.states import Claim

_ENTITIES = "SELECT id, coalesce(partition, key) FROM supervision_run WHERE id = ANY (%(runs)s)"


def count(agent: Agent) -> int:
    """Over how many queues this agent's work is spread; 1 = it has only the one that bears its name."""
    return conf.get().partitions.get(agent.name, 1)


def queues(agent: Agent) -> list[str]:
    """Every queue on which this agent's work may travel."""
    return [agent.queue] if count(agent) == 1 else [f"{agent.queue}.{number}" for number in range(count(agent))]


def of_workers(consumed: Sequence[str]) -> list[str]:
    """What a worker told to consume these queues consumes besides: all the partitions of the agents that they name."""
    return [queue for agent in agents() if agent.queue in consumed for queue in queues(agent) if queue not in consumed]


def number_of(entity: str, of: int) -> int:
    """The partition of an entity, the same in every process."""
    return crc32(entity.encode()) % of


def spread(agent: Agent, claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    """These claims by the queue on which they travel."""
    number = count(agent)
    if number == 1:
        return {agent.queue: list(claims)}
    entities: dict[int, str] = dict(db.run(_ENTITIES, {"runs": [claim.run_id for claim in claims]}))  # type: ignore[arg-type]
    parts: dict[str, list[Claim]] = {}
    for claim in claims:
        queue = f"{agent.queue}.{number_of(entities.get(claim.run_id, ''), number)}"
        parts.setdefault(queue, []).append(claim)
    return parts

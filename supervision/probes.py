"""Trying out a resource whose breaker is not closed: the place on its row is taken before anything is claimed.

So nothing is claimed that would only be sent back, however many schedulers look and however many orders wait.
"""

from __future__ import annotations

from supervision import governance, resources, store
from supervision.breaker import Breaker
from supervision.handles import Place
from supervision.states import Claim


def claim(resource: str) -> dict[Place, list[Claim]]:
    """Claim as many steps as may try out this resource now. A crash leaves neither claims without a place nor the reverse."""
    known = resources.look().by_name.get(resource)
    if known is None:
        return {}
    agents = resources.agents_of([known.service])

    def work(breaker: Breaker) -> dict[Place, list[Claim]]:
        room = breaker.room()
        places = store.claim_probes(room, resource, agents) if room > 0 and agents else {}
        if places:
            breaker.probe([claim.run_id for claims in places.values() for claim in claims])
        return places

    return governance.change(resource, work)

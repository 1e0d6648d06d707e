"""Stripe's lists: newest first, with `limit`, `starting_after` and `created[...]` as in its API reference."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping

from orders.simulators.intents import JSON, Problem

USUAL, MOST = 10, 100


class Book:
    """Objects of one kind, sorted by creation. `by`: a field for an additional look-up."""

    def __init__(self, kind: str, by: str | None = None) -> None:
        self._kind, self._by = kind, by
        self._objects: list[JSON] = []
        self._created: list[int] = []
        self._place: dict[str, int] = {}
        self._places: dict[str, list[int]] = defaultdict(list)

    def put(self, thing: JSON) -> None:
        """Add a new object, or replace a known one by its new state."""
        place = self._place.get(thing["id"])
        if place is not None:
            self._objects[place] = thing
            return
        self._place[thing["id"]] = len(self._objects)
        if self._by:
            self._places[thing[self._by]].append(len(self._objects))
        self._objects.append(thing)
        # The times must never decrease, even if the clock was set back: `_wanted` finds its bounds by bisection.
        self._created.append(max(thing["created"], self._created[-1] if self._created else 0))

    def get(self, name: str, param: str) -> JSON:
        """The object with this id. Raises Problem (404) if there is none."""
        try:
            return self._objects[self._place[name]]
        except KeyError:
            raise Problem(404, f"No such {self._kind}: '{name}'", code="resource_missing", param=param) from None

    def __contains__(self, name: object) -> bool:
        return name in self._place

    def of(self, value: str) -> list[JSON]:
        """The objects whose `by` field has this value, oldest first."""
        return [self._objects[place] for place in self._places.get(value, ())]

    def page(self, query: Mapping[str, str], path: str) -> JSON:
        """One page of the list for a query. Raises Problem if the query is not valid."""
        limit = _whole(query, "limit", USUAL)
        if not 1 <= limit <= MOST:
            raise Problem(400, f"Invalid integer for limit: must be from 1 to {MOST}.", param="limit")
        known = {"limit", "starting_after", "created", *(f"created[{word}]" for word in ("gt", "gte", "lt", "lte"))}
        if unknown := sorted(set(query) - known - {self._by}):
            raise Problem(400, f"Received unknown parameter: {unknown[0]}", param=unknown[0], code="parameter_unknown")
        found: list[JSON] = []
        for place in self._wanted(query):
            found.append(self._objects[place])
            if len(found) > limit:
                break
        return {"object": "list", "data": found[:limit], "has_more": len(found) > limit, "url": path}

    def _wanted(self, query: Mapping[str, str]) -> Iterator[int]:
        """The indexes of the objects that match the query, newest first."""
        first, end = 0, len(self._objects)
        for word in ("created", "created[gte]", "created[gt]"):
            if word in query:
                cut = bisect_right if word == "created[gt]" else bisect_left
                first = max(first, cut(self._created, _whole(query, word)))
        for word in ("created", "created[lte]", "created[lt]"):
            if word in query:
                cut = bisect_left if word == "created[lt]" else bisect_right
                end = min(end, cut(self._created, _whole(query, word)))
        if after := query.get("starting_after"):
            self.get(after, "starting_after")
            end = min(end, self._place[after])
        if self._by and self._by in query:
            return (place for place in reversed(self._places.get(query[self._by], [])) if first <= place < end)
        return reversed(range(first, end))


def _whole(query: Mapping[str, str], name: str, usual: int = 0) -> int:
    text = query.get(name, str(usual))
    if not text.isdecimal() or len(text) > 12:
        raise Problem(400, f"Invalid integer: {text[:50]}", param=name, code="parameter_invalid_integer")
    return int(text)

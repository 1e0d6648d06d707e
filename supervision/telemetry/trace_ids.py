"""The ids of an order's trace, made from its public id: every process knows them, and no row or message has to carry them."""

from __future__ import annotations

from hashlib import blake2b


def trace_id(key: str) -> str:
    """The trace of the order with this public id: 32 hexadecimal digits, as in W3C Trace Context. Never all zeros in practice."""
    return blake2b(key.encode(), digest_size=16, person=b"sas.trace").hexdigest()


def root_span_id(key: str) -> str:
    """The id of the span with which that trace begins: 16 hexadecimal digits."""
    return blake2b(key.encode(), digest_size=8, person=b"sas.root").hexdigest()

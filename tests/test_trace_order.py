"""The way of one order stays short: the figures of `scripts/trace_order.py`, and that it sees what it counts."""

from __future__ import annotations

import pytest

from orders import services
from scripts import trace_order

MOST_FILES = 24  # of the engine and the shop, from the accepted submission to the finished step
DEEPEST = 9


@pytest.mark.django_db(transaction=True)
def test_one_order_is_placed_scheduled_and_performed_in_few_files_and_frames():
    _, phases = trace_order.measure()

    told = trace_order.report(phases, functions=True)
    assert len(trace_order.files_of(phases)) <= MOST_FILES, told
    assert trace_order.depth_of(phases) <= DEEPEST, told
    assert {"supervision/intake/submission.py", "orders/intake.py", "orders/agents/stock.py"} <= trace_order.files_of(phases)


def test_calls_of_ours_count_with_their_file_and_libraries_do_not():
    phase = trace_order.Phase()
    with trace_order.traced(phase):
        clients = [client for client in map(services.client_of, [None, None], ["key", None])]  # noqa: C416 - a comprehension counts not

    assert clients == ["guest", ""]
    assert phase.calls == {("orders/services.py", "client_of"): 2}
    assert phase.stack == ["orders/services.py:client_of"]

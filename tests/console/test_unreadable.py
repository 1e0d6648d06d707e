"""What no page of the console can look for is refused: it is no fault of the server."""

from __future__ import annotations

import pytest
from django.test import Client

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]


@pytest.mark.parametrize(
    ("address", "selected"),
    [
        ("/admin/supervision/heartbeat/1%00/change/", None),
        ("/admin/orders/order/bulk/resubmit/?step=%00", None),
        ("/admin/supervision/alert/", "1\0"),
        ("/admin/supervision/alert/", "first"),
    ],
)
def test_it_is_refused(operator: Client, address: str, selected: str | None) -> None:
    form = {"action": "acknowledge_selected", "_selected_action": selected, "reason": "x"}
    answer = operator.get(address) if selected is None else operator.post(address, form)

    assert answer.status_code == 400


def test_a_number_that_no_alert_has_is_left_out(operator: Client) -> None:
    assert operator.post("/admin/supervision/alert/acknowledge/", {"alert": "9" * 5000}).status_code == 302

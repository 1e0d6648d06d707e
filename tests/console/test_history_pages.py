"""Django's history page of every kind of row answers."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from supervision.operations import operator_verbs
from tests.support.console import fail, page

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]


def test_the_history_of_an_order_and_of_its_run_says_who_acted(operator: Client):
    (order,) = fail()
    operator_verbs.resubmit(order.public_id, by=User.objects.get(username="olga"), reason="the bank says it works again")

    for address in (page(order).replace("change", "history"), f"/admin/supervision/run/{order.run_id}/history/"):
        answer = operator.get(address)
        assert answer.status_code == 200, address

"""A new web process has done, before it serves, what its first order would wait for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from orders.identity import tokens
from sasproject import warming
from tests.shopping import a_product, a_request, an_account

ROOT = Path(__file__).resolve().parents[2]
# Places an order twice, and prints how many functions of Python each took.
PLACE = """
import json, sys
name, token, request = json.loads(sys.argv[1])
from django.conf import settings
settings.DATABASES["default"]["NAME"] = name
import sasproject.asgi
from django.test import Client

def calls():
    number = 0
    def count(frame, event, what):
        nonlocal number
        number += event == "call"
    client, headers = Client(SERVER_NAME="localhost"), {"Authorization": f"Token {token}"}
    sys.setprofile(count)
    answer = client.post("/api/v1/orders/", json.dumps(request), "application/json", headers=headers)
    sys.setprofile(None)
    assert answer.status_code == 202, answer.text
    return number

print("CALLS", calls(), calls())
"""


@pytest.mark.django_db(transaction=True)
def test_the_first_order_of_a_web_process_takes_little_more_work_than_the_next_one() -> None:
    a_product()
    token = tokens.issue(an_account("cleo", "client"), name="a test", scope="orders", days=1)
    given = json.dumps([connection.settings_dict["NAME"], token, a_request()])

    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "sasproject.settings", "CELERY_BROKER_URL": "memory://"}
    done = subprocess.run([sys.executable, "-c", PLACE, given], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    first, next_one = map(int, done.stdout.rpartition("CALLS")[2].split())
    assert first < 3 * next_one, (first, next_one)


def test_a_shop_that_would_refuse_the_order_that_is_read_starts_all_the_same_and_asks_no_database(settings) -> None:
    """Without the mark `django_db`, a statement would fail this test."""
    settings.DELIVERY_COUNTRIES = ["FR"]

    warming.warm()

"""Incidents about parcels: one each, one for all of them when there are many, and no two about the same parcel."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from orders.models import Parcel
from orders.parcels.states import CAME_BACK, SILENT, TROUBLES
from orders.parcels.trouble import ONE_BY_ONE
from supervision.models import Incident
from tests.support.parcels import causes

pytestmark = pytest.mark.django_db


def in_trouble(count: int, trouble: str = SILENT, *, first: int = 0, ago: int = 3600) -> None:
    at = timezone.now() - timedelta(seconds=ago)
    Parcel.objects.bulk_create(
        Parcel(key=f"{trouble}-{n}", order_key=f"order-{n}", tracking_number=f"T{n}", trouble=trouble, trouble_at=at)
        for n in range(first, first + count)
    )


def acknowledge(cause: str) -> None:
    assert Incident.objects.filter(cause=cause).update(acknowledged_at=timezone.now()) == 1


def test_few_parcels_have_an_incident_each():
    in_trouble(ONE_BY_ONE)
    in_trouble(1, CAME_BACK)

    assert set(causes()) == {f"parcel:{SILENT}:{SILENT}-{n}" for n in range(ONE_BY_ONE)} | {f"parcel:{CAME_BACK}:{CAME_BACK}-0"}


def test_many_parcels_in_the_same_trouble_are_one_incident_with_their_number():
    in_trouble(ONE_BY_ONE)
    causes()
    in_trouble(300, first=ONE_BY_ONE)
    in_trouble(1, CAME_BACK)

    told = causes()
    assert set(told) == {f"parcel:{SILENT}", f"parcel:{CAME_BACK}:{CAME_BACK}-0"}
    assert told[f"parcel:{SILENT}"] == "The carrier tells no end of 320 parcels."


def test_after_many_were_acknowledged_later_ones_alone_are_told():
    in_trouble(ONE_BY_ONE + 1)
    causes()
    acknowledge(f"parcel:{SILENT}")
    assert causes() == {}
    assert causes() == {}

    in_trouble(2, first=100, ago=-1)
    assert set(causes()) == {f"parcel:{SILENT}:{SILENT}-100", f"parcel:{SILENT}:{SILENT}-101"}


def test_those_that_were_acknowledged_do_not_count_again_when_many_later_ones_follow():
    in_trouble(ONE_BY_ONE + 1)
    causes()
    acknowledge(f"parcel:{SILENT}")
    assert causes() == {}

    in_trouble(ONE_BY_ONE + 2, first=100, ago=-1)
    for _look in range(2):
        assert causes() == {f"parcel:{SILENT}": f"The carrier tells no end of {ONE_BY_ONE + 2} parcels."}


def test_each_trouble_has_words_for_one_and_for_many():
    for trouble in TROUBLES:
        in_trouble(1, trouble)
    assert all("T0" in title or "booked nothing" in title for title in causes().values())
    for trouble in TROUBLES:
        in_trouble(ONE_BY_ONE, trouble, first=1)

    assert len(causes()) == len(TROUBLES)

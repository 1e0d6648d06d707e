"""The validator of order requests. Bad requests over the API are in tests/api/test_orders.py."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rest_framework.exceptions import ValidationError

from orders.validation import OrderRequestSerializer, delivery_countries, key_problem, merged, read_order
from tests.shopping import a_request


def test_a_good_request_comes_out_with_its_defaults():
    read = read_order(a_request())

    assert (read["priority"], read["session_key"], read["expected_total"], read["reply_to"]) == ("normal", None, None, None)


def test_optional_fields_may_be_null_and_texts_are_trimmed():
    read = read_order(a_request(session_key=None, expected_total=None, reply_to=None, email=" ada@example.com "))

    assert read["email"] == "ada@example.com"


@pytest.mark.parametrize("field", ["email", "shipping_address", "lines", "payment_method"])
def test_what_is_missing_is_named(field):
    request = a_request()
    del request[field]

    with pytest.raises(ValidationError) as told:
        read_order(request)

    assert list(told.value.detail) == [field]


def test_every_fault_is_named_at_once():
    request = a_request(email="x", priority="x", surprise=1, lines=[{"sku": "A", "quantity": 1}, {"sku": "B", "quantity": 0, "price": 1}])

    with pytest.raises(ValidationError) as told:
        read_order(request)

    assert set(told.value.detail) == {"email", "priority", "surprise", "lines"}
    assert set(told.value.detail["lines"][1]) == {"quantity", "price"}


def test_the_shop_delivers_where_the_setting_says(settings):
    settings.DELIVERY_COUNTRIES = ["IT"]
    abroad = a_request(shipping_address={**a_request()["shipping_address"], "country": "DE"})

    with pytest.raises(ValidationError):
        read_order(abroad)

    assert list(delivery_countries()) == ["IT"]


def test_the_serializer_says_the_same_as_the_short_way():
    for request in (a_request(), a_request(email="x"), {}, None, []):
        serializer = OrderRequestSerializer(data=request)
        good = serializer.is_valid()
        if good:
            assert read_order(request) == serializer.validated_data
        else:
            with pytest.raises(ValidationError) as told:
                read_order(request)
            assert set(told.value.detail) == set(serializer.errors)


def test_two_lines_of_one_product_are_one_wish():
    wanted, first = merged([{"sku": "A", "quantity": 1}, {"sku": "B", "quantity": 5}, {"sku": "A", "quantity": 2}])

    assert wanted == {"A": 3, "B": 5}
    assert first == {"A": 0, "B": 1}


@pytest.mark.parametrize(
    ("key", "good"),
    [
        ("k", True),
        ("a b", True),
        ("x" * 255, True),
        ("", False),
        ("x" * 256, False),
        (" k", False),
        ("k\n", False),
        ("ü", False),
        (5, False),
    ],
)
def test_a_key_is_short_and_printable(key, good):
    assert (key_problem(key) is None) == good


json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(field=st.sampled_from([*a_request(), "priority", "session_key", "expected_total", "reply_to", "x"]), value=json_values)
def test_the_validator_accepts_or_names_the_field_whatever_it_is_given(field, value):
    named = [field]
    try:
        read_order(a_request(**{field: value}))
    except ValidationError as error:
        named = list(error.detail)
    assert named == [field]

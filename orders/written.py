"""What the shop writes into histories and dead letters, marked for `supervision.runtime.retold`."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _n

WRITTEN = (
    _n("the body is not JSON"),
    _n("the body is not a JSON object"),
    _n("expected a JSON object"),
    _n("expected an object"),
    _n("expected a list of 1 to %(most)d lines"),
    _n("expected a string of 1 to %(most)d characters"),
    _n("expected a whole number from 1 to %(most)d"),
    _n('expected an amount as a decimal string, such as "25.80"'),
    _n("expected low, normal or high"),
    _n("expected the number of an account, or null"),
    _n("preparing"),
    _n("booked"),
    _n("picked_up"),
    _n("delivered"),
    _n("returned"),
    _n("cancelled"),
    _n("the customer pays again"),
    _n("no reason given"),
    _n("nothing waits for it"),
    _n("not a payment of this shop"),
    _n("it was given back already"),
    _n("gone: the difference no longer exists"),
    _n("accepted: the order is archived, and its books stay as they are"),
)

"""What the engine writes into histories, errors and dead letters, marked for `retold`. A test finds each in the code that writes it."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _n

WRITTEN = (
    _n("scheduled in %(process)s"),
    _n("handed over in %(process)s"),
    _n("no answer by complete_by"),
    _n("no agent started it by complete_by"),
    _n("%(attempts)d attempts failed; the last: %(error)s"),
    _n("the order is being undone"),
    _n("the time for the whole order is over"),
    _n("the signal %(name)s has not come in time"),
    _n("waits for the signal %(name)s"),
    _n("waits for its time"),
    _n("waits for child runs"),
    _n("its child %(key)s was cancelled"),
    _n("not needed: its list is empty"),
    _n("not needed: its condition is not met (inputs %(inputs)s)"),
    _n("its condition failed: %(kind)s: %(error)s"),
    _n("its time was over before an agent was free"),
    _n("its answer could not be recorded: %(error)s"),
    _n("left to a process that knows %(workflow)s version %(version)s"),
    _n("%(resource)s is being tried out again: its breaker is half-open"),
    _n("%(resource)s does not answer: its breaker is open"),
    _n("no free slot at %(resource)s: %(used)d of %(capacity)d calls are under way"),
    _n("%(resource)s takes %(rate)s calls a second"),
    _n("%(resource)s is paused"),
    _n("the order stood still: the change that should have followed was lost"),
    _n("a new epoch of the database began: the running step was released"),
    _n("everything is undone, the order goes on"),
    _n("everything is undone"),
    _n("another order has the key of its child: %(key)s"),
    _n("this is no task message"),
    _n("there is no task %(name)s"),
    _n("the broker has given it up: delivered too often, expired or rejected"),
    _n("compressed messages are not accepted"),
    _n("gone: a later look no longer shows it"),
)

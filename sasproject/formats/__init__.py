"""How Django writes times: as `supervision.runtime.humanize.moment` does, so that the admin's own columns look the same."""

DATETIME_FORMAT = "Y-m-d H:i:s T"

"""Names that the doors and the mail share. No database and no calls."""

VERB = "edit"
CHANGED = "order-changed"  # the notification: a mail to the customer

# Why a change is refused.
NOT_EDITABLE = "lines_not_editable"  # the order is charged, booked, being undone, over, or a step of it is running
NOTHING_LEFT = "nothing_left"  # no line would be left
UNCHANGED = "nothing_to_change"  # the order has these lines already

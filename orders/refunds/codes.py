"""Names that the refund's door, its agents and its pages share. No database and no calls."""

WORKFLOW = "refund-order"
TELL = "notify-refund"
VERB = "refund"  # for the approval of another operator
REPLACED = "refund-replaced"  # the notification: a failed refund was paid again, so its finding can be closed

# Why a refund is refused at the door, or stops.
NOT_PAID = "not_paid"  # the order is not Processed, or no money came
BEYOND = "beyond_charge"  # more than is left of the charge
NOT_FAILED = "no_failed_refund"  # the order has no open failed refund of this id
UNDER_WAY = "refund_under_way"  # something else may be paying this money at the moment
REPLACED_ALREADY = "refund_replaced"  # another call has paid it again

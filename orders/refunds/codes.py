"""Names that the refund's door, its agents and its pages share. No database and no calls."""

WORKFLOW = "refund-order"
TELL = "notify-refund"
VERB = "refund"  # for the approval of another operator

# Why a refund is refused at the door, or stops.
NOT_PAID = "not_paid_by_card"  # the order is not Processed, or no card was charged
BEYOND = "beyond_charge"  # more than is left of the charge

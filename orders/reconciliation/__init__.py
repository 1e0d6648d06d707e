"""The shop's reconciliation: its books beside the payment service's and the carrier's own lists."""

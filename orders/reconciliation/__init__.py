"""The shop's reconciliation: compares its books with the payment service's and the carrier's own lists."""

"""The decimals of currencies by ISO 4217."""

from __future__ import annotations

WITHOUT_DECIMALS = frozenset(
    ["BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF"]
)
THREE_DECIMALS = frozenset(["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"])


def decimals(currency: str) -> int:
    """How many decimals amounts of this currency have. Those of funds have two here, as the shop's prices."""
    code = currency.upper()
    return 0 if code in WITHOUT_DECIMALS else 3 if code in THREE_DECIMALS else 2

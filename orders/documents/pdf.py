"""Prints an invoice or credit note as PDF: made on demand from the stored row, the same bytes each time."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from importlib.resources import files
from typing import Any, cast

from django.utils.translation import get_language
from django.utils.translation import gettext as _
from fpdf import FPDF
from fpdf.enums import XPos, YPos

from orders.countries import country_name
from orders.documents import vat
from orders.documents.tables import INVOICE, Document
from orders.formats import day, money, number, speaking

FONT = "SourceSansPro"  # Latin, Greek and Cyrillic; other letters are printed as a box
MARGIN, LINE = 20.0, 5.5  # millimetres
COLUMNS = (78.0, 16.0, 28.0, 18.0, 30.0)  # product, quantity, price, VAT rate, amount


@lru_cache(maxsize=2)
def _font(style: str) -> str:
    return str(files("font_source_sans_pro").joinpath("files", f"{FONT}-{style}.ttf"))


def printed(document: Document) -> bytes:
    """The document as PDF, in the language of its customer."""
    with speaking(document.body.get("language")):
        return _printed(document)


def _printed(document: Document) -> bytes:
    pdf = FPDF(format="A4")
    pdf.set_creation_date(document.issued_at.astimezone(UTC))
    pdf.set_producer("")
    pdf.set_title(document.name)
    pdf.set_lang(get_language() or "en")
    pdf.add_font(FONT, "", _font("Regular"))
    pdf.add_font(FONT, "B", _font("Bold"))
    pdf.set_margins(MARGIN, MARGIN)
    pdf.set_auto_page_break(auto=True, margin=MARGIN)
    pdf.add_page()
    _head(pdf, document)
    _lines(pdf, document)
    _sums(pdf, document)
    return bytes(pdf.output())


def _say(pdf: FPDF, text: str, *, bold: bool = False, size: float = 10, align: str = "L") -> None:
    pdf.set_font(FONT, "B" if bold else "", size)
    pdf.multi_cell(0, LINE * size / 10, text, align=align, new_x=XPos.LMARGIN, new_y=YPos.NEXT)


def _head(pdf: FPDF, document: Document) -> None:
    body = document.body
    _say(pdf, body["seller"].replace("|", "\n"), align="R")
    pdf.ln(LINE)
    to = body["to"]
    place = " ".join(filter(None, (to.get("postal_code"), to.get("city"), to.get("country_area"))))
    who = [to.get("name"), to.get("line1"), to.get("line2"), place, country_name(str(to.get("country") or ""))]
    _say(pdf, "\n".join(str(part) for part in who if part))
    pdf.ln(2 * LINE)
    title = _("Invoice") if document.kind == INVOICE else _("Credit note")
    _say(pdf, f"{title} {document.name}", bold=True, size=16)
    pdf.ln(LINE / 2)
    facts = [(_("Date"), day(document.issued_at))]
    if document.kind == INVOICE:
        facts += [(_("Date of supply"), day(document.issued_at))]
    else:
        facts += [(_("For invoice"), body["invoice"])]
        facts += [(_("Return"), body["return_number"])] if "return_number" in body else [(_("Refund"), body["refund_number"])]
    facts += [(_("Order"), f"{body['order_number']} ({day(datetime.fromisoformat(body['ordered_at']))})")]
    for name, value in facts:
        _say(pdf, f"{name}: {value}")
    pdf.ln(LINE)


def _row(pdf: FPDF, cells: tuple[str, ...], *, bold: bool = False) -> None:
    pdf.set_font(FONT, "B" if bold else "", 10)
    height = cast(float, pdf.multi_cell(COLUMNS[0], LINE, cells[0], dry_run=True, output="HEIGHT"))
    if pdf.will_page_break(height):
        pdf.add_page()
    top = pdf.get_y()
    pdf.multi_cell(COLUMNS[0], LINE, cells[0], new_x=XPos.RIGHT, new_y=YPos.TOP)
    for width, text in zip(COLUMNS[1:], cells[1:], strict=True):
        pdf.cell(width, LINE, text, align="R")
    pdf.set_y(top + height + 1)
    pdf.line(MARGIN, pdf.get_y() - 0.5, MARGIN + sum(COLUMNS), pdf.get_y() - 0.5)


def _lines(pdf: FPDF, document: Document) -> None:
    _row(pdf, (_("Product"), _("Quantity"), _("Price"), _("VAT"), _("Amount")), bold=True)
    for line in document.body["lines"]:
        price, amount = (money(Decimal(line[name]), document.currency) for name in ("unit_price", "amount"))
        what = f"{line['name']} ({line['sku']})" if line["sku"] else line["name"]
        _row(pdf, (what, number(line["quantity"]), price, f"{number(line['rate'])} %", amount))


def _sums(pdf: FPDF, document: Document) -> None:
    _row(pdf, (_("Total, VAT included"), "", "", "", money(document.total, document.currency)), bold=True)
    pdf.ln(LINE)
    for rate, (amount, tax) in vat.by_rate(document.body["lines"]).items():
        facts: dict[str, Any] = {"rate": number(rate), "net": money(amount - tax, document.currency), "vat": money(tax, document.currency)}
        _say(pdf, _("%(rate)s %% VAT: net %(net)s, VAT %(vat)s") % facts)
    if document.kind != INVOICE:
        _say(pdf, _("This credit note reduces the invoice that it names by this amount."))

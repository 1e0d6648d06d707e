"""Adds the index by which products are found although words are typed without accents."""

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.contrib.postgres.search import SearchVector
from django.db import migrations
from django.db.models import Func, TextField, Value
from django.db.models.functions import Replace

# As in `orders.accents` when this was written.
ACCENTED = (
    "àáâãäåçèéêëìíîïðñòóôõöøùúûüýÿāăąćĉċčďđēĕėęěĝğġģĥħĩīĭįİıĵķĺļľłńņňōŏőŕŗřśŝşšţťŧũūŭůűųŵŷźżžǎǐǒǔǖǘǚǜǧǩǫǭșț"
    "ạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ"
)
PLAIN = (
    "aaaaaaceeeeiiiidnoooooouuuuyyaaaccccddeeeeegggghhiiiiiijkllllnnnooorrrsssstttuuuuuuwyzzzaiouuuuugkoost"
    "aaaaaaaaaaaaeeeeeeeeiioooooooooooouuuuuuuyyyy"
)
SIGNS = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u0309\u030a\u030b\u030c\u031b\u0323\u0326\u0327\u0328"


def plain(column):
    """The column's text without accents."""
    template = (
        "CASE WHEN OCTET_LENGTH(%(expressions)s) = CHAR_LENGTH(%(expressions)s) THEN %(expressions)s"
        f" ELSE TRANSLATE(LOWER(%(expressions)s), '{ACCENTED}{SIGNS}', '{PLAIN}') END"
    )
    return Func(column, template=template, output_field=TextField())


WORDS = SearchVector(plain("name"), Replace("sku", Value("-"), Value(" ")), plain("description"), config="english")


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("orders", "0037_names_without_accents")]
    operations = [AddIndexConcurrently("product", GinIndex(WORDS, name="product_words_plain", fastupdate=False))]

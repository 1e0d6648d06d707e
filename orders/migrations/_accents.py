"""Words without accents as `orders.accents` wrote them for the indexes of 0037 and 0038. It stays as it is when that table changes."""

from django.db.models import Func, TextField

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

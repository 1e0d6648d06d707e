"""Words without their accents, as people type them: in PostgreSQL, whose indexes have them so, and in Python, for what is searched.

PostgreSQL's own extension for this (`unaccent`) has to be installed and may not stand in an index. This is a table of the letters
of languages in Latin script. Letters of other scripts stay as they are. A change of the table needs new indexes.
"""

from __future__ import annotations

from django.db.models import Func, TextField

ACCENTED = (
    "àáâãäåçèéêëìíîïðñòóôõöøùúûüýÿāăąćĉċčďđēĕėęěĝğġģĥħĩīĭįİıĵķĺļľłńņňōŏőŕŗřśŝşšţťŧũūŭůűųŵŷźżžǎǐǒǔǖǘǚǜǧǩǫǭșț"
    "ạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ"
)
PLAIN = (
    "aaaaaaceeeeiiiidnoooooouuuuyyaaaccccddeeeeegggghhiiiiiijkllllnnnooorrrsssstttuuuuuuwyzzzaiouuuuugkoost"
    "aaaaaaaaaaaaeeeeeeeeiioooooooooooouuuuuuuyyyy"
)
SIGNS = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u0309\u030a\u030b\u030c\u031b\u0323\u0326\u0327\u0328"  # accents on their own
_TABLE = str.maketrans(ACCENTED, PLAIN, SIGNS)


def plain(text: str) -> str:
    """The text in small letters without accents, as `without_accents` writes it."""
    return text.lower().translate(_TABLE)


def without_accents(column: str) -> Func:
    """This column's text in the database without its accents. Most texts have none and stay as they are, because TRANSLATE is slow."""
    template = (
        "CASE WHEN OCTET_LENGTH(%(expressions)s) = CHAR_LENGTH(%(expressions)s) THEN %(expressions)s"
        f" ELSE TRANSLATE(LOWER(%(expressions)s), '{ACCENTED}{SIGNS}', '{PLAIN}') END"
    )
    return Func(column, template=template, output_field=TextField())

"""The catalogues of translations are complete, well formed and compiled, and a language without one is not offered."""

from __future__ import annotations

import functools
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from django.conf import settings
from django.utils import translation

from sasproject import languages
from scripts import catalogues

TEXTS = functools.cache(catalogues.texts)


def test_every_text_is_translated_and_the_compiled_files_are_current() -> None:
    assert catalogues.problems() == []


# Words that people took for something else, or that name a thing which has another name everywhere.
REPLACED = re.compile(r"ompensat|What holds|Do nothing|[Nn]obody|Claims that no|Where does it go|\bArticle|All things|picks the step up")


def test_each_thing_has_one_name_in_the_texts_that_people_read() -> None:
    found = catalogues.texts(*(directory for directories in catalogues.CATALOGUES.values() for directory in directories))
    words = [word for _context, text in found for word in ([text] if isinstance(text, str) else text)]

    assert len(words) > 1000
    assert [word for word in words if REPLACED.search(word)] == []


def test_all_languages_are_offered_and_speak() -> None:
    assert [code for code, _name in settings.LANGUAGES] == ["en", "it", "pt-br"]
    for code, cart, orders in (("it", "Carrello", "Ordini"), ("pt-br", "Carrinho", "Pedidos")):
        with translation.override(code):
            assert (translation.gettext("Cart"), translation.gettext("Orders")) == (cart, orders)


def test_every_plural_has_its_forms() -> None:
    for code in ("it", "pt-br"):
        with translation.override(code):
            said = [translation.ngettext("%(n)d second", "%(n)d seconds", n) % {"n": n} for n in (0, 1, 2)]
        assert said == (["0 secondi", "1 secondo", "2 secondi"] if code == "it" else ["0 segundo", "1 segundo", "2 segundos"])


@pytest.fixture
def copies(tmp_path: Path, monkeypatch) -> Path:
    """The catalogues in a directory that a test may spoil. The texts are the tree's, read once for all tests."""
    monkeypatch.setattr(catalogues, "texts", TEXTS)
    for name in catalogues.CATALOGUES:
        shutil.copytree(catalogues.ROOT / name, tmp_path / name)
    monkeypatch.setattr(
        catalogues, "path_of", lambda name, language, suffix="po": tmp_path / name / language / "LC_MESSAGES" / f"django.{suffix}"
    )
    return tmp_path


SPOILED = [
    ('msgstr "Carrello"', 'msgstr ""', "locale/it: no translation of 'Cart'"),
    ('msgid "Cart"\nmsgstr "Carrello"', 'msgid "Carts"\nmsgstr "Carrelli"', "locale/it: 'Carts' is in no file"),
    ('msgid "Cart"\n', '#, fuzzy\nmsgid "Cart"\n', "locale/it: 'Cart' is marked fuzzy"),
    ('msgstr "Paga %(total)s"', 'msgstr "Paga %(totale)s"', "locale/it: 'Pay %(total)s' has other placeholders"),
]


@pytest.mark.parametrize(("old", "new", "problem"), SPOILED)
def test_a_spoiled_catalogue_is_named_and_its_language_is_offered_no_more(copies, old, new, problem) -> None:
    path = copies / "locale" / "it" / "LC_MESSAGES" / "django.po"
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))

    found = catalogues.problems()
    catalogues.compile_all()

    assert any(one.startswith(problem) for one in found), found
    assert "locale/it: the .mo file is not that of the .po file: scripts/catalogues.py compile" in found
    assert [code for code, _name in languages.offered(*(copies / name for name in catalogues.CATALOGUES))] == ["en", "pt-br"]


def test_an_update_changes_nothing_and_a_compilation_gives_the_same_bytes(copies) -> None:
    before = {path: path.read_bytes() for path in copies.rglob("django.*")}

    catalogues.update()
    catalogues.compile_all()

    assert {path: path.read_bytes() for path in copies.rglob("django.*")} == before


def test_texts_are_found_in_code_and_templates(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(catalogues, "ROOT", tmp_path)
    (tmp_path / "code.py").write_text(
        'from django.utils.translation import gettext as _, ngettext\n_("one"\n  " text")\nngettext("a %(n)d", "b %(n)d", 2)\n'
    )
    (tmp_path / "page.html").write_text(
        "{% load i18n %}{% translate \"it's\" %}{{ _('quoted') }}{% include 'x' with y=_(\"passed\") %}"
        "{% blocktranslate count n=n %}{{ n }} piece{% plural %}{{ n }} pieces, 5%{% endblocktranslate %}"
    )

    found = {text for _context, text in catalogues.texts(".")}

    assert found == {"one text", ("a %(n)d", "b %(n)d"), "it's", "quoted", "passed", ("%(n)s piece", "%(n)s pieces, 5%%")}


def test_the_wheel_has_the_engines_catalogues() -> None:
    data = tomllib.loads((catalogues.ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["supervision"]

    packed = {path for pattern in data for path in (catalogues.ROOT / "supervision").glob(pattern)}
    assert {catalogues.path_of("supervision/locale", language, "mo") for language in catalogues.LANGUAGES} <= packed

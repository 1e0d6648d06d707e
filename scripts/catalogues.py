"""The catalogues of translations: of the shop (`locale/`) and of the engine and its console (`supervision/locale/`).

    .venv/bin/python scripts/catalogues.py           # say what is missing; exits 1 if anything is
    .venv/bin/python scripts/catalogues.py update    # write new texts into the .po files, and drop those that the code has no more
    .venv/bin/python scripts/catalogues.py compile   # write the .mo files of complete languages, remove those of others

Needs no program of the system: Babel reads and writes the files. The .mo files are kept in git, because the demo and the wheel
need them where neither gettext nor Babel is. A language is offered once both its .mo files are there (`sasproject.settings`).

One word for one thing (English: Italian, Brazilian Portuguese):

order: ordine, pedido. run: esecuzione, execução. step: passo, etapa. attempt: tentativo, tentativa. workflow: flusso, fluxo.
claim: presa in carico, reserva. resubmit: riprovare, reenviar. skip: saltare, pular. undo, compensate: annullare gli effetti,
desfazer. cancel: annullare, cancelar. acknowledge: prendere visione, reconhecer. pause: sospendere, pausar. resume: riprendere,
retomar. requeue: rimettere in coda, recolocar na fila. discard: scartare, descartar. incident: incidente, incidente. alert:
avviso, alerta. dead letter: messaggio non recapitabile, mensagem morta. breaker: interruttore, disjuntor. queue: coda, fila.
cart: carrello, carrinho. checkout: cassa, finalizar compra. refund: rimborso, reembolso. charge: addebito, cobrança. return:
reso, devolução. parcel: pacco, pacote. tracking number: numero di tracciamento, código de rastreamento. carrier: corriere,
transportadora. invoice: fattura, fatura. credit note: nota di credito, nota de crédito. SKU: SKU, SKU. webhook: webhook, webhook.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from babel.messages import Catalog, Message
from babel.messages.extract import DEFAULT_KEYWORDS, extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parent.parent
LANGUAGES = {"it": "nplurals=2; plural=(n != 1);", "pt_BR": "nplurals=2; plural=(n > 1);"}
# Where a catalogue is, and the directories whose texts it has.
CATALOGUES = {"locale": ("orders", "sasproject", "templates"), "supervision/locale": ("supervision",)}
THEME = "theme"  # marks texts of the console's theme and of django-celery-beat, which have no Italian or Portuguese of their own
KEYWORDS = DEFAULT_KEYWORDS | {
    "gettext_lazy": None,
    "gettext_noop": None,
    "_n": None,
    "ngettext_lazy": (1, 2),
    "pgettext_lazy": ((1, "c"), 2),
    "npgettext_lazy": ((1, "c"), 2, 3),
}
Text = str | tuple[str, str]
Key = tuple[str | None, Text]  # its context and itself
_LITERAL = r"""u?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_IN_TEMPLATE = re.compile(rf"\b(_|gettext|ngettext|pgettext|npgettext)\(\s*({_LITERAL})(?:\s*,\s*({_LITERAL}))?(?:\s*,\s*({_LITERAL}))?")
_PLACEHOLDER = re.compile(r"%\(\w+\)[a-z]|%[sd]|\{\w*\}|</?\w+>")
_WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)  # the same file for the same texts


def texts(*directories: str) -> dict[Key, str]:
    """Every text that the files in these directories mark for translation, by its context and itself; the value is a file that has it."""
    found: dict[Key, str] = {}
    for directory in directories:
        for path in sorted((ROOT / directory).rglob("*")):
            if "migrations" in path.parts or "simulators" in path.parts:
                continue
            reader = {".py": _of_python, ".html": _of_template, ".txt": _of_template}.get(path.suffix)
            for context, text in reader(path) if reader else ():
                found.setdefault((context, text), str(path.relative_to(ROOT)))
    return found


def _of_python(path: Path) -> Iterator[Key]:
    for _line, message, _comments, context in extract("python", BytesIO(path.read_bytes()), KEYWORDS):
        if message:
            yield context, message if isinstance(message, str) else (message[0], message[1])


def _of_template(path: Path) -> Iterator[Key]:
    for call, *quoted in _IN_TEMPLATE.findall(templatize(path.read_text(), origin=str(path))):
        words = [ast.literal_eval(word.removeprefix("u")) for word in quoted if word]
        context = words.pop(0) if call in ("pgettext", "npgettext") else None
        yield context, (words[0], words[1]) if call in ("ngettext", "npgettext") else words[0]


def path_of(catalogue: str, language: str, suffix: str = "po") -> Path:
    """The file of a catalogue."""
    return ROOT / catalogue / language / "LC_MESSAGES" / f"django.{suffix}"


def read(catalogue: str, language: str) -> Catalog:
    """The translations of a catalogue; empty if there is no file."""
    path = path_of(catalogue, language)
    with path.open("rb") if path.is_file() else BytesIO(b"") as file:
        return read_po(file, locale=language)


def kept(catalogue: str, language: str) -> dict[Key, Message]:
    """The messages of a catalogue by context and text."""
    return {(one.context, _text(one)): one for one in read(catalogue, language) if one.id}


def _text(message: Message) -> Text:
    return (message.id[0], message.id[1]) if isinstance(message.id, tuple | list) else str(message.id)


def words_of(message: Message) -> list[str]:
    """The translations of a message: one, or one for each plural form."""
    return [message.string] if isinstance(message.string, str) else list(message.string or ())


def problems() -> list[str]:
    """What is wrong with the catalogues, one line each."""
    wrong = []
    for catalogue, directories in CATALOGUES.items():
        wanted = texts(*directories)
        for language in LANGUAGES:
            found = list(_wrong_texts(kept(catalogue, language), wanted))
            compiled = path_of(catalogue, language, "mo")
            if not compiled.is_file() or compiled.read_bytes() != compiled_bytes(catalogue, language):
                found.append("the .mo file is not that of the .po file: scripts/catalogues.py compile")
            wrong += [f"{catalogue}/{language}: {problem}" for problem in found]
    return wrong


def _wrong_texts(known: Mapping[Key, Message], wanted: Mapping[Key, str]) -> Iterator[str]:
    """What is wrong with the texts of one .po file. wanted: the texts of the code, and a file that has each."""
    for key, path in wanted.items():
        if not _translated(known.get(key)):
            yield f"no translation of {key[1]!r} ({path})"
    for key, message in known.items():
        if key not in wanted and THEME not in message.auto_comments:
            yield f"{key[1]!r} is in no file: scripts/catalogues.py update"
        if message.fuzzy:
            yield f"{key[1]!r} is marked fuzzy"
        for string in _other(message):
            yield f"{key[1]!r} has other placeholders than {string!r}"


def _translated(message: Message | None) -> bool:
    return message is not None and all(words_of(message)) and (isinstance(message.id, str) or len(words_of(message)) == 2)


def _other(message: Message) -> list[str]:
    """The translations whose placeholders or tags are not those of the text, or of one of its plural forms."""
    known = [set(_PLACEHOLDER.findall(text)) for text in ([message.id] if isinstance(message.id, str) else message.id)]
    return [string for string in words_of(message) if string and set(_PLACEHOLDER.findall(string)) not in known]


def update() -> None:
    """Write the texts of the code into every .po file, with the translations that are there."""
    for catalogue, directories in CATALOGUES.items():
        wanted = texts(*directories)
        for language in LANGUAGES:
            known = kept(catalogue, language)
            new = Catalog(locale=language, fuzzy=False, header_comment="", creation_date=_WRITTEN, revision_date=_WRITTEN)
            theme = [key for key, one in known.items() if THEME in one.auto_comments and key not in wanted]
            for key in [*wanted, *theme]:
                context, text = key
                old = known.get(key)
                string = old.string if old is not None else ("" if isinstance(text, str) else ("", ""))
                new.add(text, string, auto_comments=[THEME] if key in theme else [], context=context)
            write(catalogue, language, new)


def write(catalogue: str, language: str, new: Catalog) -> None:
    """Write a .po file: sorted by text, the same bytes for the same texts."""
    new.mime_headers = [("Language", language), ("Content-Type", "text/plain; charset=UTF-8"), ("Plural-Forms", LANGUAGES[language])]
    new.mime_headers.insert(0, ("MIME-Version", "1.0"))
    new.mime_headers.append(("Content-Transfer-Encoding", "8bit"))
    path = path_of(catalogue, language)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        write_po(file, new, width=130, sort_output=True, no_location=True)


def compiled_bytes(catalogue: str, language: str) -> bytes:
    """The .mo file of the .po file."""
    file = BytesIO()
    write_mo(file, read(catalogue, language))
    return file.getvalue()


def compile_all() -> None:
    """Write the .mo files of the languages whose catalogues are all complete, and remove the others."""
    wanted = {catalogue: texts(*directories) for catalogue, directories in CATALOGUES.items()}
    for language in LANGUAGES:
        complete = not any(list(_wrong_texts(kept(catalogue, language), wanted[catalogue])) for catalogue in CATALOGUES)
        for catalogue in CATALOGUES:
            path = path_of(catalogue, language, "mo")
            path.unlink(missing_ok=True)
            if complete:
                path.write_bytes(compiled_bytes(catalogue, language))


def main(verb: str = "check") -> int:
    """Run one verb."""
    if verb in ("update", "compile"):
        (update if verb == "update" else compile_all)()
        return 0
    wrong = problems()
    print("\n".join(wrong) or "The catalogues are complete.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))

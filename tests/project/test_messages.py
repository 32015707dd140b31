"""Messages of the package: one list of all of them, in plain words, with one wording for one fault."""

import functools
import re

from messages import ROOT, Message, all_messages

# Words of the code's past, which say nothing to people.
OLD = re.compile(r"\b(ledger|foreman|desk|crew|spool|books|mismached)\b")
FORMS = {
    r"(?<!there )\b(is|are) no(ne)?\b(?! longer)": "say: is not a …, has no …",
    r"\bone at least\b|\bequally many\b|\bof such\b|\bcan(not)? be had\b": "say it in common words",
    r"\b(is|are) \{type\(|\bmust be\b|\bnot \{(type|describe)\(": "x is V, expected A: values.describe_wrong",
    r"\bexpected [^:;]*, (but )?(found|got)\b|\bfound [^:;]*, expected\b": "x is V, expected A: values.describe_wrong",
    r"\bthis package reads\b|\bof version \{": "another version: errors.describe_version",
    r"\{[^}]*\}: \{[^}]*\} bytes[,:]": "name the thing: the list has 5 bytes",
    r"^(an?|no) [\w ]+ of \{[^}]*\} (bytes|items|axes)[,:]": "name the thing: the list has 5 bytes",
    r"\b(index|position|sample|step|task|range) \{[^}]*\}( to \{[^}]*\})?, expected\b": "index is V, expected A",
    r"^(\{\w*path\}: )?not an? ": "it is not a …",
    r"\bthat \w+ does not read\b|\bdoes not load\b": "Pillow cannot read …, … cannot be loaded",
    r"\bexists already\b|\bcannot be made\b|\bcan be made\b": "already exists, could not be created",
    r"(^|: )nothing to \w+\b": "there is nothing to …",
    r"[:;] expected\b": "x is V, expected A: values.describe_wrong",
    r"\breplaced (or removed )?after it was opened": "a replaced file: errors.REPLACED",
    r": closed$": "a closed reader or writer: FileReader has been closed. x.ffr",
}


@functools.cache
def messages() -> list[Message]:
    """Return all messages, looked for by the process that needs them and not by each that collects tests."""
    return all_messages()


def test_the_list_has_messages_of_every_kind() -> None:
    texts = {each.kind: [other.text for other in messages() if other.kind == each.kind] for each in messages()}
    assert set(texts) == {"error", "help", "log", "output", "page", "warning"}
    assert any("no checksum" in text or "checksum mismatch" in text for text in texts["error"])
    assert len(texts["error"]) > 400 and len(texts["help"]) > 30
    assert any(each.file.endswith(".pyx") for each in messages()), "compiled modules are read too"


def test_the_list_follows_names_and_lines() -> None:
    """Texts that are given a name first, that stand on several lines of Cython, or in tables and pages."""
    texts = {each.text for each in messages()}
    assert "it is not an opcode of a tree of names" in texts, "raise self.error(...)"
    assert any(text.startswith("index is {index}") for text in texts), "one of two branches"
    assert any("out has shape" in text and "expected [" in text for text in texts), "two lines of a .pxi"
    assert "every {report.checksum} matches" in texts, "a line that a command prints"
    assert "pack a folder into one file" in texts and "This browser cannot show the picture." in texts


def test_out_of_memory_is_said_first() -> None:
    found = [line for path in (ROOT / "ffrecord").rglob("*.p*[yxi]") for line in path.read_text().splitlines()]
    said = [line.strip() for line in found if re.search(r"MemoryError\(f", line)]
    assert [each for each in said if "out of memory" not in each and "a batch has more than" not in each] == []
    assert len(said) > 20


def test_no_message_has_a_word_of_the_past() -> None:
    assert [each for each in messages() if OLD.search(each.text)] == []


def test_one_fault_has_one_wording() -> None:
    wrong = [(form, each) for each in messages() for form in FORMS if re.search(form, each.text)]
    assert wrong == [], "\n".join(f"{each.file}:{each.line}: {each.text}\n    {FORMS[form]}" for form, each in wrong)

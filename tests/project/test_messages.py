"""Messages of the package: one list of all of them, in plain words, with one wording for one fault."""

import functools
import re

from messages import Message, all_messages

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
    assert set(texts) == {"error", "help", "log", "warning"}
    assert any("no checksum" in text or "checksum mismatch" in text for text in texts["error"])
    assert len(texts["error"]) > 400 and len(texts["help"]) > 30
    assert any(each.file.endswith(".pyx") for each in messages()), "compiled modules are read too"


def test_no_message_has_a_word_of_the_past() -> None:
    assert [each for each in messages() if OLD.search(each.text)] == []


def test_one_fault_has_one_wording() -> None:
    wrong = [(form, each) for each in messages() for form in FORMS if re.search(form, each.text)]
    assert wrong == [], "\n".join(f"{each.file}:{each.line}: {each.text}\n    {FORMS[form]}" for form, each in wrong)

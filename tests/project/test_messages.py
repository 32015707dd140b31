"""Messages of the package: one list of all of them, without words of the past."""

import re

from messages import all_messages

MESSAGES = all_messages()
# Words of the code's past, which say nothing to people.
OLD = re.compile(r"\b(ledger|foreman|desk|crew|spool|books|mismached)\b")


def test_the_list_has_messages_of_every_kind() -> None:
    texts = {each.kind: [other.text for other in MESSAGES if other.kind == each.kind] for each in MESSAGES}
    assert set(texts) == {"error", "help", "log", "warning"}
    assert any("no checksum" in text or "checksum mismatch" in text for text in texts["error"])
    assert len(texts["error"]) > 400 and len(texts["help"]) > 30


def test_no_message_has_a_word_of_the_past() -> None:
    assert [each for each in MESSAGES if OLD.search(each.text)] == []

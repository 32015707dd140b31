"""What URLs are called in messages: never by what is secret, and else in a way that tells them apart."""

import pytest

from ffrecord import FileReader, urls
from ffrecord.errors import ArgumentError


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host/a", "https://host/a"),
        ("https://user:secret@host:80/a@b", "https://host:80/a@b"),
        ("https://host/a?sig=secret", "https://host/a?…"),
        ("https://user:sec/ret@host/a", "https://host/a"),
        ("https://user:sec?ret@host/a?x=secret", "https://host/a?…"),
        ("https://user:sec#r:et@host:80/a", "https://host:80/a"),
        ("https://user:/secret@host", "https://host"),
        ("https://user:a@secret@host/a", "https://host/a"),
        ("https://host:80/a/b@c", "https://host:80/a/b@c"),
        ("https://[::1]/a@b", "https://[::1]/a@b"),
        ("s3://bucket/a@b:c", "s3://bucket/a@b:c"),
        ("abfss://container@account/a", "abfss://container@account/a"),
        ("/a:b/c@d", "/a:b/c@d"),
    ],
)
def test_without_secrets(url: str, shown: str) -> None:
    assert urls.redacted(url) == shown


@pytest.mark.parametrize("backend", ["obstore", "fsspec"])
@pytest.mark.parametrize("mark", ["/", "?", "#"])
def test_passwords_that_would_be_taken_for_a_host(mark: str, backend: str) -> None:
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    with pytest.raises(ArgumentError, match=r"^https://host/a: in a password `/`, `\?` and `#` are written") as told:
        FileReader(f"https://user:secret{mark}secret@host/a", storage_options={"backend": backend})
    assert "secret" not in str(told.value)


def test_parts() -> None:
    assert urls.joined("https://u:p@h/a/?x=y", "b") == "https://u:p@h/a/b?x=y"
    assert urls.parent_of("https://h/a/b?x=y") == "https://h/a?x=y"
    assert urls.name_of("https://h/a/b/?x=y") == "b"
    assert urls.split("HTTPS://h:1/a/b?x=y") == ("https", "h:1", "a/b", "x=y")

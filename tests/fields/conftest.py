"""Fixtures of the tests of fields."""

import pytest

from ffrecord.fields.images import jpeg_codec


@pytest.fixture(params=["simplejpeg", "Pillow"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test with either library."""
    if request.param == "simplejpeg":
        pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
    else:
        installed = jpeg_codec.import_optional
        monkeypatch.setattr(
            jpeg_codec, "import_optional", lambda name: None if name == "simplejpeg" else installed(name)
        )
    return str(request.param)

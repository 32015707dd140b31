"""The part of a JPEG that is decoded: the pixels that the whole has, for every kind of file; no crash on any bytes."""

import io
from typing import Any

import numpy as np
import pytest
from images_builders import Image, decoded, expected, jpeg, picture, psnr

from ffrecord.errors import FormatError
from ffrecord.fields.images import jpeg_codec
from ffrecord.system import requirements
from ffrecord.torch.images import CenterCrop, RandomResizedCrop, Resize
from ffrecord.torch.images import jpeg as module
from ffrecord.torch.images.boxes import Box
from ffrecord.torch.images.jpeg import decode_part, read_header

simplejpeg = pytest.importorskip("simplejpeg", reason="simplejpeg is not installed")
PICTURE = picture(211, 173)
SAMPLINGS = ["444", "422", "420", "440", "411"]
KINDS: dict[str, bytes] = {
    **{sampling: simplejpeg.encode_jpeg(PICTURE, 90, "RGB", sampling) for sampling in SAMPLINGS},
    "progressive": jpeg(PICTURE, progressive=True),
    "restarts": jpeg(PICTURE, restart_marker_blocks=5),
    "grey": jpeg(PICTURE[:, :, 0].copy()),
    "optimized": jpeg(PICTURE, optimize=True, comment=b"\xff\xd9 is no end here"),
    "rgb": jpeg(PICTURE, keep_rgb=True),
}
WHOLE = b"\xff\xd8\xff\xe0\x00\x02"


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Hides modules from the decoders."""

    def hide(*names: str) -> None:
        known = requirements.import_optional
        for place in (module, jpeg_codec, requirements):
            monkeypatch.setattr(place, "import_optional", lambda name: None if name in names else known(name))

    return hide


@pytest.mark.parametrize("kind", KINDS)
def test_header(kind: str) -> None:
    header = read_header(memoryview(KINDS[kind]))
    assert header is not None
    assert (header.height, header.width, header.channels) == (211, 173, 1 if kind == "grey" else 3)
    assert int.from_bytes(KINDS[kind][header.offset : header.offset + 2], "big") == 211
    assert header.can_end == (kind not in ("progressive", "restarts"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1, 2, 4, 8])
def test_same_pixels_as_of_the_whole(kind: str, scale: int) -> None:
    """Wherever the box ends: not a bit of it depends on what is left out below."""
    data = memoryview(KINDS[kind])
    least = module.BOX_LEAST * scale
    for bottom in (*range(least, least + 52), 127, 128, 129, 160, 208, 209, 210, 211):
        top = min(bottom // 3, bottom - least)
        box = Box(top, 10, bottom - top, 150)
        size = box.height // scale, box.width // scale
        part = decode_part(data, lambda h, w, box=box: box, size, 3)
        sides = -(-211 // scale), -(-173 // scale)
        options = {"min_height": sides[0], "min_width": sides[1]} if scale > 1 else {}
        whole = simplejpeg.decode_jpeg(KINDS[kind], "RGB", **options)
        assert whole.shape[:2] == sides
        top, left, height, width = part.area
        assert (top * scale, left * scale, height * scale, width * scale) == box[:4]
        rows = slice(int(top), int(np.ceil(top + height)))
        assert (part.pixels[rows] == whole[rows]).all(), bottom


@pytest.mark.parametrize("scale", [1, 2, 4, 8])
def test_less_is_decoded(scale: int) -> None:
    data = memoryview(KINDS["420"])
    part = decode_part(data, lambda h, w: Box(0, 0, 64, 64), (64 // scale, 64 // scale), 3)
    assert part.pixels.shape == (-(-(64 + 2 * scale) // scale), -(-173 // scale), 3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hidden", [(), ("simplejpeg",), ("PIL.JpegImagePlugin",)])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_kind_and_library(kind: str, hidden: tuple[str, ...], channels: int, without: Any) -> None:
    without(*hidden)
    for decoder in (CenterCrop(150, channels=channels), RandomResizedCrop(64, channels=channels), Resize((30, 20))):
        for seed in range(3):
            found, book = decoded(decoder, KINDS[kind], seed), expected(decoder, KINDS[kind], seed)
            assert psnr(found, book) > (30 if decoder == Resize((30, 20)) else 34), (decoder, seed)


def test_unscaled_pixels_are_exact() -> None:
    """Where nothing is scaled, all is as Pillow has it, but for rounding."""
    data = jpeg(picture(375, 500))
    for seed in range(20):
        decoder = RandomResizedCrop(224)
        box = decoder.box(375, 500, seed)
        if min(box.height, box.width) < 448:
            difference = np.abs(decoded(decoder, data, seed).astype(int) - expected(decoder, data, seed))
            assert difference.max() <= 1, seed


@pytest.mark.parametrize(("sides", "least"), [((480, 640), 40), ((864, 1152), 38)])
def test_scaled_pixels_are_near(sides: tuple[int, int], least: float) -> None:
    """The tolerance that the documents state."""
    data = jpeg(picture(*sides))
    found = [psnr(decoded(each, data), expected(each, data)) for each in (CenterCrop(224), Resize(224))]
    assert min(found) > least


def test_cmyk(without: Any) -> None:
    out = io.BytesIO()
    Image.fromarray(PICTURE).convert("CMYK").save(out, "JPEG", quality=95)
    assert psnr(decoded(Resize(64), out.getvalue()), expected(Resize(64), out.getvalue())) > 45
    grey = decoded(Resize(64, channels=1), out.getvalue())
    assert psnr(grey, expected(Resize(64, channels=1), out.getvalue())) > 45
    without("PIL.JpegImagePlugin")
    with pytest.raises(ImportError, match=r"a JPEG of CMYK needs PIL: pip install pillow"):
        decoded(Resize(64), out.getvalue())


def test_neither_library(without: Any) -> None:
    without("simplejpeg", "PIL.JpegImagePlugin")
    with pytest.raises(ImportError, match=r"a JPEG needs simplejpeg or Pillow: pip install simplejpeg"):
        decoded(Resize(64), KINDS["420"])


@pytest.mark.parametrize("hidden", [(), ("simplejpeg",), ("PIL.JpegImagePlugin",)])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xd9",
        WHOLE,
        b"\x89PNG\r\n\x1a\n" + bytes(50),
        KINDS["420"][:100],
        KINDS["420"][:-2],
        KINDS["420"][: len(KINDS["420"]) // 2],
        KINDS["progressive"][:-500],
        KINDS["420"].replace(b"\xff\xda", b"\xff\xd9", 1),
    ],
)
def test_damaged(data: bytes, hidden: tuple[str, ...], without: Any) -> None:
    without(*hidden)
    for decoder in (CenterCrop(32), Resize(32), RandomResizedCrop(32), RandomResizedCrop(32, channels=1)):
        with pytest.raises(FormatError):
            decoded(decoder, data)


@pytest.mark.parametrize("sides", [(65500, 65500), (0, 100), (100, 0), (13378, 13378)])
@pytest.mark.parametrize("hidden", [(), ("simplejpeg",), ("PIL.JpegImagePlugin",)])
def test_sides_that_lie(sides: tuple[int, int], hidden: tuple[str, ...], without: Any) -> None:
    """Refused before memory is taken for them."""
    without(*hidden)
    data = bytearray(KINDS["420"])
    header = read_header(memoryview(data))
    assert header is not None
    for at, side in zip((header.offset, header.offset + 2), sides, strict=True):
        data[at : at + 2] = side.to_bytes(2, "big")
    with pytest.raises(FormatError, match="a JPEG of"):
        decoded(Resize(8), bytes(data))


@pytest.mark.parametrize("hidden", [(), ("simplejpeg",), ("PIL.JpegImagePlugin",)])
def test_any_damage(hidden: tuple[str, ...], without: Any) -> None:
    """Any bytes give an image or a FormatError."""
    without(*hidden)
    random = np.random.default_rng(0)
    decoder, refused = RandomResizedCrop(24), 0
    for kind in ("420", "progressive", "grey"):
        whole = np.frombuffer(KINDS[kind], np.uint8)
        for seed in range(60):
            data = whole[: random.integers(3, len(whole) + 1) if seed % 3 == 0 else len(whole)].copy()
            places = random.integers(2, min(len(data), 700) if seed % 2 else len(data), 3)
            data[places] = random.integers(0, 256, 3)
            try:
                decoded(decoder, data.tobytes(), seed)
            except FormatError:
                refused += 1
    assert 40 < refused < 180


def test_damage_in_the_part_is_seen() -> None:
    """A file that is said to end early is refused for all that it would be refused for if it ended there."""
    data = bytearray(KINDS["420"])
    scan = data.index(b"\xff\xda")
    at = scan + (len(data) - scan) // 4
    data[at : at + 40] = bytes(range(1, 41))
    top = decode_part(memoryview(KINDS["420"]), lambda h, w: Box(0, 0, 16, 173), (16, 173), 3).pixels[:16].copy()
    part = decode_part(memoryview(data), lambda h, w: Box(0, 0, 16, 173), (16, 173), 3)
    assert (part.pixels[:16] == top).all()  # the damage lies below
    at = scan + 200
    data[at : at + 8] = b"\xff\xc4" * 4
    with pytest.raises(FormatError):
        decode_part(memoryview(data), lambda h, w: Box(0, 0, 100, 173), (100, 173), 3)


def test_scratch_is_kept_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_scratch", module.DecodeScratch())
    monkeypatch.setattr(module, "SCRATCH_MOST", 1 << 16)
    decoded(CenterCrop(80), jpeg(picture(100, 100)))
    kept = module._scratch.memory
    assert len(kept) == 1 << 15
    decoded(CenterCrop(100), jpeg(picture(200, 200)))
    decoded(CenterCrop(16), jpeg(picture(60, 80)))
    assert module._scratch.memory is kept

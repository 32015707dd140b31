"""The page of `ffrecord view` in a real browser: what people see, and that nothing of a dataset runs in it."""

import json
import re
import zipfile

import pytest
from chromium import PATH, Chromium
from cli_runs import run
from PIL import Image
from viewed import (
    CLASSES,
    COUNT,
    DAMAGED,
    NASTY,
    damage,
    picture,
    viewed,
    write_numbers,
    write_odd_values,
    write_pictures,
)

import ffrecord
from ffrecord.fields import BytesField, IntField, NDArrayField, Schema
from ffrecord.format.extension import Extension

pytestmark = pytest.mark.skipif(PATH is None, reason="no Chromium here: apt-get install chromium; the page is UNTESTED")

SHOWN = "document.querySelectorAll('.cell:not(.waiting)').length > 3"
ATS = "[...document.querySelectorAll('.cell')].map((cell) => cell.querySelector('.at').innerText)"
# Of those that can be seen: further ones are there for when they are scrolled to.
SEEN = """[...document.querySelectorAll('.cell:not(.waiting)')].filter((cell) => {
  const box = cell.getBoundingClientRect(), all = document.querySelector('#grid').getBoundingClientRect();
  return box.bottom > all.top && box.top < all.bottom;
}).map((cell) => [cell.querySelector('.at'), ...cell.querySelectorAll('.row')].map((each) => each.innerText))"""
STATUS = "document.querySelector('#status').innerText"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("browser") / "pictures.ffr")


@pytest.fixture(scope="module")
def one_browser(tmp_path_factory):
    found = Chromium(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture
def browser(one_browser):
    """Which sees that no page complained, and that none asked for anything but what is its own."""
    one_browser.go("about:blank")
    one_browser.complaints.clear()
    one_browser.requested.clear()
    one_browser.size(1000, 700)
    yield one_browser
    assert one_browser.complaints == []
    outside = [url for url in one_browser.requested if not re.match(r"http://127\.0\.0\.1:|data:|file:|about:", url)]
    assert outside == []
    one_browser.go("about:blank")


def test_the_grid(browser, pictures):
    with viewed(pictures) as page:
        browser.go(page.url)
        browser.until(f"{SHOWN} && [...document.images].every((image) => image.complete)")
        assert browser.run("document.querySelector('h1').innerText") == "pictures.ffr"
        assert browser.run("document.querySelector('#about').innerText") == f"ffrecord · {COUNT} samples"
        sizes = browser.run("[...document.images].map((image) => [image.naturalWidth, image.naturalHeight])")
        assert len(sizes) > 10
        assert set(map(tuple, sizes)) == {(32, 24)}
        # Only what is seen, and a little more, exists.
        assert len(browser.run(ATS)) < COUNT / 2

        damaged = browser.until("document.querySelector('.damaged')?.innerText")
        assert str(DAMAGED) in damaged
        assert "checksum" in damaged


def test_pictures_that_load_at_once_do_not_fade_in(browser, pictures, tmp_path):
    begun = """(async () => {
      const made = picture((await source.cells([3]))[0], "photo", true, () => {}), kind = made.className;
      await made.decode();
      return kind;
    })()"""
    all_there = f"{SHOWN} && [...document.images].every((image) => image.complete)"
    with viewed(pictures) as page:
        browser.go(page.url)
        browser.until(all_there)
        assert browser.run(begun) == ""
    assert run("view", pictures, "--export", tmp_path / "a.html", "-n", "9").code == 0
    browser.go(f"file://{tmp_path / 'a.html'}")
    browser.until(all_there)
    assert browser.run(begun) == ""


def test_keys_and_the_panel(browser, pictures):
    with viewed(pictures) as page:
        browser.go(page.url)
        browser.until(SHOWN)
        for key in ("ArrowRight", "ArrowRight", "Enter"):
            browser.key(key)
        text = browser.until(
            "document.querySelectorAll('#panel img').length == 2 && document.querySelector('#panel').innerText"
        )
        # A text of the dataset is text: it is seen as it is, and does not run.
        assert "sample 1" not in text
        assert NASTY in browser.until("document.querySelector('#panel').textContent")
        browser.key("End")
        browser.until(f"document.querySelector('#panel h2').innerText == '{COUNT - 1}'")
        browser.key("Escape")
        browser.until("document.querySelector('#panel').hidden")
        browser.key("Home")
        browser.until("document.querySelector('.chosen .at')?.innerText == '0'")
        assert browser.run("document.title") == "pictures.ffr – ffrecord"
        columns = browser.run("view.columns")
        browser.key("+")
        assert browser.run("view.columns") < columns


def test_filters(browser, pictures):
    with viewed(pictures) as page:
        browser.go(page.url)
        browser.until(SHOWN)
        # The last class is one whose name looks like HTML.
        browser.type("#wanted", CLASSES[2])
        browser.until(f"{STATUS}.includes('99 found')")
        assert {int(each[0]) % 3 for each in browser.until(f"{SEEN}.length > 3 && {SEEN}")} == {2}
        browser.type("#where", "299")  # which is one of them
        browser.until("document.querySelector('.chosen:not(.waiting) .at')?.innerText == '299'")
        browser.key("Escape")
        browser.until(f"{STATUS}.includes('of {COUNT}')")
        browser.run("(column.selectedIndex = begin.columns.length - 1, column.dispatchEvent(new Event('change')))")
        browser.until(f"{STATUS}.includes('1 found') && {ATS}.join() == '{DAMAGED}'")
        browser.click("#clear")
        browser.until(f"{STATUS}.includes('of {COUNT}')")
        assert browser.run("document.querySelector('#remark').hidden")


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_window(browser, pictures, tmp_path, scheme):
    browser.size(400, 700)
    browser.colours(scheme)
    with viewed(pictures) as page:
        browser.go(page.url)
        browser.until(f"{SHOWN} && [...document.images].every((image) => image.complete)")
        wide = "[...document.querySelectorAll('body *')].filter((a) => a.getBoundingClientRect().right > 400.5).length"
        assert browser.run(wide) == 0
        browser.picture(tmp_path / "page.png")
        with Image.open(tmp_path / "page.png") as image:
            ground = sum(image.convert("RGB").getpixel((396, 5)))
        assert ground > 600 if scheme == "light" else ground < 200
        browser.key("i")
        browser.until(
            "document.querySelectorAll('.bars > div').length > 0 && document.querySelectorAll('.often').length > 0"
        )
        assert browser.run(wide) == 0
        browser.key("i")
        browser.key("Enter")
        browser.key("ArrowRight")
        browser.key("Enter")
        browser.until("!document.querySelector('#panel').hidden && document.querySelectorAll('#panel dd').length > 4")
        assert browser.run(wide) == 0


@pytest.mark.long
def test_the_file(browser, pictures, tmp_path):
    assert run("view", pictures, "--export", tmp_path / "a.html", "-n", "60").code == 1  # of one that is damaged
    browser.go(f"file://{tmp_path}/a.html")
    browser.until(f"{SHOWN} && [...document.images].every((image) => image.naturalWidth == 32)")
    assert browser.run(STATUS).endswith(f"of 60, the first of {COUNT}")
    browser.type("#wanted", "dog")
    browser.until(f"{STATUS}.includes('20 found')")
    browser.key("Escape")
    browser.key("i")
    browser.until("document.querySelectorAll('.bars > div').length > 0")
    browser.key("i")
    browser.type("#where", "1")
    browser.key("Enter")
    assert NASTY in browser.until("document.querySelector('#panel dd') && document.querySelector('#panel').textContent")
    assert browser.run("document.title") == "pictures.ffr – ffrecord"
    browser.type("#where", "100")
    assert "not among the 60 samples" in browser.until(
        "!document.querySelector('#remark').hidden && document.querySelector('#remark').innerText"
    )
    assert all(url.startswith(("file:", "data:", "about:")) for url in browser.requested)


ODD_FILTERS = [
    *(
        ("label", wanted)
        for wanted in ("cat", "CAT", "fish", "1", "7", "2", "0..1", "dog, cat", "Cat,fish", "nobody", "true")
    ),
    *(
        ("ratio", wanted)
        for wanted in ("1e-06", "1E-6", "0.000001", "-2.5", "1e22", "1_000", "nan", "inf", "-Infinity")
    ),
    *(
        ("ratio", wanted)
        for wanted in ("-3..1e-6", "5..inf", ".1...5", "3..7..9", "..5", "3..", "+7", "7.", "false", "0x7", "")
    ),
    *(("ratio", wanted) for wanted in ("constructor", "7 .. 1e3", "infinity..-inf", " , 7,,", " , ")),
    *(("yes", wanted) for wanted in ("true", "Yes", "no", "0", "1", "0..1", "e")),
    *(
        ("text", wanted)
        for wanted in ("CAT", "ss", "STRASSE", "οδος", "1e-06", "a", " b", "i", "ı", "i̇", "3..7", "true", "8")
    ),
    *(("raw", wanted) for wanted in ("1", "10..11", "7,8")),
]


def found_in(browser, column, wanted):
    """[matches, how many are unreadable], or why not, of a filter of the page that is open."""
    by = f"begin.columns.find((each) => each.name === {column!r})"
    loop = (
        f"for await (const told of source.matches({by}, {json.dumps(wanted)})) return [told.matches, told.unreadable]"
    )
    return browser.run(f"(async () => {{ try {{ {loop} }} catch (error) {{ return error.message }} }})()")


def test_the_file_filters_as_its_server_does(browser, tmp_path):
    path = write_odd_values(tmp_path / "a.ffr")
    run("view", path, "--export", tmp_path / "a.html")
    browser.go(f"file://{tmp_path}/a.html")
    browser.until(SHOWN)
    with viewed(path) as page:
        for column, wanted in ODD_FILTERS:
            if (begun := page.ask("filter", column=column, value=wanted)).status == 200:
                told = page.matches_of(begun.told["id"])
                served = [told["matches"], told["unreadable"]]
            else:
                served = begun.told["error"]
            assert (column, wanted, found_in(browser, column, wanted)) == (column, wanted, served)


def test_the_file_filters_by_names(browser, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("cat/1", "dog/1", "cat/2"):
            archive.writestr(name, b"x" + name.encode())
    run("view", tmp_path / "a.zip", "--export", tmp_path / "a.html")
    browser.go(f"file://{tmp_path}/a.html")
    browser.until("document.querySelectorAll('.cell:not(.waiting)').length == 3")
    assert [found_in(browser, "key", wanted) for wanted in ("CAT/", "1", "xcat")] == [[[0, 2], 0], [[0, 1], 0], [[], 0]]


def see_the_middle_of(browser, count, path):
    """That of a grid far higher than any element can be, each place shows what is there."""
    with viewed(write_numbers(path, count)) as page:
        browser.go(page.url)
        browser.until(SHOWN)
        assert browser.run("whole()") > 3 * browser.run("CAP")
        # The scroll bar put in the middle.
        browser.run("(grid.scrollTop = (CAP - grid.clientHeight) / 2, 0)")
        middle = browser.until(f"view.top > 1e6 && !document.querySelector('.waiting') && {SEEN}.length > 3 && {SEEN}")
        for at, number, *_ in middle:
            assert re.sub(r"\D", "", number) == at.replace(",", "")
            assert abs(int(at.replace(",", "")) - count / 2) < count / 100
        # From there the wheel goes by pixels, and what comes to be seen is what comes next.
        top = browser.run("view.top")
        for _ in range(5):
            browser.wheel(500, 400, 300)
            browser.until("true")
        browser.until(f"view.top == {top} + 1500 && Math.abs(toBar(view.top) - grid.scrollTop) <= 1")
        later = browser.until(f"!document.querySelector('.waiting') && {SEEN}")
        firsts = [int(found[0][0].replace(",", "")) for found in (middle, later)]
        rows = 1500 / browser.run("view.rowHeight")
        assert abs((firsts[1] - firsts[0]) / browser.run("view.columns") - rows) <= 1
        assert [int(each[0].replace(",", "")) for each in later] == [*range(firsts[1], firsts[1] + len(later))]

        browser.type("#where", f"{count * 3 // 4:,}")
        assert browser.until("document.querySelector('.chosen:not(.waiting) .at')?.innerText") == f"{count * 3 // 4:,}"
        browser.key("End")
        assert browser.until(f"document.querySelector('.chosen:not(.waiting) .at')?.innerText == '{count - 1:,}'")
        assert browser.run("grid.scrollTop + grid.clientHeight >= space.clientHeight - 1")
        browser.key("Home")
        assert browser.until("document.querySelector('.chosen:not(.waiting) .at')?.innerText == '0'")
        assert browser.run("grid.scrollTop") == 0


@pytest.mark.long
def test_more_samples_than_pixels(browser, tmp_path):
    see_the_middle_of(browser, 1_500_000, tmp_path / "a.ffr")


@pytest.mark.long
def test_ten_million_samples(browser, tmp_path):
    see_the_middle_of(browser, 10_000_000, tmp_path / "a.ffr")


def written(path, fields, samples, damaged=()):
    """A file of samples, some of which do not match their checksums any more."""
    schema = Schema.of(fields)
    with ffrecord.FileWriter(path, len(samples), extension=Extension(schema=schema.to_builtins())) as writer:
        writer.write_many(map(schema.encode, samples))
    for index in damaged:
        damage(path, index)
    return path


IMAGE = {"image": NDArrayField("uint8", (24, 32, 3))}
WITHOUT_NUMBERS = {
    "images alone": (IMAGE, [{"image": picture(i)} for i in range(5)], []),
    "one image": (IMAGE, [{"image": picture(7)}], []),
    "images, one damaged": (IMAGE, [{"image": picture(i)} for i in range(5)], [3]),
    "images, all damaged": (IMAGE, [{"image": picture(i)} for i in range(3)], [0, 1, 2]),
    "bytes alone": ({"raw": BytesField()}, [{"raw": b"\xff" * (20 + i)} for i in range(5)], []),
    "no samples": (IMAGE, [], []),
    "numbers, all damaged": (
        {"number": IntField(), "raw": BytesField()},
        [{"number": 1, "raw": bytes(9)}] * 3,
        [0, 1, 2],
    ),
    "numbers, no samples": ({"number": IntField()}, [], []),
}


@pytest.mark.parametrize("case", WITHOUT_NUMBERS)
def test_nothing_is_filtered_before_anybody_asks(browser, tmp_path, case):
    """Where no column can be filtered by, the choice began with damaged samples, and the page found nothing."""
    fields, samples, damaged = WITHOUT_NUMBERS[case]
    path = written(tmp_path / "a.ffr", fields, samples, damaged)
    assert run("view", path, "--export", tmp_path / "a.html").code == bool(damaged)
    with viewed(path) as page:
        for url in (page.url, f"file://{tmp_path}/a.html"):
            browser.go(url)
            browser.until(f"document.querySelectorAll('.cell:not(.waiting)').length == {len(samples)}")
            text = browser.run("document.querySelector('main').innerText")
            assert ("no samples" in text) == (not samples)
            assert "No sample matches" not in text
            status = browser.run(STATUS)
            assert status == (f"0 – {len(samples) - 1} of {len(samples)}" if samples else "no samples")
            whole = len(samples) - len(damaged)
            assert browser.run("document.images.length") == (whole if fields is IMAGE else 0)
            assert browser.run("document.querySelectorAll('.damaged').length") == len(damaged)
            assert browser.run("column.selectedOptions[0].text") == "all samples"
            told = "1 sample" if len(samples) == 1 else f"{len(samples)} samples"
            assert browser.run("document.querySelector('#about').innerText") == f"ffrecord · {told}"

            look_for_damaged(browser, len(damaged))
            browser.key("Escape")
            assert (
                browser.until(f"document.querySelectorAll('.cell:not(.waiting)').length == {len(samples)} && {STATUS}")
                == status
            )
            look_for_damaged(browser, len(damaged))  # it can be chosen again
            browser.click("#clear")
            browser.until(f"{STATUS} == {status!r}")


def look_for_damaged(browser, count):
    browser.run(
        "column.selectedIndex = [...column.options].findIndex((each) => each.text == 'damaged'); "
        "column.dispatchEvent(new Event('change'))"
    )
    browser.until(f"{STATUS} == 'damaged: {count} found'")
    assert browser.run("wanted.disabled")
    assert browser.until("document.querySelector('main').innerText").count("No sample matches") == (not count)


def test_the_first_column_is_ready_again_after_damaged_ones(browser, pictures):
    with viewed(pictures) as page:
        browser.go(page.url)
        browser.until(SHOWN)
        look_for_damaged(browser, 1)
        browser.key("Escape")
        browser.until(f"{SHOWN} && {STATUS}.endsWith('of {COUNT}')")
        assert browser.run("[column.selectedIndex, wanted.disabled, choices.length]") == [0, False, 4]
        browser.type("#wanted", CLASSES[1])
        browser.until(f"{STATUS} == 'label {CLASSES[1]}: 100 found, 1 unreadable'")

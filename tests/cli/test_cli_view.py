"""`ffrecord view`: what its server answers, to whom, and how it ends."""

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import warnings
import zipfile
from contextlib import ExitStack
from pathlib import Path

import builders
import numpy as np
import pytest
from cli_runs import COMMAND, run, run_in_terminal
from every_format import FORMATS
from PIL import Image
from viewed import CLASSES, COUNT, DAMAGED, NASTY, Page, data_of, picture, viewed, write_numbers, write_pictures

from ffrecord import DatasetWriter
from ffrecord.cli import main
from ffrecord.cli.commands.view import private_link
from ffrecord.cli.terminal.output import format_size
from ffrecord.cli.viewer.server import Server, hosts_of

FORMATS_KEPT = [name for name in FORMATS if "," not in name]
GOOD = [i for i in range(COUNT) if i != DAMAGED]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("view") / "pictures.ffr")


@pytest.fixture(scope="module")
def page(pictures):
    with viewed(pictures) as found:
        yield found


# What it answers


def test_the_page(page):
    answered = page.ask()
    assert (answered.status, answered.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    begin = data_of(answered)["begin"]
    assert (begin["format"], begin["count"], begin["named"]) == ("ffrecord", COUNT, False)
    assert {each["name"]: each["classes"] for each in begin["columns"]} == {
        "label": CLASSES, "number": None, "text": None, "damaged": None,
    }  # fmt: skip


def test_cells(page):
    first, damaged, last = page.ask("samples", at=f"0,{DAMAGED},{COUNT - 1}").told
    assert (first["at"], first["label"], first["error"]) == (0, "cat", None)
    assert first["pictures"] == ["image", "photo"]
    assert dict(first["fields"])["number"] == "0"
    assert "checksum" in damaged["error"]
    assert damaged["pictures"] == []
    assert last["label"] == CLASSES[(COUNT - 1) % 3]


def test_one_sample(page, pictures):
    told = page.ask("sample", at=5).told
    assert dict(told["fields"])["label"] == f"{CLASSES[2]} (2)"
    assert (told["file"], told["place"]) == (str(pictures), 5)
    assert told["bytes"] > 24 * 32 * 3
    assert "checksum" in page.ask("sample", at=DAMAGED).told["error"]


def test_pictures(page):
    pixels = page.ask("picture", at=3, column="image")
    assert (pixels.status, pixels.headers["Content-Type"]) == (200, "image/png")
    with Image.open(io.BytesIO(pixels.body)) as image:
        assert np.array_equal(np.asarray(image), picture(3))
    photo = page.ask("picture", at=3, column="photo", small="")
    assert (photo.headers["Content-Type"], photo.body[:3]) == ("image/jpeg", b"\xff\xd8\xff")
    assert photo.headers["X-Content-Type-Options"] == "nosniff"
    for column, at in (("text", 3), ("nobody", 3), ("image", DAMAGED)):
        assert page.ask("picture", at=at, column=column).status == 404


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"column": "label", "value": "dog"}, [i for i in GOOD if i % 3 == 1]),
        ({"column": "label", "value": "2, CAT"}, [i for i in GOOD if i % 3 != 1]),
        ({"column": "number", "value": "4..30"}, [2, 3, 4, 5]),
        ({"column": "number", "value": "9"}, [3]),
        ({"column": "text", "value": "Sample 29, script"}, [1, 29, *range(290, 300)]),
        ({"column": "nobody", "value": "1"}, []),
        ({"column": "damaged", "damaged": ""}, [DAMAGED]),
    ],
)
def test_filters(page, query, found):
    told = page.all_matches(**query)
    assert told["matches"] == found
    assert (told["looked"], told["failure"]) == (COUNT, "")
    assert told["unreadable"] == (query["column"] in ("label", "number", "text"))


def test_sizes_columns_and_facts(page):
    while not (told := page.ask("sizes").told)["ended"]:
        pass
    assert sum(told["sizes"]["histogram"]) == COUNT
    while not (told := page.ask("columns").told)["ended"]:
        pass
    assert set(told["columns"]["label"]["frequent"]) == set(CLASSES)
    facts = page.ask("facts").told
    assert (facts["samples"], list(facts["schema"])) == (COUNT, ["image", "photo", "label", "number", "text", "values"])


def test_what_json_has_no_numbers_for_breaks_no_page(page, pictures, tmp_path):
    while not json.loads((answered := page.ask("columns")).body, parse_constant=pytest.fail)["ended"]:
        pass
    told = answered.told["columns"]["values"]
    assert (told["not finite"], told["min"], told["max"], told["mean"]) == (3 * told["samples"], 0, 8, 4)
    run("view", pictures, "--export", tmp_path / "a.html", "-n", "3")
    data = data_of((tmp_path / "a.html").read_text(), parse_constant=pytest.fail)
    assert data["columns"]["columns"]["values"] == told
    assert "-inf" in dict(data["cells"][0]["whole"])["values"]


def test_finding(page):
    assert page.ask("find", what="12").told == {"at": 12}
    assert page.ask("find", what="-1").told == {"at": COUNT - 1}
    for what in (COUNT, "nobody", "5:5"):
        answered = page.ask("find", what=what)
        assert (answered.status, list(answered.told)) == (400, ["error"])


@pytest.mark.parametrize(
    ("address", "query", "status"),
    [
        ("samples", {"at": "0,x"}, 400),
        ("samples", {"at": str(COUNT)}, 400),
        ("samples", {"at": "-1"}, 400),
        ("samples", {"at": ",".join(["1"] * 257)}, 400),
        ("samples", {}, 400),
        ("filter", {"column": "label", "value": " , "}, 400),
        ("matches", {"id": 99}, 404),
        ("nothing", {}, 404),
        ("../pictures.ffr", {}, 404),
        ("%2e%2e/etc/passwd", {}, 404),
        ("page.html", {}, 404),
    ],
)
def test_what_means_nothing(page, address, query, status):
    answered = page.ask(address, **query)
    assert answered.status == status
    assert list(answered.told) == ["error"]


# To whom


def test_only_who_knows_the_address(page):
    assert page.send(page.root).status == 200
    for target in (
        "/",
        "/favicon.ico",
        f"/{'x' * 22}/",
        page.root[:-1],
        f"/x{page.root}",
        "//",
        "/%C3%A9",
        "x",
        "*",
        "//[",
    ):
        assert page.send(target).status == 404, target


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1.evil.example:{}", "localhost.:{}", "127.0.0.1:1", ""]
)
def test_names_that_others_point_here_are_refused(page, host):
    answered = page.send(page.root, host=host.format(page.port) or " ")
    assert answered.status == 403
    assert b"data" not in answered.body
    assert page.send(page.root, host=f"LocalHost:{page.port}").status == 200


def test_browsers_leave_out_the_port_of_http():
    assert hosts_of(80) == ["127.0.0.1:80", "localhost:80", "127.0.0.1", "localhost"]
    assert hosts_of(8080) == ["127.0.0.1:8080", "localhost:8080"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "PATCH", "NOSUCH"])
def test_nothing_but_get(page, method):
    answered = page.send(page.root, method)
    assert (answered.status, answered.headers["Allow"]) == (405, "GET")
    assert "Access-Control-Allow-Origin" not in answered.headers


def test_policies(page):
    policy = page.ask().headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    for address, query in (("facts", {}), ("picture", {"at": 1, "column": "photo"}), ("nothing", {})):
        headers = page.ask(address, **query).headers
        assert headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_nothing_in_a_dataset_becomes_html(tmp_path):
    # In the name of the dataset, of a record and of a column's classes, and in text.
    with zipfile.ZipFile(tmp_path / "<script>.zip", "w") as archive:
        archive.writestr(f"</script>{NASTY}", NASTY)
        archive.writestr("2", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
    with viewed(tmp_path / "<script>.zip") as found:
        text = found.ask().body.decode()
        assert text.count("<script") == 2  # the data, and ours
        assert data_of(text)["begin"]["source"].endswith("<script>.zip")
        (told,) = found.ask("samples", at=0).told
        assert told["name"] == f"</script>{NASTY}"
        assert found.ask("samples", at=0).headers["Content-Type"] == "application/json"
        assert found.ask("picture", at=1, column="data").status == 404
    assert run("view", tmp_path / "<script>.zip", "--export", tmp_path / "a.html").code == 0
    text = (tmp_path / "a.html").read_text()
    assert text.count("<script") == 2
    assert data_of(text)["cells"][0]["name"] == f"</script>{NASTY}"


def test_only_this_machine_is_listened_to(page):
    with open("/proc/net/tcp") as file:
        listening = [line.split()[1] for line in file if line.split()[3] == "0A"]
    assert [each for each in listening if each.endswith(f":{page.port:04X}")] == [f"0100007F:{page.port:04X}"]


# What it is of


@pytest.mark.parametrize("name", FORMATS_KEPT)
def test_every_format(name, tmp_path, monkeypatch):
    format, make, options = FORMATS[name]
    path = make(tmp_path)
    monkeypatch.chdir(tmp_path)
    arguments = ["--format", options["format"]] if options else []
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which `main` sets
    assert main(["view", str(path), *arguments, "--export", "a.html", "-n", "3"]) == 0
    data = data_of((tmp_path / "a.html").read_text())
    assert data["begin"]["format"] == format
    assert [(cell["at"], cell["error"]) for cell in data["cells"]] == [(0, None), (1, None), (2, None)]
    assert sum(data["sizes"]["sizes"]["histogram"]) == data["begin"]["count"]
    assert data["facts"]["samples"] == data["begin"]["count"]


def test_an_image_folder(tmp_path):
    for i, name in enumerate(("cat/1.png", "cat/2.png", "dog/1.png")):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(i)).save(tmp_path / "images" / name)
    with viewed(tmp_path / "images") as found:
        cells = found.ask("samples", at="0,1,2").told
        assert [(cell["name"], cell["label"], cell["pictures"]) for cell in cells] == [
            ("cat/1.png", "cat", ["image"]), ("cat/2.png", "cat", ["image"]), ("dog/1.png", "dog", ["image"]),
        ]  # fmt: skip
        assert found.all_matches(column="label", value="dog")["matches"] == [2]
        assert found.all_matches(column="key", value="2.PNG")["matches"] == [1]
        assert found.ask("find", what="dog/1.png").told == {"at": 2}


def test_an_empty_dataset(tmp_path):
    with viewed(builders.write_samples(tmp_path / "a.ffr", [])) as found:
        assert data_of(found.ask())["begin"]["count"] == 0
        assert found.ask("samples", at="0").status == 400
        assert found.all_matches(column="damaged", damaged="")["matches"] == []
        assert found.ask("facts").told["samples"] == 0


def test_a_sample_that_was_cut_off_has_no_size(tmp_path):
    path = builders.write_samples(tmp_path / "a.ffr", [bytes(1000), bytes(1000), bytes(1000)])
    os.truncate(path, 1500)
    with viewed(path) as found:
        whole, lost = (found.ask("sample", at=index).told for index in (0, 2))
        assert (whole["bytes"], "bytes" in lost) == (1000, False)
    (told,) = json.loads(run("ls", path, "--shards", "--json").out)
    assert (told["samples"], told["bytes"]) == (3, 1000)


def test_damaged_tables_are_said(tmp_path):
    path = builders.write_samples(tmp_path / "a.ffr", [b"first", b"second"])
    with open(path, "r+b") as file:
        file.seek(12)
        file.write(b"\0\0\0\0")
    with subprocess.Popen([*COMMAND, "view", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        found = Page(child.stdout.readline().strip())
        assert "CRC-32" in data_of(found.ask())["begin"]["remark"]
        assert dict(found.ask("samples", at=1).told[0]["fields"])["data"] == "second"
        child.send_signal(signal.SIGINT)
        assert child.stderr.read().count("\n") == 1
    assert child.returncode == 0


# The file


def test_export(pictures, tmp_path):
    (tmp_path / "report.html").write_text("of last week")
    ran = run("view", pictures, "--export", tmp_path / "report.html", "-n", "40")
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.startswith(f"{tmp_path / 'report.html'}: 40 samples, 1 of them damaged, ")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    text = (tmp_path / "report.html").read_text()
    assert "Content-Security-Policy" in text
    assert not re.search(r"""(src|href)=["']?(?!data:)\w""", text.partition("<script")[0])
    data = data_of(text)
    assert (data["begin"]["kept"], data["begin"]["count"], len(data["cells"])) == (40, COUNT, 40)
    assert data["cells"][3]["data"]["photo"].startswith("data:image/jpeg;base64,")
    assert "checksum" in data["cells"][DAMAGED]["error"]
    assert data["columns"]["columns"]["number"]["min"] == 0


def test_a_dataset_of_which_a_shard_is_missing(tmp_path):
    samples = [{"number": i} for i in range(30)]
    DatasetWriter(tmp_path / "a", samples_per_shard=10, num_workers=0, progress=False).from_indexed_dataset(samples)
    min((tmp_path / "a").glob("*.ffr")).unlink()
    ran = run("view", tmp_path / "a", "--export", tmp_path / "a.html")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    data = data_of((tmp_path / "a.html").read_text())
    assert "is missing; the output is about the other 20 of 30 samples" in data["begin"]["remark"]
    assert data["begin"]["count"] == 20
    assert (data["facts"]["samples"], data["facts"]["files"]) == (30, 3)
    assert "is missing" in data["facts"]["wrong"][0]
    quiet = run("view", tmp_path / "a", "--export", tmp_path / "a.html", "--quiet")
    assert (quiet.code, quiet.err) == (1, "")
    assert ": 20 samples, some shards missing, " in quiet.out


def test_facts_are_those_of_info(tmp_path):
    samples = [{"number": i} for i in range(30)]
    DatasetWriter(tmp_path / "a", samples_per_shard=10, num_workers=0, progress=False).from_indexed_dataset(samples)
    assert run("view", tmp_path / "a", "--export", tmp_path / "a.html").code == 0
    found = data_of((tmp_path / "a.html").read_text())["facts"]
    told = json.loads(run("info", tmp_path / "a", "--json").out)
    assert found["fingerprint"] == told["fingerprint"]
    assert set(found) == set(told)


def test_export_where_it_cannot_be(pictures, tmp_path):
    ran = run("view", pictures, "--export", tmp_path / "no" / "a.html")
    assert (ran.code, ran.err.count("\n")) == (3, 1)
    assert "No such file" in ran.err


# How it ends


def test_a_port_in_use(pictures):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = run("view", pictures, "--port", port)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == f"ffrecord view: port {port} is in use; use --port 0 for a free one\n"


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_no_port(pictures, port):
    ran = run("view", pictures, f"--port={port}")
    assert (ran.code, ran.err.count("\n")) == (2, 1)


def test_nothing_there(tmp_path):
    ran = run("view", tmp_path / "nobody")
    assert (ran.code, ran.out, ran.err.count("\n")) == (3, "", 1)


def test_the_port_that_was_asked_for(pictures):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with viewed(pictures, "--port", port) as found:
        assert found.port == port
        assert found.ask("facts").status == 200


def test_json(pictures):
    with subprocess.Popen([*COMMAND, "view", pictures, "--json"], stdout=subprocess.PIPE, text=True) as child:
        assert Page(json.loads(child.stdout.readline())["url"]).ask().status == 200
        child.send_signal(signal.SIGINT)
    assert child.returncode == 0


def test_stopped_while_it_works(tmp_path):
    path = write_numbers(tmp_path / "a.ffr", 400_000)
    with viewed(path) as found:  # which sees that it ends with 0 and says nothing
        found.ask("filter", column="number", value="5")
        found.ask("filter", column="damaged", damaged="")
        found.ask("sizes")


def test_a_terminal_of_40_columns(tmp_path):
    ran = run_in_terminal("view", tmp_path / "nobody", columns=40)
    assert (ran.code, ran.out) == (3, f"ffrecord view: {tmp_path / 'nobody'} does not exist\n")
    ran = run_in_terminal("view", "--help", columns=40)
    assert (ran.code, max(map(len, ran.out.partition("\n\n")[2].splitlines())) <= 40) == (0, True)
    path = builders.write_samples(tmp_path / "a.ffr", builders.small())
    ran = run_in_terminal("view", path, "--export", tmp_path / "a.html", "--quiet", columns=40)
    size = format_size((tmp_path / "a.html").stat().st_size)
    assert (ran.code, ran.out) == (0, f"{tmp_path / 'a.html'}: 8 samples, {size}\n")
    for arguments in (["ls", path, "--shards"], ["bench", path, "--only", "cached", "--seconds", "0.05"]):
        lines = run_in_terminal(*arguments, "--quiet", columns=40).out.splitlines()
        assert max(map(len, lines)) <= 40
        assert any(re.search(r"(^|\s)(8 +296|[\d.]+ ms)$", line) for line in lines)


def test_a_browser_is_asked_for(pictures, tmp_path):
    shown = tmp_path / "shown"
    browser = tmp_path / "browser"
    script = 'stat -c %a "$way" > {0}.mode; cp "$way" {0}.html; echo "$1" > {0}'
    browser.write_text(f"#!/bin/sh\nway=${{1#file://}}\n{script.format(shown)}\n")
    browser.chmod(0o755)
    environment = {**os.environ, "BROWSER": f"{browser} %s"}
    for arguments, is_shown in ((["--open"], True), ([], False)):
        command = [*COMMAND, "view", pictures, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
            url = child.stdout.readline()
            end = time.monotonic() + (10 if is_shown else 0.2)
            while time.monotonic() < end and not (shown.exists() and shown.read_text()):
                time.sleep(0.02)
            child.send_signal(signal.SIGINT)
        assert child.returncode == 0
        assert shown.exists() == is_shown
        if is_shown:  # the secret is in a file that nobody else can read, and not on a command line
            way = shown.read_text().strip()
            assert way.startswith("file:///")
            assert not Path(way.removeprefix("file://")).exists()
            assert (tmp_path / "shown.mode").read_text() == "600\n"
            assert f'url={url.strip()}"' in (tmp_path / "shown.html").read_text()
            shown.unlink()


def test_the_way_to_the_page_goes_with_it(pictures, tmp_path):
    environment = {**os.environ, "BROWSER": "true %s", "TMPDIR": str(tmp_path)}
    command = [*COMMAND, "view", pictures, "--open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:
        child.stdout.readline()
        end = time.monotonic() + 10
        while time.monotonic() < end and not [*tmp_path.iterdir()]:
            time.sleep(0.02)
        assert len([*tmp_path.iterdir()]) == 1
        child.terminate()
        assert (child.wait(20), child.stderr.read()) == (143, "ffrecord view: ended by SIGTERM\n")
    assert [*tmp_path.iterdir()] == []


def test_the_way_leaves_a_handler_as_the_program_has_set_it():
    called = []

    def own(*_: object) -> None:
        called.append(True)

    before = signal.signal(signal.SIGTERM, own)
    try:
        with private_link("http://127.0.0.1:1/"):
            signal.raise_signal(signal.SIGTERM)
            assert called
        assert signal.getsignal(signal.SIGTERM) is own
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with private_link("http://127.0.0.1:1/"):
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_without_a_place_for_the_way_there_is_a_page(pictures, tmp_path):
    code = f"import tempfile; tempfile.tempdir = '{tmp_path}/nowhere'; from ffrecord.cli import main; exit(main())"
    command = [sys.executable, "-c", code, "view", pictures, "--open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        url = child.stdout.readline().strip()
        said = child.stderr.readline()
        with urllib.request.urlopen(url, timeout=10) as page:
            assert page.status == 200
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 0
    assert said.startswith("ffrecord view: no browser was opened: ")


def waited(pid: int) -> float:
    """Seconds that the first thread of a process was ready and had no CPU, because others were running."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


@pytest.mark.long
def test_the_first_page_of_ten_million_samples(tmp_path):
    path = write_numbers(tmp_path / "a.ffr", 10_000_000)
    took = []
    for _ in range(7):
        began = time.monotonic()
        command = [sys.executable, "-m", "ffrecord", "view", str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            found = Page(child.stdout.readline().strip())
            data = data_of(found.ask())
            cells = found.ask("samples", at=",".join(map(str, range(5_000_000, 5_000_064)))).told
            took.append(time.monotonic() - began - waited(child.pid))
            child.send_signal(signal.SIGINT)
        assert data["begin"]["count"] == 10_000_000
        assert [dict(cell["fields"])["number"] for cell in cells] == [str(i) for i in range(5_000_000, 5_000_064)]
    assert min(took) < 0.5, took
    print(f"first page after {min(took):.3f} s")


def test_many_connections_at_once_do_not_wait_for_each_other():
    with Server(None, 0) as server, ExitStack() as held:  # which accepts none of them yet
        for _ in range(100):
            held.enter_context(socket.create_connection(server.server_address, timeout=0.5))

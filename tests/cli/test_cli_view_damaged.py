"""`ffrecord view`: which samples are damaged, said by the grid, by the filter, in the file and by the exit code."""

import json

import pytest
from cli_runs import run
from viewed import DAMAGED_ODD, UNDECODABLE, data_of, viewed, write_odd_values

import ffrecord
from ffrecord.cli import viewer
from ffrecord.cli.viewer.records import ViewedRecords, damage_of
from ffrecord.fields import BoolField, IntField, Schema, StrField
from ffrecord.format.extension import Extension
from ffrecord.reading.store import Store


def test_what_cannot_be_decoded_is_damaged_everywhere(tmp_path):
    """Its checksum is right: the grid, the filter, the file and the exit code call it what `head` does."""
    path, bad = write_odd_values(tmp_path / "a.ffr"), [UNDECODABLE, DAMAGED_ODD]
    with viewed(path) as found:
        cells = found.ask("samples", at=",".join(map(str, range(12)))).told
        assert [cell["at"] for cell in cells if cell["error"]] == bad
        assert cells[UNDECODABLE]["error"].startswith("text: ")
        assert found.all_matches(column="damaged", damaged="")["matches"] == bad
    ran = run("view", path, "--export", tmp_path / "a.html", "--json")
    assert (ran.code, json.loads(ran.out)["damaged"]) == (run("head", path, "-n", 12).code, 2)
    data = data_of((tmp_path / "a.html").read_text())
    assert [cell["at"] for cell in data["cells"] if cell["error"]] == bad
    for count, code in ((UNDECODABLE, 0), (UNDECODABLE + 1, 1)):
        assert run("view", path, "--export", tmp_path / "a.html", "-n", count).code == code
        assert run("head", path, "-n", count).code == code


@pytest.mark.parametrize("damaged", [[], [0], [299], [7, 8, 150], [*range(300)]])
def test_damaged_samples_among_many(tmp_path, monkeypatch, damaged):
    """However large samples are, no more than so many bytes of them are in memory at once."""
    read_packed, taken = Store.read_packed, [0]

    def watched(store, indices):
        found = read_packed(store, indices)
        taken.append(found[0].nbytes)
        return found

    monkeypatch.setattr(Store, "read_packed", watched)
    monkeypatch.setattr(viewer.records, "CHECKED_BYTES", 1500)
    schema = Schema.of({"a": IntField(), "b": BoolField(), "c": StrField()})
    with ffrecord.FileWriter(tmp_path / "a.ffr", 300, extension=Extension(schema=schema.to_builtins())) as writer:
        for i in range(300):
            record = bytearray(schema.encode({"a": i, "b": False, "c": "text"}))
            if i in damaged:
                record[8 if i % 2 else -1] = 255  # no bool, no UTF-8
            writer.write_one(record)
    with ffrecord.FileReader(tmp_path / "a.ffr") as reader:
        records = ViewedRecords(reader)
        assert records.find_damaged(range(300)) == damaged
        assert [i for i in range(300) if damage_of(records.columns([i])[0])] == damaged
    assert max(taken) <= 1500

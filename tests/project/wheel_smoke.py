"""Writes and reads with what is installed: `python wheel_smoke.py DIRECTORY_OF_GOLDEN_FILES`, anywhere."""

import hashlib
import json
import sys
from importlib import import_module

import ffrecord


def main(golden: str) -> None:
    """In the current directory, which gets a dataset."""
    samples = [{"number": i, "text": str(i)} for i in range(100)]
    ffrecord.DatasetWriter("written", num_workers=2).from_indexed_dataset(samples)
    with ffrecord.FileReader("written") as reader:
        schema = ffrecord.fields.schema_of(reader)
        assert schema is not None and [schema.decode(record) for record in reader] == samples
    with open(f"{golden}/manifest.json") as file:
        wanted = json.load(file)["five.ffr"]
    with ffrecord.FileReader(f"{golden}/five.ffr") as reader:
        assert [hashlib.sha256(bytes(record)).hexdigest() for record in reader] == wanted["sha256"]
        assert reader.n == 5
    assert sys.prefix in str(ffrecord.__file__) and "torch" not in sys.modules
    try:
        import_module("ffrecord.torch")
    except ImportError as error:
        assert "pip install torch" in str(error)
    else:
        raise SystemExit("imported without torch")


if __name__ == "__main__":
    main(sys.argv[1])

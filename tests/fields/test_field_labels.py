"""Class labels and their names."""

import numpy as np
import pytest

from ffrecord import DatasetWriter, FileReader
from ffrecord.errors import FormatError
from ffrecord.fields import IntField, LabelField, Schema, schema_of

NAMES = ["cat", "dog", "Ψ"]


def test_numbers_and_names():
    field = LabelField(NAMES)
    assert field.encode(1) == field.encode("dog") == field.encode(np.int8(1)) == IntField().encode(1)
    assert field.decode(memoryview(field.encode("Ψ"))) == 2
    assert field.unstack(np.array([0, 2])) == [0, 2] and field.names == ("cat", "dog", "Ψ")
    assert repr(LabelField([*NAMES, "x"])) == "LabelField(['cat', 'dog', 'Ψ', …])"


@pytest.mark.parametrize("value, error", [(3, "int 3"), (-1, r"an int in \[0, 3\)"), ("bird", "no class 'bird'")])
def test_others_are_refused(value, error):
    with pytest.raises(ValueError, match=error):
        LabelField(NAMES).encode(value)
    with pytest.raises(TypeError):
        LabelField(NAMES).encode(True)


def test_damaged_numbers():
    field = LabelField(NAMES)
    with pytest.raises(FormatError, match="the class is 3, expected 0 to 2"):
        field.decode(memoryview(IntField().encode(3)))
    with pytest.raises(FormatError, match="classes go from -1 to 0, expected 0 to 2"):
        field.unstack(np.array([0, -1]))


@pytest.mark.parametrize(
    "names, error", [([], "names is empty"), (["a", "a"], "are both 'a'"), ("ab", None), ([1], None)]
)
def test_names_that_are_none(names, error):
    with pytest.raises(TypeError if error is None else ValueError, match=error or "str"):
        LabelField(names)


def test_names_are_in_the_file(tmp_path):
    DatasetWriter(tmp_path / "out", {"label": LabelField(NAMES)}, num_workers=0).from_indexed_dataset(
        [{"label": name} for name in NAMES]
    )
    with FileReader(tmp_path / "out") as reader:
        schema = schema_of(reader)
        assert schema.fields["label"].names == tuple(NAMES)
        assert [schema.decode(record)["label"] for record in reader] == [0, 1, 2]
        assert reader.samples([1])[0] == {"label": 1}


def test_a_schema_that_says_something_else():
    for names in ("abc", [1], None, ["a", "a"]):
        with pytest.raises(FormatError, match="label"):
            Schema.from_builtins({"version": 1, "sample": {"kind": "label", "names": names}})

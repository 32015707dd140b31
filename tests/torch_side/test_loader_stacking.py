"""Values of Python samples make a column of a batch, or are refused."""

import numpy as np
import pytest
import torch

from ffrecord.errors import FFRecordError
from ffrecord.torch import Loader

NUMBER, ARRAY, LIST = 1.5, np.ones(2), [1, 2]


@pytest.mark.parametrize("value", [NUMBER, np.float32(1), True, ARRAY, torch.ones(2), LIST, {"a": 1}], ids=repr)
@pytest.mark.parametrize("other", [None, "text"])
@pytest.mark.parametrize("ragged", ["list", "padded"])
def test_values_of_several_kinds_do_not_depend_on_the_first(value, other, ragged):
    """A shuffled epoch would fail or not by chance, and a column would be a tensor or a list."""
    for values in ([value, other], [other, value], [other, other, value]):
        samples = [{"x": each} for each in values]
        message = r"do not make a batch: sample [12]: column '?x"
        with Loader(samples, 3, shuffle=False, ragged=ragged) as loader, pytest.raises(FFRecordError, match=message):
            list(loader)
    with Loader([{"x": other}] * 2, 2, ragged=ragged) as loader:
        assert [batch["x"] for batch in loader] == [[other, other]]


def test_bytes_of_numpy_keep_their_zeros():
    """NumPy's arrays of text and bytes cut zeros at the end; then they are a list."""
    values = [np.bytes_(b"\1\0\0"), np.bytes_(b"\1"), np.bytes_(b"")]
    with Loader(
        [{"x": each, "y": np.str_(f"a{i}\0" if i else "b")} for i, each in enumerate(values)], 3, shuffle=False
    ) as found:
        (batch,) = found
    assert type(batch["x"]) is list and batch["x"] == values
    assert batch["y"] == ["b", "a1\0", "a2\0"]
    with Loader([{"x": np.str_("a")}, {"x": np.str_("bc")}], 2, shuffle=False) as found:
        assert [batch["x"].tolist() for batch in found] == [["a", "bc"]]

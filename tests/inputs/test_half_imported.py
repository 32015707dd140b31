"""Objects are recognised while another thread imports their package, whose module is there without its classes."""

import sys
from types import ModuleType

import numpy as np
import pytest

from ffrecord.inputs import huggingface, recognise
from ffrecord.inputs.tables import table_of
from ffrecord.reading import notebook
from ffrecord.system.values import class_of, describe

MODULES = ("numpy", "torch", "torch.utils.data", "datasets", "pandas", "polars", "pyarrow", "PIL.Image")


class Samples:
    """A dataset like any other."""

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return i


@pytest.fixture(params=["half", "missing"])
def unready(request, monkeypatch):
    """No module of them has its classes."""
    for name in MODULES:
        if request.param == "half":
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        else:
            monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("unready")
@pytest.mark.parametrize("source", [Samples(), [Samples(), Samples()], object()])
def test_nothing_is_known_of_it(source):
    assert recognise.parts_of(source) is None
    assert recognise.input_of(source) is None
    assert huggingface.input_of(source) is None
    assert huggingface.classes_of_dataset(source) == {}
    assert table_of(source) is None


@pytest.mark.usefixtures("unready")
def test_values_are_described():
    assert class_of("torch", "Tensor") == ()
    assert describe(3) == "int 3"
    assert describe(Samples()).endswith("Samples")
    assert not notebook._is_tensor(3)


@pytest.mark.usefixtures("unready")
def test_a_dict_of_columns_is_a_table():
    assert len(table_of({"x": np.arange(3)})) == 3

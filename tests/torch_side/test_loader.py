"""What a batch is, and what a loader is made with."""

import numpy as np
import pytest
import torch
from loader_builders import fixed, flat, ids, mixed, write
from torch.utils.data import default_collate
from torch_builders import WORKERS_ANYWHERE

from ffrecord import FileReader, FileWriter
from ffrecord.errors import UserFunctionError
from ffrecord.fields import BytesField, NDArrayField, StrField
from ffrecord.order import Cursor, Identity, Sequential, sample_seeds
from ffrecord.system import requirements
from ffrecord.torch import Dataset, Loader, Padded
from ffrecord.torch.images import CenterCrop
from ffrecord.torch.loading import batch_builder
from ffrecord.torch.loading.batch_builder import BuiltBatch
from ffrecord.torch.loading.ragged import as_nested, as_padded

pytestmark = WORKERS_ANYWHERE
COUNT = 30
MAKERS = [{"num_threads": 0}, {"num_threads": 2}, {"num_workers": 2}]


@pytest.fixture(scope="module")
def fixed_path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("loader") / "fixed.ffr", map(fixed, range(COUNT)))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("loader") / "mixed.ffr", map(mixed, range(COUNT)))


def same(a, b):
    """Equal in structure, dtypes, shapes and values."""
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    return a == b


# What a batch is


@pytest.mark.parametrize("io", ["auto", "pread", "direct", "mmap"])
def test_fixed_size_batches_are_what_torch_makes(fixed_path, io):
    loader = Loader(fixed_path, 7, seed=1, io=io)
    for images, labels in loader:
        expected = default_collate([fixed(i) for i in loader.batch_indices])
        assert same([images, labels], expected)
        assert images.is_contiguous()


@pytest.mark.parametrize("how", MAKERS)
def test_mixed_batches_are_what_torch_makes_of_the_columns_it_knows(path, how):
    loader = Loader(path, 7, seed=1, **how)
    seen = []
    for batch in loader:
        samples = [Dataset(path)[int(i)] for i in loader.batch_indices]
        for name in ("id", "share", "even", "half"):
            assert same(batch[name], default_collate([sample[name] for sample in samples])), name
        assert batch["name"] == [sample["name"] for sample in samples]
        assert same(batch["tokens"], [torch.from_numpy(sample["tokens"]) for sample in samples])
        assert batch["inner"]["pair"][0].dtype == torch.float32
        assert batch["inner"]["pair"][1] == [None] * len(samples)
        seen += batch["id"].tolist()
    assert sorted(seen) == list(range(COUNT))


def test_order_is_that_of_the_cursor(fixed_path):
    loader = Loader(fixed_path, 4, seed=5, epoch=2)
    cursor = Cursor(Identity(COUNT), seed=5, epoch=2, batch_size=4)
    assert ids(loader) == [step.indices.tolist() for step in cursor.steps()]


def test_one_value(tmp_path):
    path = write(tmp_path / "ints.ffr", range(5))
    assert [batch.tolist() for batch in Loader(path, 2, "sequential")] == [[0, 1], [2, 3], [4]]


def test_values_that_torch_has_no_tensors_for(tmp_path):
    samples = [(np.datetime64(i, "s"), np.array([f"a{i}"])) for i in range(3)]
    (times, texts), *_ = Loader(write(tmp_path / "t.ffr", samples), 3, "sequential")
    assert times.dtype == "<M8[s]" and times.tolist() == [sample[0].tolist() for sample in samples]
    assert texts.tolist() == [["a0"], ["a1"], ["a2"]]


def test_foreign_byte_order(tmp_path):
    path = write(tmp_path / "big.ffr", [np.arange(i, i + 2, dtype=">i4") for i in range(3)])
    (batch,) = Loader(path, 3, "sequential")
    assert batch.dtype == torch.int32 and batch.tolist() == [[0, 1], [1, 2], [2, 3]]


@pytest.mark.parametrize("how", MAKERS)
def test_files_without_schema(tmp_path, how):
    with FileWriter(tmp_path / "plain.ffr") as writer:
        for i in range(5):
            writer.write_one(bytes([i]) * i)
    batches = list(Loader(tmp_path / "plain.ffr", 3, "sequential", **how))
    assert [[bytes(record.tolist()) for record in batch] for batch in batches] == [
        [b"", b"\1", b"\2\2"],
        [b"\3\3\3", b"\4\4\4\4"],
    ]
    lengths = Loader(tmp_path / "plain.ffr", 3, "sequential", transform=len, **how)
    assert [batch.tolist() for batch in lengths] == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize("how", MAKERS)
def test_batches_share_no_memory(path, how):
    kept = list(Loader(path, 4, seed=2, **how))
    for batch in kept:
        batch["id"] += 1000
        batch["half"].zero_()
        for tokens in batch["tokens"]:
            tokens.zero_()
    again = list(Loader(path, 4, seed=2, **how))
    assert [(batch["id"] - 1000).tolist() for batch in kept] == ids(again)
    assert any(batch["half"].any() for batch in again)


def test_buffers_of_kept_batches_are_not_used_again(tmp_path):
    """Batches of 128 KiB, whose memory the reader recycles as soon as nobody holds it."""
    path = write(tmp_path / "large.ffr", [np.full(1 << 14, i, np.uint8) for i in range(40)])
    loader = Loader(path, 8, seed=1)
    kept = [(loader.batch_indices, batch) for _ in range(3) for batch in loader]
    for indices, batch in kept:
        assert batch[:, 0].tolist() == indices.tolist() == batch[:, -1].tolist()


# Varying shapes


def test_ragged_nested_needs_a_torch_that_has_it(path, monkeypatch):
    monkeypatch.delattr(torch, "jagged")
    with pytest.raises(ValueError, match=r"ragged='nested' needs torch 2\.2 or newer, this is "):
        Loader(path, COUNT, ragged="nested")


def test_ragged_nested(path):
    (batch,) = Loader(path, COUNT, "sequential", ragged="nested")
    assert batch["tokens"].layout == torch.jagged
    assert [part.tolist() for part in batch["tokens"].unbind()] == [list(range(i % 4 + 1)) for i in range(COUNT)]


@pytest.mark.parametrize("how", MAKERS)
def test_ragged_padded(path, how):
    batch = next(iter(Loader(path, 4, "sequential", ragged="padded", **how)))
    assert isinstance(batch["tokens"], Padded)
    assert batch["tokens"].values.tolist() == [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 2, 0], [0, 1, 2, 3]]
    assert batch["tokens"].lengths.tolist() == [1, 2, 3, 4]


def test_ragged_in_several_axes(tmp_path):
    path = write(tmp_path / "images.ffr", [np.full((i + 1, 2 - i % 2, 3), i, np.int16) for i in range(3)])
    (padded,) = Loader(path, 3, "sequential", ragged="padded")
    assert padded.values.shape == (3, 3, 2, 3) and padded.values.dtype == torch.int16
    assert padded.lengths.tolist() == [[1, 2, 3], [2, 1, 3], [3, 2, 3]]
    assert padded.values[1, :2, :1].unique().tolist() == [1] and not padded.values[1, 2:].any()
    (nested,) = Loader(path, 3, "sequential", ragged="nested")
    assert [part.shape for part in nested.unbind()] == [(1, 2, 3), (2, 1, 3), (3, 2, 3)]


@pytest.mark.parametrize(
    "shapes", [[(2,), (0,), (3,)], [(2, 3), (1, 4), (0, 0)], [(1, 2, 3), (3, 1, 1)], [(), ()], [(4,)]], ids=str
)
def test_padded(shapes):
    """Its mask, and copies of it."""
    padded = as_padded("column", [torch.ones(shape) for shape in shapes])
    assert padded.mask.dtype == torch.bool and torch.equal(padded.mask, padded.values.bool())
    half = padded.to(torch.float16)
    assert isinstance(half, Padded) and half.values.dtype == torch.float16 and half.lengths.dtype == torch.int64
    moved = padded.to("meta")
    assert moved.values.is_meta and moved.lengths.is_meta and moved.values.shape == padded.values.shape


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_padded_pins():
    padded = as_padded("column", [torch.ones(2), torch.ones(3)]).pin_memory()
    assert padded.values.is_pinned() and padded.lengths.is_pinned()


def test_nested_tensors_that_torch_refuses():
    with pytest.raises(ValueError, match=r"^image: torch cannot make a nested tensor of these values: .*same dtype"):
        as_nested("image", [torch.ones(2), torch.ones(3, dtype=torch.int8)])


@pytest.mark.parametrize("ragged", ["padded", "nested"])
def test_ragged_in_the_number_of_axes(tmp_path, ragged):
    path = write(tmp_path / "odd.ffr", [np.zeros(2), np.zeros((2, 2))])
    with pytest.raises(ValueError, match="of 1 and of 2 axes"):
        list(Loader(path, 2, ragged=ragged))


# Some columns


def test_fields_by_name(path):
    batch = next(iter(Loader(path, 3, "sequential", fields=["name", "inner.pair[0]"])))
    assert same(batch, {"name": [f"sample {i}" for i in range(3)], "inner": {"pair": (torch.arange(3.0),)}})


def test_fields_of_fixed_records(fixed_path):
    ((labels,), *_) = Loader(fixed_path, 3, "sequential", fields=["[1]"])
    assert labels.tolist() == [0, 1, 2]


def test_fields_not_wanted_are_not_decoded(tmp_path):
    path = write(tmp_path / "a.ffr", [("é", i) for i in range(3)], lambda i, record: record[:-1] + b"\xff")
    with pytest.raises(RuntimeError, match=r"Sample 0: .*a\.ffr: sample 0: \[0\] \(StrField\): the value is not UTF-8"):
        list(Loader(path, 3, "sequential"))
    ((labels,),) = Loader(path, 3, "sequential", fields=["[1]"])
    assert labels.tolist() == [0, 1, 2]


def test_fields_read_in_another_way(tmp_path):
    path = write(tmp_path / "a.ffr", [{"image": bytes([i]), "label": i} for i in range(3)])
    batch = next(iter(Loader(path, 3, "sequential", fields={"image": BytesField()})))
    assert same(batch, {"image": [b"\0", b"\1", b"\2"]})
    batch = next(iter(Loader(path, 3, "sequential", fields={"label": None})))
    assert same(batch, {"label": torch.arange(3)})


def test_field_of_fixed_size_read_in_another_way(tmp_path):
    path = write(tmp_path / "a.ffr", [{"image": np.zeros(2, np.uint8), "label": i} for i in range(3)])
    (batch,) = Loader(path, 3, fields={"image": Ones("uint8", (2,))})
    assert batch["image"].tolist() == [[1, 1]] * 3


class Ones(NDArrayField):
    def column(self, column):
        return column + np.uint8(1)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        (["nothing"], ValueError, "fields has 'nothing', expected some of the columns id, share"),
        ([], ValueError, "fields is empty, expected some of the columns"),
        ("id", TypeError, "fields is str 'id'"),
        (3, TypeError, "fields is int 3"),
        ([1], TypeError, "names of columns"),
        ({"id": int}, TypeError, "expected a field or None"),
        ({"id": StrField()}, ValueError, "cannot read values that"),
    ],
)
def test_wrong_fields(path, fields, error, message):
    with pytest.raises(error, match=message):
        Loader(path, fields=fields)


def test_fields_without_schema(tmp_path):
    with FileWriter(tmp_path / "plain.ffr") as writer:
        writer.write_one(b"a")
    with pytest.raises(ValueError, match="no schema"):
        Loader(tmp_path / "plain.ffr", fields=["value"])


# The user's functions


def add(sample, seed):
    return {"id": sample["id"], "seed": np.uint64(seed), "name": sample["name"].upper()}


@pytest.mark.parametrize("how", MAKERS)
def test_transform(path, how):
    loader = Loader(path, 8, seed=3, transform=add, **how)
    position = 0
    for batch in loader:
        k = len(loader.batch_indices)
        seeds = sample_seeds(3, 0, np.arange(position, position + k))
        assert batch["id"].tolist() == loader.batch_indices.tolist()
        assert batch["seed"].numpy().tolist() == seeds.tolist()
        assert batch["name"] == [f"SAMPLE {i}" for i in batch["id"]]
        position += k


def test_transform_without_seed_gets_the_sample_of_a_dataset(path):
    seen = []
    list(Loader(path, 8, "sequential", transform=lambda sample: seen.append(sample) or 0, num_threads=0))
    expected = Dataset(path)[list(range(COUNT))]
    for sample, other in zip(seen, expected, strict=True):
        assert list(sample) == list(other) and type(sample["id"]) is int and type(sample["tokens"]) is np.ndarray
        assert same(sample["half"], other["half"]) and sample["tokens"].tolist() == other["tokens"].tolist()


@pytest.mark.parametrize("how", MAKERS)
def test_batch_transform(fixed_path, how):
    loader = Loader(fixed_path, 8, seed=3, batch_transform=with_seeds, **how)
    for (images, labels), seeds in loader:
        assert (images.float().mean((1, 2)) == labels).all()
        assert len(seeds) == len(labels) and seeds.dtype == np.uint64


def with_seeds(batch, seeds):
    return batch, seeds


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda s: s["id"], torch.arange(3)),
        (lambda s: (s["share"], [s["even"]]), (torch.arange(3) / 4, [torch.tensor([True, False, True])])),
        (lambda s: torch.full((2,), s["id"]), torch.tensor([[0, 0], [1, 1], [2, 2]])),
        (lambda s: np.full(2, s["id"], np.float32), torch.tensor([[0.0, 0], [1, 1], [2, 2]])),
        (lambda s: np.int16(s["id"]), torch.tensor([0, 1, 2], dtype=torch.int16)),
        (lambda s: {"k": None}, {"k": [None] * 3}),
        (lambda s: [1, 0.5, 1][s["id"]], torch.tensor([1, 0.5, 1], dtype=torch.float64)),
        (lambda s: [True, 1, 2][s["id"]], torch.tensor([1, 1, 2])),
        (lambda s: [0.5, True, 2j][s["id"]], torch.tensor([0.5, 1, 2j], dtype=torch.complex128)),
        (lambda s: [1, np.float32(0.5), 2][s["id"]], torch.tensor([1, 0.5, 2], dtype=torch.float64)),
        (lambda s: [0] * s["id"], [[], [0], [0, 0]]),
        (lambda s: torch.arange(s["id"]), [torch.arange(0), torch.arange(1), torch.arange(2)]),
    ],
)
def test_what_transform_makes_is_put_together(path, made, expected):
    found = next(iter(Loader(path, 3, "sequential", transform=made)))
    if isinstance(expected, tuple):
        assert same(found[0], expected[0].double()) and same(found[1], expected[1])
    else:
        assert same(found, expected)


def test_numbers_among_what_is_none_do_not_make_a_batch(path):
    with pytest.raises(UserFunctionError, match="transform returned samples that do not make a batch"):
        list(Loader(path, 3, "sequential", transform=lambda sample: [[1, None, 2][sample["id"] % 3]]))


@pytest.mark.parametrize("fields", [None, ["x", "deep.y"]])
def test_empty_containers_stay(tmp_path, fields):
    samples = [{"x": i, "m": {}, "t": (i, ()), "deep": {"y": i, "z": []}} for i in range(3)]
    (batch,) = Loader(write(tmp_path / "empty.ffr", samples), 3, "sequential", fields=fields)
    number = torch.arange(3)
    deep = {"y": number}
    if fields is None:  # a list that is empty is a value
        assert same(batch, {"x": number, "m": {}, "t": (number, ()), "deep": deep | {"z": [[], [], []]}})
    else:
        assert same(batch, {"x": number, "m": {}, "t": ((),), "deep": deep})


class Special(dict):
    """What a user may make batches of."""


def special(batch):
    weights = [torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)]
    sparse = [torch.eye(2).to_sparse(), torch.eye(3).to_sparse()]
    nested = [torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])] * 2
    return Special(pair=[torch.ones(2), torch.zeros(1, 2).T], weights=weights, sparse=sparse, nested=nested)


@pytest.mark.filterwarnings("ignore:.*ested tensor:UserWarning", "ignore:Sparse:UserWarning")
def test_what_batch_transform_makes_comes_from_workers_as_it_is(fixed_path):
    found = next(iter(Loader(fixed_path, 3, batch_transform=special, num_workers=1)))
    assert type(found) is Special
    assert same(found["pair"], [torch.ones(2), torch.zeros(2, 1)])
    assert all(weights.requires_grad and weights.is_leaf for weights in found["weights"])
    assert [each.to_dense().tolist() for each in found["sparse"]] == [torch.eye(2).tolist(), torch.eye(3).tolist()]
    assert [len(each.unbind()) for each in found["nested"]] == [2, 2]


# Arguments


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        ({"batch_size": 2.5}, TypeError, "batch_size"),
        ({"batch_size": 31, "drop_last": True}, ValueError, "30 .* at least 31"),
        ({"order": "shuffled"}, ValueError, "shuffled"),
        ({"order": 3}, TypeError, "order"),
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"seed": 2**64}, ValueError, "seed is"),
        ({"epoch": -1}, ValueError, "epoch is -1"),
        ({"policy": "wrap"}, ValueError, "policy is 'wrap'"),
        ({"ragged": "packed"}, ValueError, "ragged is 'packed', expected one of list, nested, padded"),
        ({"on_error": "ignore"}, ValueError, "on_error is 'ignore', expected one of raise, skip, replace"),
        ({"num_threads": -1}, ValueError, "num_threads is -1, expected >= 0"),
        ({"num_threads": 1.5}, TypeError, "num_threads is float 1.5"),
        ({"num_threads": True}, TypeError, "num_threads is True"),
        ({"prefetch": 0}, ValueError, "prefetch is 0, expected >= 1"),
        ({"num_workers": -2}, ValueError, "num_workers is -2"),
        ({"num_workers": 1, "num_threads": 1}, ValueError, "threads or by processes"),
        ({"timeout": -1}, ValueError, "timeout is -1"),
        ({"timeout": "1"}, TypeError, "timeout is str '1'"),
        ({"rank": 2, "world_size": 2}, ValueError, "rank is 2, expected 0 <= rank < 2"),
        ({"world_size": 0}, ValueError, "world_size is 0"),
        ({"indices": []}, ValueError, "0 samples"),
        ({"indices": [30]}, IndexError, "30"),
        ({"transform": 3}, TypeError, "transform is int 3, expected a callable"),
        ({"batch_transform": "f"}, TypeError, "batch_transform is str 'f'"),
        ({"decode": {"id": CenterCrop(8)}}, ValueError, r"decode: id is IntField\(\), expected a column of images"),
        ({"decode": {"picture": None}}, ValueError, "decode has 'picture'"),
        ({"decode": 3}, TypeError, "decode is int 3"),
        ({"decode_with": "nvimgcodec"}, ValueError, "decode_with is 'nvimgcodec', but decode is missing"),
        ({"decode_with": "nvjpeg"}, ValueError, "decode_with is 'nvjpeg', expected one of nvimgcodec"),
        (
            {"decode_with": "nvimgcodec", "num_workers": 2},
            ValueError,
            "num_workers is 2, but decode_with='nvimgcodec' decodes in this process: take num_threads",
        ),
        ({"io": "fast"}, ValueError, "io is 'fast'"),
        ({"device": "tpu"}, ValueError, "device is 'tpu'"),
        ({"device": "meta"}, ValueError, "expected 'cpu' or 'cuda'"),
        ({"device": 1.5}, TypeError, "device is float 1.5"),
    ],
)
def test_wrong_arguments(path, arguments, error, message):
    with pytest.raises(error, match=message):
        Loader(path, **arguments)


def test_the_library_that_decodes_is_missing(path, monkeypatch):
    monkeypatch.setattr(requirements, "import_optional", lambda name: None)
    words = r"decode_with='nvimgcodec' needs nvImageCodec: pip install 'nvidia-nvimgcodec-cu12\[nvjpeg\]'"
    with pytest.raises(ImportError, match=words):
        Loader(path, decode={"name": CenterCrop(8)}, decode_with="nvimgcodec")


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without CUDA")
@pytest.mark.parametrize("arguments", [{"device": "cuda"}, {"device": "cuda:1"}])
def test_no_cuda(path, arguments):
    with pytest.raises(ValueError, match="finds no CUDA device"):
        Loader(path, **arguments)


def test_cpu_is_a_device(fixed_path):
    assert flat(Loader(fixed_path, 8, "sequential", device="cpu")) == list(range(COUNT))


def test_what_is_on_a_device_is_not_pinned(monkeypatch):
    """Such as images that were decoded there; torch's own function refuses it."""
    pinned = []
    monkeypatch.setattr(batch_builder, "pin_memory", lambda value: pinned.append(value) or value)
    there, here = torch.zeros(2, device="meta"), torch.zeros(2)
    batch = {"image": there, "more": [here, ("name", 3)], "padded": Padded(here, there)}
    built = BuiltBatch(None, None, batch, None).pin_memory().batch
    assert built["image"] is there and built["more"] == [here, ("name", 3)] and built["padded"].lengths is there
    assert isinstance(built["padded"], Padded) and not any(value is there for value in pinned) and len(pinned) == 4


def test_empty_dataset(tmp_path):
    FileWriter(tmp_path / "none.ffr").close()
    with pytest.raises(ValueError, match="0 samples"):
        Loader(tmp_path / "none.ffr")


def test_refusal_closes_what_was_opened(path, no_leaked_descriptors):
    with pytest.raises(ValueError, match="batch_size"):
        Loader(path, 0)


def test_given_reader_is_used_and_left_open(fixed_path):
    with FileReader(fixed_path) as reader:
        with Loader(reader, 8, "sequential") as loader:
            assert loader.reader is reader
            assert flat(loader) == list(range(COUNT))
        assert not reader.closed
    with Loader(fixed_path) as loader:
        pass
    assert loader.reader.closed
    with pytest.raises(RuntimeError, match="closed"):
        next(iter(loader))


def test_what_it_says(fixed_path):
    loader = Loader(fixed_path, 8, "sequential", seed=4)
    assert repr(loader) == ("<Loader of 30 samples, batches of 8, Sequential(), seed 4, epoch 0, position 0 of 30>")
    with pytest.raises(RuntimeError, match="no batch was yielded"):
        _ = loader.batch_indices


def test_order_objects_and_subsets(fixed_path):
    indices = np.array([5, 1, 1, 29])
    assert flat(Loader(fixed_path, 3, Sequential(), indices=indices)) == [5, 1, 1, 29]
    shuffled = flat(Loader(fixed_path, 3, indices=indices))
    assert sorted(shuffled) == [1, 1, 5, 29]

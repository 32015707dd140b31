"""Samples by `fields`, `decode` and `transform` of a dataset, compared with a twin that makes them one by one."""

import io
import logging
import multiprocessing
import pickle
import tarfile
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from images_builders import jpeg, picture
from loader_builders import mixed
from loader_builders import write as write_samples
from torch.utils.data import DataLoader, default_collate, random_split
from torch_builders import WORKERS_ANYWHERE, Ints, write_file

import ffrecord
from ffrecord import FileReader, FileWriter
from ffrecord.errors import ArgumentError, FormatError, UserFunctionError
from ffrecord.fields import IntField, JPEGField, Schema, StrField, schema_of
from ffrecord.format.extension import Extension
from ffrecord.order import sample_seeds
from ffrecord.sources import ImageFolderReader, TFRecordReader, TFRecordWriter, WebDatasetReader, encode_example
from ffrecord.torch import BatchSampler, ConcatDataset, Dataset, IterableDataset, Loader, Sampler, Subset
from ffrecord.torch.images import CenterCrop, ImageDecoder, RandomResizedCrop
from ffrecord.torch.indices import SeededIndex

pytestmark = WORKERS_ANYWHERE

COUNT = 12
BAD = (3, 7)
CROP = RandomResizedCrop(16)
NOTHING = object()
SCHEMA = Schema.of({"image": JPEGField(), "id": IntField(), "name": StrField()})


def file_of(i: int) -> bytes:
    return jpeg(picture(40 + i, 60 - i, i))


FILES = [file_of(i) for i in range(COUNT)]


def write(path: Path, files: list[bytes] = FILES) -> str:
    lenient = Schema.of({"image": JPEGField(as_bytes=True), "id": IntField(), "name": StrField()})
    with FileWriter(path, extension=Extension(schema=SCHEMA.to_builtins())) as writer:
        for i, file in enumerate(files):
            writer.write_one(lenient.encode({"image": file, "id": i, "name": f"picture {i}"}))
    return str(path)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("photos") / "photos.ffr")


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two pictures that do not decode, though their checksums are right."""
    files = [file[:30] if i in BAD else file for i, file in enumerate(FILES)]
    return write(tmp_path_factory.mktemp("spoiled") / "photos.ffr", files)


def alone(decoder: ImageDecoder, i: int, seed: int = 0) -> torch.Tensor:
    """The image of a sample, by the decoder alone."""
    batch = decoder.allocate(1)
    decoder.decode_into(memoryview(FILES[i]), decoder.rows(batch)[0], seed)
    return batch[0]


def mean(sample: dict[str, Any], seed: int) -> tuple[float, int]:
    return float(np.asarray(sample["image"]).mean()), seed % 1000


def twin(i: int, seed: int, fields: Any, decode: Any, transform: Any) -> Any:
    """A sample, made step by step."""
    sample: dict[str, Any] = {"image": SCHEMA.fields["image"].decode(memoryview(FILES[i])), "id": i}
    sample["name"] = f"picture {i}"
    if isinstance(fields, dict) and fields.get("image") is not None:
        sample["image"] = FILES[i]
    for name, decoder in (decode or {}).items():
        sample[name] = alone(decoder, i, seed)
    if fields is not None:
        sample = {name: value for name, value in sample.items() if name in fields}
    return sample if transform is None else transform(sample, seed)


def assert_equal(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for name in expected:
            assert_equal(found[name], expected[name])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    elif isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype and torch.equal(found, expected)
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype and np.array_equal(found, expected)
    else:
        assert found == expected


FIELDS = [None, ["id"], ("image", "id"), ["name", "image"], {"image": None, "id": None}]
DECODE = [None, {"image": CROP}, {"image": CenterCrop((8, 12))}]
TRANSFORMS = [None, mean]
WAYS = [
    lambda dataset: (dataset, list(range(COUNT))),
    lambda dataset: (dataset[::-1], list(range(COUNT))[::-1]),
    lambda dataset: (Subset(dataset, [5, 2, 2, -1]), [5, 2, 2, 11]),
    lambda dataset: (dataset[:4] + Subset(dataset, range(6, 9)), [0, 1, 2, 3, 6, 7, 8]),
]


@given(
    st.sampled_from(FIELDS),
    st.sampled_from(DECODE),
    st.sampled_from(TRANSFORMS),
    st.sampled_from(WAYS),
    st.data(),
)
def test_samples_are_those_of_the_twin(photos: str, fields: Any, decode: Any, transform: Any, way: Any, data: Any):
    if fields is not None and "image" not in fields:
        decode = transform = None
    whole: Dataset[Any] = Dataset(photos, fields=fields, decode=decode, transform=transform)
    dataset, members = way(whole)
    asked = data.draw(st.lists(st.integers(0, len(dataset) - 1), min_size=1, max_size=9))
    seeds = data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=len(asked), max_size=len(asked)))
    seeded = [SeededIndex(i, seed) for i, seed in zip(asked, seeds, strict=True)]
    expected = [twin(members[i], seed, fields, decode, transform) for i, seed in zip(asked, seeds, strict=True)]
    assert_equal(dataset[seeded], expected)
    assert_equal(dataset[seeded[0]], expected[0])
    assert_equal(list(dataset.__getitems__(seeded)), expected)
    names = (fields or SCHEMA.columns) if transform is None else ()
    if "image" not in names or decode:
        assert_equal(default_collate(dataset.__getitems__(seeded)), default_collate(expected))
        assert_equal(ffrecord.torch.collate(dataset.__getitems__(seeded)), default_collate(expected))


def test_fields_read_a_column_in_another_way(photos: str):
    fields = {"image": JPEGField(as_bytes=True), "id": None}
    assert_equal(Dataset(photos, fields=fields)[[2, 0]], [{"image": FILES[i], "id": i} for i in (2, 0)])


def test_slices_and_iteration(photos: str):
    dataset: Dataset[Any] = Dataset(photos, fields=["id"])
    assert list(dataset) == [{"id": i} for i in range(COUNT)]
    assert list(dataset[2:8:3]) == [{"id": 2}, {"id": 5}]


def test_numbers_are_collated_without_samples(tmp_path: Path):
    samples = [{"x": np.full(3, i), "y": i, "z": float(i)} for i in range(9)]
    ffrecord.DatasetWriter(tmp_path / "numbers", num_workers=0).from_indexed_dataset(samples)
    dataset: Dataset[Any] = Dataset(tmp_path / "numbers", fields=["z", "x"])
    lazy = dataset.__getitems__([4, 1])
    assert getattr(lazy, "records", None) is not None
    expected = default_collate([{"x": samples[i]["x"], "z": samples[i]["z"]} for i in (4, 1)])
    assert_equal(default_collate(lazy), expected)
    assert_equal(default_collate((dataset + dataset).__getitems__([4, 10])), expected)
    other: Dataset[Any] = Dataset(tmp_path / "numbers", fields=["y"])
    assert [list(sample) for sample in (dataset + other).__getitems__([0, 9])] == [["x", "z"], ["y"]]


def test_images_of_a_batch_are_one_tensor(photos: str):
    dataset: Dataset[Any] = Dataset(photos, decode={"image": CROP})
    samples = dataset.__getitems__([1, 4, 6])
    batch = default_collate(samples)
    assert batch["image"].data_ptr() == next(iter(samples))["image"].data_ptr()
    assert batch["image"].is_contiguous(memory_format=torch.channels_last) and len(batch["image"]) == 3
    one, other = dataset[[1, 4]]
    assert one["image"].untyped_storage().data_ptr() != other["image"].untyped_storage().data_ptr()
    assert pickle.loads(pickle.dumps(samples))[0].keys() == samples[0].keys()
    assert type(pickle.loads(pickle.dumps(samples))) is list and type(next(iter(samples))) is dict


def test_spawned_workers(photos: str):
    dataset: Dataset[Any] = Dataset(photos, decode={"image": CROP})
    sampler = BatchSampler(dataset, 5, seed=3)
    loaded = DataLoader(dataset, batch_sampler=sampler, num_workers=1, multiprocessing_context="spawn")
    assert_equal(list(loaded), list(Loader(photos, 5, seed=3, decode={"image": CROP})))


@pytest.mark.parametrize("workers", [0, 2])
def test_with_our_sampler_the_same_crops_as_the_loader(photos: str, workers: int):
    dataset: Dataset[Any] = Dataset(photos, decode={"image": CROP})
    context = "fork" if workers else None
    sampler = BatchSampler(dataset, 5, seed=3)
    loaded = DataLoader(dataset, batch_sampler=sampler, num_workers=workers, multiprocessing_context=context)
    single = DataLoader(
        dataset, 5, sampler=Sampler(dataset, seed=3), num_workers=workers, multiprocessing_context=context
    )
    ours = Loader(photos, 5, seed=3, decode={"image": CROP})
    for _ in range(2):
        expected = list(ours)
        assert_equal(list(loaded), expected)
        assert_equal(list(single), expected)


@pytest.mark.parametrize("world_size", [1, 3])
def test_seeds_depend_on_the_position_only(photos: str, world_size: int):
    dataset: Dataset[Any] = Dataset(photos, transform=lambda sample, seed: (sample["id"], seed))
    found = {}
    for rank in range(world_size):
        sampler = BatchSampler(dataset, 2, seed=3, epoch=4, rank=rank, num_replicas=world_size)
        found |= dict(sample for indices in sampler for sample in dataset.__getitems__(indices))
    order = ffrecord.order.Random().indices(np.arange(COUNT), COUNT, 3, 4)
    assert found == dict(zip(order.tolist(), sample_seeds(3, 4, np.arange(COUNT)).tolist(), strict=True))


def test_views_and_iterables_pass_seeds_on(photos: str):
    dataset: Dataset[Any] = Dataset(photos, transform=lambda sample, seed: seed)
    seeds = sample_seeds(5, 0, np.arange(4)).tolist()
    for view in (dataset[:4], dataset[:2] + dataset[2:4], Subset(dataset[3:9], [0, 1, 2, 3])):
        (indices,) = BatchSampler(view, 4, seed=5)
        assert view[indices] == seeds
    assert list(IterableDataset(dataset[:4], 4, seed=5)) == seeds


def test_samplers_give_plain_indices_to_other_datasets(photos: str):
    for dataset in (Dataset(photos), Dataset(photos, decode={"image": CenterCrop(8)}), Dataset(photos, fields=["id"])):
        state = torch.get_rng_state()
        assert {type(index) for index in Sampler(dataset)} == {int}
        dataset.__getitems__([1, 2])
        assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("workers", [0, 2])
def test_with_torchs_sampler_crops_follow_the_generator(photos: str, workers: int):
    dataset: Dataset[Any] = Dataset(photos, decode={"image": CROP})

    def epochs(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        loader = DataLoader(
            dataset,
            4,
            num_workers=workers,
            persistent_workers=workers > 0,
            multiprocessing_context="fork" if workers else None,
        )
        return [torch.cat([batch["image"] for batch in loader]) for _ in range(2)]

    first, again, other = epochs(1), epochs(1), epochs(2)
    assert all(torch.equal(one, same) for one, same in zip(first, again, strict=True))
    assert (first[0] != first[1]).flatten(1).any(1).all()  # each image, in another epoch
    assert (first[0] != other[0]).flatten(1).any(1).all()


def test_repeats_in_a_batch_differ(photos: str):
    dataset: Dataset[Any] = Dataset(photos, transform=lambda sample, seed: seed)
    seeds = dataset[[1] * 5 + [2] * 5] + dataset[[1] * 5]
    assert len(set(seeds)) == 15 and all(0 <= seed < 2**64 for seed in seeds)


def test_random_split_of_torch(photos: str):
    dataset: Dataset[Any] = Dataset(photos, decode={"image": CenterCrop(8)})
    parts = random_split(dataset, [8, 4], torch.Generator().manual_seed(0))
    found = {
        int(i): image for part in parts for batch in DataLoader(part, 4) for i, image in zip(*both(batch), strict=True)
    }
    assert sorted(found) == list(range(COUNT))
    assert all(torch.equal(image, alone(CenterCrop(8), i)) for i, image in found.items())


def both(batch: dict[str, Any]) -> tuple[Any, Any]:
    return batch["id"], batch["image"]


# Bad input


def test_images_that_do_not_decode_are_named(spoiled: str):
    dataset: Dataset[Any] = Dataset(spoiled, decode={"image": CROP})
    words = rf"Sample 3: {spoiled}: sample 3: image \(JPEGField\): "
    for ask in (dataset.__getitem__, dataset.__getitems__, dataset[:9].__getitems__):
        with pytest.raises(FormatError, match=words):
            ask([1, 3, 7])
    with pytest.raises(FormatError, match=words):
        dataset[3]
    assert dataset[[0, 1]]


def test_images_that_do_not_decode_are_skipped(spoiled: str, caplog: pytest.LogCaptureFixture):
    dataset: Dataset[Any] = Dataset(spoiled, decode={"image": CROP}, on_error="skip")
    asked = [SeededIndex(i, i) for i in range(COUNT)]
    good = [i for i in range(COUNT) if i not in BAD]
    with caplog.at_level(logging.WARNING, "ffrecord"):
        for samples in (dataset[asked], dataset.__getitems__(asked), (dataset[:5] + dataset[5:])[asked]):
            assert [sample["id"] for sample in samples] == good
            assert all(torch.equal(sample["image"], alone(CROP, i, i)) for i, sample in zip(good, samples, strict=True))
    assert "Sample 3: " in caplog.text and dataset.reader.skipped == 6
    assert [sample["id"] for sample in dataset] == good
    for ask in (dataset.__getitem__, dataset.__getitems__):
        assert ask([]) == []
    with pytest.raises(FormatError, match="Sample 7"):
        dataset.__getitems__([7, 3])
    with pytest.raises(FormatError, match="Sample 3"):
        dataset[3]


def test_damaged_and_spoiled(tmp_path: Path):
    path = write(tmp_path / "photos.ffr", [file[:30] if i == 3 else file for i, file in enumerate(FILES)])
    with FileReader(path) as reader:
        place = int(reader.get_offsets(0)[5])
    data = bytearray(Path(path).read_bytes())
    data[place] ^= 1
    Path(path).write_bytes(data)
    seen = []
    dataset: Dataset[Any] = Dataset(
        path, decode={"image": CROP}, transform=lambda sample, seed: seen.append(seed) or sample["id"], on_error="skip"
    )
    asked = [SeededIndex(i, 100 + i) for i in (1, 3, 4, 5, 6)]
    assert dataset[asked] == dataset.__getitems__(asked) == [1, 4, 6] and seen == [101, 104, 106] * 2
    assert dataset.reader.skipped == 4


def test_transform_that_fails(photos: str):
    def fail(sample: dict[str, Any]) -> Any:
        return next(iter(())) if sample["id"] == 4 else sample["id"] // (sample["id"] - 2)

    dataset: Dataset[Any] = Dataset(photos, transform=fail)
    with pytest.raises(UserFunctionError, match=rf"transform failed on sample 2 \({photos}: sample 2\): ZeroDivision"):
        dataset.__getitems__([1, 2])
    with pytest.raises(UserFunctionError, match=r"transform failed on sample 4 .*StopIteration"):
        dataset[4]


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        (
            {"fields": ["image", "lable"]},
            ValueError,
            "fields has 'lable', expected some of the columns image, id, name",
        ),
        ({"fields": []}, ValueError, "fields is empty, expected some of the columns image, id, name"),
        ({"fields": "image"}, TypeError, "fields is str 'image', expected names of columns"),
        ({"fields": {"id": 3}}, TypeError, "fields: id is 3, expected a field or None"),
        ({"decode": {"picture": CROP}}, ValueError, "decode has 'picture'"),
        ({"decode": {"id": CROP}}, ValueError, r"decode: id is IntField"),
        ({"decode": {"image": 3}}, TypeError, "decode: image is 3, expected one of ffrecord.torch.images"),
        ({"decode": CROP}, TypeError, "decode is .* expected a dict"),
        (
            {"fields": ["id"], "decode": {"image": CROP}},
            ValueError,
            "decode has 'image', expected some of the columns id",
        ),
        ({"transform": 3}, TypeError, "transform is int 3, expected a callable"),
    ],
)
def test_wrong_arguments(photos: str, options: Any, kind: type[Exception], words: str):
    with pytest.raises(kind, match=words):
        Dataset(photos, **options)
    with FileReader(photos) as reader:
        with pytest.raises(kind, match=words):
            Dataset(reader, **options)
        assert reader.sample(0)["id"] == 0  # still open


def test_files_without_schema(path: str, values: list[int]):
    with pytest.raises(ArgumentError, match="expected None; the files carry no schema"):
        Dataset(path, fields=["x"])
    dataset: Dataset[int] = Dataset(path, transform=lambda data: int.from_bytes(bytes(data), "little", signed=True))
    assert dataset[[3, -1]] == [values[3], values[-1]] and dataset[1] == values[1]
    assert default_collate(dataset.__getitems__([0, 1])).tolist() == values[:2]


# Subclasses


def test_process_then_transform(path: str, values: list[int]):
    dataset = Ints(path, transform=lambda value, seed: (value + 1, seed))
    asked = [SeededIndex(2, 7), SeededIndex(0, 9)]
    assert dataset[asked] == dataset.__getitems__(asked) == [(values[2] + 1, 7), (values[0] + 1, 9)]
    assert dataset[3][0] == values[3] + 1


def test_process_beside_fields(photos: str):
    for options in ({"fields": ["id"]}, {"decode": {"image": CROP}}):
        with pytest.raises(ArgumentError, match=r"Ints overrides process.* leave out fields= and decode="):
            Ints(photos, **options)
    dataset: Dataset[Any] = Dataset(photos, fields=["id"])
    dataset.process = lambda indices, data: indices  # type: ignore[method-assign]
    with pytest.raises(ArgumentError, match="overrides process"):
        dataset[[1]]


def test_process_that_gives_fewer(path: str):
    class Odd(Dataset[int]):
        def process(self, indices: list[int], data: Any) -> list[int]:
            return indices[1:]

    assert Odd(path)[[1, 2, 3]] == [2, 3]
    with pytest.raises(ArgumentError, match="process of Odd gave 2 samples for 3 records"):
        Odd(path, transform=str)[[1, 2, 3]]


def test_an_own_getitem_may_use_ours(photos: str):
    class Named(Dataset[Any]):
        def __getitem__(self, indices: Any) -> Any:
            return [sample["id"] for sample in super().__getitem__(indices)]

    dataset = Named(photos, fields=["id"])
    assert dataset[[1, 2]] == dataset.__getitems__([1, 2]) == [1, 2]
    assert (dataset + dataset)[[1, 14]] == [1, 2]


def test_another_reader(photos: str, tmp_path: Path):
    dataset: Dataset[Any] = Dataset(photos, fields=["id"])
    assert dataset[0] == {"id": 0}
    dataset.reader = FileReader(ffr_of(tmp_path, [{"x": 1, "id": 5}]))
    assert dataset[0] == {"id": 5}


def ffr_of(directory: Path, samples: list[Any]) -> str:
    ffrecord.DatasetWriter(directory / "others", num_workers=0).from_indexed_dataset(samples)
    return str(directory / "others")


# Other formats


def test_zip(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for i, file in enumerate(FILES):
            archive.writestr(f"{i:02}.jpg", file)
    check_store(ffrecord.open(tmp_path / "photos.zip"), "data")


def test_image_folder(tmp_path: Path):
    for i, file in enumerate(FILES):
        directory = tmp_path / ("even" if i % 2 == 0 else "odd")
        directory.mkdir(exist_ok=True)
        (directory / f"{i:02}.jpg").write_bytes(file)
    store: Any = ImageFolderReader(tmp_path)
    dataset: Dataset[Any] = Dataset(store, decode={"image": CROP}, fields=["image", "label"])
    batch = next(iter(DataLoader(dataset, COUNT)))
    assert batch["image"].shape == (COUNT, 3, 16, 16) and batch["label"].tolist() == [0] * 6 + [1] * 6


@pytest.mark.parametrize("parsed", [False, True])
def test_tfrecord(tmp_path: Path, parsed: bool):
    with TFRecordWriter(tmp_path / "photos.tfrecord") as writer:
        for i, file in enumerate(FILES):
            writer.write(encode_example({"picture": file, "id": i}) if parsed else file)
    store: Any = TFRecordReader(tmp_path / "photos.tfrecord", features="infer" if parsed else None)
    check_store(store, "picture" if parsed else "data")


def test_webdataset(tmp_path: Path):
    with tarfile.open(tmp_path / "photos.tar", "w") as archive:
        for i, file in enumerate(FILES):
            for name, data in (("jpg", file), ("cls", str(i).encode())):
                member = tarfile.TarInfo(f"{i:02}.{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    store: Any = WebDatasetReader(tmp_path / "photos.tar")
    check_store(store, "jpg")
    batch = next(iter(DataLoader(Dataset(store, fields=["jpg", "cls"], decode={"jpg": CROP}), 4)))
    assert batch["jpg"].shape == (4, 3, 16, 16) and len(batch["cls"]) == 4


def check_store(store: Any, column: str) -> None:
    seeds = [SeededIndex(i, 50 + i) for i in (4, 1)]
    dataset: Dataset[Any] = Dataset(store, fields=[column], decode={column: CROP})
    expected = [{column: alone(CROP, i, 50 + i)} for i in (4, 1)]
    assert_equal(dataset[seeds], expected)
    assert_equal(default_collate(dataset.__getitems__(seeds)), default_collate(expected))
    doubled: Dataset[Any] = Dataset(store, transform=lambda sample: len(bytes(sample[column])))
    assert doubled[[0, 3]] == [len(FILES[0]), len(FILES[3])]
    with pytest.raises(FormatError, match="no column 'nothing' in a sample of"):
        Dataset(store, fields=["nothing"])[[0]]


def test_bad_pictures_of_a_store(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for i, file in enumerate(FILES[:4]):
            archive.writestr(f"{i:02}.jpg", file[:30] if i == 2 else file)
    dataset: Dataset[Any] = Dataset(ffrecord.open(tmp_path / "photos.zip"), decode={"data": CROP})
    with pytest.raises(FormatError, match=r"Sample 2: .*photos\.zip: .*data: "):
        dataset.__getitems__([1, 2])
    skipping: Dataset[Any] = Dataset(ffrecord.open(tmp_path / "photos.zip", on_error="skip"), decode={"data": CROP})
    assert [sample["key"] for sample in skipping.__getitems__([0, 1, 2, 3])] == ["00.jpg", "01.jpg", "03.jpg"]


# Copies and writers


def middle(sample: dict[str, Any]) -> dict[str, Any]:
    return {"corner": sample["image"][0, :2, :2], "id": sample["id"]}


def test_pickles(photos: str):
    dataset: Dataset[Any] = Dataset(photos, decode={"image": CROP}, transform=middle, fields=["image", "id"])
    seeded = [SeededIndex(4, 5)]
    assert pickle.loads(pickle.dumps(seeded))[0].seed == 5
    clone = pickle.loads(pickle.dumps(dataset))
    assert_equal(clone[pickle.loads(pickle.dumps(seeded))], dataset[seeded])


def test_forked(photos: str):
    dataset: Dataset[Any] = Dataset(photos, decode={"image": CenterCrop(8)})
    with multiprocessing.get_context("fork").Pool(1) as pool:
        found = pool.apply(partial(ids, dataset))
    assert found == [sample["id"] for sample in dataset]


def ids(dataset: Dataset[Any]) -> list[int]:
    return [sample["id"] for sample in dataset.__getitems__(range(COUNT))]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_writer_writes_what_the_dataset_gives(photos: str, tmp_path: Path, workers: int):
    def write(name: str, dataset: Any) -> list[Any]:
        ffrecord.DatasetWriter(tmp_path / name, num_workers=workers).from_indexed_dataset(dataset)
        return list(Dataset(tmp_path / name))

    crop = {"image": CenterCrop(8)}
    decoded: Dataset[Any] = Dataset(photos, decode=crop)
    assert_equal(write("decoded", decoded), list(decoded))
    transformed: Dataset[Any] = Dataset(photos, decode=crop, transform=middle)
    assert_equal(write("transformed", transformed[3:]), list(transformed)[3:])
    chosen: Dataset[Any] = Dataset(photos, fields=["id"])
    assert write("chosen", ConcatDataset([chosen, chosen])) == list(chosen) * 2
    write("copied", Dataset(photos))
    with FileReader(tmp_path / "copied") as copy, FileReader(photos) as original:
        assert [bytes(record) for record in copy] == [bytes(record) for record in original]


def test_workers_share_large_batches(tmp_path: Path):
    path = write(tmp_path / "photos.ffr")
    dataset: Dataset[Any] = Dataset(path, decode={"image": RandomResizedCrop(160)})
    loader = DataLoader(dataset, 6, num_workers=1, multiprocessing_context="fork")
    for batch in loader:
        assert batch["image"].is_shared() and batch["image"].shape == (6, 3, 160, 160)
        assert batch["image"].is_contiguous(memory_format=torch.channels_last)


def test_plain_records_stay_plain(tmp_path: Path):
    path = write_file(tmp_path / "ints.ffr", [1, 2])
    with pytest.raises(NotImplementedError):
        Dataset(path)[0]


@given(st.data())
def test_any_columns_of_nested_samples(nested: str, data: Any):
    whole: Dataset[Any] = Dataset(nested)
    schema = schema_of(whole.reader)
    assert schema is not None
    fields = data.draw(st.lists(st.sampled_from(schema.columns), min_size=1, unique=True))
    asked = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=6))
    dataset: Dataset[Any] = Dataset(nested, fields=fields)
    expected = [pruned(mixed(i), "", fields) for i in asked]
    assert_equal(dataset[asked], expected)
    assert_equal(list(dataset.__getitems__(asked)), expected)
    try:
        collated = default_collate(expected)
    except (TypeError, RuntimeError) as error:  # None, or shapes that differ
        with pytest.raises(type(error)):
            default_collate(dataset.__getitems__(asked))
        return
    assert_equal(default_collate(dataset.__getitems__(asked)), collated)
    assert_equal(default_collate(Dataset(nested, fields=fields, transform=lambda x: x).__getitems__(asked)), collated)


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_samples(tmp_path_factory.mktemp("nested") / "nested.ffr", map(mixed, range(10)))


def pruned(sample: Any, name: str, fields: list[str]) -> Any:
    """A sample without the other columns, and without structures that become empty."""
    if not isinstance(sample, dict | tuple):
        return sample if name in fields else NOTHING
    if isinstance(sample, dict):
        items = {key: (f"{name}.{key}".lstrip("."), child) for key, child in sample.items()}
    else:
        items = {i: (f"{name}[{i}]", child) for i, child in enumerate(sample)}
    kept = {key: pruned(child, label, fields) for key, (label, child) in items.items()}
    kept = {key: child for key, child in kept.items() if child is not NOTHING}
    if not kept:
        return NOTHING
    return kept if isinstance(sample, dict) else tuple(kept.values())


@pytest.mark.parametrize("workers", [0, 2])
def test_crops_go_on_after_a_stop(photos: str, workers: int):
    dataset: Dataset[Any] = Dataset(photos, decode={"image": CROP})

    def loader() -> ffrecord.torch.DataLoader[Any]:
        return ffrecord.torch.DataLoader(dataset, batch_sampler=BatchSampler(dataset, 3, seed=8), num_workers=workers)

    whole = list(loader())
    stopped = loader()
    for step, _ in enumerate(stopped):
        if step == 1:
            state = stopped.state_dict()
            break
    resumed = loader()
    resumed.load_state_dict(state)
    assert_equal(list(resumed), whole[2:])

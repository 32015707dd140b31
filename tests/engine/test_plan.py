"""Plans: any indices, in any tables, give what slicing the file in Python gives, or an error."""

import itertools
import struct

import builders
import ffr_twin
import numpy as np
import pytest
import strategies
from builders import IO_MODES
from hypothesis import given
from hypothesis import strategies as st

from ffrecord import FileReader, FormatError

PARTS = [0, 3, 0, 0, 700, 1, 0, 48, 0]  # samples in each file
SIZES = (0, 1, 15, 300, 4095, 4096, 9000)


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> tuple[list[str], list[bytes]]:
    """Files, empty ones among them, and what slicing finds in them."""
    directory, names, samples = tmp_path_factory.mktemp("parts"), [], []
    for number, n in enumerate(PARTS):
        wanted = builders.records([SIZES[i % len(SIZES)] for i in range(n)], number)
        names.append(builders.write_samples(directory / f"{number}.ffr", wanted))
        samples += sliced((directory / f"{number}.ffr").read_bytes())
    return names, samples


def sliced(data: bytes) -> list[bytes | None]:
    """Each sample of a file by its tables; None where they contradict the file."""
    n = struct.unpack_from("<q", data, 4)[0]
    offsets = [*struct.unpack_from(f"<{n}q", data, 12 + 4 * n), len(data)]
    whole = [offsets[0] <= low <= high <= len(data) for low, high in itertools.pairwise(offsets)]
    return [data[offsets[i] : offsets[i + 1]] if whole[i] else None for i in range(n)]


COUNT = sum(PARTS)
ORDERS = {
    "any": st.lists(st.integers(-COUNT, COUNT - 1), max_size=500),
    "repeated": st.lists(st.sampled_from([0, 2, 3, 700, -1, COUNT - 1, -COUNT]), max_size=200),
    "sorted": st.lists(st.integers(0, COUNT - 1), max_size=500).map(sorted),
    "reversed": st.lists(st.integers(0, COUNT - 1), max_size=500).map(lambda found: sorted(found, reverse=True)),
    "a range": st.slices(COUNT).map(lambda cut: range(COUNT)[cut]),
    "around the size from which on digits are sorted": st.lists(st.integers(0, COUNT - 1), min_size=47, max_size=50),
}


@pytest.mark.parametrize("order", ORDERS)
@given(data=st.data())
def test_any_indices(parts, order, data):
    names, samples = parts
    indices, io = data.draw(ORDERS[order]), data.draw(strategies.io_modes)
    wanted = [samples[i] for i in indices]
    with FileReader(names, io=io) as reader:
        assert [sample.tobytes() for sample in reader.read(indices)] == wanted
        assert builders.unpack(reader.read_packed(indices)) == wanted


@given(st.lists(st.integers(-COUNT, COUNT - 1), min_size=1, max_size=200), st.data())
def test_the_first_index_outside_is_named(parts, indices, data):
    outside = st.integers(-(2**63), -COUNT - 1) | st.integers(COUNT, 2**63 - 1)
    wrong = {data.draw(st.integers(0, len(indices) - 1)): data.draw(outside) for _ in range(2)}
    for position, index in wrong.items():
        indices[position] = index
    with FileReader(parts[0]) as reader, pytest.raises(IndexError) as caught:
        reader.read(indices)
    assert f"{wrong[min(wrong)]}" in str(caught.value)


@pytest.mark.parametrize("io", IO_MODES)
def test_a_batch_of_one_and_one_of_100_000(parts, io):
    names, samples = parts
    with FileReader(names, io=io) as reader:
        for i in range(-COUNT, COUNT):
            assert builders.unpack(reader.read_packed([i])) == [samples[i]]
        small = [i for i, sample in enumerate(samples) if len(sample) <= 300]
        indices = np.random.default_rng(0).choice(small, 100_000)
        assert builders.unpack(reader.read_packed(indices)) == [samples[i] for i in indices]


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> str:
    """A file of 150,001 samples of one byte each; those of sample i are i % 251."""
    n = 150_001
    values = (np.arange(n) % 251).astype(np.uint8)
    offsets = np.arange(n, dtype="<i8") + 12 + 12 * n
    data = bytes(4) + n.to_bytes(8, "little") + bytes(4 * n) + offsets.tobytes() + values.tobytes()
    return builders.write(tmp_path_factory.mktemp("many") / "a.ffr", data)


@pytest.mark.parametrize("files", [1, 13, 30])
@pytest.mark.parametrize("k", [1, 48, 49, 50_000])
def test_indices_of_several_digits(many, files, k):
    """Sorted by 11 bits at a time: one, two or three passes, the result in either half of the scratch memory."""
    random = np.random.default_rng(k)
    with FileReader([many] * files, check_data=False) as reader:
        for low, high in ((-reader.n, reader.n), (0, 2000), (reader.n - 3000, reader.n)):
            indices = random.integers(low, high, k)
            data, offsets = reader.read_packed(indices)
            assert (data == indices % reader.n % 150_001 % 251).all()
            assert (offsets == np.arange(k + 1)).all()


# Tables that lie

HOSTILE_SIZES = (0, 5, 700, 4096, 300_000, 0, 90_000, 12)
WHERE = 12 + 12 * len(HOSTILE_SIZES)
hostile_offsets = st.one_of(
    st.integers(WHERE, WHERE + sum(HOSTILE_SIZES)), st.integers(-(2**63), 2**63 - 1), st.integers(0, WHERE)
)


@given(
    st.dictionaries(st.integers(1, len(HOSTILE_SIZES) - 1), hostile_offsets),
    strategies.index_batches(len(HOSTILE_SIZES)),
    strategies.io_modes,
)
def test_hostile_tables(tmp_path, changes, indices, io):
    """Whatever the offsets: the bytes they enclose, or an error of that sample; spans may overlap and go backwards."""
    damage = builders.chain(*(builders.set_offset(i, offset) for i, offset in changes.items()))
    data = damage(ffr_twin.build(builders.records(HOSTILE_SIZES)))
    samples = sliced(data)
    path = builders.write(tmp_path / "a.ffr", data)
    with FileReader(path, False, io=io, on_error="skip") as reader:
        wanted = [samples[i] for i in indices if samples[i] is not None]
        assert [sample.tobytes() for sample in reader.read(indices)] == wanted
        assert builders.unpack(reader.read_packed(indices)) == wanted
    with FileReader(path, False, io=io) as reader:
        for i, sample in enumerate(samples):
            if sample is None:
                with pytest.raises(FormatError, match=f"Sample {i}: "):
                    reader.read([i])


@pytest.mark.parametrize("io", IO_MODES)
def test_tables_that_change_between_batches(tmp_path, io):
    """They are mapped: every batch goes by what they say now, and never beyond the file."""
    good = ffr_twin.build(builders.records(HOSTILE_SIZES))
    path = tmp_path / "a.ffr"
    path.write_bytes(good)
    random = np.random.default_rng(0)
    with FileReader(path, False, io=io, on_error="skip") as reader, open(path, "r+b") as file:
        for _ in range(100):
            data = builders.set_offset(
                random.integers(1, 8), int(random.integers(-(2**62), 2**62) >> random.integers(62))
            )(good)
            file.seek(0)
            file.write(data[:WHERE])
            file.flush()
            assert builders.read_all(reader) == [sample for sample in sliced(data) if sample is not None]

"""Hypothesis strategies: one for each word of the domain."""

from typing import Any

from hypothesis import strategies as st

# Around the sizes at which something changes: sectors, pages, shared blocks, blocks of their own, direct pieces.
EDGES = (0, 1, 511, 512, 513, 4095, 4096, 4097, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, (256 << 10) + 1)
sizes = st.one_of(st.integers(0, 64), st.sampled_from(EDGES))


def records(most: int = 200) -> st.SearchStrategy[list[bytes]]:
    """Lists of samples of all interesting sizes. Contents follow from a seed: their bytes are not worth shrinking."""
    return st.builds(_contents, st.lists(sizes, max_size=most), st.integers(0, 255))


def _contents(of_sizes: list[int], seed: int) -> list[bytes]:
    return [
        (bytes([seed + i & 255, i >> 8 & 255, i & 255]) * (size // 3 + 1))[:size] for i, size in enumerate(of_sizes)
    ]


def index_batches(n: int) -> st.SearchStrategy[list[int]]:
    """Indices of a reader of n samples: repeated, negative, in any order."""
    return st.lists(st.integers(-n, n - 1), max_size=300) if n else st.just([])


def cuts(samples: int, size: int) -> st.SearchStrategy[dict[str, Any]]:
    """What tells a `DatasetWriter` how to cut: shards of at most so many samples or bytes, or as it likes."""
    return st.one_of(
        st.just({}),
        st.builds(lambda n: {"samples_per_shard": n}, st.integers(1, samples)),
        st.builds(lambda n: {"shard_size": n}, st.integers(1, size)),
    )


io_modes = st.sampled_from(("pread", "auto", "direct", "mmap"))
payloads = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)

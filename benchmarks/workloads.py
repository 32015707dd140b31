"""Workloads of the benchmarks, and the effect that each isolates. Equal workloads give equal bytes."""

from dataclasses import dataclass
from typing import Any

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Checksum:
    """CRC-32 of one buffer, again and again.

    Attributes:
        size: size of the buffer, bytes.
        calls: "independent" calls may overlap in the CPU, as when a batch's records are checked: throughput. Each
            "dependent" call starts from the result of the one before, as when a file is checked in pieces: latency.
        seed: seed of the bytes.
    """

    size: int
    calls: str
    seed: int = 7


@dataclass(frozen=True)
class MixedChecksums:
    """CRC-32 of records of many sizes in turn: this shows the cost of wrongly predicted branches, which equal sizes
    hide.

    Attributes:
        smallest, largest: limits of the sizes, bytes; sizes are uniform between them.
        count: number of records, each anywhere in 64 KiB. Branch predictors learn a few thousand sizes by heart.
        seed: seed of sizes, places and bytes.
    """

    smallest: int
    largest: int
    count: int = 65536
    seed: int = 7


@dataclass(frozen=True)
class Positions:
    """Positions of an epoch turned into samples, which are not read.

    Attributes:
        n: number of samples in the dataset. The fewer, the more rounds a random order takes.
        batch: number of consecutive positions per call: the cost of a call is large for few, small for many.
        count: number of positions, from the middle of the epoch on.
        seed: seed of the order.
    """

    n: int
    batch: int
    count: int = 1 << 20
    seed: int = 7


@dataclass(frozen=True)
class Reads:
    """Records read from a file that is far larger than a batch.

    Attributes:
        mean: mean size of a record, bytes. Sizes are lognormal about it (`SPREAD`), so none is aligned, as in datasets.
        batch: number of records requested at once.
        total: size of all records, bytes.
        order: "random": every record once, in batches. "sequential": from front to back.
        memory: bytes that a control group leaves to the process and its page cache, None for all there are. A cold
            file that is small against memory is a different task from one that is not.
        seed: seed of sizes, bytes and order.
    """

    mean: int
    batch: int
    total: int
    order: str = "random"
    memory: int | None = None
    seed: int = 7


@dataclass(frozen=True)
class Singles:
    """Records read one at a time from a file in the page cache: the cost of a call.

    Attributes:
        mean: mean size of a record, bytes, lognormal as in `Reads`.
        total: size of all records, bytes: far more than the CPU caches hold.
        count: number of records read in one repetition, at random.
        seed: seed of sizes, bytes and order.
    """

    mean: int
    total: int
    count: int
    seed: int = 7


@dataclass(frozen=True)
class Opens:
    """Opening a file whose page cache is warm: the cost of a number of samples, in time and in private memory.

    Attributes:
        samples: number of samples of one byte each, so that the file is nearly all tables.
        processes: 0: this process opens it. Else this many are forked from one that has it open, and read from it.
        seed: seed of the bytes.
    """

    samples: int
    processes: int = 0
    seed: int = 7


@dataclass(frozen=True)
class Settling:
    """The number of batches that `io="auto"` needs after the situation has changed.

    Attributes:
        reads: workload that is read.
        change: "evicted" (the file was in the page cache, and memory is short now) or "warmed" (the other way round).
    """

    reads: Reads
    change: str


@dataclass(frozen=True)
class Start:
    """The first batches of a run over a file that is not in the page cache.

    Attributes:
        reads: workload that is read.
        batches: number of batches.
    """

    reads: Reads
    batches: int


@dataclass(frozen=True)
class Writes:
    """Records in memory written to one file, until all of them are on the disk.

    Attributes:
        mean: mean size of a record, bytes. Sizes are lognormal about it (`SPREAD`), as in `Reads`.
        batch: records handed over at once, by those that take many.
        total: bytes of all records: enough for a round to take a good part of a second.
        seed: seed of sizes and bytes.
    """

    mean: int
    batch: int
    total: int
    seed: int = 7


@dataclass(frozen=True)
class Packs:
    """A dataset like CIFAR packed by several processes: images of 32 x 32 x 3 bytes, each with an int.

    Attributes:
        samples: number of samples. The pixels are random: they do not compress.
        workers: number of processes.
        seed: seed of pixels and ints.
    """

    samples: int
    workers: int = 2
    seed: int = 7


@dataclass(frozen=True)
class Pictures:
    """A folder of JPEG files, windows of photographs, packed as they are by several processes.

    Attributes:
        files: number of files.
        workers: number of processes.
        seed: seed of the windows.
    """

    files: int
    workers: int = 2
    seed: int = 7


@dataclass(frozen=True)
class Growth:
    """Tiny samples packed, for the memory cost of a larger dataset.

    Attributes:
        samples: number of samples, 8 bytes each.
        per_shard: number of samples of a shard.
        workers: number of processes.
    """

    samples: int
    per_shard: int
    workers: int = 2


@dataclass(frozen=True)
class Epochs:
    """Shuffled epochs of a dataset like CIFAR, by a loader: images of 32 x 32 x 3 bytes, each with an int.

    Attributes:
        samples: number of samples. The pixels are random: they do not compress.
        batch: number of samples of a batch.
        through: "a loader" of the contestant's own, or torch's "DataLoader" with worker processes; "weights": a loader
            that draws with replacement; "Python": samples that Python makes, one by one.
        workers: number of threads or processes.
        seed: seed of pixels and ints.
    """

    samples: int
    batch: int
    through: str = "a loader"
    workers: int = 2
    seed: int = 7


@dataclass(frozen=True)
class Crops:
    """Shuffled epochs of JPEG files, windows of photographs, decoded and randomly cropped.

    Attributes:
        files: number of files.
        batch: images of a batch.
        side: of a crop that is resized, pixels.
        workers: number of threads or processes.
        seed: seed of the windows.
        form: "bytes" of crops of JPEG files; "normalised": float16 of crops that are flipped; "PNG": bytes of crops of
            PNG files; "GPU": bytes of crops of JPEG files, on a GPU if there is one.
    """

    files: int
    batch: int
    side: int = 224
    workers: int = 2
    seed: int = 7
    form: str = "bytes"


@dataclass(frozen=True)
class Sources:
    """Shuffled epochs of small samples, from one of the kinds of sources that `Loader` takes.

    Attributes:
        way: name of the source in loader_sources.py.
        samples: number of samples, of a number, three floats and a short text, or of bytes.
        batch: number of samples of a batch.
        workers: number of threads or processes, 0 for none.
        seed: seed of the order.
    """

    way: str
    samples: int
    batch: int = 64
    workers: int = 2
    seed: int = 7


class Gathers(Epochs):
    """Random batches of such images, asked for by their indices, each sample once, beside the newest packages."""


class Shuffles(Epochs):
    """Shuffled epochs of such images, by the loaders of the newest packages."""


class CropsBeside(Crops):
    """Such crops, by the loaders of the newest packages."""


@dataclass(frozen=True)
class Resumes:
    """The first batch after a stop in the middle of a shuffled epoch, of images as in `Epochs`, in a new process.

    Attributes:
        samples: number of samples.
        batch: number of samples of a batch.
        workers: number of threads or processes.
        seed: seed of the order, pixels and ints.
    """

    samples: int
    batch: int
    workers: int = 2
    seed: int = 7


@dataclass(frozen=True)
class ColdEpochs:
    """A shuffled epoch of samples of one size, from an empty page cache.

    Attributes:
        mean: size of every sample, bytes: an int64 and uint8 values.
        batch: number of samples of a batch.
        total: size of all samples, bytes.
        seed: seed of the bytes and of the order.
    """

    mean: int
    batch: int
    total: int
    seed: int = 7


@dataclass(frozen=True)
class Starts:
    """The first batch of a shuffled epoch, and its memory.

    Attributes:
        samples: number of samples, 16 bytes each.
        batch: number of samples of a batch.
        at: position in the epoch where the loader begins, as a share of it.
        processes: 0: a `Loader`. Else torch's DataLoader with this many workers, whose memory is measured.
    """

    samples: int
    batch: int
    at: float = 0.0
    processes: int = 0


@dataclass(frozen=True)
class Blocks:
    """A dataset written and read by tasks of Ray.

    Attributes:
        content: "images": 32 x 32 x 3 bytes, each with an int. "files": bytes of any size, each with an int.
        samples: number of samples. All bytes are random: they do not compress.
        mean: bytes of a sample, its int left out. Those of files are lognormal about it (`SPREAD`).
        workers: of Ray, or processes.
        seed: of all bytes.
    """

    content: str
    samples: int
    mean: int
    workers: int = 2
    seed: int = 7


@dataclass(frozen=True)
class Emulated:
    """An epoch of DLIO, which sleeps in place of an accelerator, from an empty page cache.

    Attributes:
        definition: DLIO's own file of the workload, from which all that is not named here is taken.
        framework: "pytorch" or "tensorflow", whose loader reads.
        files: number of files.
        samples: number of samples of a file.
        mean: mean size of a sample, bytes. All samples of a file are equal, and products of two whole sides.
        deviation: standard deviation of the sizes, bytes; 0 for equal ones.
        resized: bytes of the sample that the accelerator gets.
        batch: number of samples of a batch.
        threads: number of processes or threads that read.
        compute: seconds that the accelerator takes for a batch.
    """

    definition: str
    framework: str
    files: int
    samples: int
    mean: int
    deviation: int
    resized: int
    batch: int
    threads: int
    compute: float

    @property
    def total(self) -> int:
        """Number of all samples."""
        return self.files * self.samples


@dataclass(frozen=True)
class Members:
    """Files in a zip archive, stored, read in batches.

    Attributes:
        files: number of files.
        mean: mean size of a file, bytes. Sizes are lognormal about it (`SPREAD`).
        batch: members asked for at once.
        seed: seed of sizes, bytes and order.
    """

    files: int
    mean: int
    batch: int
    seed: int = 7


@dataclass(frozen=True)
class Contained:
    """The same records in files of several formats, read in random batches from an empty page cache.

    Attributes:
        mean: mean size of a record, bytes. Sizes are lognormal about it (`SPREAD`).
        batch: number of records requested at once.
        total: size of all records, bytes.
        seed: seed of sizes, bytes and order.
    """

    mean: int
    batch: int
    total: int
    seed: int = 7


@dataclass(frozen=True)
class Decoded:
    """JPEG files in a zip archive, windows of photographs, decoded to arrays one by one.

    Attributes:
        files: number of files.
        seed: seed of the windows.
    """

    files: int
    seed: int = 7


@dataclass(frozen=True)
class Checked:
    """A file read from front to back, its checksums compared.

    Attributes:
        mean: mean size of a record, bytes. Sizes are lognormal about it (`SPREAD`).
        total: size of all records, bytes.
        seed: seed of sizes and bytes.
    """

    mean: int
    total: int
    seed: int = 7


class Stream(Checked):
    """A TFRecord file."""


@dataclass(frozen=True)
class Examples:
    """tf.train.Example messages in memory, parsed to one array for each feature of a batch.

    Attributes:
        count: messages: an image of 32 x 32 x 3 bytes, an int, and 16 floats or so many as `values`.
        batch: messages parsed at once.
        values: floats of each.
        seed: of all of them.
    """

    count: int
    batch: int
    values: int = 16
    seed: int = 7


@dataclass(frozen=True)
class Conversions:
    """Files of another format converted into a dataset, and the same samples written from memory.

    Attributes:
        source: format; "jpeg folder" for an image folder.
        files: number of records.
        mean: mean size of a record, bytes. Sizes are lognormal about it (`SPREAD`).
        workers: number of processes.
        seed: seed of sizes and bytes.
    """

    source: str
    files: int
    mean: int
    workers: int = 2
    seed: int = 7


@dataclass(frozen=True)
class Commands:
    """A process of the command, from its start to its end, or to its first page.

    Attributes:
        does: "import" of the package alone, or the command: "info" or "view".
        samples: number of samples of the dataset, two ints each.
        shards: number of its files.
    """

    does: str
    samples: int = 0
    shards: int = 0


class Verified(Checked):
    """A `.ffr` file, by `ffrecord verify`."""


@dataclass(frozen=True)
class RemoteReads:
    """An epoch in random order, by URL, from a server that waits before each answer.

    Attributes:
        mean: size of every record, bytes.
        batch: number of records requested at once.
        samples: number of samples.
        milliseconds: delay of each request.
        requests: largest number of requests in flight.
        seed: seed of bytes and order.
    """

    mean: int
    batch: int
    samples: int
    milliseconds: int
    requests: int = 64
    seed: int = 7


@dataclass(frozen=True)
class RemoteBlocks:
    """An epoch in blocks, by URL, from a server that waits before each answer.

    Attributes:
        mean: size of every record, bytes.
        batch: number of records of a batch.
        samples: number of samples.
        milliseconds: delay of each request.
        block: number of samples in a block.
        window: number of blocks in a window.
        seed: seed of bytes and order.
    """

    mean: int
    batch: int
    samples: int
    milliseconds: int
    block: int = 64
    window: int = 64
    seed: int = 7


@dataclass(frozen=True)
class RemoteOpens:
    """Opening a dataset by URL, and locating its last sample.

    Attributes:
        shards: number of shards.
        milliseconds: delay of each request.
    """

    shards: int
    milliseconds: int


@dataclass(frozen=True)
class Threads:
    """An epoch with pure Python work on each sample, in threads: it takes the time, not reading.

    Attributes:
        samples: number of samples.
        words: words of each sample, which Python turns into numbers.
        batch: samples that a thread reads at once.
        threads: number of threads, beside one thread.
        seed: seed of the words.
    """

    samples: int
    words: int = 500
    batch: int = 64
    threads: int = 2
    seed: int = 7


def from_fields(fields: dict[str, Any]) -> Any:
    """Return the workload with the kind and fields from a result file."""
    given = {name: value for name, value in fields.items() if name != "kind"}
    if "reads" in given:
        given["reads"] = Reads(**given["reads"])
    return globals()[fields["kind"]](**given)


# The call and the last reduction (16 to 100 bytes), the step from one algorithm to the next (256 bytes, 1 KiB), the
# inner loop (to 64 KiB, in L1 or L2), the outer caches (1 MiB), memory (64 MiB).
CHECKSUM_SIZES = [16, 64, 100, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, MIB, 64 * MIB]
CHECKSUMS = [Checksum(size, calls) for calls in ("independent", "dependent") for size in CHECKSUM_SIZES]
MIXED_CHECKSUMS = [MixedChecksums(1, 64), MixedChecksums(1, 256), MixedChecksums(1, 2048)]
THREADS, SMOKE_THREADS = Threads(10_000), Threads(200, 20)
SMOKE_CHECKSUMS = [Checksum(64, "independent"), Checksum(64, "dependent"), Checksum(16 * KIB, "independent")]
SMOKE_MIXED = [MixedChecksums(1, 256, count=64)]

POSITIONS = [Positions(n, batch) for n in (1 << 21, 10**9, 10**12) for batch in (512, 1 << 16)]
POSITIONS += [Positions(60_000, 512, 1 << 14), Positions(1 << 20, 1 << 20)]
SMOKE_POSITIONS = [Positions(4096, 512, 2048), Positions(2048, 1024, 2048)]

# Sigma of the logarithm of a record's size: one in a hundred is over 2.8 times as large as the mean, or under 0.28.
SPREAD = 0.5
# The system call and the Python object (256 B), the page (4 KiB), a photograph (110 kB), copying itself (4 MB).
READS = [
    Reads(256, 512, 100_000_000),
    Reads(4 * KIB, 256, 400_000_000),
    Reads(110_000, 64, 700_000_000),
    Reads(4_000_000, 8, 800_000_000),
]
SMOKE_READS = [Reads(4 * KIB, 16, 1_200_000), Reads(110_000, 4, 1_200_000)]
SINGLES = [
    Singles(256, 50_000_000, 100_000),
    Singles(3_000, 200_000_000, 50_000),
    Singles(30_000, 400_000_000, 10_000),
    Singles(110_000, 400_000_000, 3_000),
]
SMOKE_SINGLES = [Singles(3_000, 300_000, 100)]
LIMITED_MEANS = (4 * KIB, 110_000)
LIMITED_MEMORY, SMOKE_MEMORY = 256 * MIB, 128 * MIB
OPENS = [Opens(1_000_000), Opens(20_000_000)]
SMOKE_OPENS = [Opens(1_000), Opens(20_000)]

# Enough that the fastest takes about half a second.
WRITES = [
    Writes(256, 4096, 500_000_000),
    Writes(4 * KIB, 1024, 1_000_000_000),
    Writes(110_000, 64, 1_000_000_000),
    Writes(4_000_000, 8, 1_000_000_000),
]
SMOKE_WRITES = [Writes(256, 100, 200_000), Writes(110_000, 4, 1_200_000)]
# The cost of safety, for pages and for photographs.
SAFETY_READS = [READS[1], READS[2]]
SAFETY_WRITES = [Writes(4 * KIB, 1024, 400_000_000), Writes(110_000, 64, 400_000_000)]
PACKS, SMOKE_PACKS = Packs(200_000), Packs(400)
PICTURES, SMOKE_PICTURES = Pictures(10_000), Pictures(40)
GROWTHS = [Growth(samples, 50_000) for samples in (100_000, 1_000_000, 10_000_000)]
SMOKE_GROWTHS = [Growth(samples, 500) for samples in (1_000, 10_000)]

# 20 ms is the usual time to the first byte of an object in the same region. With more requests the CPU is the limit.
REMOTE_READS = [RemoteReads(110_000, 64, 4_000, 20), RemoteReads(110_000, 64, 4_000, 20, 128)]
SMOKE_REMOTE_READS = [RemoteReads(110_000, 8, 64, 20, 16)]
REMOTE_BLOCKS = [RemoteBlocks(10_800, 64, 12_000, 0), RemoteBlocks(10_800, 64, 12_000, 10)]
SMOKE_REMOTE_BLOCKS = [RemoteBlocks(10_800, 16, 640, 10, 16, 8)]
REMOTE_OPENS, SMOKE_REMOTE_OPENS = RemoteOpens(10_000, 20), RemoteOpens(200, 20)

EPOCHS, SMOKE_EPOCHS = Epochs(200_000, 512), Epochs(1_000, 64)
CROPS, SMOKE_CROPS = Crops(2_000, 64), Crops(40, 8)
PNGS, SMOKE_PNGS = Crops(500, 64, form="PNG"), Crops(20, 8, form="PNG")
# As many as eight formats of both have on the disk together: less than 1.5 GB.
GATHERS, SMOKE_GATHERS = Gathers(40_000, 256), Gathers(1_000, 64)
SHUFFLES, SMOKE_SHUFFLES = Shuffles(40_000, 256), Shuffles(1_000, 64)
CROPS_BESIDE, SMOKE_CROPS_BESIDE = CropsBeside(1_000, 64), CropsBeside(40, 8)
RESUMES, SMOKE_RESUMES = Resumes(40_000, 256), Resumes(1_000, 64)
COLD_EPOCHS = [ColdEpochs(4 * KIB, 256, 1_000_000_000), ColdEpochs(110_000, 64, 1_000_000_000)]
SMOKE_COLD_EPOCHS = [ColdEpochs(4 * KIB, 16, 1_200_000)]
START_SAMPLES, SMOKE_START_SAMPLES = (100_000, 100_000_000), (50_000, 100_000)
STARTS_AT = (0.0, 0.5, 0.99)
START_BATCH, START_PROCESSES = 512, 8

# The workload of DareBlopy: 200 files of about 30 kB. Its figure is for all of them at once.
MEMBERS, SMOKE_MEMBERS = Members(200, 30_000, 200), Members(20, 3_000, 20)
CONTAINED = [Contained(4 * KIB, 256, 400_000_000), Contained(110_000, 64, 700_000_000)]
SMOKE_CONTAINED = [Contained(4 * KIB, 16, 1_200_000)]
# Ray takes about a second to start a write or a read: so the work must take longer.
BLOCKS = [Blocks("images", 600_000, 3072), Blocks("files", 20_000, 110_000)]
SMOKE_BLOCKS = [Blocks("images", 2_000, 3072), Blocks("files", 100, 10_000)]
# MLPerf's unet3d has 168 files of about 147 MB, 25 GB. So it is measured twice: all its files at an eighth of the size
# and of the time, and whole samples from fewer files. There one process reads: four would hold all batches in flight.
UNET3D = [
    Emulated("unet3d_h100", "pytorch", 168, 1, 18_325_078, 8_542_726, 262_144, 7, 4, 0.323 / 8),
    Emulated("unet3d_h100", "pytorch", 28, 1, 146_600_628, 68_341_808, 2_097_152, 7, 1, 0.323),
]
SMOKE_UNET3D = [Emulated("unet3d_h100", "pytorch", 14, 1, 40_000, 10_000, 10_000, 7, 2, 0.002)]
# Of 1,024 files. DLIO names no accelerator in the first definition; the second needs 2.7 times the bytes per second.
RESNET50 = [
    Emulated("resnet50_tf", "tensorflow", 8, 1251, 114_660, 0, 150_528, 64, 8, 0.098),
    Emulated("resnet50_h100", "tensorflow", 16, 1251, 114_660, 0, 150_528, 400, 8, 0.224),
]
SMOKE_RESNET50 = [Emulated("resnet50_tf", "tensorflow", 2, 100, 5_000, 0, 1_024, 16, 2, 0.002)]
DECODED, SMOKE_DECODED = Decoded(500), Decoded(10)
# The cost of the call (256 B), of a page (4 KiB), and the size that DareBlopy measured (60 kB).
STREAMS = [Stream(256, 100_000_000), Stream(4 * KIB, 400_000_000), Stream(60_000, 600_000_000)]
SMOKE_STREAMS = [Stream(4 * KIB, 200_000)]
EXAMPLES = [Examples(20_000, 256), Examples(20_000, 256, 1_000)]
SMOKE_EXAMPLES = [Examples(100, 16)]
CONVERTED = (
    *("ffrecord", "zip", "tar", "tfrecord", "recordio", "lmdb", "image folder"),
    *("path list", "mds", "beton", "torchrecord", "parquet", "huggingface"),
)
CONVERSIONS = [Conversions(source, 20_000, 30_000) for source in CONVERTED]
SMOKE_CONVERSIONS = [Conversions(source, 60, 1_000) for source in ("zip", "lmdb")]

IMPORTED = Commands("import")
SHOWN_SHARDS, SMOKE_SHOWN_SHARDS = Commands("info", 100_000, 10_000), Commands("info", 500, 50)
VIEWED, SMOKE_VIEWED = Commands("view", 10_000_000, 1), Commands("view", 10_000, 1)
# For photographs the limit is memory; for pages it is calls and bookkeeping.
VERIFIED = [Verified(4 * KIB, 400_000_000), Verified(110_000, 2_000_000_000), Verified(4_000_000, 2_000_000_000)]
SMOKE_VERIFIED = [Verified(110_000, 2_400_000)]
VERIFIED_COLD, SMOKE_VERIFIED_COLD = VERIFIED[1:2], SMOKE_VERIFIED

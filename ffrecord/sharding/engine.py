"""A dataset into the shards of one directory.

The shards are the same, byte for byte, whatever the number of workers, the size of their tasks and the start method.
"""

from ffrecord.manifest import Shard
from ffrecord.sharding.assembly import Assembly
from ffrecord.sharding.finisher import Finisher
from ffrecord.sharding.foreman import Foreman
from ffrecord.sharding.job import Job, Means, tasks
from ffrecord.sharding.layout import Layout
from ffrecord.sharding.packing import Packer
from ffrecord.sharding.progress import Progress
from ffrecord.workers import interrupts
from ffrecord.workers.heartbeats import Heart
from ffrecord.workers.process import without_process

LOOK = 0.25  # seconds between two looks for Ctrl-C while the disk is waited for
PATIENCE = 0.5  # seconds that a running fsync gets when a write is given up


def write_shards(job: Job, means: Means) -> tuple[list[Shard], int]:
    """Write the shards of a job from its start on; all is durable but their names.

    Returns:
        (the shards in order, bytes of all samples, those before the start among them).

    Raises:
        WorkerError: the dataset or the encoding failed, or a worker died; names the sample.
        OSError (also a RuntimeError): writing failed.
    """
    total = len(job.indices)
    layout = Layout(total, job.cut, None if job.payload is None else len(job.payload), job.start)
    finisher = Finisher()
    try:
        assembly = Assembly(total, layout, job, finisher)
        if means.workers and total > job.start.samples:
            Foreman(job, means, assembly, finisher).run()
        else:
            _write_here(job, means, assembly, finisher)
        assembly.check()
        while (shards := finisher.wait(LOOK)) is None:
            pass
    finally:
        with interrupts.undisturbed():
            finisher.cancel(PATIENCE)
    return sorted(shards, key=lambda shard: (len(shard.name), shard.name)), assembly.bytes


def _write_here(job: Job, means: Means, assembly: Assembly, finisher: Finisher) -> None:
    """Do the job up to its last sample in this process."""
    heart = Heart()
    packer = Packer(job.dataset, job.encode, job.files, heart)
    progress = Progress(len(job.indices), means.progress, job.files.label, job.start.samples)
    finisher.start()
    try:
        with without_process(heart):
            _pack(job, means, packer, assembly, finisher, progress)
    finally:
        packer.close()
        progress.close()


def _pack(job: Job, means: Means, packer: Packer, assembly: Assembly, finisher: Finisher, progress: Progress) -> None:
    for start, indices in tasks(job.indices, means.task_samples, job.start.samples):
        for piece in packer.pieces(start, indices.tolist()):
            for place in assembly.sized(piece.sized()):
                packer.write(piece, place.segments)
                progress.add(*assembly.wrote(place.start))
        finisher.check()

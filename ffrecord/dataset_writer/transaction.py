"""The transaction of one `DatasetWriter` call: from the lock to the publication."""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass

from ffrecord.dataset_writer import resume, target
from ffrecord.dataset_writer.coordinator import WriteOutcome, write_shards
from ffrecord.dataset_writer.encoding import Encoding, Shape, encoding_from_arguments, encoding_from_schema
from ffrecord.dataset_writer.layout import BEGINNING, STEM, Start
from ffrecord.dataset_writer.options import WriterOptions
from ffrecord.dataset_writer.resume import ResumedShards
from ffrecord.dataset_writer.sample_sources import Source
from ffrecord.dataset_writer.shard_tracker import ShardJob
from ffrecord.dataset_writer.shards import ShardFiles
from ffrecord.dataset_writer.target import Base
from ffrecord.dataset_writer.tasks import WorkerSettings
from ffrecord.dataset_writer.write_log import Request
from ffrecord.errors import MismatchError, add_note, plural
from ffrecord.fields import Schema
from ffrecord.fields.declare import covers, overlay_fields
from ffrecord.format import manifest
from ffrecord.format.manifest import Shard
from ffrecord.system import signals

_log = logging.getLogger("ffrecord")


@dataclass(frozen=True)
class WritePlan:
    """The samples to write, and the functions that provide them.

    Attributes:
        total: number of samples; None if unknown.
        source: function start → source of the samples from there on.
        encoding: function fields → encoding of the samples; it returns None if the first samples are to show it.
        call: request that identifies the call; a resumed write must match it. None if the write cannot be resumed.
        seed: seed of the order; None for the order of the source.
        infer: reads the first samples to infer an encoding, if `encoding` gives None and nothing was written before;
            None to infer it during the write.
    """

    total: int | None
    source: Callable[[Start], Source]
    encoding: Callable[[Schema | None], Encoding | None]
    call: Request | None = None
    seed: int | None = None
    infer: Callable[[], Encoding | None] | None = None


class WriteTransaction:
    """The steps of a write, with their cleanup.

    Args:
        options: options of the writer.
        plan, settings: plan and settings of the call.
    """

    def __init__(self, options: WriterOptions, plan: WritePlan, settings: WorkerSettings) -> None:
        self._options, self._plan, self._settings = options, plan, settings
        self._part = options.part()

    def run(self) -> tuple[Start, int]:
        """Do the write. Ctrl-C, SIGTERM and SIGHUP end it as errors do: by `_clean_up`.

        Returns:
            (end of the dataset, number of shards that an interrupted write had finished).
        """
        return signals.run_with_cleanup(self._run, self._clean_up)

    def _run(self) -> tuple[Start, int]:
        # A signal between locking and noting the lock would leave it held.
        with signals.defer_signals():
            self._part.acquire()
        outcome = self._write()
        with signals.defer_signals():
            self._part.discard()
        return outcome

    def _clean_up(self, error: BaseException | None) -> None:
        """Leave the part directory after an error, and add a note to the error about the files that stay."""
        if error is None:
            return
        kept = resume.leave_with_remark(self._part)
        # The note of kept files would repeat what the message says.
        # A MismatchError already names the files that stay, and the same call would be refused again.
        _note(error, None if isinstance(error, MismatchError) else kept)
        _note(error, self._part.advice(error))

    def _write(self) -> tuple[Start, int]:
        options, plan, part = self._options, self._plan, self._part
        # Before the target is looked at: an interrupted publication may have left files there.
        published = resume.take_over(part, resume=options.resumes)
        if plan.call is None:
            # A write of an iterable cannot go on, and must not remove what a resumable one has finished.
            resume.claim(part, added=published and options.appends)
        # Not after a complete publication: the target then holds the dataset that this call may be about.
        if not published:
            options.check_target()
        found = options.target.base(part) if options.appends else None
        encoding = self._encoding(found)
        start = BEGINNING if found is None else found.start
        kept = ResumedShards([], start)
        if plan.call is not None:
            request = plan.call | {"seed": plan.seed} | options.request(encoding, found)
            kept = resume.continue_write(
                part, request, start, published=published, threads=max(1, self._settings.workers)
            )
            # Later samples must be encoded as those in the kept shards, whatever they would show by themselves.
            if encoding is None and kept.shards and not kept.published:
                encoding = encoding_from_schema(Shape(part.schema_of(kept.shards[0])), options.declares(options.fields))
        # The earlier call was killed between its publication and its end.
        if kept.published:
            return kept.start._replace(shard=len(kept.shards)), len(kept.shards)
        # The complete dataset belongs to another request: it is in the way.
        if published:
            options.check_target()
        self._check_skipped(kept.start.skipped)
        # Late, because nothing may be read from the source if the write is complete or refused.
        if encoding is None and plan.infer is not None:
            encoding = plan.infer()
        return self._go_on(found, encoding, kept), len(kept.shards)

    def _encoding(self, found: Base | None) -> Encoding | None:
        options = self._options
        fields = options.fields
        # Columns of an existing dataset are known, so its fields are the default for the appended samples.
        if found is not None and options.serializer is None and found.listing.schema is not None:
            there = Schema.from_builtins(found.listing.schema)
            if fields is None:
                fields = there
            elif options.completes and covers(there._tree, fields._tree):
                fields = Schema(overlay_fields(there._tree, fields._tree))
        self._check_base(
            found, encoding_from_arguments(fields, options.serializer)
        )  # before samples are read: they might not even fit the encoding
        encoding = self._plan.encoding(fields)
        if found is not None and not found.blank:
            # An unknown encoding is that of the existing dataset, which has no columns.
            encoding = encoding or encoding_from_schema(Shape(None))
            self._check_base(found, encoding)
        return encoding

    def _check_base(self, found: Base | None, encoding: Encoding | None) -> None:
        """Raise MismatchError if the existing dataset has another encoding."""
        if found is not None and not found.blank and encoding is not None:
            said = encoding.extension
            target.check_same_encoding(
                self._options.path, found, encoding.schema, None if said is None else said.serializer
            )

    def _check_skipped(self, count: int) -> None:
        """Raise MismatchError if the interrupted write has skipped more samples than this one may."""
        most = self._options.max_skipped or 0
        if count > most:
            raise MismatchError(
                f"{self._options.path}: the interrupted write left out {plural(count, 'sample')}, but this one may "
                f"leave out {most}; pass resume=False to discard its finished shards"
            )

    def _go_on(self, found: Base | None, encoding: Encoding | None, kept: ResumedShards) -> Start:
        """Write the missing shards and publish all; return the end of the dataset."""
        options, plan, part = self._options, self._plan, self._part
        shards, start = kept.shards, kept.start
        done = WriteOutcome(
            [], start.samples, start.bytes, start.skipped, encoding or encoding_from_schema(Shape(None))
        )
        # A write that was killed just before its publication has nothing left to encode.
        if not shards or start.samples + start.skipped != plan.total:
            files = ShardFiles(part.open, options.path, STEM if found is None else found.stem, options.target.made)
            source, cut, backlog = plan.source(start), options.cut(plan.total), options.target.backlog
            declared = options.declares(options.fields)
            job = ShardJob(source, encoding, cut, files, part.keep, start, options.max_skipped, backlog, declared)
            done = write_shards(job, self._settings)
            shards = [*shards, *done.shards]
        self._publish(shards, done, found)
        return Start(len(shards), done.samples, done.bytes, done.skipped)

    def _publish(self, shards: list[Shard], done: WriteOutcome, found: Base | None) -> None:
        part, schema = self._part, done.encoding.schema
        names = [shard.name for shard in shards]
        # Uploads under way must end before the manifest names their shards.
        part.settle()
        if found is not None:
            # Kept shards may be old; readers see them as soon as the manifest changes.
            part.check_finished(shards)
            listing = found.manifest_with(shards, schema, tell=done.encoding.extension is not None)
            with signals.defer_signals():
                part.publish_more(names, found.listing, listing, done.skipped)
            return
        listing = manifest.build(shards, schema, self._plan.seed)
        # Into the part directory, so that the manifest moves with the shards.
        manifest.save(part.finished, listing, self._options.target.made)
        with signals.defer_signals():
            part.publish([manifest.NAME, *names], listing.fingerprint, done.skipped)


def _note(error: BaseException, note: str | None) -> None:
    """Add a note to an exception; log it too where Python does not show notes."""
    if note is None:
        return
    add_note(error, note)
    # Python shows notes from 3.11 on.
    if sys.version_info < (3, 11):
        _log.warning("%s", note)

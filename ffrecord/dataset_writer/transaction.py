"""One call of a `DatasetWriter`: from the lock to the publication."""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass

from ffrecord.dataset_writer import append, resume
from ffrecord.dataset_writer.append import Base
from ffrecord.dataset_writer.coordinator import WriteOutcome, write_shards
from ffrecord.dataset_writer.encoding import Encoding, Shape, encoding_from_arguments, encoding_from_schema
from ffrecord.dataset_writer.job import ShardJob
from ffrecord.dataset_writer.layout import BEGINNING, STEM, Start
from ffrecord.dataset_writer.options import WriterOptions
from ffrecord.dataset_writer.resume import ResumedShards
from ffrecord.dataset_writer.sample_sources import Source
from ffrecord.dataset_writer.shards import Files
from ffrecord.dataset_writer.tasks import WorkerSettings
from ffrecord.dataset_writer.write_log import Request
from ffrecord.errors import MismatchError, add_note, counted
from ffrecord.fields import Schema
from ffrecord.fields.complete import covers, overlay_fields
from ffrecord.format import manifest
from ffrecord.format.manifest import Shard
from ffrecord.system import signals

_log = logging.getLogger("ffrecord")


@dataclass(frozen=True)
class WritePlan:
    """What to write.

    Attributes:
        total: samples; None if unknown.
        source: of the samples from a start on.
        encoding: of the samples, with these fields; None if the first ones are to show it.
        asked: what the call was asked for, to be compared by one that goes on; None if none can.
        seed: of the order; None for the order of the source.
        look: takes a look at the first samples where `encoding` gives None and nothing was written before; None for
            leaving that to the write itself.
    """

    total: int | None
    source: Callable[[Start], Source]
    encoding: Callable[[Schema | None], Encoding | None]
    asked: Request | None = None
    seed: int | None = None
    look: Callable[[], Encoding | None] | None = None


class WriteTransaction:
    """Does what was planned.

    Args:
        options: of the writer.
        plan, means: of the call.
    """

    def __init__(self, options: WriterOptions, plan: WritePlan, means: WorkerSettings) -> None:
        self._options, self._plan, self._means = options, plan, means
        self._part = options.part()

    def run(self) -> tuple[Start, int]:
        """(what there is in the end, how many shards were there before)."""
        return signals.run_with_cleanup(self._run, self._clean_up)

    def _run(self) -> tuple[Start, int]:
        with signals.defer_signals():
            self._part.acquire()
        outcome = self._write()
        with signals.defer_signals():
            self._part.discard()
        return outcome

    def _clean_up(self, error: BaseException | None) -> None:
        """After an error, which is told what stays."""
        if error is None:
            return
        kept = resume.remark_of(self._part)
        # Who was refused because of what stays was told so, and the same call would be refused again.
        _note(error, None if isinstance(error, MismatchError) else kept)
        _note(error, self._part.advice(error))

    def _write(self) -> tuple[Start, int]:
        options, plan, part = self._options, self._plan, self._part
        published = resume.take_over(part, resume=options.resumes)
        if plan.asked is None:
            resume.claim(part, added=published and options.appends)
        if not published:
            options.check_target()
        found = options.target.base(part) if options.appends else None
        encoding = self._encoding(found)
        start = BEGINNING if found is None else found.start
        kept = ResumedShards([], start)
        if plan.asked is not None:
            request = plan.asked | {"seed": plan.seed} | options.request(encoding, found)
            kept = resume.continue_write(part, request, start, published=published, threads=max(1, self._means.workers))
            if encoding is None and kept.shards and not kept.published:
                encoding = encoding_from_schema(Shape(part.schema_of(kept.shards[0])), options.declares(options.fields))
        if kept.published:
            return kept.start._replace(shard=len(kept.shards)), len(kept.shards)
        if published:
            options.check_target()
        self._check_skipped(kept.start.skipped)
        if encoding is None and plan.look is not None:
            encoding = plan.look()
        return self._go_on(found, encoding, kept), len(kept.shards)

    def _encoding(self, found: Base | None) -> Encoding | None:
        options = self._options
        fields = options.fields
        if found is not None and options.serializer is None and found.listing.schema is not None:
            there = Schema.from_builtins(found.listing.schema)
            if fields is None:
                fields = there
            elif options.completes and covers(there._tree, fields._tree):
                fields = Schema(overlay_fields(there._tree, fields._tree))
        self._check_base(
            found, encoding_from_arguments(fields, options.serializer)
        )  # or its samples might not even fit
        encoding = self._plan.encoding(fields)
        if found is not None and not found.blank:
            # Not known: then it is that of what is there, which has no columns.
            encoding = encoding or encoding_from_schema(Shape(None))
            self._check_base(found, encoding)
        return encoding

    def _check_base(self, found: Base | None, encoding: Encoding | None) -> None:
        """Raise MismatchError if what is there was encoded otherwise."""
        if found is not None and not found.blank and encoding is not None:
            said = encoding.extension
            append.check_same(self._options.path, found, encoding.schema, None if said is None else said.serializer)

    def _check_skipped(self, count: int) -> None:
        """Raise MismatchError if the interrupted write has left out more samples than this one may."""
        most = self._options.max_skipped or 0
        if count > most:
            raise MismatchError(
                f"{self._options.path}: the interrupted write has left out {counted(count, 'sample')}, and "
                f"this one may leave out "
                f"{most}; resume=False discards what it has finished"
            )

    def _go_on(self, found: Base | None, encoding: Encoding | None, kept: ResumedShards) -> Start:
        """Write what is missing, and publish all; what there is then."""
        options, plan, part = self._options, self._plan, self._part
        shards, start = kept.shards, kept.start
        done = WriteOutcome(
            [], start.samples, start.bytes, start.skipped, encoding or encoding_from_schema(Shape(None))
        )
        if not shards or start.samples + start.skipped != plan.total:
            files = Files(part.open, options.path, STEM if found is None else found.stem, options.target.made)
            source, cut, backlog = plan.source(start), options.cut(plan.total), options.target.backlog
            declared = options.declares(options.fields)
            job = ShardJob(source, encoding, cut, files, part.keep, start, options.max_skipped, backlog, declared)
            done = write_shards(job, self._means)
            shards = [*shards, *done.shards]
        self._publish(shards, done, found)
        return Start(len(shards), done.samples, done.bytes, done.skipped)

    def _publish(self, shards: list[Shard], done: WriteOutcome, found: Base | None) -> None:
        part, schema = self._part, done.encoding.schema
        names = [shard.name for shard in shards]
        part.settle()
        if found is not None:
            part.check_finished(shards)
            listing = found.together(shards, schema, tell=done.encoding.extension is not None)
            with signals.defer_signals():
                part.publish_more(names, found.listing, listing, done.skipped)
            return
        listing = manifest.build(shards, schema, self._plan.seed)
        manifest.save(part.finished, listing, self._options.target.made)
        with signals.defer_signals():
            part.publish([manifest.NAME, *names], listing.fingerprint, done.skipped)


def _note(error: BaseException, note: str | None) -> None:
    """Add to what an error says, and where Python does not show that, to the log."""
    if note is None:
        return
    add_note(error, note)
    if sys.version_info < (3, 11):
        _log.warning("%s", note)

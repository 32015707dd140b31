"""Writers of `export`: archives, TFRecords, folders. Each result appears complete, or not at all."""

import contextlib
import io
import os
import tarfile
import zipfile
from abc import ABC, abstractmethod
from errno import EIO
from typing import Any

from ffrecord.conversion.export_files import key_of
from ffrecord.conversion.export_samples import File, Packed, Sample, SampleSource
from ffrecord.errors import FormatError, file_error
from ffrecord.sources.tfrecord.writer import TFRecordWriter
from ffrecord.system import atomic_directory, filesystems, named_calls
from ffrecord.system.atomic_file import PartFile, part_name, remove_tree

ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest date of zip; a fixed one, so that equal samples give equal bytes
MODE = 0o644  # of members


class ExportTarget(ABC):
    """An output that samples are written to.

    Args:
        path: path to write.
        shown: path in messages.
        source: source of the samples.

    Attributes:
        dots: whether names may have dots before the suffix of the column.
    """

    dots = True

    def __init__(self, path: str, shown: str, source: SampleSource) -> None:
        self.path, self.shown, self._source = path, shown, source

    @abstractmethod
    def write(self, sample: Sample) -> list[tuple[str | None, Any]]:
        """Write a sample. Return (name, bytes) of each file or record that was written for it."""

    @abstractmethod
    def publish(self) -> None:
        """Give the output its name, durably."""

    @abstractmethod
    def discard(self) -> None:
        """Remove what is not published. You may call it several times."""

    def _failure(self, error: OSError) -> OSError:
        """Return the error of the whole output: its own path is one that nobody knows."""
        sentence = f"{self.shown}: writing failed, nothing was published"
        return file_error(error.errno or EIO, sentence, self.shown)


class _Files(ExportTarget):
    """An output that consists of files."""

    def write(self, sample: Sample) -> list[tuple[str | None, Any]]:
        files = self._source.files(sample, self.dots)
        for file in files:
            try:
                self._add(file)
            except FormatError:  # it has a better message
                raise
            except ValueError as error:  # for example a name that zipfile cannot encode
                raise FormatError(f"{self.shown}: {file[0]!r} cannot be written: {error}") from None
            except OSError as error:
                # `file_error` makes errors that are both.
                if isinstance(error, RuntimeError):
                    raise
                sentence = f"{self.shown}: writing {file[0]!r} failed, nothing was published"
                raise file_error(error.errno or EIO, sentence, self.shown) from None
        return [(name, content.data) for name, content in files]

    @abstractmethod
    def _add(self, file: File) -> None:
        """Write a file."""


class _Archive(_Files):
    """An output in one file, written through a file object."""

    def __init__(self, path: str, shown: str, source: SampleSource) -> None:
        super().__init__(path, shown, source)
        self._part = PartFile(path)
        # The descriptor belongs to the part file, which closes it.
        self._file = io.BufferedWriter(io.FileIO(self._part.fd, "w", closefd=False), 1 << 20)

    @abstractmethod
    def _end(self) -> None:
        """Write the end of the archive, after its last member."""

    def publish(self) -> None:
        try:
            self._end()
            self._file.close()
            # Nothing is replaced: somebody may have put a file there since the check.
            self._part.publish(replace=False)
        except OSError as error:
            raise self._failure(error) from None

    def discard(self) -> None:
        # Close it while the descriptor is ours. The garbage collector would flush the buffer later, to whatever file
        # has the same descriptor then.
        with contextlib.suppress(OSError, ValueError):
            self._file.close()
        self._part.discard()


class ZipTarget(_Archive):
    """A zip archive with uncompressed members."""

    def __init__(self, path: str, shown: str, source: SampleSource) -> None:
        super().__init__(path, shown, source)
        # Most samples are compressed already, and stored members can be read in place.
        self._archive = zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED)

    def _add(self, file: File) -> None:
        if file[0] in self._archive.NameToInfo:  # zipfile only warns
            raise FormatError(f"{self.shown}: {file[0]!r} occurs twice; nothing was written")
        member = zipfile.ZipInfo(file[0], ZIP_DATE)
        # Unix keeps the mode in the upper 16 bits; 0o100000 says "regular file".
        member.external_attr = (0o100000 | MODE) << 16
        self._archive.writestr(member, file[1].data)

    def _end(self) -> None:
        self._archive.close()

    def discard(self) -> None:
        # Without `fp` the archive counts as closed.
        self._archive.fp = None  # the garbage collector closes the archive, and would write its end
        super().discard()


class TarTarget(_Archive):
    """A tar archive, with pax headers for names that need them."""

    def _add(self, file: File) -> None:
        member, data = tarfile.TarInfo(file[0]), file[1].data
        member.size, member.mode = len(data), MODE
        # Header by header: `tarfile.addfile` would need a file object for each member.
        self._file.write(member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
        self._file.write(data)
        self._file.write(bytes(-len(data) % tarfile.BLOCKSIZE))  # members fill whole blocks of 512 bytes

    def _end(self) -> None:
        # POSIX: two blocks of zeros end an archive.
        self._file.write(bytes(2 * tarfile.BLOCKSIZE))
        # By convention, tar files end with a whole record of 20 blocks.
        self._file.write(bytes(-self._file.tell() % tarfile.RECORDSIZE))


class WebDatasetTarget(TarTarget):
    """A tar archive for WebDataset: the part of a name before its first dot is the sample's key."""

    dots = False

    def write(self, sample: Sample) -> list[tuple[str | None, Any]]:
        written = super().write(sample)
        # The key counts as a name, too, and names must be unique: readers would join two samples with the same key.
        # Names are hashed together, so the key must look like one.
        return [(key_of(written[0][0] or ""), b""), *written]


class TFRecordTarget(ExportTarget):
    """A TFRecord file: records as they are, or examples."""

    def __init__(self, path: str, shown: str, source: SampleSource) -> None:
        super().__init__(path, shown, source)
        self._writer = TFRecordWriter(path)

    def write(self, sample: Sample) -> list[tuple[str | None, Any]]:
        record = self._source.record(sample)
        self._writer.write(record)
        return [(None, record)]

    def write_packed(self, packed: Packed) -> None:
        """Write records as they are."""
        self._writer.write_packed(*packed)

    def publish(self) -> None:
        try:
            self._writer.close()
        except OSError as error:
            raise self._failure(error) from None

    def discard(self) -> None:
        self._writer._discard()


class FolderTarget(_Files):
    """A directory of files, written beside its final place and renamed when it is complete."""

    def __init__(self, path: str, shown: str, source: SampleSource) -> None:
        super().__init__(path, shown, source)
        self._target = filesystems.real_path(path)
        self._part = part_name(self._target)
        # Beside the target, so that the last step is one rename.
        named_calls.mkdir(self._part)
        self._made = {""}

    def _add(self, file: File) -> None:
        folder, _, name = file[0].rpartition("/")
        place = os.path.join(self._part, folder)
        try:
            if folder not in self._made:
                # Asked for once each: a dataset has far more files than directories.
                os.makedirs(place, exist_ok=True)
                self._made.add(folder)
            # "x": file systems without case may have a name already that looks different here.
            with open(os.path.join(place, name), "xb") as out:
                out.write(file[1].data)
        except (FileExistsError, NotADirectoryError):
            raise FormatError(
                f"{self.shown}: {file[0]!r} already exists, or another name needs a directory there"
            ) from None

    def publish(self) -> None:
        try:
            atomic_directory.publish(self._part, self._target)
        except OSError as error:
            raise self._failure(error) from None

    def discard(self) -> None:
        remove_tree(self._part)


# Format → (its writer, the suffix of its files).
TARGETS: dict[str, tuple[type[ExportTarget], str]] = {
    "zip": (ZipTarget, ".zip"),
    "tar": (TarTarget, ".tar"),
    "webdataset": (WebDatasetTarget, ".tar"),
    "tfrecord": (TFRecordTarget, ".tfrecord"),
    "folder": (FolderTarget, ""),
}

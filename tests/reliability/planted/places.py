"""Planted in names and modes of files: what others in the same directory could read, guess, or lead elsewhere."""

from planted.defect import Defect

DEFECTS = (
    Defect(
        "temporary-names-that-can-be-guessed",
        "G1",
        "ffrecord/system/atomic_file.py",
        "{secrets.token_hex(6)}",
        "{os.getpid():012x}",
        ("test_shared_directories.py",),
    ),
    Defect(
        "temporary-file-taken-if-it-is-there",
        "G1",
        "ffrecord/system/atomic_file.py",
        'io.FileIO(self.path, "x+")',
        'io.FileIO(self.path, "w+")',
        ("test_shared_directories.py",),
    ),
    Defect(
        "journal-taken-if-it-is-there",
        "G1",
        "ffrecord/format/journal.py",
        'io.FileIO(self._path, "x")',
        'io.FileIO(self._path, "w")',
        ("test_shared_directories.py",),
    ),
    Defect(
        "umask-ignored",
        "G1",
        "ffrecord/system/atomic_file.py",
        "            try:\n                if lock(self.fd, self.path):\n",
        "            os.fchmod(self.fd, 0o666)\n            try:\n                if lock(self.fd, self.path):\n",
        ("test_atomic_file.py::test_new_files_follow_the_umask", "test_shared_directories.py"),
    ),
    Defect(
        "umask-ignored-by-shards",
        "G1",
        "ffrecord/dataset_writer/shards.py",
        "            reserve(fd, data_start)\n",
        "            os.fchmod(fd, 0o644)\n            reserve(fd, data_start)\n",
        ("test_shared_directories.py",),
    ),
    Defect(
        "links-followed-when-shards-are-made",
        "G1",
        "ffrecord/dataset_writer/shards.py",
        "os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW",
        "os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC",
        ("test_shared_directories.py",),
    ),
    Defect(
        "link-in-place-of-a-kept-index-followed",
        "G1",
        "ffrecord/sources/index_file.py",
        "    if os.path.islink(place):\n",
        "    if False:\n",
        ("test_index_file.py::test_a_link_in_its_place_is_not_written_through",),
    ),
    Defect(
        "unpacked-over-what-is-there",
        "G1",
        "ffrecord/folders/safe_unpack.py",
        "os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC",
        "os.O_CREAT | os.O_CLOEXEC",
        ("test_shared_directories.py::test_a_link_that_comes_to_be_where_files_are_unpacked_leads_nowhere",),
    ),
    Defect(
        "unpacked-outside-of-the-target",
        "G5",
        "ffrecord/folders/safe_unpack.py",
        '    elif ".." in name.replace("\\\\", "/").split("/"):\n',
        '    elif name.startswith(".."):\n',
        ("test_unpacking.py::test_names_that_lead_elsewhere",),
    ),
)

"""Error messages in one line, for people at a terminal."""

import errno
import os
import re
import shlex
import signal

from ffrecord.errors import FFRecordError, MismatchError, WorkerError, name_files
from ffrecord.reading.prefetch import BEGUN

# Advice in errors is for callers of functions. These are the same words for users of the command.
CREDENTIALS = (
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for s3://, GOOGLE_APPLICATION_CREDENTIALS for gs://, "
    "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY for az://"
)
ADVICE = {
    "pass resume=False of DatasetWriter": "use --restart",
    "pass resume=False": "use --restart",
    "resume=False": "--restart",
    "pass a larger max_size": "use a larger --max-size",
    "verify=True compares every sample, but max_skipped leaves": (
        "--verify compares every sample, but --max-skipped leaves"
    ),
    "pass a length (from_iterable), or use samples_per_shard or shard_size": "use --samples-per-shard or --shard-size",
    "pass replace=True": "use --replace",
    "; ffrecord.open opens others": "",
    "or pass format=": "or use --to",
    "no credentials are given, and": "there are no credentials in the environment, and",
    "credentials are given by storage_options": f"credentials are those of the environment ({CREDENTIALS})",
    "pass `region` in storage_options": "set AWS_REGION",
    "pass `account_name` in storage_options, or set": "set",
    ": no killed writer left anything that was flushed: No such file or directory": (
        ": no killed writer left anything that was flushed"
    ),
}
# Arguments that messages name ("shard_size is …", "num_shards=…") and that are options of the command.
ARGUMENTS = re.compile(r"(?<![\w/.-])(shard_size|samples_per_shard|num_shards|max_skipped)(?= is |=)")
FORMAT_ADVICE = re.compile(r'(pass )?(?<![\w/])format="([^"]*)"')  # advice to pass the argument `format`
SAID = (errno.EINVAL, errno.EEXIST, errno.EWOULDBLOCK)  # the system's words for these add nothing to our own sentence

NO_MEMORY = "out of memory"
MEMORY_ERROR = re.compile(r"(?<![\w./])[\w.]*MemoryError(: |$)")
SHOWN = 3  # differences in a message
LOOKED = "samples looked at"  # begins the difference of samples, in the messages of a write


def format_error(error: BaseException) -> str:
    """Format an error in one line.

    Errors of other types than ours, OSError, ImportError and ValueError begin with the name of their type.
    """
    text = _advise_for_command(_shorten_differences(error, _join_lines(str(error))))
    if isinstance(error, OSError) and error.strerror and error.args[:1] == (error.errno,):
        return _format_os_error(error)
    if isinstance(error, FFRecordError | OSError | ImportError | ValueError) and text:
        return _say_out_of_memory(text) if is_out_of_memory(error) else text
    if isinstance(error, MemoryError):
        detail = text.removeprefix(NO_MEMORY).removeprefix(": ")
        return text if NO_MEMORY in detail else f"{NO_MEMORY}: {detail}" if detail else NO_MEMORY
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def renumber_sample(text: str, place: int, index: int | None) -> str:
    """Replace the index of a sample in a message by its index in the dataset.

    Args:
        text: message about a sample.
        place: index of the sample in the store, which may be a part of the dataset.
        index: index of the sample in the dataset; None removes the index.
    """
    return re.sub(rf"\ASample {place}: ", "" if index is None else f"Sample {index}: ", text)


def format_notes(error: BaseException) -> str:
    """Join the notes of an exception: what stays on disk, and how to go on. Tracebacks are left out."""
    notes = [note for note in getattr(error, "__notes__", []) if not note.startswith(BEGUN)]
    return "".join(f"; {_advise_for_command(_join_lines(note))}" for note in notes)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error, or one that caused it, is that memory ran out, or was killed for it."""
    found: BaseException | None = error
    while found is not None:
        code = found.exitcode if isinstance(found, WorkerError) else None
        if isinstance(found, MemoryError) or getattr(found, "errno", None) == errno.ENOMEM or code == -signal.SIGKILL:
            return True
        found = found.__cause__
    return False


def explain_memory(text: str, sources: list[str], jobs: int) -> str:
    """Return the line for a command that ran out of memory: the file, unless the text names it, and what to do.

    Args:
        text: result of `format_error`.
        sources: paths that the command reads.
        jobs: number of its processes or threads, 1 if it has none.
    """
    named = any(source in text for source in sources)
    where = "" if named or not sources else f"{name_files(sources)}: "
    what = f"use fewer --jobs than {jobs}, or" if jobs > 1 else "a record must fit into memory:"
    return f"{where}{text}; {what} free some memory"


def _say_out_of_memory(text: str) -> str:
    """Replace the name of a MemoryError in a text by words, unless they follow."""
    found = MEMORY_ERROR.search(text)
    if found is None:
        return text
    before, rest = text[: found.start()], text[found.end() :]
    return f"{before}{rest}" if NO_MEMORY in rest else f"{before}{NO_MEMORY}{found[1]}{rest}"


def _format_os_error(error: OSError) -> str:
    """Format a failed system call without the error's number, and with the file's name once."""
    name = "" if error.filename is None else os.fsdecode(error.filename)
    sentence, words = _join_lines(error.strerror or ""), os.strerror(error.errno or 0)
    if error.errno in SAID and sentence.endswith(f": {words}") and len(sentence) > len(words) + len(name) + 4:
        sentence = sentence.removesuffix(f": {words}")
    sentence = _advise_for_command(sentence)
    return f"{name}: {sentence}" if name and name not in sentence else sentence


def _advise_for_command(text: str) -> str:
    """Replace advice for callers of functions by advice for users of the command. Words inside paths stay."""
    for advice, ours in ADVICE.items():
        text = re.sub(rf"(?<!/){re.escape(advice)}(?![\w/])", lambda _, ours=ours: ours, text)  # type: ignore[misc]
    text = FORMAT_ADVICE.sub(lambda found: f"{'use ' if found[1] else ''}--format {shlex.quote(found[2])}", text)
    return ARGUMENTS.sub(lambda found: f"--{found[0].replace('_', '-')}", text)


def _shorten_differences(error: BaseException, text: str) -> str:
    """Keep the first of a list of differences. Differing samples are left out if anything else differs."""
    found = error.differences if isinstance(error, MismatchError) else []
    told = [each for each in found if not each.startswith(LOOKED)] or found
    first = "; ".join(told[:SHOWN])
    more = f"; and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
    return text.replace(_join_lines("; ".join(found)), f"{first}{more}") if found else text


def _join_lines(text: str) -> str:
    return " ".join(text.split())

"""Conversion of any source to typed samples in `.ffr` shards, and export to formats that others read.

converter.py       convert: a source to a dataset, and the comparison of both, sample by sample
input.py           sources: samples by index, or one after the other; none may contain the output
parquet.py         rows of Parquet files

exporter.py        export: a dataset to other formats, and the comparison of the result
export_samples.py  samples → the files, or the record, of each
export_files.py    values → bytes of files, their suffixes and names
export_targets.py  writers: zip, tar, TFRecord, folder
export_parts.py    one file or several, by one process or several
"""

from ffrecord.conversion.converter import convert
from ffrecord.conversion.exporter import export

__all__ = ["convert", "export"]

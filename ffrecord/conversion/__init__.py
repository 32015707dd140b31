"""Conversion of any source to typed samples in `.ffr` shards, and export to formats that others read.

converter.py       convert: a source to a dataset
input.py           sources: samples by index, or one after the other
parquet.py         rows of Parquet files
verify.py          comparison of source and result, sample by sample

exporter.py        export: a dataset to other formats, and the comparison of the result
export_samples.py  samples → the files, or the record, of each
export_values.py   values → bytes of files, and their suffixes
export_names.py    names of these files
export_targets.py  writers: zip, tar, TFRecord, folder
export_parts.py    one file or several, by one process or several

check_output.py    refuses outputs inside of the source
"""

from ffrecord.conversion.converter import convert
from ffrecord.conversion.exporter import export

__all__ = ["convert", "export"]

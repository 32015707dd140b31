"""Whatever people have → a dataset of typed samples in `.ffr` shards; and from there to what others read.

converting.py  convert: the one call
given.py       what a source is: samples by index, or one after the other
parquet.py     rows of Parquet files
               parquet_footers.py: what these say of their columns; partitions.py: what their directories say
verifying.py    source and result compared, sample by sample

exporting.py       export: the other way
export_samples.py  samples → the files, or the record, that each becomes
export_values.py   values → bytes of files, and their suffixes
export_targets.py  what is written: zip, tar, TFRecord, folder
export_parts.py    one file or several, by one process or several
export_verify.py   what was written, read again and compared
"""

from ffrecord.conversion.converter import convert
from ffrecord.conversion.exporter import export

__all__ = ["convert", "export"]

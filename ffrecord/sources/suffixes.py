"""Ends of names by which the files of a format are found in a directory; what is in a file decides what it is."""

SUFFIXES = {
    "tar": (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz"),
    "zip": (".zip",),
    "tfrecord": (".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz", ".tfrecord.zlib", ".tfrecords.zlib"),
    "recordio": (".recordio", ".rio"),
    "beton": (".beton", ".ffcv"),
    "parquet": (".parquet", ".pq"),
}
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # what torchvision takes

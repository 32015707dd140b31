"""Planted in what is between other formats and ours: where a value could be lost in silence."""

from planted.defect import Defect

DEFECTS = (
    Defect(
        "parquet-without-statistics-taken-for-full",
        "G2",
        "ffrecord/conversion/parquet.py",
        "    if any(each is None or not each.has_null_count for each in statistics):\n        return None\n",
        "    if any(each is None or not each.has_null_count for each in statistics):\n        return 0\n",
        ("test_convert_arrow.py::test_fields_follow_what_is_missing",),
    ),
    Defect(
        "nested-nan-into-json",
        "G2",
        "ffrecord/inputs/arrow_types.py",
        "    return bool(types().is_integer(kind) or types().is_boolean(kind) or ",
        "    return bool(is_number(kind) or ",
        ("test_convert_tables.py::test_numbers_that_json_does_not_have",),
    ),
    Defect(
        "missing-maps-as-empty-ones",
        "G2",
        "ffrecord/inputs/arrow_values.py",
        "    return [part if each else None for part, each in zip(parts, array.is_valid().to_pylist(), strict=True)]\n",
        "    return list(parts)\n",
        ("test_convert_tables.py::test_a_column_for_each_type",),
    ),
    Defect(
        "durations-exported-as-whole-numbers",
        "G2",
        "ffrecord/conversion/export_files.py",
        "    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)\n",
        "    return isinstance(value, int | np.integer) and not isinstance(value, bool)\n",
        ("test_export.py::test_values_that_come_back_as_they_are",),
    ),
    Defect(
        "masks-of-exported-arrays-dropped",
        "G2",
        "ffrecord/conversion/export_files.py",
        "    check_unmasked(value)\n",
        "",
        ("test_export.py::test_values_that_would_be_lost_are_refused_by_column",),
    ),
    Defect(
        "lzma-without-a-mark-read-beyond-its-size",
        "G3",
        "ffrecord/sources/zip/codecs.py",
        "    return read if flags & MARKED else _bounded_reader(read, size)\n",
        "    return read\n",
        ("test_zip.py::test_lzma_that_ends_at_its_size",),
    ),
    Defect(
        "a-transform-of-hugging-face-ignored",
        "G10",
        "ffrecord/inputs/huggingface.py",
        'source.format["type"] in STORED and _is_untouched(source, library.Dataset)',
        "_is_untouched(source, library.Dataset)",
        ("test_convert_tables.py::test_a_transform_is_what_samples_are",),
    ),
    Defect(
        "a-feature-of-two-kinds-is-of-the-first",
        "G10",
        "ffrecord/sources/tfrecord/examples.py",
        "            if kind and known and kind != known:\n",
        "            if kind and known and kind > len(KINDS):\n",
        ("test_convert_formats.py::test_a_feature_of_two_kinds",),
    ),
    Defect(
        "frames-that-zstd-skips-taken-for-another-format",
        "G3",
        "ffrecord/sources/inflated.py",
        "    if head[1:4] == SKIPPABLE and head[0] >> 4 == 5:\n",
        "    if head[1:4] == SKIPPABLE and head[0] >> 4 == 4:\n",
        (
            "test_mds.py::test_a_skippable_frame_before_a_shard",
            "test_detect.py",
        ),
    ),
)

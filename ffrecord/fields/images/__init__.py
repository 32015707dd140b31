"""Fields of images: lossless, files of any format, JPEG and RGB; the values that they take, and their codecs.

image.py         images of PIL without loss
image_file.py    image files as they are
rgb.py           photographs: JPEG files as they are, RGB as pixels or JPEG
file_values.py   files that values stand for: bytes, paths, images of PIL not loaded yet
jpeg_values.py   values that become JPEGs
pixels.py        limits of images; payloads of plain pixels
image_header.py  format and sides, read without a decoder
image_codec.py   files of any format -> arrays, by Pillow
jpeg_codec.py    JPEG -> arrays and back
jpeg_files.py    many JPEG files -> arrays, in threads
"""

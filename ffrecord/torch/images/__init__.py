"""Decoders of image columns for `ffrecord.torch.Loader`: crops, scaled and flipped, in one tensor.

decoders.py         the public decoders of images
followers.py        decoders of masks and boxes, which follow their image
column_decoders.py  the decoders of a batch, in the order in which they need each other, and what they take
boxes.py            the boxes that are cut out of images
picture.py          the pixels in a box, of any format
jpeg.py             the part of a JPEG that a box needs
nvimgcodec.py       all images of a batch by nvImageCodec, on a GPU
"""

from ffrecord.torch.images.decoders import CenterCrop, ImageDecoder, RandomResizedCrop, Resize
from ffrecord.torch.images.followers import BoxDecoder, MaskDecoder

__all__ = ["BoxDecoder", "CenterCrop", "ImageDecoder", "MaskDecoder", "RandomResizedCrop", "Resize"]

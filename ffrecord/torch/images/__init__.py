"""Decoders of image columns for `ffrecord.torch.Loader`: crops, scaled and flipped, in one tensor."""

from ffrecord.torch.images.decoders import CenterCrop, ImageDecoder, RandomResizedCrop, Resize
from ffrecord.torch.images.followers import BoxDecoder, MaskDecoder

__all__ = ["BoxDecoder", "CenterCrop", "ImageDecoder", "MaskDecoder", "RandomResizedCrop", "Resize"]

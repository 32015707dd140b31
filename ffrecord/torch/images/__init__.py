"""Decoders of image columns for `ffrecord.torch.Loader`: crops, scaled and flipped, in one uint8 tensor."""

from ffrecord.torch.images.decoders import CenterCrop, ImageDecoder, RandomResizedCrop, Resize

__all__ = ["CenterCrop", "ImageDecoder", "RandomResizedCrop", "Resize"]

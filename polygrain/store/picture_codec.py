"""The codec of stored pictures as Zarr knows it: its name in zarr.json, and how Zarr reads and writes a picture."""

from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image
from zarr.abc.codec import ArrayBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, NDBuffer
from zarr.registry import register_codec

from polygrain.store.coded import CRC, NAME, Coding, Format, decode, encode, with_crc


@dataclass(frozen=True)
class PictureCodec(ArrayBytesCodec):
    format: Format
    quality: int
    side: int | None = None
    is_fixed_size = False

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "PictureCodec":
        return cls(**data["configuration"])

    def to_dict(self) -> dict[str, Any]:
        side = {"side": self.side} if self.side else {}
        return {"name": NAME, "configuration": {"format": self.format, "quality": self.quality} | side}

    def compute_encoded_size(self, _: int, __: ArraySpec) -> int:
        raise NotImplementedError

    async def _encode_single(self, picture: NDBuffer, spec: ArraySpec) -> Buffer:
        content = encode(picture.as_numpy_array()[0], Coding(self.format, self.quality))
        return spec.prototype.buffer.from_bytes(content[:-CRC])  # Zarr's crc32c codec appends the checksum

    async def _decode_single(self, content: Buffer, spec: ArraySpec) -> NDBuffer:
        body, whole = content.to_bytes(), np.zeros(spec.shape, np.uint8)
        width, height = Image.open(BytesIO(body)).size if self.side else spec.shape[2:0:-1]
        whole[0, :height, :width] = decode(with_crc(body), (height, width, 3), self.format)
        return spec.prototype.nd_buffer.from_numpy_array(whole)


register_codec(NAME, PictureCodec)

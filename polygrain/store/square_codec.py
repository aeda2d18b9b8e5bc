"""The codec of stored squares as Zarr knows it: its name in zarr.json, and how Zarr reads and writes a square."""

from dataclasses import dataclass
from typing import Any

from zarr.abc.codec import ArrayBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, NDBuffer
from zarr.registry import register_codec

from polygrain.store.coded import CRC, NAME, Coding, Format, decode, encode, with_crc


@dataclass(frozen=True)
class SquareCodec(ArrayBytesCodec):
    format: Format
    quality: int
    is_fixed_size = False

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "SquareCodec":
        return cls(**data["configuration"])

    def to_dict(self) -> dict[str, Any]:
        return {"name": NAME, "configuration": {"format": self.format, "quality": self.quality}}

    def compute_encoded_size(self, _: int, __: ArraySpec) -> int:
        raise NotImplementedError

    async def _encode_single(self, square: NDBuffer, spec: ArraySpec) -> Buffer:
        content = encode(square.as_numpy_array()[0], Coding(self.format, self.quality))
        return spec.prototype.buffer.from_bytes(content[:-CRC])  # Zarr's crc32c codec appends the checksum

    async def _decode_single(self, content: Buffer, spec: ArraySpec) -> NDBuffer:
        square = decode(with_crc(content.to_bytes()), spec.shape[1:], self.format)
        return spec.prototype.nd_buffer.from_numpy_array(square[None])


register_codec(NAME, SquareCodec)

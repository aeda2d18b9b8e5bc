import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

from polygrain.store import arrays
from polygrain.store.picture_codec import PictureCodec
from tests.polygrain.store.test_coded import SIDE, coding, shards, squares, write

__all__ = ["coding", "squares"]  # fixtures


def test_picture_codec__shards_are_those_of_zarr_itself_and_zarr_reads_them(tmp_path, squares, coding):
    path = write(tmp_path / "pixels.zarr", squares, coding)
    np.testing.assert_array_equal(zarr.open_array(path)[:], arrays.open(path)[:])
    peer = zarr.create_array(
        tmp_path / "peer", shape=squares.shape, chunks=(1, SIDE, SIDE, 3), shards=(20, SIDE, SIDE, 3), dtype="uint8",
        serializer=PictureCodec(*coding), compressors=Crc32cCodec(), fill_value=0,
        config={"write_empty_chunks": True},
    )  # fmt: skip
    peer[:] = squares
    assert shards(tmp_path / "peer") == shards(path)

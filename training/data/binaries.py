"""Readers of Parquet, HDF5 and TFRecord. Each needs its package, which is imported when it is used."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from training.data.errors import DataError
from training.data.reading import MAX_RECORD_BYTES, Read

_ROWS = 1024
"""Rows of a columnar file that are in memory at a time."""
_CRC_MASK = 0xA282EAD8


def parquet(path: Path) -> Iterator[Read]:
    """One record a row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_ROWS):
                for record in batch.to_pylist():
                    yield Read(f"{path.name} row {row}", record)
                    row += 1
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path.name} after row {row}: is not valid Parquet: {error}") from error


def hdf5(path: Path) -> Iterator[Read]:
    """The datasets of the root are the columns; all of one length."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            columns = {name: each for name, each in file.items() if isinstance(each, h5py.Dataset)}
            if not columns:
                raise DataError(
                    f"{path.name}: has no datasets at its root; it has {', '.join(file) or 'none'}"
                )
            lengths = {name: each.shape[0] if each.shape else 0 for name, each in columns.items()}
            if len(set(lengths.values())) > 1:
                raise DataError(f"{path.name}: its datasets differ in length: {lengths}")
            for start in range(0, next(iter(lengths.values())), _ROWS):
                rows = {name: each[start : start + _ROWS] for name, each in columns.items()}
                for offset in range(len(next(iter(rows.values())))):
                    record = {name: _value(values[offset]) for name, values in rows.items()}
                    yield Read(f"{path.name} row {start + offset}", record)
    except OSError as error:
        raise DataError(f"{path.name}: is not valid HDF5: {error}") from error


def _value(value: Any) -> object:
    """A cell of numpy's or h5py's as Python's own; bytes that are no text stay bytes, and are odd."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value.tolist() if type(value).__module__ == "numpy" else value


def tfrecord(path: Path) -> Iterator[Read]:
    """`tf.train.Example` messages; features of one value are that value, others lists."""
    from tfrecord import example_pb2

    for number, data in enumerate(_frames(path)):
        place = f"{path.name} record {number}"
        example = example_pb2.Example()
        try:
            example.ParseFromString(data)
        except Exception as error:  # protobuf's DecodeError, whose module depends on its build
            yield Read(place, None, f"is no tf.train.Example: {error}")
            continue
        yield Read(place, {name: _feature(each) for name, each in example.features.feature.items()})


def _feature(feature: Any) -> object:
    kind = feature.WhichOneof("kind")
    values = [_value(each) for each in getattr(feature, kind).value] if kind else []
    return values[0] if len(values) == 1 else values


def _frames(path: Path) -> Iterator[bytes]:
    """The records' bytes. Format: tensorflow/core/lib/io/record_writer.h: u64 length, masked CRC-32C of it,
    data, masked CRC-32C of the data; little-endian."""
    with path.open("rb") as file:
        number = 0
        while head := file.read(12):
            place = f"{path.name} record {number}"
            if len(head) < 12:
                raise DataError(f"{place}: the file ends in the middle of it")
            length, check = struct.unpack("<QI", head)
            if check != _masked_crc(head[:8]) or length > MAX_RECORD_BYTES:
                raise DataError(f"{place}: is no TFRecord (wrong checksum of its length)")
            yield _body(file, length, place)
            number += 1


def _body(file: BinaryIO, length: int, place: str) -> bytes:
    body = file.read(length + 4)
    if len(body) < length + 4:
        raise DataError(f"{place}: the file ends in the middle of it")
    data = body[:length]
    if struct.unpack("<I", body[length:])[0] != _masked_crc(data):
        raise DataError(f"{place}: is damaged (wrong checksum)")
    return data


def _masked_crc(data: bytes) -> int:
    from crc32c import crc32c

    crc = int(crc32c(data))
    return (((crc >> 15) | (crc << 17)) + _CRC_MASK) & 0xFFFFFFFF

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from gateway.observe import sink as sink_module
from gateway.observe.sink import MAX_LINES, Sink


class Pipe:
    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def finish(self) -> bytes:
        """Close the writing end; return what is left to read."""
        os.close(self.writing)
        self.writing = -1
        data = b""
        while chunk := os.read(self.reading, 65536):
            data += chunk
        return data

    def close(self) -> None:
        os.close(self.reading)
        if self.writing >= 0:
            os.close(self.writing)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_lines_come_out_in_order_and_whole(pipe: Pipe) -> None:
    sink = Sink(pipe.writing)
    lines = [b"line %d\n" % number for number in range(1000)]
    for line in lines:
        sink.put(line)
    sink.close()
    assert pipe.finish() == b"".join(lines)


def test_an_output_that_nobody_reads_stops_nobody_and_says_what_was_lost(pipe: Pipe) -> None:
    dropped: list[int] = []
    sink = Sink(pipe.writing, dropped=dropped.append)
    line = b"x" * 99 + b"\n"
    for _ in range(2 * MAX_LINES + 1000):
        sink.put(line)
    assert len(dropped) >= 1000 - 700  # The pipe itself takes some.
    data = b""
    while b"log lines were lost" not in data:
        data += os.read(pipe.reading, 1 << 20)
        sink.put(line)
    said = sum(int(part.split()[0]) for part in data.decode().split("(")[1:])
    assert 0 < said <= len(dropped)
    sink.close()


def test_memory_is_bounded_in_bytes_as_well(pipe: Pipe) -> None:
    dropped: list[int] = []
    sink = Sink(pipe.writing, dropped=dropped.append)
    for _ in range(40):
        sink.put(b"x" * (sink_module.MAX_BYTES // 16))
    assert dropped
    sink.close(timeout_s=0.01)


def test_an_output_that_is_gone_does_no_harm() -> None:
    gone, sink_end = os.pipe()
    os.close(gone)
    sink = Sink(sink_end)
    sink.put(b"nobody reads this\n")
    sink.close()
    sink.put(b"nor this\n")
    sink.close()
    os.close(sink_end)


def test_a_descriptor_that_does_not_block_gets_everything(pipe: Pipe) -> None:
    os.set_blocking(pipe.writing, False)
    sink = Sink(pipe.writing)
    for _ in range(3000):
        sink.put(b"y" * 99 + b"\n")
    data = b""
    while len(data) < 300_000:
        data += os.read(pipe.reading, 65536)
    sink.close()
    assert data == (b"y" * 99 + b"\n") * 3000

"""One reading of a file's bytes: hashed, summed tensor by tensor and handed on, in one pass.

`Source` says where a published file's bytes come from (a whole file, pieces of one, bytes made
here). `read_once` yields them in chunks while worker threads hash (hashlib and zlib release the
GIL), so copying, sha256 and the tensors' checksums overlap, and memory stays at one chunk a file.
Used by the publisher, the stores and the verifier.
"""

from __future__ import annotations

import hashlib
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from checkpoints.errors import SourceChangedError
from checkpoints.manifest import FileEntry

CHUNK_BYTES = 4 * 1024 * 1024
"""Large enough that handing a chunk to a thread costs nothing, small enough for many files at a time."""

OnBytes = Callable[[int], None]


class Piece(msgspec.Struct, frozen=True):
    """`length` bytes of `file` from `start`."""

    file: Path
    start: int
    length: int


class Span(msgspec.Struct, frozen=True):
    """A tensor's place in a published file."""

    name: str
    start: int
    end: int


class Source(msgspec.Struct, frozen=True):
    """What becomes one published file; `spans` are its tensors in order, without overlap."""

    path: str
    pieces: tuple[Piece | bytes, ...]
    spans: tuple[Span, ...] = ()

    def size(self) -> int:
        """Bytes of the published file."""
        return sum(len(piece) if isinstance(piece, bytes) else piece.length for piece in self.pieces)

    def whole_file(self) -> Path | None:
        """The file that this is a plain copy of, if it is one."""
        if len(self.pieces) == 1 and isinstance(self.pieces[0], Piece) and self.pieces[0].start == 0:
            return self.pieces[0].file
        return None


class Sums(msgspec.Struct, frozen=True):
    """What one pass found out."""

    entry: FileEntry
    tensors: dict[str, str]


class Progress:
    """Bytes done of a total, told to `report(done, total)`; may be fed from many threads."""

    def __init__(self, total: int, report: Callable[[int, int], None] | None = None) -> None:
        self._total = total
        self._report = report
        self._done = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Count bytes and report."""
        with self._lock:
            self._done += count
            if self._report is not None:
                self._report(self._done, self._total)


class SpanSums:
    """CRC-32 of each span of a stream that is fed in order."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._at = 0
        self._position = 0
        self._crc = 0
        self._done: dict[str, str] = {}

    def update(self, chunk: memoryview) -> None:
        """Take the next bytes."""
        begin, end = self._position, self._position + len(chunk)
        while self._at < len(self._spans):
            span = self._spans[self._at]
            lo, hi = max(span.start, begin), min(span.end, end)
            if lo < hi:
                self._crc = zlib.crc32(chunk[lo - begin : hi - begin], self._crc)
            if span.end > end:
                break
            self._done[span.name] = f"{self._crc:08x}"
            self._crc = 0
            self._at += 1
        self._position = end

    def result(self) -> dict[str, str]:
        """Name → checksum."""
        return self._done


class Reading:
    """One pass over a `Source`: iterate for its chunks, then ask for `sums()`.

    A chunk is valid until the next is asked for. Leaving early is allowed; then there are no sums.
    """

    def __init__(self, source: Source, hashers: Executor, on_bytes: OnBytes | None = None) -> None:
        self._source = source
        self._hashers = hashers
        self._on_bytes = on_bytes
        self._sha = hashlib.sha256()
        self._spans = SpanSums(source.spans)
        self._size = 0
        self._whole = False

    def __iter__(self) -> Iterator[memoryview]:
        buffer = memoryview(bytearray(CHUNK_BYTES))
        for piece in self._source.pieces:
            yield from self._consume(
                _bytes_chunks(piece) if isinstance(piece, bytes) else _file_chunks(piece, buffer)
            )
        self._whole = True

    def _consume(self, chunks: Iterator[memoryview]) -> Iterator[memoryview]:
        for chunk in chunks:
            pending: list[Future[None]] = [self._hashers.submit(self._sha.update, chunk)]
            if self._source.spans:
                pending.append(self._hashers.submit(self._spans.update, chunk))
            try:
                yield chunk
            finally:
                for future in pending:
                    future.result()
            self._size += len(chunk)
            if self._on_bytes is not None:
                self._on_bytes(len(chunk))

    def sums(self) -> Sums:
        """The pass's result; raises `RuntimeError` before the last chunk was taken."""
        if not self._whole:
            raise RuntimeError(f"{self._source.path}: not read to its end")
        entry = FileEntry(self._source.path, self._size, self._sha.hexdigest())
        return Sums(entry, self._spans.result())


def _bytes_chunks(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    for start in range(0, len(view), CHUNK_BYTES):
        yield view[start : start + CHUNK_BYTES]


def _file_chunks(piece: Piece, buffer: memoryview) -> Iterator[memoryview]:
    left = piece.length
    try:
        with piece.file.open("rb", buffering=0) as file:
            file.seek(piece.start)
            while left:
                count = file.readinto(buffer[: min(left, len(buffer))])
                if not count:
                    raise SourceChangedError(
                        f"{piece.file} became shorter while it was read: publish it again"
                    )
                left -= count
                yield buffer[:count]
    except FileNotFoundError as error:
        raise SourceChangedError(
            f"{piece.file} went away while it was read: keep more checkpoints (save_total_limit)"
        ) from error


def file_source(file: Path, path: str, spans: Sequence[Span] = ()) -> Source:
    """The whole of `file`, published as `path`."""
    return Source(path, (Piece(file, 0, file.stat().st_size),), tuple(spans))


def in_parallel(work: Callable[[Source, Executor], Sums], sources: Sequence[Source]) -> list[Sums]:
    """Run `work` on each source, a few files at a time on all cores; results in the order of `sources`.

    The first error ends it: files not begun are left out, those begun are finished before it is raised.
    """
    cores = os.cpu_count() or 1
    with (
        ThreadPoolExecutor(2 * cores, "hash") as hashers,
        ThreadPoolExecutor(cores, "file") as files,
    ):
        futures = [files.submit(work, source, hashers) for source in sources]
        try:
            return [future.result() for future in futures]
        except BaseException:
            files.shutdown(wait=True, cancel_futures=True)
            raise


def hash_files(sources: Sequence[Source], progress: Progress | None = None) -> list[Sums]:
    """Read each source once and return its sums, in order."""

    def work(source: Source, hashers: Executor) -> Sums:
        reading = Reading(source, hashers, progress.add if progress else None)
        for _ in reading:
            pass
        return reading.sums()

    return in_parallel(work, sources)

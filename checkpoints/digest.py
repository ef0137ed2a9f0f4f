"""One reading of a file's bytes: hashed, fingerprinted tensor by tensor and handed on, in one pass.

`Source` says where a published file's bytes come from (a whole file, pieces of one, bytes made
here). `Reading` yields them in chunks while worker threads hash (hashlib releases the GIL), so
copying and hashing overlap, and memory stays at one chunk a file.
Used by the publisher, the stores and the verifier.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from checkpoints.errors import SourceChangedError
from checkpoints.manifest import FileEntry

CHUNK_BYTES = 4 * 1024 * 1024
"""Large enough that handing a chunk to a thread costs nothing, small enough for many files at a time."""

WHOLE_BYTES = 256 * 1024
"""Tensors up to this size are fingerprinted whole."""
_BLOCK_BYTES = 4096

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


class Pace:
    """Keeps many threads together below a number of bytes a second, by waiting after each chunk."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._due = time.monotonic()
        self._lock = threading.Lock()

    @property
    def chunk_bytes(self) -> int:
        """A tenth of a second's worth."""
        return max(min(int(self._bytes_per_s / 10), CHUNK_BYTES), 4096)

    def add(self, count: int) -> None:
        """Count bytes; returns when they are due."""
        with self._lock:
            self._due = max(self._due, time.monotonic() - 1) + count / self._bytes_per_s
            wait_s = self._due - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)


class Fingerprints:
    """A fingerprint of each tensor of a stream that is fed in order.

    sha256, cut to 128 bits, over the whole of a tensor up to `WHOLE_BYTES` and over evenly spaced
    blocks of a larger one (first and last included). It tells which tensors training changed, at a
    twentieth of what a second sha256 over everything would cost; integrity is the file's own sha256.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self._blocks = iter([block for span in spans for block in _blocks(span)])
        self._block = next(self._blocks, None)
        self._position = 0
        self._sha = hashlib.sha256()
        self._done: dict[str, str] = {}

    def update(self, chunk: memoryview) -> None:
        """Take the next bytes."""
        begin, end = self._position, self._position + len(chunk)
        while (block := self._block) is not None and block.start < end:
            self._sha.update(chunk[max(block.start - begin, 0) : block.end - begin])
            if block.end > end:
                break
            if block.last:
                self._done[block.name] = self._sha.hexdigest()[:32]
                self._sha = hashlib.sha256()
            self._block = next(self._blocks, None)
        self._position = end

    def result(self) -> dict[str, str]:
        """Name → fingerprint; tensors without elements have none."""
        return self._done


class _Block(msgspec.Struct, frozen=True):
    name: str
    start: int
    end: int
    last: bool


def _blocks(span: Span) -> Iterator[_Block]:
    size = span.end - span.start
    if size <= WHOLE_BYTES:
        if size:
            yield _Block(span.name, span.start, span.end, last=True)
        return
    count = WHOLE_BYTES // _BLOCK_BYTES
    for index in range(count):
        start = span.start + (size - _BLOCK_BYTES) * index // (count - 1)
        yield _Block(span.name, start, start + _BLOCK_BYTES, last=index == count - 1)


class Reading:
    """One pass over a `Source`: iterate for its chunks, then ask for `sums()`.

    A chunk is valid until the next is asked for. Leaving early is allowed; then there are no sums.
    """

    def __init__(
        self,
        source: Source,
        hashers: Executor,
        on_bytes: OnBytes | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._source = source
        self._hashers = hashers
        self._on_bytes = on_bytes
        self._chunk_bytes = chunk_bytes
        self._sha = hashlib.sha256()
        self._prints = Fingerprints(source.spans)
        self._size = 0
        self._whole = False

    def __iter__(self) -> Iterator[memoryview]:
        buffer = memoryview(bytearray(self._chunk_bytes))
        for piece in self._source.pieces:
            yield from self._consume(
                _bytes_chunks(piece, self._chunk_bytes)
                if isinstance(piece, bytes)
                else _file_chunks(piece, buffer)
            )
        self._whole = True

    def _consume(self, chunks: Iterator[memoryview]) -> Iterator[memoryview]:
        for chunk in chunks:
            pending: list[Future[None]] = [self._hashers.submit(self._sha.update, chunk)]
            if self._source.spans:
                pending.append(self._hashers.submit(self._prints.update, chunk))
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
        return Sums(entry, self._prints.result())


def _bytes_chunks(data: bytes, size: int) -> Iterator[memoryview]:
    view = memoryview(data)
    for start in range(0, len(view), size):
        yield view[start : start + size]


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

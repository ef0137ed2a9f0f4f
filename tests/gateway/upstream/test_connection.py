"""The connection to an engine against servers that frame their answers well, badly and with malice."""

from __future__ import annotations

import asyncio

import pytest

from gateway.upstream.faults import Fault
from tests.drivers.waiting import eventually
from tests.gateway.upstream.servers import REQUEST, Receiver, answering, asked, engine

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(OK, id="with a length"),
        pytest.param(CHUNKED, id="in chunks"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + OK, id="after a 100"),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 3 + OK, id="after three 103"),
        pytest.param(b"HTTP/1.1 102 Processing\r\n\r\n" + CHUNKED, id="in chunks after a 102"),
    ],
)
async def test_a_whole_answer_is_received_and_its_connection_used_again(answer: bytes) -> None:
    async with engine(answering(answer, answer, close=False)) as pool:
        for _ in range(2):
            receiver = await asked(pool)
            assert (receiver.statuses, receiver.data, receiver.fault) == ([200], b"ok", None)
            assert (pool.open_count, pool.idle_count) == (1, 1)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("answer", [OK, CHUNKED, b"HTTP/1.1 103 Early Hints\r\n\r\n" + CHUNKED])
async def test_an_answer_is_received_whatever_its_cuts(answer: bytes, size: int) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for at in range(0, len(answer), size):
            writer.write(answer[at : at + size])
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    async with engine(script) as pool:
        receiver = await asked(pool)
        assert (receiver.statuses, receiver.data, receiver.fault) == ([200], b"ok", None)
        assert pool.idle_count == 1


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_a_body_without_a_length_ends_with_the_connection(version: bytes) -> None:
    async with engine(answering(b"HTTP/%b 200 OK\r\nx: y\r\n\r\nuntil the end" % version)) as pool:
        receiver = await asked(pool)
        assert (receiver.statuses, receiver.data, receiver.fault) == ([200], b"until the end", None)
        assert pool.idle_count == 0


async def test_connection_close_is_obeyed() -> None:
    answer = OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    async with engine(answering(answer, close=False)) as pool:
        receiver = await asked(pool)
        assert (receiver.data, receiver.fault) == (b"ok", None)
        assert pool.idle_count == 0
        await eventually(lambda: pool.open_count == 0)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        pytest.param(b"", Fault.LOST, id="nothing at all"),
        pytest.param(b"HTTP/1.1 20", Fault.TRUNCATED, id="half a status line"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-", Fault.TRUNCATED, id="half a head"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n", Fault.TRUNCATED, id="only a 100"),
        pytest.param(OK[:-1], Fault.TRUNCATED, id="a body shorter than its length"),
        pytest.param(CHUNKED[:-7], Fault.TRUNCATED, id="half a chunk"),
        pytest.param(CHUNKED[:-5], Fault.TRUNCATED, id="no last chunk"),
        pytest.param(b"garbage\r\n\r\n", Fault.MALFORMED, id="no HTTP"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", Fault.MALFORMED, id="TLS"),
        pytest.param(b"HTTP/3.0 200 OK\r\n\r\n", Fault.MALFORMED, id="another version"),
        pytest.param(
            OK.replace(b"\r\n\r\n", b"\r\ncontent-length: 3\r\n\r\n"), Fault.MALFORMED, id="two lengths"
        ),
        pytest.param(OK.replace(b"length: 2", b"length: -2"), Fault.MALFORMED, id="a negative length"),
        pytest.param(OK.replace(b"length: 2", b"length: 2x"), Fault.MALFORMED, id="a length with a letter"),
        pytest.param(
            CHUNKED.replace(b"\r\n\r\n2", b"\r\ncontent-length: 2\r\n\r\n2"),
            Fault.MALFORMED,
            id="a length together with chunks",
        ),
        pytest.param(CHUNKED.replace(b"2\r\n", b"zz\r\n"), Fault.MALFORMED, id="a chunk size of letters"),
        pytest.param(CHUNKED.replace(b"2\r\nok", b"1\r\nok"), Fault.MALFORMED, id="a chunk that is too long"),
        pytest.param(OK.replace(b"\r\n\r\n", b"\r\n folded\r\n\r\n"), Fault.MALFORMED, id="a folded header"),
        pytest.param(
            OK.replace(b"content", b"x: a\x00b\r\ncontent"), Fault.MALFORMED, id="a zero byte in a header"
        ),
        pytest.param(
            OK.replace(b"content", b"x: a\rset-cookie: b\r\ncontent"),
            Fault.MALFORMED,
            id="a bare CR in a header",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 300 + b"content-length: 0\r\n\r\n",
            Fault.MALFORMED,
            id="300 header lines",
        ),
        pytest.param(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
            Fault.MALFORMED,
            id="another protocol",
        ),
    ],
)
async def test_a_broken_answer_is_told_once_and_its_connection_never_used_again(
    answer: bytes, fault: Fault
) -> None:
    async with engine(answering(answer)) as pool:
        receiver = await asked(pool)
        assert receiver.fault is fault
        assert receiver.endings == 1
        await eventually(lambda: pool.open_count == 0)
        assert pool.idle_count == 0


async def test_a_head_without_end_is_given_up() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nx: ")
        while True:
            writer.write(b"y" * 65_536)
            await writer.drain()

    async with engine(script) as pool:
        receiver = await asked(pool)
        assert receiver.fault is Fault.MALFORMED
        assert receiver.heads == []


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(b"x", id="a byte"),
        pytest.param(b"garbage\r\n\r\n", id="garbage"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", id="a second answer"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n", id="a 100"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-le", id="half a second answer"),
    ],
)
@pytest.mark.parametrize("answer", [OK, CHUNKED, BUSY])
@pytest.mark.parametrize("apart", [False, True], ids=["in one write", "in a write of its own"])
async def test_bytes_behind_an_answer_reach_nobody(answer: bytes, more: bytes, apart: bool) -> None:
    let_go = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer if apart else answer + more)
        await writer.drain()
        if apart:
            await let_go.wait()
            writer.write(more)
        await reader.read()

    async with engine(script) as pool:
        receiver = await asked(pool)
        head = (
            int(answer[9:12]),
            [tuple(line.split(b": ")) for line in answer.split(b"\r\n\r\n")[0].split(b"\r\n")[1:]],
        )
        assert (receiver.heads, receiver.data) == ([head], b"ok")
        assert receiver.fault is None, "the answer itself was whole"
        let_go.set()
        await eventually(lambda: pool.open_count == 0, what="the connection is closed")
        assert pool.idle_count == 0
        assert (receiver.endings, receiver.data) == (1, b"ok")


async def test_an_answer_that_comes_before_the_request_was_sent_is_received_and_the_connection_closed() -> (
    None
):
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()
        await asyncio.Event().wait()

    async with engine(script) as pool:
        receiver = Receiver()
        connection = await pool.open()
        connection.send(REQUEST, b"x" * 64_000_000, receiver)
        async with asyncio.timeout(5):
            await receiver.ended.wait()
        assert (receiver.data, receiver.fault) == (b"ok", None)
        assert pool.idle_count == 0
        await eventually(lambda: pool.open_count == 0)


async def test_bytes_that_nobody_asked_for_close_an_idle_connection() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await reader.read()

    async with engine(script) as pool:
        connection = await pool.open()
        pool.give(connection)
        await eventually(lambda: pool.open_count == 0)
        assert pool.take() is None


async def test_an_abandoned_connection_says_no_more() -> None:
    reached = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED[:50])
        await writer.drain()
        await reader.read()
        reached.set()

    async with engine(script) as pool:
        receiver = Receiver()
        connection = await pool.open()
        connection.send(REQUEST, b"", receiver)
        await eventually(lambda: receiver.heads)
        connection.abandon()
        async with asyncio.timeout(1):
            await reached.wait()
        assert receiver.endings == 0
        assert pool.open_count == 0


async def test_a_paused_connection_reads_nothing_and_goes_on_when_resumed() -> None:
    whole = 8_000_000

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % whole)
        for _ in range(0, whole, 80_000):
            writer.write(b"x" * 80_000)
            await writer.drain()
        await reader.read()

    async with engine(script) as pool:
        receiver = Receiver()
        connection = await pool.open()
        connection.send(REQUEST, b"", receiver)
        await eventually(lambda: receiver.heads)
        connection.pause()
        kept = len(receiver.data)
        await asyncio.sleep(0)
        assert len(receiver.data) <= kept + 300_000
        assert not receiver.ended.is_set()
        connection.resume()
        async with asyncio.timeout(5):
            await receiver.ended.wait()
        assert (len(receiver.data), receiver.fault) == (whole, None)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-model-version: v1\r\n\r\n"


async def test_an_answer_whose_head_came_before_is_received_as_the_first_was() -> None:
    async with engine(answering(HEAD + b"ok", HEAD + b"no", close=False)) as pool:
        first, second = await asked(pool), await asked(pool)
        assert list(pool.known) == [HEAD]
        assert (first.heads, first.data) == (second.heads, b"ok")
        assert (second.data, second.endings, second.fault) == (b"no", 1, None)
        assert (pool.open_count, pool.idle_count) == (1, 1)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(CHUNKED, id="in chunks"),
        pytest.param(OK + b"x", id="with bytes behind it"),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK, id="after a 103"),
        pytest.param(OK.replace(b"200 OK", b"404 Not Found"), id="of another status"),
        pytest.param(OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), id="the last one"),
    ],
)
async def test_only_the_head_of_a_plain_good_answer_is_remembered(answer: bytes) -> None:
    async with engine(answering(answer)) as pool:
        await asked(pool)
        assert not pool.known


async def test_the_end_of_a_head_is_not_remembered_as_a_head() -> None:
    cut = len(HEAD) - 10

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD[:cut])
        await writer.drain()
        await reader.readuntil(b"go on")
        writer.write(HEAD[cut:] + b"ok")
        await reader.read()

    async with engine(script) as pool:
        receiver = Receiver()
        connection = await pool.open()
        connection.send(REQUEST, b"", receiver)
        await eventually(lambda: connection.answered, what="half a head has come")
        assert connection.transport is not None
        connection.transport.write(b"go on")
        await receiver.ended.wait()
        assert receiver.data == b"ok"
        assert not pool.known


async def test_more_than_a_known_head_announces_is_no_part_of_the_answer() -> None:
    async with engine(answering(HEAD + b"ok", HEAD + b"ok" + HEAD + b"no", close=False)) as pool:
        await asked(pool)
        receiver = await asked(pool)
        assert (receiver.data, receiver.endings, receiver.fault) == (b"ok", 1, None)
        await eventually(lambda: pool.open_count == 0, what="the connection is closed")

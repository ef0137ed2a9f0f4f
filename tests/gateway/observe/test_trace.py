from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.trace import (
    Identifiers,
    TraceContext,
    new_trace,
    parse_traceparent,
    sane_request_id,
    server_timing,
)

# The example of the specification.
EXAMPLE = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_the_example_of_the_specification_is_read() -> None:
    assert parse_traceparent(EXAMPLE) == TraceContext(
        b"4bf92f3577b34da6a3ce929d0e0e4736", b"00f067aa0ba902b7", sampled=True
    )


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"00",
        EXAMPLE.upper(),
        EXAMPLE + b"-more",
        EXAMPLE + b"\n",
        b" " + EXAMPLE,
        b"ff" + EXAMPLE[2:],
        b"00-" + b"0" * 32 + EXAMPLE[35:],
        EXAMPLE[:36] + b"0" * 16 + b"-01",
        EXAMPLE.replace(b"-01", b"-0x"),
    ],
)
def test_a_void_traceparent_counts_as_absent(value: bytes) -> None:
    assert parse_traceparent(value) is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    context = parse_traceparent(b"01" + EXAMPLE[2:] + b"-what-comes-later")
    assert context is not None
    assert context.header() == EXAMPLE


@given(st.binary(max_size=80))
def test_no_bytes_break_the_parser(value: bytes) -> None:
    context = parse_traceparent(value)
    assert context is None or parse_traceparent(context.header()) == context


def test_a_child_stays_in_its_trace_with_an_id_of_its_own() -> None:
    identifiers = Identifiers()
    parent = new_trace(identifiers)
    child = parent.child(identifiers)
    assert child.trace_id == parent.trace_id
    assert child.span_id != parent.span_id
    assert parse_traceparent(child.header()) == child


def test_identifiers_are_hex_of_their_length_and_never_repeat() -> None:
    identifiers = Identifiers()
    drawn = [identifiers.request_id() for _ in range(500)] + [identifiers.span_id() for _ in range(501)]
    drawn += [identifiers.request_id() for _ in range(500)]
    assert len(set(drawn)) == len(drawn)
    assert all(re.fullmatch(rb"[0-9a-f]{32}|[0-9a-f]{16}", one) for one in drawn)


@pytest.mark.parametrize("offered", [b"a", b"req_1-2.3/4", b"x" * 128])
def test_a_sane_request_id_is_taken(offered: bytes) -> None:
    assert sane_request_id(offered) == offered


@pytest.mark.parametrize("offered", [None, b"", b"x" * 129, b"a b", b"a\r\nb", b"a\n", b"\xff", b"\x00"])
def test_any_other_is_not(offered: bytes | None) -> None:
    assert sane_request_id(offered) is None


def test_server_timing_is_in_milliseconds() -> None:
    assert server_timing(total=1.5, queue=0.25, engine=1.2, overhead=0.0004) == (
        b"total;dur=1500.00, queue;dur=250.00, engine;dur=1200.00, gateway;dur=0.40"
    )

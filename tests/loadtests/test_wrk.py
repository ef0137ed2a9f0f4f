from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.peers import wrk

PRINTED = """Running 2s test @ http://127.0.0.1:9101/v1/completions
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   671.62us    1.21ms  20.97ms   97.16%
    Req/Sec    58.54k     6.24k   65.41k    80.00%
  Latency Distribution
     50%  466.00us
     75%  595.00us
     90%    1.01ms
     99%    8.57ms
  116461 requests in 2.01s, 51.42MB read
Requests/sec:  57941.29
Transfer/sec:     25.58MB
"""


def test_what_wrk_prints_is_read_in_seconds() -> None:
    load = wrk.parse(PRINTED)
    assert load.requests == 116461
    assert load.per_s == 57941.29
    assert load.p50_s == pytest.approx(466e-6)
    assert load.p99_s == pytest.approx(8.57e-3)
    assert load.failed == 0


def test_refusals_and_broken_connections_are_failures() -> None:
    more = "  Socket errors: connect 1, read 2, write 3, timeout 4\n  Non-2xx or 3xx responses: 7\n"
    assert wrk.parse(PRINTED + more).failed == 17


def test_anything_else_is_quoted() -> None:
    with pytest.raises(wrk.WrkFailed, match="unable to connect"):
        wrk.parse("unable to connect to 127.0.0.1:1 Connection refused\n")


def test_a_script_keeps_its_body_or_numbers_it(tmp_path: Path) -> None:
    fixed = wrk.script(tmp_path, "fixed", '{"a":1}').read_text()
    assert '[[{"a":1}]]' in fixed and "request =" not in fixed
    assert "% 500" in wrk.script(tmp_path, "few", '{"a":"NUMBER"}', different=500).read_text()
    assert "count + 1\n" in wrk.script(tmp_path, "all", '{"a":"NUMBER"}', different=0).read_text()

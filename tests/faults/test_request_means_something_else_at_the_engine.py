"""A request is read, rewritten or refused on its way, and the engine is asked something else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from backends.fake import Behaviour
from tests.drivers.many import many
from tests.drivers.raw import ask, chunked_request, connected
from tests.drivers.sse import record
from tests.faults.seen import asked, last
from tests.gateways import POLICIES, fakes, gateway_to

JSON = [("content-type", "application/json")]

FIELDS: dict[str, Any] = {
    "add_special_tokens": True,
    "allowed_token_ids": [1, 2],
    "bad_words": ["x"],
    "best_of": 1,
    "cache_salt": "salt",
    "chat_template": "{{ messages }}",
    "chat_template_kwargs": {"enable_thinking": False},
    "detokenize": True,
    "documents": [{"title": "a", "text": "b"}],
    "echo": False,
    "guided_json": {"type": "object"},
    "ignore_eos": True,
    "include_stop_str_in_output": True,
    "kv_transfer_params": {"do_remote_decode": True},
    "length_penalty": 1.0,
    "logit_bias": {"1": -100},
    "logits_processors": ["x"],
    "min_p": 0.1,
    "min_tokens": 0,
    "mm_processor_kwargs": {"num_crops": 4},
    "priority": -5,
    "prompt_logprobs": None,
    "repetition_penalty": 1.1,
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
    "return_token_ids": False,
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
    "stop_token_ids": [3],
    "structured_outputs": {"regex": "a+"},
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "truncate_prompt_tokens": -1,
    "use_beam_search": False,
    "a_field_that_nobody_knows": {"a": [1, None, {"b": "\u2028é🙂"}]},
}
"""Those that only vLLM knows, and one that nobody knows."""

STARTS: dict[str, bytes] = {
    "/v1/completions": b'{ "prompt" : "x",\n\t"stream":%b, ',
    "/v1/chat/completions": b'{ "messages" : [{"role":"user","content":"\\u00e9"}],\n\t"stream":%b, ',
}


def _bodies() -> list[tuple[str, bytes]]:
    fields = msgspec.json.encode(FIELDS)[1:]
    found = [
        (path, start % stream + fields) for path, start in STARTS.items() for stream in (b"true", b"false")
    ]
    found.append(("/v1/embeddings", b'{"input" : "x", ' + fields))
    found.append(("/v1/responses", b'{"input" : "x", ' + fields))
    found.append(("/tokenize", b'{"prompt":"x" , ' + fields))
    found.append(("/detokenize", b'{"tokens": [104 ,105], ' + fields))
    return found


@pytest.mark.fault("E1")
async def test_the_engine_gets_the_body_byte_for_byte() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for path, body in _bodies():
            response = await ask(gateway.url, path, body, headers=JSON)
            assert response.status == 200, response.body
            assert (last(fake).path, last(fake).body) == (path, body)
            async with connected(gateway.url) as peer:
                await peer.send(chunked_request(path, [body[:7], body[7:100], body[100:]]))
                assert (await peer.response()).status == 200
            assert last(fake).body == body


@pytest.mark.fault("E1")
async def test_a_deterministic_request_goes_byte_for_byte_too() -> None:
    """It is shared with others and kept, but not rewritten."""
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for path, body in _bodies():
            if path in STARTS:
                deterministic = body[:-1] + b' , "temperature" : 0.0}'
                assert (await ask(gateway.url, path, deterministic, headers=JSON)).status == 200
                assert last(fake).body == deterministic


ODD = {
    "NaN": b'{"prompt":"x","temperature":NaN}',
    "a number too big for a float": b'{"prompt":"x","seed":1e999}',
    "a big integer": b'{"prompt":"x","seed":123456789012345678901234567890}',
    "a key twice": b'{"prompt":"y","prompt":"x"}',
    "a byte order mark": b'\xef\xbb\xbf{"prompt":"x"}',
    "half a character, escaped": b'{"prompt":"\\ud800"}',
    "stream as a text": b'{"prompt":"x","stream":"true"}',
    "stream as a number": b'{"prompt":"x","stream":1}',
    "a limit as a text": b'{"prompt":"x","max_tokens":"16"}',
    "a negative limit": b'{"prompt":"x","max_tokens":-1}',
    "nothing asked": b"{}",
    "blanks around": b' \r\n\t{"prompt":"x"}\r\n ',
    "another encoding": '{"prompt":"é"}'.encode("utf-16"),
    "deep nesting": b'{"prompt":"x","extra":' + b"[" * 900 + b"]" * 900 + b"}",
    "tools without parameters": b'{"prompt":"x","tools":[{"type":"function","function":{"name":"f"}}]}',
    "min_tokens 0": b'{"prompt":"x","min_tokens":0}',
}


@pytest.mark.fault("E2")
@pytest.mark.parametrize("policy", POLICIES)
async def test_the_engine_judges_what_the_engine_can_read(policy: str) -> None:
    """The gateway's answer is the engine's own, whatever it thinks of the body itself."""
    async with fakes(1) as (fake,), gateway_to(fake, routing={"policy": policy}) as gateway:
        for path in ("/v1/completions", "/v1/chat/completions"):
            for name, body in ODD.items():
                direct = await ask(fake.url, path, body, headers=JSON)
                through = await ask(gateway.url, path, body, headers=JSON)
                assert through.status == direct.status, (path, name)
                assert last(fake).body == body, (path, name)


PROMPTS: dict[str, Any] = {
    "a text": "x",
    "a list of texts": ["x", "y"],
    "token ids": [1, 2, 3],
    "lists of token ids": [[1, 2, 3], [4]],
    "an empty text": "",
    "an empty list": [],
    "null": None,
    "what looks like token ids": "1,2,3",
    "their JSON": "[1,2,3]",
    "a list of one": ["x"],
    "a list of an empty text": [""],
    "a number": 7,
    "an object": {"text": "x"},
}


@pytest.mark.fault("E3")
@pytest.mark.parametrize("policy", POLICIES)
async def test_every_form_of_a_prompt_gets_the_engines_own_status(policy: str) -> None:
    async with fakes(2) as (a, b), gateway_to(a, b, routing={"policy": policy}) as gateway:
        for name, prompt in [*PROMPTS.items(), ("absent", ...)]:
            for more in ({}, {"temperature": 0}, {"stream": True}):
                body = {"max_tokens": 2, **more, **({} if prompt is ... else {"prompt": prompt})}
                direct = await ask(a.url, "/v1/completions", body)
                for _ in range(2):
                    through = await ask(gateway.url, "/v1/completions", body)
                    assert through.status == direct.status, (name, more)


@pytest.mark.fault("E3")
async def test_different_prompts_never_share_a_kept_answer() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        answers = {}
        for name, prompt in PROMPTS.items():
            body = {"prompt": prompt, "temperature": 0, "max_tokens": 6}
            first = await ask(gateway.url, "/v1/completions", body)
            if first.status != 200:
                continue
            assert first.header("x-cache") != "hit", name
            again = await ask(gateway.url, "/v1/completions", body)
            assert again.json()["choices"] == first.json()["choices"]
            answers[name] = first.json()["choices"]
        assert answers["token ids"] != answers["what looks like token ids"]


@pytest.mark.fault("E4")
@pytest.mark.parametrize("policy", POLICIES)
async def test_token_ids_of_equal_length_are_spread(policy: str) -> None:
    """1,000 prompts on 4 engines: the busiest has under 1.5 times its share."""
    prompts = [[number >> 8 & 255, number & 255, *range(30)] for number in range(1_000)]
    async with (
        fakes(4, Behaviour(fixed=True)) as engines,
        gateway_to(*engines, routing={"policy": policy}) as gateway,
    ):

        async def client(number: int) -> int:
            body = {"prompt": prompts[number], "max_tokens": 1, "user": f"u{number}"}
            return (await ask(gateway.url, "/v1/completions", body)).status

        outcomes = await many(1_000, client, at_a_time=32)
        assert outcomes.counts(lambda status: status) == {200: 1_000}
        counts = [engine.stats.requests["/v1/completions"] for engine in engines]
        assert sum(counts) == 1_000
        assert max(counts) < 1.5 * 250, counts


@pytest.mark.fault("E5")
async def test_one_hot_prefix_does_not_make_one_engine_hot() -> None:
    """60 % of the traffic begins alike: the busiest gets little more than the mean."""
    async with (
        fakes(4, Behaviour(delay_headers_s=0.02)) as engines,
        gateway_to(*engines, routing={"policy": "prefix", "prefix_chars": 64}) as gateway,
    ):

        async def client(number: int) -> int:
            prompt = "H" * 100 if number % 5 < 3 else f"{number:03}" * 30
            body = {"prompt": prompt, "max_tokens": 1}
            return (await ask(gateway.url, "/v1/completions", body)).status

        outcomes = await many(600, client, at_a_time=40)
        assert outcomes.counts(lambda status: status) == {200: 600}
        counts = [engine.stats.requests["/v1/completions"] for engine in engines]
        # At most 1.25 x 10 + 1 of 40 at a time, so at most 34 % of all.
        assert max(counts) < 0.36 * 600, counts


@pytest.mark.fault("E6")
async def test_what_the_gateway_rewrites_carries_nothing_over() -> None:
    """`/predict` asks for a stream with its usage; a whole answer must not ask for that."""
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        streamed = await record(gateway.url, "/predict", {"prompt": "x", "stream": True})
        assert streamed.done
        assert msgspec.json.decode(last(fake).body)["stream_options"] == {"include_usage": True}
        for body in (
            {"prompt": "x"},
            {"prompt": "x", "stream": False},
            {"prompt": ["x", "y"]},
            {"prompt": "x", "temperature": 0, "seed": 1},
        ):
            assert (await ask(gateway.url, "/predict", body)).status == 200
            sent = msgspec.json.decode(last(fake).body)
            assert not {"stream", "stream_options", "timeout", "parameters"} & sent.keys()
            assert last(fake).header("content-type") == "application/json"


@pytest.mark.fault("E6")
async def test_prompts_that_share_a_call_carry_nothing_of_each_other() -> None:
    async with fakes(1, Behaviour(delay_headers_s=0.1)) as (fake,), gateway_to(fake) as gateway:

        async def client(number: int) -> dict[str, Any]:
            body = {"prompt": f"p{number}", "max_tokens": 4, "parameters": {"min_p": 0.1}}
            answer: dict[str, Any] = (await ask(gateway.url, "/predict", body)).json()
            return answer

        answers = (await many(12, client)).all()
        assert len({answer["text"] for answer in answers}) == 12
        for seen in asked(fake):
            sent = msgspec.json.decode(seen.body)
            assert sent["min_p"] == 0.1
            assert not {"stream_options"} & sent.keys() or sent.get("stream")

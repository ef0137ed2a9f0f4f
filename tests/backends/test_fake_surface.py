"""The fake engine looks like vLLM: paths, shapes, statuses, and a client library that believes it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI, NotFoundError

from backends.contract import ELSEWHERE_HEADER, GUARD_PATH, TOKEN_HEADER, VERSION_HEADER
from backends.fake import Behaviour, Fake, Say
from tests.drivers.raw import ask
from tests.drivers.sse import record
from tests.drivers.waiting import eventually

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hello"}]


async def _completion(fake: Fake, body: dict[str, Any]) -> Any:
    response = await ask(fake.url, COMPLETIONS, body)
    assert response.status == 200, response.body
    return response.json()


async def test_a_completion_has_vllms_fields_in_vllms_order() -> None:
    async with Fake.start() as fake:
        response = await ask(
            fake.url, COMPLETIONS, {"prompt": "Hello", "max_tokens": 3}, headers=[("x-request-id", "7")]
        )
    answer = response.json()
    assert list(answer) == [
        "id",
        "object",
        "created",
        "model",
        "choices",
        "service_tier",
        "system_fingerprint",
        "usage",
        "kv_transfer_params",
        "ec_transfer_params",
        "metrics",
    ]
    assert answer["id"] == "cmpl-7"
    assert list(answer["choices"][0]) == [
        "index",
        "text",
        "logprobs",
        "finish_reason",
        "stop_reason",
        "token_ids",
        "prompt_logprobs",
        "prompt_token_ids",
        "routed_experts",
    ]
    assert answer["usage"] == {
        "prompt_tokens": 5,
        "total_tokens": 8,
        "completion_tokens": 3,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }


@pytest.mark.parametrize(
    ("prompt", "choices"),
    [("a", 1), (["a", "b", "c"], 3), ([1, 2, 3], 1), ([[1, 2], [3]], 2)],
    ids=["text", "texts", "ids", "lists of ids"],
)
async def test_every_form_of_a_prompt_is_answered(prompt: object, choices: int) -> None:
    async with Fake.start() as fake:
        answer = await _completion(fake, {"prompt": prompt, "n": 2})
    assert [choice["index"] for choice in answer["choices"]] == list(range(2 * choices))


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"prompt":null}', b'{"prompt":""}', b"{}", b'{"prompt":[]}']
)
async def test_what_vllm_refuses_is_refused_in_its_shape(body: bytes) -> None:
    async with Fake.start() as fake:
        response = await ask(fake.url, COMPLETIONS, body, headers=[("content-type", "application/json")])
    assert response.status == 400
    assert list(response.json()["error"]) == ["message", "type", "param", "code"]


async def test_text_follows_from_prompt_seed_and_weights_alone() -> None:
    async with (
        Fake.start(Behaviour(version="v1")) as fake,
        Fake.start(Behaviour(version="v1"), name="b") as other,
    ):

        async def text(server: Fake, prompt: str, seed: int) -> str:
            answer = await _completion(server, {"prompt": prompt, "seed": seed})
            said = answer["choices"][0]["text"]
            assert isinstance(said, str)
            return said

        said = await text(fake, "p", 1)
        assert said.startswith(" v1 ")
        assert await text(other, "p", 1) == said
        assert len({said, await text(fake, "q", 1), await text(fake, "p", 2)}) == 3
        fake.behave(Behaviour(version="v2"))
        assert (await text(fake, "p", 1)).startswith(" v2 ")


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
async def test_a_stream_says_what_the_plain_answer_says(path: str) -> None:
    body = {"prompt": "Hello"} if path == COMPLETIONS else {"messages": MESSAGES}
    async with Fake.start() as fake:
        plain = (await ask(fake.url, path, body)).json()
        stream = await record(
            fake.url, path, {**body, "stream": True, "stream_options": {"include_usage": True}}
        )
    assert stream.done
    choice = plain["choices"][0]
    assert stream.text() == (choice["text"] if path == COMPLETIONS else choice["message"]["content"])
    last, usage = stream.json()[-2:]
    assert last["choices"][0]["finish_reason"] == choice["finish_reason"]
    assert usage["choices"] == []
    assert usage["usage"] == {name: plain["usage"][name] for name in usage["usage"]}


async def test_the_events_of_a_chat_have_vllms_fields_in_vllms_order() -> None:
    async with Fake.start() as fake:
        stream = await record(fake.url, CHAT, {"messages": MESSAGES, "stream": True, "max_tokens": 2})
    first, middle, last = stream.json()
    assert list(first) == ["id", "object", "created", "model", "choices", "prompt_token_ids", "prompt_text"]
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert list(middle["choices"][0]) == ["index", "delta", "logprobs", "finish_reason", "token_ids"]
    assert list(last["choices"][0]) == [
        "index",
        "delta",
        "logprobs",
        "finish_reason",
        "stop_reason",
        "token_ids",
    ]
    assert list(last)[-1] == "system_fingerprint"
    assert stream.content.startswith(b'data: {"id":"chatcmpl-') and stream.content.endswith(
        b"\n\ndata: [DONE]\n\n"
    )


async def test_prompts_of_a_list_end_at_different_times_in_one_stream() -> None:
    async with Fake.start(Behaviour(tokens=1, tokens_step=2)) as fake:
        stream = await record(fake.url, COMPLETIONS, {"prompt": ["a", "b", "c"], "stream": True})
    ends = [
        choice["index"]
        for event in stream.json()
        for choice in event["choices"]
        if choice["finish_reason"] is not None
    ]
    assert ends == [0, 1, 2]
    events = [choice["index"] for event in stream.json() for choice in event["choices"]]
    assert [events.count(index) for index in range(3)] == [1, 3, 5]


async def test_a_stop_text_ends_the_answer_and_is_cut_away() -> None:
    async with Fake.start(Behaviour(text="one two three")) as fake:
        answer = await _completion(fake, {"prompt": "a", "stop": ["three", "two"]})
        stream = await record(fake.url, COMPLETIONS, {"prompt": "a", "stop": "two", "stream": True})
    choice = answer["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("one ", "stop", "two")
    assert stream.text() == "one "


async def test_the_openai_package_works_with_it() -> None:
    async with Fake.start(Behaviour(strict_model=True)) as fake, httpx2.AsyncClient() as web:
        client = AsyncOpenAI(base_url=f"{fake.url}/v1", api_key="none", max_retries=0, http_client=web)
        assert [model.id async for model in client.models.list()] == ["fake"]
        completion = await client.completions.create(model="fake", prompt="Hello", logprobs=1, echo=True)
        assert completion.choices[0].text.startswith("Hello ")
        assert completion.choices[0].logprobs is not None
        chat = await client.chat.completions.create(model="fake", messages=[{"role": "user", "content": "x"}])
        stream = await client.chat.completions.create(
            model="fake", messages=[{"role": "user", "content": "x"}], stream=True
        )
        said = [chunk.choices[0].delta.content async for chunk in stream]
        assert "".join(part or "" for part in said) == chat.choices[0].message.content
        embedding = await client.embeddings.create(model="fake", input=["a", "b"])
        assert [len(item.embedding) for item in embedding.data] == [8, 8]
        response = await client.responses.create(model="fake", input="x")
        assert response.output_text == chat.choices[0].message.content
        with pytest.raises(NotFoundError, match="does not exist"):
            await client.completions.create(model="other", prompt="Hello")


async def test_tokens_and_text_are_each_others_reverse() -> None:
    async with Fake.start() as fake:
        tokens = (await ask(fake.url, "/tokenize", {"prompt": "né 🙂"})).json()
        text = (await ask(fake.url, "/detokenize", {"tokens": tokens["tokens"]})).json()
    assert tokens["count"] == len(tokens["tokens"])
    assert text == {"prompt": "né 🙂"}


async def test_prompt_logprobs_follow_from_weights_and_tokens() -> None:
    body = {"prompt": [1, 2, 3], "max_tokens": 1, "prompt_logprobs": 0}
    async with Fake.start(Behaviour(version="v1")) as fake:
        first = (await _completion(fake, body))["choices"][0]["prompt_logprobs"]
        again = (await _completion(fake, body))["choices"][0]["prompt_logprobs"]
        fake.behave(Behaviour(version="v2"))
        other = (await _completion(fake, body))["choices"][0]["prompt_logprobs"]
    assert first[0] is None and list(first[1]) == ["2"]
    assert first == again != other


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("HEAD", "/health", 200),
        ("GET", "/ping", 200),
        ("GET", "/version", 200),
        ("GET", COMPLETIONS, 405),
        ("OPTIONS", COMPLETIONS, 405),
        ("GET", "/nope", 404),
    ],
)
async def test_other_paths_and_methods(method: str, path: str, status: int) -> None:
    async with Fake.start() as fake:
        response = await ask(fake.url, path, method=method)
    assert response.status == status


async def test_metrics_show_requests_and_tokens_under_vllms_names() -> None:
    async with Fake.start() as fake:
        await _completion(fake, {"prompt": "Hello", "max_tokens": 4})
        text = (await ask(fake.url, "/metrics")).body.decode()
    assert 'vllm:prompt_tokens_total{engine="0",model_name="fake"} 5.0' in text
    assert 'vllm:generation_tokens_total{engine="0",model_name="fake"} 4.0' in text
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
        assert f'{name}{{engine="0",model_name="fake"}} 0.0' in text


async def test_a_reload_changes_the_weights_and_not_the_label() -> None:
    async with Fake.start(Behaviour(version="v1")) as fake:
        await ask(fake.url, "/pause?mode=wait", {})
        order = {"method": "reload_weights", "kwargs": {"weights_path": "/checkpoints/v2"}}
        assert (await ask(fake.url, "/collective_rpc", order)).json() == {"results": [None]}
        assert (await ask(fake.url, "/reset_prefix_cache", {})).json() == {"success": True}
        await ask(fake.url, "/resume", {})
        response = await ask(fake.url, COMPLETIONS, {"prompt": "Hello"})
        assert response.header(VERSION_HEADER) == "v1"
        assert response.json()["choices"][0]["text"].startswith(" v2 ")
        await ask(fake.url, "/update_weight_version", {"new_version": "v2"})
        assert (await ask(fake.url, "/weight_info")).json() == {"weight_version": "v2"}
        assert (await ask(fake.url, "/health")).header(VERSION_HEADER) == "v2"


async def test_the_version_header_can_be_left_out() -> None:
    async with Fake.start(Behaviour(version="v1", announce_version=False)) as fake:
        assert (await ask(fake.url, "/health")).header(VERSION_HEADER) is None


async def test_a_guarded_path_is_not_there_without_the_token() -> None:
    async with Fake.start(Behaviour(control_token="secret", version="v1")) as fake:
        for path in ("/pause", "/collective_rpc", GUARD_PATH):
            assert (await ask(fake.url, path, {})).status == 404
        guard = await ask(fake.url, GUARD_PATH, headers=[(TOKEN_HEADER, "secret")])
    assert guard.json() == {"version": "v1", "draining": False, "in_flight": 0}


async def test_a_draining_engine_sends_new_requests_elsewhere() -> None:
    async with Fake.start() as fake:
        await ask(fake.url, GUARD_PATH, {"draining": True})
        response = await ask(fake.url, COMPLETIONS, {"prompt": "Hello"})
        assert (response.status, response.header(ELSEWHERE_HEADER)) == (503, "draining")
        health = await ask(fake.url, "/health")
        assert (health.status, health.header(ELSEWHERE_HEADER)) == (503, "draining")


async def test_a_paused_engine_lets_requests_hang_until_it_resumes() -> None:
    async with Fake.start(Behaviour(tokens_per_s=1)) as fake:
        stream = record(fake.url, COMPLETIONS, {"prompt": "Hello", "max_tokens": 100, "stream": True})
        async with asyncio.TaskGroup() as group:
            running = group.create_task(stream, name="running")
            await eventually(lambda: fake.engine.running == 1)
            assert (await ask(fake.url, "/pause?mode=abort", {})).json() == {"status": "paused"}
            fake.behave(Behaviour())
            waiting = group.create_task(ask(fake.url, COMPLETIONS, {"prompt": "Hello"}), name="waiting")
            await eventually(lambda: fake.engine.waiting == 1)
            assert not waiting.done()
            await ask(fake.url, "/resume", {})
        assert running.result().json()[-1]["choices"][0]["finish_reason"] == "abort"
        assert waiting.result().status == 200


async def test_an_answer_can_repeat_the_prompt() -> None:
    async with Fake.start(Behaviour(say=Say.PROMPT)) as fake:
        answer = await _completion(fake, {"prompt": ["nonce-1", "nonce-2é🙂"]})
        chat = (await ask(fake.url, CHAT, {"messages": MESSAGES})).json()
    assert [choice["text"] for choice in answer["choices"]] == ["nonce-1", "nonce-2é🙂"]
    assert chat["choices"][0]["message"]["content"] == "Hello"

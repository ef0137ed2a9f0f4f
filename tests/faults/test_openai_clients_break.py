"""A program that uses the `openai` package is pointed at the gateway, and fails."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from backends.fake import Behaviour, Cut, Ending, Fake, Point
from tests.gateways import Running, fakes, gateway_to

KEY = "client-key-1"
AUTH = {"keys": [{"name": "a", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]}
MESSAGES: list[Any] = [{"role": "user", "content": "Hello"}]


@asynccontextmanager
async def _client(
    behaviour: Behaviour | None = None, *, key: str = KEY, **settings: Any
) -> AsyncIterator[tuple[openai.AsyncOpenAI, Fake, Running]]:
    async with (
        fakes(1, behaviour) as (fake,),
        gateway_to(fake, auth=AUTH, **settings) as gateway,
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0) as client,
    ):
        yield client, fake, gateway


@pytest.mark.fault("E1")
async def test_everything_that_the_package_offers_works() -> None:
    async with _client() as (client, fake, _):
        completion = await client.completions.create(model="fake", prompt="Hello", max_tokens=4)
        assert completion.choices[0].text
        assert completion.usage is not None
        chat = await client.chat.completions.create(
            model="fake", messages=MESSAGES, max_tokens=4, extra_body={"min_p": 0.1}
        )
        assert chat.choices[0].message.content
        assert b'"min_p":0.1' in fake.stats.bodies("/v1/chat/completions")[-1]
        embeddings = await client.embeddings.create(model="fake", input=["a", "b"])
        assert [len(item.embedding) for item in embeddings.data] == [8, 8]
        response = await client.responses.create(model="fake", input="Hello")
        assert response.output_text
        models = [model.id async for model in client.models.list()]
        assert models
        assert (await client.models.retrieve(models[0])).id == models[0]


@pytest.mark.fault("E1")
async def test_streams_work() -> None:
    async with _client() as (client, _, _gateway):
        stream = await client.chat.completions.create(
            model="fake",
            messages=MESSAGES,
            max_tokens=4,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert chunks[-1].usage is not None
        texts = [
            chunk.choices[0].text
            async for chunk in await client.completions.create(
                model="fake", prompt="x", max_tokens=4, stream=True
            )
        ]
        assert "".join(texts)
        kinds = [
            event.type async for event in await client.responses.create(model="fake", input="x", stream=True)
        ]
        assert kinds[-1] == "response.completed"


ERRORS: list[tuple[int, type[openai.APIStatusError]]] = [
    (400, openai.BadRequestError),
    (401, openai.AuthenticationError),
    (403, openai.PermissionDeniedError),
    (404, openai.NotFoundError),
    (409, openai.ConflictError),
    (422, openai.UnprocessableEntityError),
    (429, openai.RateLimitError),
    (500, openai.InternalServerError),
]


@pytest.mark.fault("D3")
@pytest.mark.parametrize("stream", [False, True])
async def test_refusals_are_the_packages_own_exceptions(stream: bool) -> None:
    async with _client() as (client, fake, _):
        for status, kind in ERRORS:
            fake.behave(Behaviour(status=status))
            with pytest.raises(kind) as raised:
                await client.chat.completions.create(model="fake", messages=MESSAGES, stream=stream)
            assert raised.value.status_code == status
            assert raised.value.request_id
            assert isinstance(raised.value.body, dict)


@pytest.mark.fault("D9")
async def test_the_gateways_own_errors_are_the_packages_own_exceptions() -> None:
    silent = Behaviour(delay_headers_s=30)
    async with _client(silent, key="wrong") as (client, _, _gateway):
        with pytest.raises(openai.AuthenticationError):
            await client.completions.create(model="fake", prompt="x")
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()
    async with _client(silent, server={"max_body_bytes": 2000}) as (client, _, _gateway):
        with pytest.raises(openai.APIStatusError) as raised:
            await client.completions.create(model="fake", prompt="x" * 3000)
        assert raised.value.status_code == 413
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("nobody")
        with pytest.raises(openai.InternalServerError) as timeout:
            await client.completions.create(
                model="fake", prompt="x", extra_headers={"x-request-timeout": "0.1"}
            )
        assert timeout.value.status_code == 504


@pytest.mark.fault("D2")
async def test_a_stream_that_breaks_is_an_exception() -> None:
    broken = Behaviour(cut=Cut(how=Ending.RESET, after=Point.CHUNKS, count=2))
    async with _client(broken) as (client, _, _gateway):
        stream = await client.chat.completions.create(model="fake", messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError, match="incomplete"):
            async for _ in stream:
                pass


@pytest.mark.fault("A1")
async def test_a_stream_that_is_closed_early_frees_the_engine() -> None:
    async with _client(Behaviour(tokens=1000, tokens_per_s=20)) as (client, _fake, gateway):
        stream = await client.chat.completions.create(model="fake", messages=MESSAGES, stream=True)
        async for _ in stream:
            break
        await stream.close()
        await gateway.comes_to_rest()

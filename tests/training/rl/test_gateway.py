"""What the trainer asks a gateway for, and what it does with answers that it must not use."""

from __future__ import annotations

import pytest

from tests.training.rl.gateway_fake import Gateway as Fake
from tests.training.rl.gateway_fake import answering
from training.rl.gateway import Gateway, GatewayFailed
from training.rl.sampling import Sampling
from training.rl.settings import RlSettings

SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=4)


def gateway_to(fake: Fake, limit_s: float = 30) -> Gateway:
    return Gateway(RlSettings(gateway=fake.url, request_limit_s=limit_s), "policy")


def test_a_group_is_one_request_whose_sampling_is_explicit() -> None:
    with answering() as fake:
        gateway = gateway_to(fake)
        samples = gateway.sample([5, 6, 7], 4, SAMPLING, least=0)
        gateway.close()
    (asked,) = fake.asked
    assert (asked.count, asked.least, len(samples)) == (4, None, 4)
    assert asked.sampling["prompt"] == [5, 6, 7]
    told = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens")
    assert all(asked.sampling[name] is not None for name in told)
    assert len({sample.request for sample in samples}) == 1
    assert [sample.index for sample in samples] == [0, 1, 2, 3]
    assert all(len(sample.ids) == len(sample.logprobs) for sample in samples)


def test_samples_of_an_older_version_are_thrown_away_and_counted() -> None:
    fake = Fake(label="v3-0a0a0a0a", answers=[(200, "v1-0a0a0a0a"), (200, "v2-0a0a0a0a")])
    with answering(fake):
        gateway = gateway_to(fake)
        samples = gateway.sample([5], 2, SAMPLING, least=3)
        gateway.close()
    assert {sample.version for sample in samples} == {3}
    assert sum(gateway.counted.stale) == 4
    assert {asked.least for asked in fake.asked} == {"3"}


def test_what_passes_is_asked_again() -> None:
    fake = Fake(answers=[(503, None), (504, None)])
    with answering(fake):
        gateway = gateway_to(fake)
        assert len(gateway.sample([5], 2, SAMPLING, least=0)) == 2
        gateway.close()
    assert len(gateway.counted.retried) == 2


def test_what_does_not_pass_is_raised_with_what_the_gateway_said() -> None:
    fake = Fake(answers=[(400, None)])
    with answering(fake):
        gateway = gateway_to(fake)
        with pytest.raises(GatewayFailed, match="400 played"):
            gateway.sample([5], 2, SAMPLING, least=0)
        gateway.close()
    assert len(fake.asked) == 1


def test_an_answer_of_unknown_weights_is_not_trained_on() -> None:
    with answering(Fake(label="somebodys-model")) as fake:
        gateway = gateway_to(fake)
        with pytest.raises(GatewayFailed, match="somebodys-model"):
            gateway.sample([5], 2, SAMPLING, least=0)
        gateway.close()


def test_a_gateway_that_is_gone_is_waited_for_no_longer_than_allowed() -> None:
    with answering() as fake:
        pass
    gateway = gateway_to(fake, limit_s=0.5)
    with pytest.raises(GatewayFailed, match="no rollout within"):
        gateway.sample([5], 2, SAMPLING, least=0)
    gateway.close()

"""The part of vLLM's `/metrics` that a gateway reads, in Prometheus' text format. Pure."""

from __future__ import annotations

from dataclasses import dataclass

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Counters:
    running: int
    waiting: int
    kv_cache_usage: float
    """Share of the KV cache in use, 0 to 1."""
    prompt_tokens: int
    generation_tokens: int
    finished: int


def exposition(model: str, counters: Counters) -> bytes:
    labels = f'engine="0",model_name="{model}"'
    rows = (
        ("num_requests_running", "gauge", "Number of requests in model execution batches.", counters.running),
        ("num_requests_waiting", "gauge", "Number of requests waiting to be processed.", counters.waiting),
        (
            "kv_cache_usage_perc",
            "gauge",
            "KV-cache usage. 1 means 100 percent usage.",
            counters.kv_cache_usage,
        ),
        ("prompt_tokens", "counter", "Number of prefill tokens processed.", counters.prompt_tokens),
        (
            "generation_tokens",
            "counter",
            "Number of generation tokens processed.",
            counters.generation_tokens,
        ),
        ("num_preemptions", "counter", "Cumulative number of preemption from the engine.", 0),
        ("prefix_cache_queries", "counter", "Prefix cache queries, in terms of number of queried tokens.", 0),
        ("prefix_cache_hits", "counter", "Prefix cache hits, in terms of number of cached tokens.", 0),
    )
    lines: list[str] = []
    for name, kind, text, value in rows:
        full = f"vllm:{name}_total" if kind == "counter" else f"vllm:{name}"
        lines += [f"# HELP {full} {text}", f"# TYPE {full} {kind}", f"{full}{{{labels}}} {float(value)}"]
    success = "vllm:request_success_total"
    lines += [
        f"# HELP {success} Count of successfully processed requests.",
        f"# TYPE {success} counter",
        f'{success}{{{labels},finished_reason="length"}} {float(counters.finished)}',
        "",
    ]
    return "\n".join(lines).encode()

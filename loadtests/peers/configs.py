"""Configuration files of the peers that want one. Pure: texts from ports.

Each is set up to be fast and fair: one worker, connections to the upstreams kept, no access log.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

ANSWER = (
    '{"id":"cmpl-0123456789abcdef","object":"text_completion","created":1700000000,"model":"m","choices":'
    '[{"index":0,"text":" Paris, and it is a large city in the north of the country.","logprobs":null,'
    '"finish_reason":"length"}],"usage":{"prompt_tokens":12,"total_tokens":28,"completion_tokens":16}}'
)
"""What the static upstreams answer: the size of a short completion."""

MODELS = '{"object":"list","data":[{"id":"m","object":"model"}]}'


def static_upstreams(ports: Sequence[int], folder: Path) -> str:
    """nginx as engines that answer at once. A 405 to a POST on static content becomes the answer."""
    listen = " ".join(f"listen 127.0.0.1:{port};" for port in ports)
    return f"""{_nginx_head(folder)}
http {{ access_log off; keepalive_requests 100000000; keepalive_timeout 600s; default_type application/json;
 server {{ {listen} client_body_buffer_size 64k;
  location /health {{ return 200 "ok"; }}
  location /v1/models {{ return 200 '{MODELS}'; }}
  location /v1/completions {{ return 200 '{ANSWER}'; }}
  location / {{ return 404; }}
 }} }}
"""


def nginx_proxy(port: int, upstreams: Sequence[int], folder: Path) -> str:
    """nginx as a plain proxy."""
    servers = " ".join(f"server 127.0.0.1:{upstream};" for upstream in upstreams)
    return f"""{_nginx_head(folder)}
http {{ access_log off; keepalive_requests 100000000;
 upstream engines {{ {servers} keepalive 256; keepalive_requests 100000000; }}
 server {{ listen 127.0.0.1:{port}; client_body_buffer_size 64k;
  location / {{ proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection "";
   proxy_buffering off; }}
 }} }}
"""


def _nginx_head(folder: Path) -> str:
    return (
        f"worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log stderr error;\n"
        "events { worker_connections 8192; }"
    )


def haproxy(port: int, upstreams: Sequence[int]) -> str:
    """One thread, least connections."""
    servers = "\n".join(
        f" server engine{index} 127.0.0.1:{upstream}" for index, upstream in enumerate(upstreams)
    )
    return f"""global
 nbthread 1
 maxconn 4000
defaults
 mode http
 timeout connect 2s
 timeout client 600s
 timeout server 600s
 option http-keep-alive
 http-reuse always
frontend front
 bind 127.0.0.1:{port}
 default_backend engines
backend engines
 balance leastconn
{servers}
"""


def envoy(port: int, upstreams: Sequence[int]) -> str:
    """Least request, no limit to the connections."""
    hosts = [{"endpoint": {"address": _envoy_address(upstream)}} for upstream in upstreams]
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
    }
    connections = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
        ".HttpConnectionManager",
        "stat_prefix": "front",
        "http_filters": [router],
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "engines", "timeout": "0s"}}],
                }
            ]
        },
    }
    many = 1_000_000
    cluster = {
        "name": "engines",
        "type": "STATIC",
        "lb_policy": "LEAST_REQUEST",
        "load_assignment": {"cluster_name": "engines", "endpoints": [{"lb_endpoints": hosts}]},
        "circuit_breakers": {
            "thresholds": [{"max_connections": many, "max_pending_requests": many, "max_requests": many}]
        },
    }
    listener = {
        "address": _envoy_address(port),
        "filter_chains": [
            {
                "filters": [
                    {"name": "envoy.filters.network.http_connection_manager", "typed_config": connections}
                ]
            }
        ],
    }
    return msgspec.json.encode(
        {"static_resources": {"listeners": [listener], "clusters": [cluster]}}
    ).decode()


def _envoy_address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def litellm(upstreams: Sequence[int]) -> str:
    """Two deployments of one model."""
    deployments = [
        {
            "model_name": "m",
            "litellm_params": {
                "model": "text-completion-openai/m",
                "api_base": f"http://127.0.0.1:{upstream}/v1",
                "api_key": "none",
            },
        }
        for upstream in upstreams
    ]
    return msgspec.json.encode({"model_list": deployments}).decode()

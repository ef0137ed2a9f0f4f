"""One of each mistake that a file can hold: the file, and the words that its author gets."""

from __future__ import annotations

from gateway.settings.tree import Settings

DIGEST = "a" * 64

MISTAKES = {
    "a misspelt key": (
        "server:\n  prot: 1\n",
        "infer.yaml:2: server.prot: is no known key; did you mean server.port?",
    ),
    "a key in another spelling": (
        "engine: {maxBatchSize: 3}\n",
        "infer.yaml:1: engine.maxBatchSize: is no known key; did you mean engine.max_batch_size?",
    ),
    "a key without its section": (
        "workers: 3\n",
        "infer.yaml:1: workers: is no known key; did you mean server.workers?",
    ),
    "a key of another server": (
        "max_num_seqs: 3\n",
        "infer.yaml:1: max_num_seqs: is no known key; here it is engine.max_batch_size",
    ),
    "a key like no other": (
        "admin: {xyz: 1}\n",
        "infer.yaml:1: admin.xyz: is no known key; valid here: token, control_token",
    ),
    "the trainer's file": (
        "training: {lr: 5e-5}\n",
        "infer.yaml:1: training: is no known key; this belongs to the trainer: train_config.yaml, "
        "`python train.py --config train_config.yaml`",
    ),
    "the trainer's engine": (
        "engine: {type: Megatron}\n",
        "infer.yaml:1: engine.type: should be vllm, got 'megatron'; that engine trains: "
        "it belongs in train_config.yaml",
    ),
    "text for a whole number": (
        "server: {port: http}\n",
        "infer.yaml:1: server.port: should be a whole number, got 'http'",
    ),
    "a fraction for a whole number": (
        "server: {port: 1.5}\n",
        "infer.yaml:1: server.port: should be a whole number, got 1.5",
    ),
    "true for a whole number": (
        "server: {workers: true}\n",
        "infer.yaml:1: server.workers: should be a whole number, got 'true'",
    ),
    "text for a number": (
        "timeouts: {total_s: 5 minutes}\n",
        "infer.yaml:1: timeouts.total_s: should be a number, got '5 minutes'",
    ),
    "infinity": (
        "timeouts: {total_s: .inf}\n",
        "infer.yaml:1: timeouts.total_s: should be a number, got inf",
    ),
    "text for true or false": (
        "logging: {requests: maybe}\n",
        "infer.yaml:1: logging.requests: should be true or false, got 'maybe'",
    ),
    "a number for text": (
        "engine: {served_name: 7}\n",
        "infer.yaml:1: engine.served_name: should be text in quotes, got 7",
    ),
    "a value left out": (
        "server:\n  port:\n",
        "infer.yaml:2: server.port: should be a whole number, got nothing",
    ),
    "text for a list": (
        "engine: {extra_args: --seed 7}\n",
        "infer.yaml:1: engine.extra_args: should be a list, like [first, second], got '--seed 7'",
    ),
    "text for a mapping": (
        "engine: {env: A=1}\n",
        "infer.yaml:1: engine.env: should be a mapping, like {NAME: value}, got 'A=1'",
    ),
    "a number for a section": (
        "retries: 3\n",
        "infer.yaml:1: retries: should be a mapping; its keys are attempts, budget_ratio, budget_min_per_s, "
        "continuation",
    ),
    "too small": ("server: {workers: 0}\n", "infer.yaml:1: server.workers: should be at least 1, got 0"),
    "too large": (
        "server: {port: 70000}\n",
        "infer.yaml:1: server.port: should be at most 65535, got 70000",
    ),
    "nothing where something must be": (
        "timeouts: {connect_s: 0}\n",
        "infer.yaml:1: timeouts.connect_s: should be above 0, got 0",
    ),
    "an unknown choice": (
        "routing: {policy: round-robin}\n",
        "infer.yaml:1: routing.policy: should be one of round_robin, least_load, power_of_two, prefix, "
        "session, got 'round-robin'; did you mean round_robin?",
    ),
    "a required key left out": (
        "models:\n  - endpoints: [http://a:1]\n",
        "infer.yaml:2: models.0.name: is required and not given",
    ),
    "a required key misspelt": (
        "endpoints:\n  - {ulr: http://a:1}\n",
        "infer.yaml:2: endpoints.0.ulr: is no known key; did you mean endpoints.0.url?",
    ),
    "a model name with a space": (
        "models: [{name: 'a b', endpoints: [http://a:1]}]\n",
        "infer.yaml:1: models.0.name: should be text without spaces, got 'a b'",
    ),
    "an endpoint over TLS": (
        "endpoints: [https://a]\n",
        "infer.yaml:1: endpoints.0.url: should be http://host:port, unix:/path, dns://name:port or "
        "kubernetes://service.namespace:port; nothing else is spoken to engines, got 'https://a'",
    ),
    "an endpoint with a path": (
        "endpoints: [http://a:1/v1]\n",
        "infer.yaml:1: endpoints.0.url: should end after the port: the gateway adds the path (`/v1/…`) "
        "itself, got 'http://a:1/v1'",
    ),
    "an endpoint with an impossible port": (
        "endpoints: ['http://a:99999']\n",
        "infer.yaml:1: endpoints.0.url: is not a URL: Port out of range 0-65535, got 'http://a:99999'",
    ),
    "a socket without its whole path": (
        "endpoints: [unix:e.sock]\n",
        "infer.yaml:1: endpoints.0.url: should name the socket by its whole path: "
        "unix:/run/changeover/engine.sock, got 'unix:e.sock'",
    ),
    "a socket whose path is too long": (
        f"endpoints: [unix:/{'x' * 107}]\n",
        "infer.yaml:1: endpoints.0.url: is longer than the 107 bytes that a Unix socket's path may have, "
        f"got 'unix:/{'x' * 107}'",
    ),
    "a run folder whose path is too long": (
        f"run_dir: /{'x' * 80}\n",
        "infer.yaml:1: run_dir: is longer than 80 bytes: the paths of the sockets inside would be too long, "
        f"got '/{'x' * 80}'",
    ),
    "a web origin with a path": (
        "server: {cors: {origins: [https://a/b]}}\n",
        "infer.yaml:1: server.cors.origins.0: should be `*` or an origin like https://app.example.com, "
        "without a path, got 'https://a/b'",
    ),
    "a header that is none": (
        "routing: {session_header: 'x session'}\n",
        "infer.yaml:1: routing.session_header: should be the name of an HTTP header, like x-session-id, "
        "got 'x session'",
    ),
    "a key given twice": (
        "server:\n  port: 1\n  host: a\n  port: 2\n",
        "infer.yaml:4: server.port: is given twice; first on line 2",
    ),
    "a key that is no text": (
        "server: {1: 2}\n",
        "infer.yaml:1: server: holds a key that is not text; put it in quotes",
    ),
    "a tag of one's own": (
        "server: {port: !port 1}\n",
        "infer.yaml:1: server.port: has the tag !port, which means nothing here",
    ),
    "a tag that does not fit": (
        "server: {port: !!int x}\n",
        "infer.yaml:1: server.port: is not of the kind that its tag tag:yaml.org,2002:int says",
    ),
    "a list instead of sections": (
        "- a\n- b\n",
        f"infer.yaml:1: should be a mapping of sections; its keys are {', '.join(Settings.model_fields)}",
    ),
    "text instead of sections": (
        "hello\n",
        f"infer.yaml:1: should be a mapping of sections; its keys are {', '.join(Settings.model_fields)}",
    ),
    "a bracket left open": (
        "server: {port: 1\nlogging: {}\n",
        "infer.yaml:2: is not valid YAML: expected ',' or '}', but got ':'",
    ),
    "a tab": (
        "server:\n\tport: 1\n",
        "infer.yaml:2: is not valid YAML: a tab stands where YAML indents; use spaces",
    ),
    "a substitution without quotes in braces": (
        "server: {port: ${PORT}}\n",
        "infer.yaml:1: is not valid YAML: expected ',' or '}', but got '{'; "
        'within {…} a substitution needs quotes: "${NAME}"',
    ),
    "two documents": (
        "server: {}\n---\nserver: {}\n",
        "infer.yaml:2: is not valid YAML: a second document begins (`---`); there may be only one",
    ),
    "a control character": (
        "server: {}\n# \x01\n",
        "infer.yaml:2: is not valid YAML: a control character stands where only text may",
    ),
    "an alias of itself": (
        "server: &s {cors: *s}\n",
        "infer.yaml:1: server: holds more than a configuration does; does an alias name itself?",
    ),
    "a merge of a list": ("server: {<<: [1]}\n", "infer.yaml:1: server: `<<` takes the alias of a mapping"),
    "a missing variable": (
        "server:\n  host: ${NO_SUCH}\n",
        "infer.yaml:2: server.host: the environment has no NO_SUCH; set it, or give a default: "
        "${NO_SUCH:default}",
    ),
    "a missing variable where a value is required": (
        "models: [{name: '${NO_SUCH}', endpoints: [http://a:1]}]\n",
        "infer.yaml:1: models.0.name: the environment has no NO_SUCH; set it, or give a default: "
        "${NO_SUCH:default}",
    ),
    "a substitution that is none": (
        "server: {host: '${1X}'}\n",
        "infer.yaml:1: server.host: `${` begins no ${NAME} or ${NAME:default}; write `$${` "
        "for a literal `${`",
    ),
    "a substitution within another": (
        "server: {host: '${A:${B}}'}\n",
        "infer.yaml:1: server.host: the default of ${A} holds another substitution; they do not nest",
    ),
    "models and an engine": (
        "models: [{name: a, endpoints: [http://a:1]}]\nengine: {replicas: 1}\n",
        "infer.yaml:1: models: `models` stands instead of `engine`: move it into the model it serves",
    ),
    "models and endpoints": (
        "models: [{name: a, endpoints: [http://a:1]}]\nendpoints: [http://a:1]\n",
        "infer.yaml:1: models: `models` stands instead of `endpoints`: move it into the model it serves",
    ),
    "a model without engines": (
        "models:\n  - {name: a, endpoints: [http://a:1]}\n  - {name: b}\n",
        "infer.yaml:3: models.1: needs `engine` (started here) or `endpoints` (run elsewhere)",
    ),
    "two models of one name": (
        "models:\n  - {name: a, endpoints: [http://a:1]}\n  - {name: a, engine: {}}\n",
        "infer.yaml:3: models.1.name: is the same as in models.0",
    ),
    "one endpoint twice": (
        "endpoints:\n- http://a:1\n- a:1\n",
        "infer.yaml:3: endpoints.1.url: is the same as in endpoints.0",
    ),
    "two API keys of one name": (
        f"auth:\n  keys:\n  - {{name: a, sha256: {DIGEST}}}\n  - {{name: a, sha256: {'b' * 64}}}\n",
        "infer.yaml:4: auth.keys.1.name: is the same as in keys.0",
    ),
    "one API key twice": (
        f"auth:\n  keys:\n  - {{name: a, sha256: {DIGEST}}}\n  - {{name: b, sha256: {DIGEST}}}\n",
        "infer.yaml:4: auth.keys.1.sha256: is the same as in keys.0",
    ),
    "a heartbeat later than the end": (
        "timeouts: {heartbeat_s: 90, silence_s: 30}\n",
        "infer.yaml:1: timeouts.heartbeat_s: should be at most `silence_s` (30), got 90: "
        "the stream is given up before its first heartbeat",
    ),
    "a breaker that opens longer than it may": (
        "health: {breaker_open_s: 9, breaker_max_s: 3}\n",
        "infer.yaml:1: health.breaker_open_s: should be at most `breaker_max_s` (3), got 9: "
        "a breaker would open longer than it may",
    ),
    "a queue in which nobody may wait": (
        "limits: {max_queued: 3, max_queue_s: 0}\n",
        "infer.yaml:1: limits.max_queue_s: `max_queued` lets requests wait and `max_queue_s: 0` forbids it",
    ),
    "two addresses of Redis": (
        "cache: {url: redis://a, port: 3}\n",
        "infer.yaml:1: cache.url: `url` stands instead of `port`: leave one of them out",
    ),
    "a Redis URL of another kind": (
        "cache: {url: http://a}\n",
        "infer.yaml:1: cache.url: should begin with redis://, rediss:// or unix://, "
        "or with redis+sentinel:// or redis+cluster://",
    ),
    "a Sentinel without a master": (
        "cache: {url: 'redis+sentinel://a:1,b:2/'}\n",
        "infer.yaml:1: cache.url: names no master: write redis+sentinel://host:port,host:port/master/0",
    ),
    "a collector without a scheme": (
        "telemetry: {otlp_endpoint: collector}\n",
        "infer.yaml:1: telemetry.otlp_endpoint: should be a URL like http://host:4318, got 'collector'",
    ),
}

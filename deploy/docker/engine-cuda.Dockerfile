# One engine and its agent, on NVIDIA GPUs: vLLM's own image, and the agent in an environment of its own.
ARG VLLM=v0.32.0
FROM vllm/vllm-openai:${VLLM}
USER 0
ENV PIP_NO_CACHE_DIR=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/var/cache/changeover \
    HF_HOME=/var/cache/changeover/huggingface \
    CHANGEOVER_CACHE_DIR=/var/cache/changeover \
    CHANGEOVER_CONFIG=/etc/changeover/infer_config.yaml \
    CHANGEOVER_RUN_DIR=/run/changeover/engine
# The release of the base image says which versions these are.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --no-create-home --home-dir /var/cache/changeover changeover \
    && install -d -o changeover -g changeover -m 0700 /run/changeover /var/cache/changeover /var/lib/changeover
WORKDIR /opt/changeover
COPY pyproject.toml README.md LICENSE ./
COPY deploy deploy
COPY backends backends
COPY checkpoints checkpoints
COPY gateway gateway
COPY reports reports
COPY training training
# The guard and the reload run inside vLLM, so its Python gets our modules too, and nothing else of ours.
RUN python3 deploy/setup.py gateway --without-tools \
    && uv pip install --system --no-cache --no-deps . \
    && rm -rf logs build
USER 10001:10001
EXPOSE 8000 9001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=4s --start-period=30m --retries=6 \
    CMD ["python3", "deploy/docker/health.py", "http://127.0.0.1:8000/health"]
ENTRYPOINT ["tini", "--", "/opt/changeover/.venv/bin/changeover"]
CMD ["backend", "--host", "0.0.0.0", "--port", "8000", "--control-listen", "0.0.0.0:9001"]

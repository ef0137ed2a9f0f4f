# One engine and its agent, on CPU: `docker build -f deploy/docker/engine-cpu.Dockerfile .` in the root.
# Both environments are made by the project's own set-up, as on any machine.
ARG PYTHON=3.12.12-slim-bookworm
FROM python:${PYTHON}
ENV PIP_NO_CACHE_DIR=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PATH=/opt/changeover/.venv/bin:$PATH \
    HOME=/var/cache/changeover \
    HF_HOME=/var/cache/changeover/huggingface \
    CHANGEOVER_CACHE_DIR=/var/cache/changeover \
    CHANGEOVER_CONFIG=/etc/changeover/infer_config.yaml \
    CHANGEOVER_RUN_DIR=/run/changeover/engine
# The release of the base image says which versions these are.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 libnuma1 libstdc++6 tini \
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
RUN python deploy/setup.py gateway --without-tools \
    && python deploy/setup.py engine --device cpu \
    && rm -rf logs
USER 10001:10001
EXPOSE 8000 9001
# SIGTERM: the agent tells its engine to finish what runs (engine.shutdown_timeout_s), then ends with 0.
STOPSIGNAL SIGTERM
# While an engine loads nobody listens: the start period is for that.
HEALTHCHECK --interval=10s --timeout=4s --start-period=30m --retries=6 \
    CMD ["python", "deploy/docker/health.py", "http://127.0.0.1:8000/health"]
ENTRYPOINT ["tini", "--", "changeover"]
CMD ["backend", "--host", "0.0.0.0", "--port", "8000", "--control-listen", "0.0.0.0:9001"]

# The gateway: `docker build -f deploy/docker/gateway.Dockerfile .` in the repository's root.
ARG PYTHON=3.12.12-slim-bookworm

FROM python:${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/changeover
WORKDIR /src
COPY deploy/constraints/gateway.txt ./
COPY pyproject.toml README.md LICENSE ./
COPY backends backends
COPY checkpoints checkpoints
COPY gateway gateway
COPY reports reports
COPY training training
RUN /opt/changeover/bin/pip install -c gateway.txt ".[kubernetes,otel,s3,signatures]"

FROM python:${PYTHON}
ENV PATH=/opt/changeover/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    CHANGEOVER_CONFIG=/etc/changeover/infer_config.yaml \
    CHANGEOVER_RUN_DIR=/run/changeover/gateway
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent changeover \
    && install -d -o changeover -g changeover -m 0700 /run/changeover
COPY --from=build /opt/changeover /opt/changeover
COPY deploy/docker/health.py /opt/changeover/health.py
USER 10001:10001
EXPOSE 8000
# SIGTERM: not ready at once, serving while balancers forget it (settle_s), then draining (drain_s), exit 0.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=4s --start-period=30s --retries=3 \
    CMD ["python", "/opt/changeover/health.py", "http://127.0.0.1:8000/healthz"]
ENTRYPOINT ["changeover"]
CMD ["gateway"]

# The trainer: `docker build -f deploy/docker/trainer.Dockerfile --build-arg DEVICE=cuda .` in the root.
ARG PYTHON=3.12.12-slim-bookworm
FROM python:${PYTHON}
ARG DEVICE=cpu
ENV PIP_NO_CACHE_DIR=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PATH=/opt/changeover/.venv-engine/bin:$PATH \
    HOME=/var/cache/changeover \
    HF_HOME=/var/cache/changeover/huggingface \
    CHANGEOVER_CACHE_DIR=/var/cache/changeover
# The release of the base image says which versions these are.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 libnuma1 libstdc++6 tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --no-create-home --home-dir /var/cache/changeover changeover \
    && install -d -o changeover -g changeover -m 0700 /var/cache/changeover /var/lib/changeover /work
WORKDIR /opt/changeover
COPY pyproject.toml README.md LICENSE ./
COPY deploy deploy
COPY backends backends
COPY checkpoints checkpoints
COPY gateway gateway
COPY reports reports
COPY training training
RUN python deploy/setup.py engine --device ${DEVICE} --with training \
    && rm -rf logs
USER 10001:10001
WORKDIR /work
# SIGTERM: a checkpoint is written, from which the same command goes on.
STOPSIGNAL SIGTERM
ENTRYPOINT ["tini", "--", "python", "-m", "torch.distributed.run"]
CMD ["--standalone", "--nproc-per-node=1", "/opt/changeover/training/train.py", "--config", "/etc/changeover/train_config.yaml"]

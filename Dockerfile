# An image with one static binary and nothing else: no shell, no libraries, no package to patch.
#
# It only packs; cargo compiles before, so that no build cache has to live in a builder:
#
#   RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --locked \
#       --target x86_64-unknown-linux-gnu -p swarm-operator -p swarm-worker
#   buildah bud --build-arg SERVICE=operator --build-arg COMMIT=$(git rev-parse HEAD) \
#       --build-arg DATE=$(git log -1 --format=%cI) --file Dockerfile --tag swarm-operator:dev \
#       target/x86_64-unknown-linux-gnu/release
#
# `docker build` and `podman build` take the same arguments. SERVICE is `operator` (also called
# `controller`) or `worker`.
ARG SERVICE=operator

FROM scratch AS operator
COPY swarm-operator /swarm-operator
ENTRYPOINT ["/swarm-operator"]

FROM operator AS controller

FROM scratch AS worker
COPY swarm-worker /swarm-worker
# In a pod the kubelet and the cluster's metrics come from outside; elsewhere the worker stays on
# the loopback address.
ENV HTTP_ADDRESS=0.0.0.0
EXPOSE 9090
ENTRYPOINT ["/swarm-worker"]

FROM ${SERVICE}
ARG COMMIT=unknown
ARG DATE=unknown
ENV COMMIT=${COMMIT} DATE=${DATE}
LABEL org.opencontainers.image.title="swarm" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${COMMIT}" \
      org.opencontainers.image.created="${DATE}"
# A number, so that the kubelet can tell that it is not root.
USER 65532:65532
CMD ["run"]

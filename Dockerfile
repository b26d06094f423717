# Makes an image with one static program and nothing else: no shell, no libraries, no package to patch.
#
#   docker build . --tag swarm-operator:dev --build-arg SERVICE=operator \
#       --build-arg COMMIT=$(git rev-parse HEAD) --build-arg DATE=$(git log -1 --format=%cI)
#
# `podman build` and `buildah build` take the same arguments. SERVICE is `operator` (also called `controller`) or
# `worker`. The first build compiles both programs, which takes minutes; the second one only packs.
#
# FROM=prebuilt compiles nothing. It packs the programs that `.ci/dist` made, and their folder is the context:
#
#   docker build target/x86_64-unknown-linux-gnu/dist --file Dockerfile --tag swarm-operator:dev \
#       --build-arg FROM=prebuilt --build-arg SERVICE=operator
#
# PROFILE=quick compiles in less time, for a program that is larger and slower. RUST is the image that compiles: it
# needs Rust, gcc and the static libc, for example from a mirror.
#
# The defaults of FROM and SERVICE are repeated where they are used, or buildah 1.28 skips the stages that they name.
ARG RUST=docker.io/library/rust:1.95.0-slim-bookworm
ARG FROM=build
ARG SERVICE=operator

FROM ${RUST} AS compiler
ARG PROFILE=dist
WORKDIR /src
COPY . .
# Cargo compares times, and the cache may be from a later commit. New times make it compile our crates again, and
# take the dependencies from the cache. An explicit target keeps the flags away from programs of the build itself.
# The flags are as in .ci/dist, so that names of sources in messages do not depend on the place of the build.
RUN --mount=type=cache,id=swarm-registry,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,id=swarm-target,target=/target,sharing=locked \
    find . -type f -exec touch {} + && \
    target=$(rustc --print host-tuple) && \
    flags="-C target-feature=+crt-static --remap-path-prefix=/src=/swarm" && \
    flags="$flags --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo" && \
    CARGO_TARGET_DIR=/target RUSTFLAGS="$flags" cargo build --locked \
        --profile "$PROFILE" --target "$target" --bin swarm-operator --bin swarm-worker && \
    for program in swarm-operator swarm-worker; do \
        strip -o "/$program" "/target/$target/$PROFILE/$program" || exit; \
    done

FROM scratch AS build
COPY --from=compiler /swarm-operator /swarm-worker /

FROM scratch AS prebuilt
COPY swarm-operator swarm-worker /

FROM ${FROM:-build} AS programs

# Licences of the crates in the programs. The stage is empty unless a build brings a folder that
# `swarm-release notices` wrote, with `--build-context licences=FOLDER`.
FROM scratch AS licences

FROM scratch AS service-operator
LABEL org.opencontainers.image.title="swarm-operator" \
      org.opencontainers.image.description="Gives every job exactly one worker out of a pool on Kubernetes"
COPY --from=programs /swarm-operator /swarm-operator
COPY --from=licences / /licences/
ENTRYPOINT ["/swarm-operator"]

FROM service-operator AS service-controller

FROM scratch AS service-worker
LABEL org.opencontainers.image.title="swarm-worker" \
      org.opencontainers.image.description="Runs the jobs that the operator of swarm gives to this pod"
COPY --from=programs /swarm-worker /swarm-worker
COPY --from=licences / /licences/
# In a pod the kubelet and the cluster's metrics come from outside; elsewhere the worker stays on
# the loopback address.
ENV HTTP_ADDRESS=0.0.0.0
EXPOSE 9090
ENTRYPOINT ["/swarm-worker"]

# Fails here if SERVICE names no stage above: write `operator`, `controller` or `worker`.
FROM service-${SERVICE:-operator}
# Arguments that change with each commit come last, so that the layers above stay in the cache.
ARG VERSION=unknown
ARG COMMIT=unknown
ARG DATE=unknown
ENV COMMIT=${COMMIT} DATE=${DATE}
LABEL org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}" \
      org.opencontainers.image.created="${DATE}"
# A number, so that the kubelet can tell that it is not root.
USER 65532:65532
CMD ["run"]

# A small image with what an agent's commands need at least: a shell, git and the
# usual tools. Runs as an ordinary user; the root file system may be read-only:
#
#   docker run --rm --read-only --tmpfs /tmp --security-opt seccomp=unconfined \
#     --security-opt apparmor=unconfined --security-opt systempaths=unconfined \
#     -v "$PWD:/workspace" -e CODEX_API_KEY nightshift exec "fix the failing test"
#
# The sandbox makes user namespaces, mounts and a /proc of its own, which the
# default profiles of container engines refuse: the runner confines commands by
# itself, more tightly. `nightshift doctor` says what holds in a container.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=0.1.0-dev
RUN CGO_ENABLED=0 go build -trimpath -tags=grpcnotrace -ldflags="-s -w -X main.version=$VERSION" -o /nightshift ./cmd/nightshift

FROM debian:stable-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends bash ca-certificates git ripgrep \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 65532 nightshift \
 && useradd --create-home --uid 65532 --gid 65532 nightshift
COPY --from=build /nightshift /usr/local/bin/nightshift
RUN ln -s nightshift /usr/local/bin/codex
USER 65532:65532
WORKDIR /workspace
ENTRYPOINT ["nightshift"]
CMD ["--help"]

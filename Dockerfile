# One image with the controller, the agent and rdmamc, all static.
# Build it with any OCI builder: docker build -t rdma-multicast .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w" -o /out/ ./cmd/...

FROM scratch
COPY --from=build /out/ /usr/local/bin/
# The controller runs as this user; the agent's DaemonSet overrides it with 0,
# since it enters pods' network namespaces.
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/controller"]

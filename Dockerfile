# syntax=docker/dockerfile:1
# Copyright 2026 The capi-fleet Authors.
# SPDX-License-Identifier: Apache-2.0

# The build runs on the builder's own platform, and Go compiles for the other ones.
FROM --platform=$BUILDPLATFORM docker.io/library/golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY api api
COPY cmd/manager cmd/manager
COPY controllers controllers
COPY internal internal
ARG TARGETOS TARGETARCH LDFLAGS
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
	CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags "$LDFLAGS" -o /manager ./cmd/manager

# Nothing but CA certificates, and no shell.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]

# One static binary, no shell, no user but its own. Build: docker build -t settleonce --build-arg VERSION=v0.1.0 .
FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/settleonce ./cmd/settleonce
RUN printf 'settleonce:x:65532:65532::/:/sbin/nologin\n' > /out/passwd && \
    printf 'settleonce:x:65532:\n' > /out/group && \
    install -d -o 65532 -g 65532 /out/data

FROM scratch
# TLS to Kafka, Postgres and the channels needs the authorities.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/passwd /out/group /etc/
# For the sim channel's ledger; the workers write no files.
COPY --from=build --chown=65532:65532 /out/data /data
COPY --from=build /out/settleonce /settleonce
USER 65532:65532
# Admin: health, readiness, metrics.
EXPOSE 9464
ENTRYPOINT ["/settleonce"]
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 CMD ["/settleonce", "health"]

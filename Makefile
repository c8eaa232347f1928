# settleonce: `make` lists what there is to do.

GOLANGCI_VERSION := v2.15.0
CACHE            := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/settleonce
GOLANGCI         := $(CACHE)/bin/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint
VERSION          ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
BIN              := bin/settleonce

# What to test, and further flags of `go test`.
PKG       ?= ./...
TESTFLAGS ?= -timeout 20m
# -require: fail where Apache Kafka or the race detector would be left out. CI sets it.
TESTRUN   ?=
# Which broker the demo runs on: embedded (in the parent process) or apache.
KAFKA     ?= embedded
# The seeds of demo-kills: each is another run.
SEEDS     ?= 1 2 3
# How many payments a torture run has, and its seed; 0 takes a random one.
PAYMENTS  ?= 3000
SEED      ?= 0
# How many old payments backfill-million brings in.
ROWS      ?= 1000000
# How long each target is fuzzed.
FUZZTIME  ?= 10s
# How many requests of each kind the HTTP edge is sent.
EXAMPLES  ?= 50
# Further flags of the command that dev, demo and bench run.
ARGS      ?=

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z\/-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the binary into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o $(BIN) ./cmd/settleonce

.PHONY: demo
demo: build ## Watch thousands of commands come out as one outcome each (KAFKA=apache for a real broker)
	$(BIN) demo --kafka $(KAFKA) $(ARGS)

.PHONY: demo-kills
demo-kills: build ## Run the demo again and again, killing everything at any moment (SEEDS="1 2 3" KAFKA=apache)
	@for seed in $(SEEDS); do \
	  $(BIN) demo --kafka $(KAFKA) --commands 1500 --kills 16 --kill-sim --seed $$seed $(ARGS) || exit 1; \
	done

.PHONY: shop
shop: build ## Run a shop on settleonce: customers, kills, replays, and a page to watch (ARGS="-kafka apache -hold")
	CGO_ENABLED=0 go build -trimpath -o bin/shop ./examples/shop
	go run ./internal/shopdemo/run $(ARGS)

.PHONY: torture
torture: ## Break everything at seeded moments and check what came of it (PAYMENTS=100000 SEED=7 KAFKA=apache)
	@mkdir -p $(BIN)-torture.overlay && go run ./internal/clockjump/overlay $(BIN)-torture.overlay
	CGO_ENABLED=0 go build -overlay $(BIN)-torture.overlay/overlay.json -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o $(BIN)-torture ./cmd/settleonce
	CGO_ENABLED=0 go build -trimpath -o bin/shop ./examples/shop
	$(BIN)-torture torture --shop bin/shop --kafka $(KAFKA) --payments $(PAYMENTS) --seed $(SEED) $(ARGS)

.PHONY: cluster
cluster: ## Kill brokers of a real cluster, and promote the database's standby, under payments (PAYMENTS=3000 SEED=7)
	SETTLEONCE_TEST_CLUSTER_PAYMENTS=$(PAYMENTS) SETTLEONCE_TEST_CLUSTER_SEED=$(SEED) \
	  go test -count=1 -timeout 90m -v -run TestCluster ./internal/cluster

.PHONY: dev
dev: build ## Run the whole stack in one process, for development
	$(BIN) dev $(ARGS)

.PHONY: bench
bench: build ## Measure throughput and latency, with the correctness counters
	$(BIN) bench $(ARGS)

.PHONY: test
test: ## Run the tests on Postgres, the embedded broker and Apache Kafka, with the race detector (PKG=./outbox/...)
	go run ./internal/testrun $(TESTRUN) -- $(TESTFLAGS) $(PKG)

.PHONY: clients
clients: ## Publish with clients of others (kcat, Java, kafkajs, confluent-kafka), in every codec, on Apache Kafka
	@scripts/clients

.PHONY: alerts
alerts: ## Try every alert, where it must fire and where it must stay silent (needs promtool, Debian's package prometheus)
	promtool check rules deploy/prometheus/alerts.yml
	promtool test rules deploy/prometheus/alerts_test.yml

.PHONY: model
model: ## Check the model of the protocol with spin, and that every rule in it is needed (docs/model.md)
	@model/run

.PHONY: model-full
model-full: ## The same, and the larger worlds
	@model/run -full

.PHONY: backfill-million
backfill-million: ## Bring a million old payments in beside live traffic, durably, and print the figures (ROWS=1000000)
	SETTLEONCE_TEST_BACKFILL_ROWS=$(ROWS) go test -count=1 -v -timeout 90m -run '^TestBackfillBesideTraffic$$' ./internal/e2e

.PHONY: planted
planted: ## Take out one guard at a time and see that each is missed (BUG="hold-not-checked" or BUG=G5; all take half an hour)
	go run ./internal/planted/run $(BUG)

.PHONY: fuzz
fuzz: ## Fuzz everything that parses, one target after another (FUZZTIME=10s for each)
	@scripts/fuzz $(FUZZTIME)

.PHONY: edge-fuzz
edge-fuzz: build ## Fuzz the HTTP edge by its OpenAPI document, with schemathesis (EXAMPLES=50 for each operation)
	@scripts/edge-fuzz $(EXAMPLES)

.PHONY: kafka
kafka: ## Run Apache Kafka in the foreground and print its addresses (ARGS="-brokers 3")
	go run ./internal/apachekafka/run $(ARGS)

.PHONY: lint
lint: $(GOLANGCI) verify ## Lint everything
	$(GOLANGCI) run ./...

.PHONY: fmt
fmt: $(GOLANGCI) ## Format the code
	$(GOLANGCI) fmt ./...

.PHONY: generate
generate: ## Write the generated files anew
	go generate ./...

.PHONY: verify
verify: ## Check that generated files and go.mod are fresh
	@scripts/verify

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin

$(GOLANGCI):
	@echo "installing golangci-lint $(GOLANGCI_VERSION) (about a minute, once)"
	GOBIN=$(dir $@) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

# make demo   the main job on the embedded stack: record, lose Kafka, replay, compare (KEEP=1 leaves everything up)
# make test   unit, store, embedded-stack and end-to-end tests
SHELL := /bin/bash
.DEFAULT_GOAL := build

VERSION  ?= 0.1.0-dev
REVISION ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
SERVICE  := tapedeck.dev/tapedeck/shared/service
LDFLAGS  := -X $(SERVICE).version=$(VERSION) -X $(SERVICE).revision=$(REVISION)
BINARIES := ./archiver/cmd/archiver ./replayer/cmd/replayer ./processor/cmd/processor ./shared/devstack/cmd/devstack ./shared/e2e/cmd/demo
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Packages whose tests use goroutines against shared state; the rest is covered by `make test`.
RACE_PKGS := ./shared/archive/... ./shared/kafka ./shared/segment ./shared/e2e/soak ./shared/store/file ./shared/store/mem ./shared/store/metered ./shared/service/... ./shared/schema/... ./archiver/... ./replayer/... ./processor/...
# A count, not a time: the end of a time-bound run is now and then reported as a failure (go.dev/issue/75804).
FUZZTIME ?= 2000x

.PHONY: build demo test test-real test-compose lint race fuzz bench bench-archive bench-replay sim soak clean

build:
	@mkdir -p bin
	go build -ldflags '$(LDFLAGS)' -o bin/ $(BINARIES)

demo: build
	bin/demo $(if $(KEEP),--keep) $(if $(DAMAGE),--damage)

test:
	go test -timeout 20m ./...

# The same end-to-end and contract suites on real Kafka (KRaft), Apicurio, versitygw and MinIO. Fetches what it needs into .real/.
test-real:
	scripts/real/run.sh

# The three containers by Docker Compose: images, stack, the proof with every service killed, all down again. Needs Docker or podman.
test-compose:
	VERSION=$(VERSION) REVISION=$(REVISION) scripts/compose/test.sh

lint:
	@fmt=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$fmt" ]; then echo "gofmt: $$fmt"; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...
	go test ./internal/houserules

race:
	go test -race -short -timeout 30m $(RACE_PKGS)

# Every fuzz target for a short run each.
fuzz:
	@set -e; for pkg in $$(grep -rl --include='*_test.go' 'func Fuzz' . | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -ho 'func Fuzz[A-Za-z0-9_]*' $$pkg/*_test.go | awk '{print $$2}'); do \
	    echo "fuzz $$pkg $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$pkg; done; done

bench:
	go test -run '^$$' -bench . -benchmem ./shared/segment ./processor/engine

# The archiver against the bare poll loop of the same client, pairwise, on real Kafka and versitygw. ARGS='--records 500000 --rounds 3'.
bench-archive:
	scripts/real/bench-archive.sh $(ARGS)

# Replays against live runs over the same records, pairwise, on real Kafka and versitygw. ARGS='--records 500000 --rounds 3'.
bench-replay:
	scripts/real/bench-replay.sh $(ARGS)

# The chain under attack, from SIM seeds.
SIM ?= 3000
sim:
	go test -count=1 -run '^TestSimulation' ./shared/archive -sim.trials=$(SIM)

# Archivers, store and broker fail at random on real Kafka and versitygw, then archive and log are compared: SOAK=2h, SEED=7, KILLS=200.
SOAK ?= 30m
soak:
	scripts/real/soak.sh --for $(SOAK) $(if $(SEED),--seed $(SEED)) $(if $(KILLS),--kills $(KILLS)) $(ARGS)

clean:
	rm -rf bin

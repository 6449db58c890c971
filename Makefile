# Everything runs in .venv, which is made from the hashed lock files in requirements/.
PYTHON ?= python3
BIN := .venv/bin
# Tests in a browser run where there is one, and in CI, which installs it.
BROWSER := $(if $(CI)$(shell command -v chromium),.venv/.browser)
# The cases of Autobahn, likewise.
CONFORMANCE := $(if $(CI),.venv/.conformance)
# The web service and the notebook among the examples, likewise.
EXAMPLES := $(if $(CI),.venv/.examples)
# The types of octopi.js and of documented programs, the bundle of octopi.js, the console with axe,
# and streams over HTTP are checked where there is npm, and in CI, which installs it.
NPM_TOOLS := $(if $(CI)$(shell command -v npm),.tools/typescript .tools/bundler .tools/axe .tools/durable-streams .tools/pyright)
# The executables are tested where they were made, and in CI, which makes them.
EXECUTABLE := $(if $(CI),dist/octopi-node/octopi-node)
# Tests that reach every branch of what they test by themselves; `make check` runs them once, with
# the measurement of that.
COVERED := tests/record tests/wire tests/storage
# Tests of all that nodes and clients say to each other; those of elections don't depend on frames.
FRAMED := $(addprefix tests/integration/test_,broker_failures.py messages.py reading.py registration.py)
# `make search` does a sixteenth of the actions, by the number of the commit, so that sixteen commits
# in a row do all of them.
PART = $$(( $$(git rev-list --count HEAD 2>/dev/null || echo 0) % 16 + 1 )) 16
# How long `make fuzz` goes on.
FUZZ_SECONDS ?= 600
# For `make bench` and `make bench-quick`; --help explains all.
BENCH_OPTIONS ?=
# Three files of tests at a time, in the order of their names: files with a single long test come
# last otherwise, and one core waits for the end of the longest.  Three on two cores, because tests
# of processes and browsers wait half of the time.  A worker that a time limit ended is not replaced:
# pytest-xdist would run its test once more, and then wait for ever.
IN_TURN := -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart=0
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Where it is set (images for containers often set it), each process of a test compiles all modules
# of Octopi again, which takes longer than all else it does to start.
unexport PYTHONDONTWRITEBYTECODE

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile
demo: .venv/.runtime ## a real cluster: move data through it, kill the leader, prove that nothing is lost
	$(BIN)/octopi-node demo
test: .venv/.dev $(BROWSER) $(EXAMPLES) $(NPM_TOOLS) $(EXECUTABLE) ## run all tests; those of Spark where there is Java 17
	@if java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])'; then $(MAKE) --no-print-directory .venv/.spark; fi
	$(BIN)/pytest $(IN_TURN) $(LEFT_OUT)
check: .venv/.dev .venv/.browser .venv/.docs .venv/.examples .venv/.spark .venv/.runtime $(CONFORMANCE) $(NPM_TOOLS) $(EXECUTABLE) ## everything that has to hold before a change goes in
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target format-check lint types layers covered docs
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target clusters searches
# The tests wait part of the time.  The searches, which never wait, have what they leave.
clusters:
	$(MAKE) --no-print-directory test LEFT_OUT="$(COVERED:%=--ignore=%)"
	$(MAKE) --no-print-directory plain
searches:
	nice -n 10 $(MAKE) --no-print-directory fuzz-briefly
	nice -n 10 $(MAKE) --no-print-directory search
format: .venv/.dev ## rewrite the sources in the one format
	$(BIN)/ruff format
	$(BIN)/ruff check --fix --select I
format-check: .venv/.dev
	$(BIN)/ruff format --check
lint: .venv/.dev ## ruff's rules
	$(BIN)/ruff check
types: .venv/.browser .venv/.spark ## mypy --strict
	$(BIN)/mypy
layers: .venv/.dev ## which package may import which
	$(BIN)/lint-imports
cover: .venv/.dev .venv/.spark $(BROWSER) $(CONFORMANCE) $(EXAMPLES) ## all tests, with branch coverage: several times as long
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage report
covered: .venv/.dev ## the tests of record, wire and storage reach every branch of those by themselves
	$(BIN)/coverage run -m pytest -q $(COVERED)
	$(BIN)/coverage report --fail-under=100 \
	  --include='octopi/kernels.py,octopi/record*.py,octopi/wire/*,octopi/storage/*'
plain: .venv/.dev ## clusters again, with the framing of trio-websocket instead of ours
	OCTOPI_PLAIN_WEBSOCKET=1 $(BIN)/pytest $(IN_TURN) $(FRAMED)
	OCTOPI_PLAIN_WEBSOCKET=1 $(BIN)/octopi-node sim run --tier websocket --seeds 10
conformance: .venv/.dev .venv/.conformance ## the cases of Autobahn against a listener of ours
	OCTOPI_REQUIRE_CONFORMANCE=1 $(BIN)/pytest tests/transport/test_autobahn.py
exhaust: .venv/.runtime ## simulated clusters: everybody fails at every step and I/O in every way; the table in search/
	$(BIN)/octopi-node sim exhaust --table search/exhaust.txt --json search/exhaust.json
search: .venv/.runtime ## the same, but everybody fails once at each of these places; plans that failed once, and some seeds; results in search/
	$(BIN)/octopi-node sim exhaust --moments 1 --part $(PART) --table search/exhaust.txt --json search/exhaust.json
	$(BIN)/octopi-node sim seeds
	$(BIN)/octopi-node sim run --tier message --seeds 30 --json search/message.json --pages search/pages
	$(BIN)/octopi-node sim run --tier websocket --seeds 15 --json search/websocket.json --pages search/pages
	$(BIN)/octopi-node sim run --plans registers --seeds 20 --json search/registers.json --pages search/pages
	$(BIN)/octopi-node sim run --plans ring --tier message --seeds 20 --json search/ring.json --pages search/pages
	$(BIN)/octopi-node sim run --plans relay --tier message --seeds 10 --json search/relay.json --pages search/pages
	$(BIN)/octopi-node sim run --plans pipes --tier message --seeds 10 --json search/pipes.json --pages search/pages
chaos: .venv/.dev ## real processes under every kind of fault, ten minutes with 3 brokers, ten with 5, likewise without a register, and with members of subscriptions; needs root, to mount small disks
	$(BIN)/python -m tests.chaos --kinds all --brokers 3 --seconds 600
	$(BIN)/python -m tests.chaos --kinds all --brokers 5 --seconds 600
	$(BIN)/python -m tests.chaos --registers 0 --brokers 3 --seconds 600
	$(BIN)/python -m tests.chaos --registers 0 --brokers 5 --seconds 600
	$(BIN)/python -m tests.chaos.subscriptions --seconds 600
fuzz: .venv/.dev ## look for inputs that decoders and file formats don't stand: ten minutes; FUZZ_SECONDS=3600 for an hour
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)
fuzz-briefly: .venv/.dev
	$(BIN)/python -m tests.fuzz --same
attack: .venv/.dev ## hostile clients against real processes, and what others notice of them: five minutes
	$(BIN)/python -m tests.attack
spark-kills: .venv/.dev .venv/.spark ## Spark's streams, whose driver and brokers are killed 20 times each
	$(BIN)/python -m tests.spark.kills
bench: .bench/.ready ## Octopi and its peers side by side, all workloads, on a quiet machine: an hour
	PATH="$$PWD/.bench/bin:$$PATH" .bench/bin/python -m benchmarks $(BENCH_OPTIONS)
bench-quick: .bench/.ready ## the most telling of them: three minutes
	PATH="$$PWD/.bench/bin:$$PATH" .bench/bin/python -m benchmarks --quick $(BENCH_OPTIONS)
bench-fanout: .bench/.ready ## 1,000 WebSocket subscribers, beside NATS: deliveries and memory
	PATH="$$PWD/.bench/bin:$$PATH" .bench/bin/python -m benchmarks.fanout
docs: .venv/.docs ## the documents as a site, with references made from the code: dist/site
	$(BIN)/python -m harness.site
bundle: .tools/bundler ## octopi.min.js and the file beside it, of octopi.js: after each change of that
	rm -f $(STATIC)/octopi*.min.js
	$(BUNDLER) --config requirements/bundler/rollup.config.mjs --dir $(STATIC)
dist: executables ## sdist, wheel, and the executables for this machine's system, in dist/
	$(BIN)/python -m hatchling build -d dist -t sdist -t wheel
	cp -r LICENSE deploy/systemd dist/octopi-node/
	tar -czf dist/octopi-node-$(RELEASE).tar.gz -C dist octopi-node
	cp dist/octopi-node-one-file dist/octopi-node-$(RELEASE)
	@ls -l dist
executables: .venv/.dist ## only the executables: a directory for services, and one file
	$(BIN)/pyinstaller --noconfirm --log-level ERROR --workpath dist/.work --distpath dist deploy/octopi-node.spec
dist/octopi-node/octopi-node:
	$(MAKE) --no-print-directory executables
venv: .venv/.dev ## the virtual environment with the development tools
lock: .tools/bin/uv ## resolve the dependencies again
	$(COMPILE) --output-file requirements/runtime.txt
	$(COMPILE) --extra dev --constraint requirements/runtime.txt --output-file requirements/dev.txt
	$(COMPILE) --extra dev --extra browser --constraint requirements/dev.txt --output-file requirements/browser.txt
	$(COMPILE) --extra conformance --constraint requirements/dev.txt --output-file requirements/conformance.txt
	$(COMPILE) --extra dev --extra examples --constraint requirements/dev.txt --output-file requirements/examples.txt
	$(COMPILE) --extra dist --constraint requirements/dev.txt --output-file requirements/dist.txt
	$(COMPILE) --extra dev --extra spark --constraint requirements/dev.txt --output-file requirements/spark.txt
	$(COMPILE) --extra dev --extra docs --constraint requirements/dev.txt --output-file requirements/docs.txt
	$(COMPILE) --extra bench --constraint requirements/runtime.txt --output-file requirements/bench.txt
clean: ## remove what was made here
	rm -rf .venv .bench .tools .coverage .hypothesis .*_cache dist search
	find . -name __pycache__ -prune -exec rm -rf {} +

# One file for every platform and Python, with hashes and without the name of any index.
COMPILE = .tools/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
  --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
  --custom-compile-command 'make lock' pyproject.toml requirements/build.in

.venv/bin/pip:
	@command -v $(PYTHON) >/dev/null || { echo 'octopi: $(PYTHON) is missing: install Python 3.11 or newer, or name one: make PYTHON=...' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("octopi: Python 3.11 or newer is needed and $(PYTHON) is %d.%d: name a newer one: make PYTHON=..." % sys.version_info[:2])'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo 'octopi: $(PYTHON) cannot make virtual environments: install its venv module (Debian: apt-get install python3-venv)' >&2; exit 1; }
	$(PYTHON) -m venv .venv
# An installation compiles the kernels where there is a C compiler.
KERNELS := $(wildcard hatch_build.py octopi/_kernels.c)
# All stamps stand for one environment: the tools are added to what a node needs to run, and
# what is large, for a browser, the site, the examples or Spark, to the tools.
.venv/.runtime .venv/.dev .venv/.browser .venv/.conformance .venv/.dist .venv/.docs .venv/.examples .venv/.spark: .venv/.%: requirements/%.txt pyproject.toml $(KERNELS) | .venv/bin/pip
	$(BIN)/pip install --quiet --require-hashes -r $<
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
# Peers are measured if they are there: Debian's redis-server, rabbitmq-server and nats-server, or,
# newer than Debian's, nats-server from the source of its module where there is a Go compiler;
# Kafka, where OCTOPI_BENCH_KAFKA_JARS names a directory of its jars.
.bench/.ready: requirements/bench.txt pyproject.toml $(KERNELS)
	$(PYTHON) -m venv .bench
	.bench/bin/pip install --quiet --require-hashes -r $<
	.bench/bin/pip install --quiet --no-deps --no-build-isolation --editable .
	@! command -v go >/dev/null || GOBIN="$$PWD/.bench/bin" go install github.com/nats-io/nats-server/v2@latest \
	  || echo 'octopi: no newer nats-server could be built; that of the system is measured, if any' >&2
	@! command -v go >/dev/null || GOBIN="$$PWD/.bench/bin" go install github.com/nats-io/natscli/nats@latest \
	  || echo 'octopi: the tool of NATS could not be built; `nats bench` is left out' >&2
	@touch $@
# Such as 0.1.0-linux-x86_64.
RELEASE = $(shell $(BIN)/octopi-node --version | cut -d ' ' -f 2)-$(shell uname -sm | tr 'A-Z ' 'a-z-')
STATIC = octopi/console/static
BUNDLER = .tools/bundler/node_modules/.bin/rollup --silent
.tools/bin/uv: | .venv/bin/pip
	$(PYTHON) -m venv .tools && .tools/bin/pip install --quiet uv

.tools/typescript .tools/bundler .tools/axe .tools/durable-streams .tools/pyright: .tools/%: requirements/%/package-lock.json
	rm -rf $@ && mkdir -p $@ && cp requirements/$*/*.js* $@
	cd $@ && npm ci --silent --no-audit --no-fund --ignore-scripts

.PHONY: help demo test exhaust search check clusters searches format format-check lint types layers cover covered docs conformance chaos attack fuzz fuzz-briefly spark-kills bench bench-quick bench-fanout bundle dist executables venv lock clean
.DELETE_ON_ERROR:

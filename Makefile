# Makefile: the commands of the project. `make demo` and `make test` set up everything they need.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build
.PHONY: help setup setup-test build demo test lint format asan tsan fuzz mutation clean

JOBS ?= $(shell nproc)
LAUNCHER := $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
WERROR := $(if $(CI),-DCHECKVALVE_WERROR=ON)
CONFIGURE := cmake $(LAUNCHER) $(WERROR) --preset
FUZZ_SECONDS ?= 60

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup:
	scripts/setup.sh build

setup-test:
	scripts/setup.sh build test

build: setup  ## the library and the command line: build/bin/checkvalve
	$(CONFIGURE) release -DCHECKVALVE_BUILD_TESTS=OFF >build-configure.log || { cat build-configure.log; exit 1; }
	@rm -f build-configure.log
	cmake --build build -j $(JOBS)
	@echo "built: build/bin/checkvalve"

demo: build  ## audit every recipe on real data and write checkvalve-report.html
	build/bin/checkvalve demo --data data --html checkvalve-report.html
	@echo "demo done: open checkvalve-report.html in a browser"

test: setup-test  ## build and run all tests
	$(CONFIGURE) release -DCHECKVALVE_BUILD_TESTS=ON
	cmake --build build -j $(JOBS)
	ctest --test-dir build --output-on-failure -j $(JOBS)

lint: setup-test  ## formatting, clang-tidy, ruff, shellcheck
	scripts/lint.sh

format: setup-test  ## rewrite the sources in the project's format
	.venv/bin/clang-format -i $$(git ls-files '*.cpp' '*.h')
	.venv/bin/ruff format $$(git ls-files '*.py')

asan: setup-test  ## all tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(CONFIGURE) asan
	cmake --build build-asan -j $(JOBS)
	ctest --test-dir build-asan --output-on-failure -j $(JOBS) -LE slow

tsan: setup-test  ## the tests that run threads, under ThreadSanitizer
	$(CONFIGURE) tsan
	cmake --build build-tsan -j $(JOBS)
	TSAN_OPTIONS="suppressions=$(CURDIR)/scripts/tsan.supp history_size=7" \
	  ctest --test-dir build-tsan --output-on-failure -R "DeltaFromOutput|HybridBackward|OwnBlockTwoPass|G4"

fuzz: setup-test  ## fuzz each file reader for FUZZ_SECONDS
	$(CONFIGURE) fuzz -DCHECKVALVE_FUZZ_SECONDS=$(FUZZ_SECONDS)
	cmake --build build-fuzz -j $(JOBS)
	ctest --test-dir build-fuzz --output-on-failure -j $(JOBS) -L fuzz

mutation: setup-test  ## break one rule at a time; a test must fail each time
	scripts/mutation_check.sh

clean:  ## remove everything that was built
	rm -rf build build-* checkvalve-report.html

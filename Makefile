# Every verb sets up what it needs (scripts/setup) and is quick when nothing is left to do.
#   make demo         a small real model answers, with enough RAM and without
#   make test         build everything and run the tests
#   make build        leave the command at build/haul
#   make install      PREFIX=/usr/local: library, headers, CMake package, command
#   make check        format, includes, headers, lengths, registered tests, clang-tidy
#   make format       let clang-format decide
#   make test-asan    the torch-free tests under the address and undefined-behaviour sanitizers
#   make test-tsan    the reader and the streamer under the thread sanitizer
#   make test-oracle  compare with the peers from PyPI, live
#   make build-cuda   compile the CUDA part and its tests; needs no GPU
#   make gpu-kit      build-gpu/kit.tar.gz: the GPU's tests, to run where haul cannot be built
#   make fuzz         every fuzzer for FUZZ_SECONDS (60)
#   make test-gpu     the tests that need a GPU
#   make bench        the benchmarks, each beside its limit and its peer
SHELL := /bin/bash
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
CONFIGURE := cmake -G Ninja -S . --log-level=WARNING
CTEST := ctest --output-on-failure -j$(shell nproc)
WITHOUT_GPUS := CUDA_VISIBLE_DEVICES=

.DEFAULT_GOAL := help
.PHONY: help demo test build install check format build-sanitized test-asan test-tsan test-oracle build-cuda gpu-kit fuzz test-gpu bench

help:
	@sed -n 's/^#   //p' Makefile

build:
	@scripts/setup torch
	@$(CONFIGURE) -B build
	@cmake --build build

test: build
	@$(WITHOUT_GPUS) $(CTEST) --test-dir build -LE gpu

demo: build
	@scripts/demo

install: build
	@cmake --install build --prefix "$(PREFIX)"

check:
	@scripts/setup torch
	@scripts/setup check
	@$(CONFIGURE) -B build-check -DHAUL_UNITY=OFF
	@scripts/check

format:
	@scripts/setup check
	@git ls-files -co --exclude-standard '*.cpp' '*.h' '*.cu' '*.cuh' | grep -v generated | xargs clang-format -i

# One build for the tests and the fuzzers: clang's sanitizers.
build-sanitized:
	@scripts/setup fuzz
	@$(CONFIGURE) -B build-sanitized -DHAUL_TORCH=OFF -DHAUL_SANITIZE=ON -DCMAKE_CXX_COMPILER=clang++
	@cmake --build build-sanitized

test-asan: build-sanitized
	@$(CTEST) --test-dir build-sanitized

test-tsan:
	@scripts/setup torch
	@$(CONFIGURE) -B build-tsan -DHAUL_TSAN=ON
	@cmake --build build-tsan --target test_runtime_tiers test_runtime_stream
	@build-tsan/tests/runtime/tiers/test_runtime_tiers --gtest_brief=1
	@build-tsan/tests/runtime/stream/test_runtime_stream --gtest_brief=1

test-oracle: build
	@scripts/setup oracle
	@$(WITHOUT_GPUS) HAUL=build/haul .venv-oracle/bin/python -m pytest -q -n $(shell nproc) --dist loadgroup tests/oracle

# The oracles' torch has the CUDA headers that the small one for `make build` lacks.
CONFIGURE_CUDA := $(CONFIGURE) -DHAUL_REQUIRE_CUDA=ON \
  -DHAUL_TORCH_DIR=$$(echo $(CURDIR)/.venv-oracle/lib/python3*/site-packages/torch)

build-cuda:
	@scripts/setup oracle
	@$(CONFIGURE_CUDA) -B build-cuda -DHAUL_UNITY=OFF
	@parts=$$(ninja -C build-cuda -t targets all | grep -oE '^[^:]*(cuda[./]|nccl_|early_|wake\.|_gpu\.dir/|gpu_kernels\.)[^:]*\.o' | \
	  grep -v check-headers) && cmake --build build-cuda --target $$parts

# Without curl, which such a machine may lack.
gpu-kit:
	@scripts/setup oracle
	@$(CONFIGURE_CUDA) -B build-gpu -DCMAKE_DISABLE_FIND_PACKAGE_CURL=ON
	@cmake --build build-gpu --target haul haul-torch bench_gpu_kernels \
	  $$(ninja -C build-gpu -t targets all | grep -oE '^test_\w+_gpu\b' | sort -u)
	@scripts/gpu-kit

fuzz: build-sanitized
	@scripts/fuzz build-sanitized $(FUZZ_SECONDS)

test-gpu: build
	@scripts/test-gpu

bench: build
	@scripts/setup oracle
	@scripts/bench

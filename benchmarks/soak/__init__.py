"""The parts of `make soak`: kills, faults and fuzzed inputs; benchmarks/bench_soak.py runs them."""

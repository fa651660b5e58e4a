"""What benchmarks measure with: load, processes, profiles."""

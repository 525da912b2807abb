"""The benchmark: every detector on versioned workloads; ``python -m replay.quality``."""

"""A physical simulator of synchronous training jobs, their healthy life and their faults."""

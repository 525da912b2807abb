"""Telemetry from Apache Kafka, alerts to it: source, checkpoints, dead letters, topics."""

"""Alerts, events, silences, history: everything the service must remember."""

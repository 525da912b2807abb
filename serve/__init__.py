"""The service: sources, alert store and life cycle, notifications, API, page, command line."""

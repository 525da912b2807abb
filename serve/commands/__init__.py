"""One file a command; what a command does is imported when it is called."""

"""Old logs are input like new ones: what a path holds is found out, read, and kept as runs."""

"""Who holds memory, how much is in use, and who held it when there was no more."""

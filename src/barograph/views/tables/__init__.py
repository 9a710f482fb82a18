"""Commands that answer with a table. In: arguments. Out: lines of text."""

"""Answers for coding assistants over the Model Context Protocol. In: tool calls. Out: bounded answers."""

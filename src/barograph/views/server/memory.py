"""What was worked out, kept while there is room.

In:   keys, values and how many bytes they take.
Out:  the value again, if it is still there. The least recently used go first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any


class Memory:
    """Values up to `limit` bytes together; one that is larger alone is not kept. Any thread may call."""

    def __init__(self, limit: int):
        self.limit = limit
        self.held = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> Any:
        """The value, None if it is not there."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """size: bytes that the value takes, roughly."""
        with self._lock:
            known = self._values.pop(key, None)
            self.held -= known[1] if known is not None else 0
            if size > self.limit:
                return
            self._values[key] = value, size
            self.held += size
            while self.held > self.limit:
                self.held -= self._values.popitem(last=False)[1][1]

"""Addresses: which of them lead to this machine.

In:   a host's name or address.
Out:  whether it is this machine alone; the names under which this machine is asked for.
"""

from __future__ import annotations

import ipaddress
import socket

_LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})


def own_names(host: str) -> frozenset[str]:
    """The names under which this machine may be asked for, when it does not listen on loopback alone."""
    names = {host.lower(), socket.gethostname().lower()}
    names.add(socket.getfqdn().lower())
    return frozenset(name.rstrip(".") for name in names if name)


def is_loopback(host: str) -> bool:
    """Whether an address or name leads to this machine alone."""
    if host.lower() in _LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").split("%")[0]).is_loopback
    except ValueError:
        return False

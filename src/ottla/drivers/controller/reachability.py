"""Whether the process behind an address is gone, as far as its system can tell.

A killed process closes its sockets at once: its connections end, and new ones are refused by the system that is still
there. Only that is proof. Connections also end where the network or a machine fails, and then new ones are not refused
but time out; a hung process accepts them without answering. So neither a partition in one direction
or both nor a pause is taken for a death, and who must decide on those has the timeouts of Kafka's protocol.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.drivers.nodes.node_connection import NodeConnection
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.network import Address, Network

TRIES_MAX: Final = 10
"""Tries for a process that is neither alive nor gone: it accepts and closes without an answer, as a process that is
ending does."""

LOOK_EVERY_S: Final = 0.1
"""How often addresses are looked at that are waited for to be gone."""

DONE = KafkaError(ErrorCode.network_exception, "nothing more is asked")


async def is_gone(network: Network, address: Address, *, confirm_s: float, setup_s: float) -> bool:
    """Whether an address refuses connections, now and still so after `confirm_s`. `setup_s`: for an answer."""
    refusals = 0
    for _ in range(TRIES_MAX):
        refused = await _refuses(network, address, setup_s)
        if refused is None:
            refusals = 0
        elif not refused:
            return False
        else:
            refusals += 1
            if refusals == 2:
                return True
        await asyncio.sleep(confirm_s)
    return False


async def wait_gone(network: Network, addresses: Sequence[Address], count: int, *, setup_s: float) -> None:
    """Return when `count` of these addresses refuse connections. They are first asked after a moment: an address that
    answers a request elsewhere at once need not be asked.
    """
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        looks = (is_gone(network, each, confirm_s=LOOK_EVERY_S / 2, setup_s=setup_s) for each in addresses)
        if sum(await asyncio.gather(*looks)) >= count:
            return


async def _refuses(network: Network, address: Address, setup_s: float) -> bool | None:
    """None for an address that accepts a connection and closes it without an answer."""
    connection = NodeConnection(asyncio.get_running_loop(), "reachability", str(address))
    connected = False
    try:
        async with asyncio.timeout(setup_s):
            await network.connect(lambda: connection, *address)
            connected = True
            await connection.negotiate(setup_s)
    except ConnectionRefusedError:
        return True
    except ConnectionAbortedError:  # in the handshake of TLS
        return None
    except (OSError, TimeoutError):
        return False
    except KafkaError as error:
        return None if connected and error.code == ErrorCode.network_exception else False
    finally:
        connection.fail(DONE)
    return False

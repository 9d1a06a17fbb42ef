"""The only room with sockets to the outside: what capsules reach, after the airlock has said where.

`Dialer` looks names up and connects, one per process; a `NetworkDoor` is one guest's way: airlock, look-up,
checked addresses, connection, and a note of what was done.  Every wait has an end and can be cut
short.  Nothing here knows a guest, a handle or the bus; policy decides, this room carries out.
"""

from aos_runtime.network.dialer import Dialer
from aos_runtime.network.door import NetworkDoor
from aos_runtime.network.faults import Fault, NetworkFault

__all__ = ["Dialer", "Fault", "NetworkDoor", "NetworkFault"]

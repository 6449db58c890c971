"""All messages under one name: ``from octopi.wire import messages as m``.

A message is one binary WebSocket message with one CBOR map.  The value of its first key,
``"type"``, is the type name that the class declares (`octopi.wire.declarations`).  The other keys
are the fields, in any order: all fields but those that may be missing, and no others.  Records
travel as a byte string of whole records, encoded as in the log files (`octopi.record`).

The asking side chooses ``request`` numbers (any number that is not in use on the connection).  The
answer has the same number; it is the message that the docstring names, or `Failure`.  Offsets and
lengths are in bytes; ends are exclusive.  Bounds are declared at the fields, and
`octopi.wire.codec` enforces them before other code gets a message.

The classes are in these modules:

- `octopi.wire.common`: messages of any connection, and parts that several planes share;
- `octopi.wire.client`: topics, records and readings;
- `octopi.wire.counts`: how many messages there are;
- `octopi.wire.nodes`: what each node answers for itself;
- `octopi.wire.producers`: the epochs of named producers;
- `octopi.wire.subscriptions`: durable subscriptions;
- `octopi.wire.queues`: the messages of queues, and their answers;
- `octopi.wire.admin`: an operator's changes of a cluster;
- `octopi.wire.hand_over`: by which a register hands its cluster over to the brokers alone;
- `octopi.wire.loads`: how much brokers have to do;
- `octopi.wire.generations`: by which logs are sealed for the next generation of their topic;
- `octopi.wire.membership`: between the brokers and the register;
- `octopi.wire.replication`: between followers and leaders;
- `octopi.wire.peer`: between a node and another one that it asks on behalf of a client;
- `octopi.wire.registers`: between the registers of a cluster;
- `octopi.wire.agreement`: about values on which brokers agree, in a cluster without a register;
- `octopi.wire.ring`: between the brokers of such a cluster, to find each other;
- `octopi.wire.relay`, `octopi.wire.relay_rows`: between relays, about topics in memory;
- `octopi.wire.relay_descriptions`: what clients ask about these.

Structures that messages contain and nodes store are in `octopi.model`.
"""

from octopi.field_bounds import *
from octopi.model import *
from octopi.wire.admin import *
from octopi.wire.agreement import *
from octopi.wire.client import *
from octopi.wire.common import *
from octopi.wire.counts import *
from octopi.wire.declarations import *
from octopi.wire.generations import *
from octopi.wire.hand_over import *
from octopi.wire.loads import *
from octopi.wire.membership import *
from octopi.wire.nodes import *
from octopi.wire.peer import *
from octopi.wire.producers import *
from octopi.wire.queues import *
from octopi.wire.registers import *
from octopi.wire.relay import *
from octopi.wire.relay_descriptions import *
from octopi.wire.relay_rows import *
from octopi.wire.replication import *
from octopi.wire.ring import *
from octopi.wire.subscriptions import *

"""All messages under one name: ``from octopi.wire import messages as m``.

A message is one binary WebSocket message holding one CBOR map.  Its first key, ``"type"``, has the
name that the class declares (`octopi.wire.declarations`); the other keys are the fields, in any
order, all of them but those that may be missing, and no others.  Bulk is a byte string of whole
records exactly as they lie on disk (`octopi.record`).

``request`` numbers are chosen by the asking side (any, not in use on that connection) and come back
in the answer: the message named in the docstring, or `Failure`.  Offsets and lengths are bytes,
ends are exclusive.  Bounds stand beside the fields; `octopi.wire.codec` enforces them before
anything looks at a message.

The classes stand in one module for each plane:

- `octopi.wire.common`: on any connection, and the parts that several planes share;
- `octopi.wire.client`: topics, records and readings;
- `octopi.wire.subscriptions`: durable subscriptions;
- `octopi.wire.queues`: what queues deal to their members;
- `octopi.wire.admin`: what operators order;
- `octopi.wire.membership`: between the brokers and the register;
- `octopi.wire.replication`: between followers and leaders.

What messages carry and nodes keep is in `octopi.model`.
"""

from octopi.field_bounds import *
from octopi.model import *
from octopi.wire.admin import *
from octopi.wire.client import *
from octopi.wire.common import *
from octopi.wire.declarations import *
from octopi.wire.membership import *
from octopi.wire.queues import *
from octopi.wire.replication import *
from octopi.wire.subscriptions import *

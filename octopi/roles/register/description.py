"""A register's description of its cluster: brokers, partitions, and topics not served."""

from __future__ import annotations

import attrs

from octopi.coordination.controller import Controller
from octopi.limits import LIST_COUNT_MAX
from octopi.security.grants import Grants
from octopi.storage.time_slices import Slices, in_groups
from octopi.wire import messages as m
from octopi.wire.codec import EncodedList


def described(
    message: m.DescribeCluster, controller: Controller, grants: Grants
) -> Slices[m.ClusterDescription]:
    """The answer to *message* for a client with *grants*, in slices: each partition as it is when
    its slice is made."""
    state = controller.state
    brokers, partitions = EncodedList(m.BrokerInfo), EncodedList(m.PartitionInfo)
    for infos in in_groups(controller.view.brokers()[:LIST_COUNT_MAX]):
        draining = controller.draining
        brokers.add(
            [attrs.evolve(one, drained=True) if one.broker in draining else one for one in infos]
        )
        yield
    for numbers in in_groups(sorted(state.partitions)[:LIST_COUNT_MAX]):
        records = [state.partitions[one] for one in numbers]
        partitions.add([controller.view.partition(one) for one in records])
        yield
    return m.ClusterDescription(
        message.request,
        state.cluster,
        state.topic_count,
        state.partition_count,
        brokers,
        partitions,
        *controller.learning(),
        controller.unserved.found(grants.covers),
        [controller.view.relays(one) for _, one in sorted(state.relay_sets.items())],
    )

"""The cluster: its brokers and partitions, and what happened to it."""

from __future__ import annotations

from functools import partial

from octopi.limits import LIST_COUNT_MAX
from octopi.roles.answers import answer_with_room, tell_with_room
from octopi.roles.register.description import described
from octopi.roles.register.services.context import RegisterContext
from octopi.storage.time_slices import GROUP_COUNT, at_once, in_turns
from octopi.transport.services import Service
from octopi.transport.turns import another
from octopi.wire import messages as m


class ClusterService(Service):
    """Describes the cluster, and lists its events."""

    def __init__(self, context: RegisterContext) -> None:
        super().__init__(
            {
                m.DescribeEvents: lambda asked: answer_with_room(
                    context.connection, context.tasks, partial(self._events, asked)
                ),
                m.DescribeCluster: self._tell_cluster,
                m.DescribeLoads: lambda asked: answer_with_room(
                    context.connection, context.tasks, partial(self._tell_loads, asked)
                ),
                m.DescribeNode: self._tell_node,
            }
        )
        self._node = context.node
        self._connection = context.connection
        self._tasks = context.tasks

    def _tell_node(self, message: m.DescribeNode) -> None:
        node = self._node
        uptime_s = node.environment.clock.now() - node.started_at
        self._connection.post(
            m.NodeDescription(message.request, node.options.agent, round(uptime_s * 1000))
        )

    def _tell_loads(self, message: m.DescribeLoads) -> None:
        shedding, grants = self._node.shedding, self._connection.grants
        self._connection.post(
            m.LoadList(
                message.request,
                shedding.is_on,
                shedding.goes_by_load,
                shedding.moved_count,
                [
                    m.LoadOfBroker(one, None if load is None else round(load * m.LOAD_UNIT))
                    for one, load in sorted(shedding.of_brokers().items())
                ],
                [
                    m.LoadOfPartition(
                        one,
                        round(load * m.LOAD_UNIT),
                        is_hot,
                        topic if topic and grants.covers(topic) else "",
                    )
                    for one, load, is_hot, topic in shedding.of_partitions()[:LIST_COUNT_MAX]
                ],
            )
        )

    def _events(self, message: m.DescribeEvents) -> None:
        state, grants = self._node.controller.state, self._connection.grants
        life = state.life.nonce if state.cluster else ""
        events = [
            one
            for one in self._node.events.after(message.after)
            if not one.topic or grants.covers(one.topic)
        ]
        self._connection.post(m.EventList(message.request, life, events))

    def _tell_cluster(self, message: m.DescribeCluster) -> None:
        """Describe the cluster: at once, or a large one in slices."""
        connection, controller, tasks = self._connection, self._node.controller, self._tasks
        slices = partial(described, message, controller, connection.grants)
        if len(controller.state.partitions) + len(controller.state.brokers) <= GROUP_COUNT:
            answer_with_room(connection, tasks, lambda: connection.post(at_once(slices())))
            return

        async def tell() -> None:
            connection.post(await in_turns(slices(), another(connection.turn)))

        tasks.start_soon(tell_with_room, connection, tell)

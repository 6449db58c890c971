"""A whole simulated cluster: a register, brokers, and client programs, each on a host of its own.
A cluster without a register has brokers only, the first of which are its founders.

This module decides what runs on which host, and starts it again: every host can be ended in any way
at any moment, and `boot` starts what ran there.  `octopi.simulation.faults.injector` decides which
faults happen when; the client programs decide what clients do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal

import attrs
import trio

from octopi.coordination.shedding import SheddingRules
from octopi.coordination.topic_placement import PlacementRule
from octopi.environment import Environment
from octopi.identifiers import INTERNAL_LOGS, RING_LOGS, TOPICS_LOG, BrokerId, PartitionId, TopicId
from octopi.limits import (
    GATHER_S,
    JOIN_SECRET_BYTES,
    JOURNAL_SNAPSHOT_ENTRIES,
    PARTITION_COUNT_DEFAULT,
    REBALANCE_INTERVAL_S,
    REPLICA_COUNT_DEFAULT,
    RETENTION_CHECK_INTERVAL_S,
    RETIRED_KEEP_S,
)
from octopi.roles.broker.log_files import log_directory
from octopi.roles.broker.node import BrokerOptions, run_broker
from octopi.roles.broker.ring.node import RingBroker, run_ring_broker
from octopi.roles.broker.ring.options import RingOptions
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.running import run_register
from octopi.security.join_secret import JoinSecrets
from octopi.simulation.disk.log_bytes import ReplicaBytes
from octopi.simulation.invariants.agreed_view import AgreedView
from octopi.simulation.invariants.decision_view import DecisionView
from octopi.simulation.invariants.register_view import RegisterView
from octopi.simulation.invariants.relay_view import RelayObserver
from octopi.simulation.kernel.host import ProcessLife, Program, SimulatedHost
from octopi.simulation.kernel.world import Event, World
from octopi.simulation.network.network import Network
from octopi.storage.flush_policy import FlushOptions
from octopi.tracing import steps

REGISTER: Final = "register"
"""The name of the register's host; brokers are ``broker-1`` and so on."""

_PORT: Final = 7000
DATA_DIRECTORY: Final = "data"
"""The directory on its own disk where every node keeps its data."""

STOP: Final = "stop"
"""The name of the event when a node is asked to stop."""

WIPE: Final = "wipe"
"""The name of the event when a host gets an empty disk."""

_IDS_PER_DISK: Final = 100
"""The step between the ids of brokers on successive disks of a host: the broker on the second disk
of ``broker-3`` has the id 13."""
_STOPPING_LOOK_S: Final = 0.05
_UNWINDING_S: Final = 30.0
"""How long to wait for the tasks of ended processes: they can't change anything, but a wait that is
shielded from cancellation continues."""

Kind = Literal["register", "broker", "client"]


@attrs.frozen
class ClusterOptions:
    """The options of the nodes of a cluster; the defaults are those of the program."""

    brokers: int = 3
    registers: int = 1
    founders: int = 0
    """How many of the brokers form a cluster without a register; the others join it.  0: the
    cluster has its registers."""
    partitions: int = PARTITION_COUNT_DEFAULT
    replicas: int = REPLICA_COUNT_DEFAULT
    flush: FlushOptions = attrs.field(factory=FlushOptions)
    gather_s: float = GATHER_S
    rebalance_interval_s: float = REBALANCE_INTERVAL_S
    retention_check_interval_s: float = RETENTION_CHECK_INTERVAL_S
    keep_retired_s: float = RETIRED_KEEP_S
    snapshot_entries: int = JOURNAL_SNAPSHOT_ENTRIES
    shedding: SheddingRules | None = None
    """How leaderships move by load; None: brokers report no loads, and nothing moves by them."""
    placement: PlacementRule = PlacementRule.HASH
    """How the register chooses the partitions of new topics."""


class Node:
    """A host, and the program that runs on it while it is up."""

    def __init__(self, host: SimulatedHost, kind: Kind, run: _Run) -> None:
        self.host = host
        self.kind: Kind = kind
        self.url = ""
        """The url at which the present process serves; empty while it doesn't serve."""
        self.stop = trio.Event()
        """Set this to stop the present process cleanly."""
        self.life: ProcessLife | None = None
        """The newest process on the host, even if it has ended."""
        self.wipe_count = 0
        """How many times the host has lost its disk."""
        self.has_lost_files = False
        """Whether the disk was emptied, damaged or set back to older data."""
        self.ring: RingBroker | None = None
        """In a cluster without a register, the broker of the present process, as its pages see it;
        None: it is not so far."""
        self._run = run

    @property
    def name(self) -> str:
        """The name of the host."""
        return self.host.name

    async def run(self, environment: Environment) -> None:
        """The `Program` of its host."""
        await self._run(self, environment)


_Run = Callable[[Node, Environment], Awaitable[None]]


@attrs.define
class _Started:
    """A `trio.TaskStatus` that stores the url of a node."""

    node: Node
    life: ProcessLife | None
    tell: Callable[[], None]

    def started(self, value: str = "") -> None:
        if self.node.life is self.life:
            self.node.url = value
            self.tell()


class SimulatedCluster:
    """Hosts in *world* on *network*; the tasks of all processes run in *nursery*."""

    def __init__(
        self,
        world: World,
        network: Network,
        nursery: trio.Nursery,
        options: ClusterOptions | None = None,
    ) -> None:
        self.world = world
        self.network = network
        self.options = options or ClusterOptions()
        self.nodes: dict[str, Node] = {}
        """All nodes, by name, in the order in which they were added."""
        registers_count = 0 if self.options.founders else self.options.registers
        self._registers = [
            REGISTER if number == 1 else f"{REGISTER}-{number}"
            for number in range(1, registers_count + 1)
        ]
        self.agreed = None if self._registers else AgreedView(self._topics_log)
        """What the brokers of a cluster without a register have decided for good; None: it has
        registers."""
        self.decided: DecisionView = self.agreed or RegisterView(self._registers)
        """What has been decided for good, whoever decides."""
        self.relays = RelayObserver(self._is_topic)
        """What the relays hold of topics in memory."""
        self._ids: dict[str, BrokerId] = {}
        """In a cluster without a register, the id of the broker on each host, with the disk that it
        has now."""
        self._hosts: dict[BrokerId, str] = {}
        """The host of each broker that ever was."""
        self.secrets = JoinSecrets((world.random("join secret").randbytes(JOIN_SECRET_BYTES),))
        """The join secret.  Each node has a copy outside its disk, so that it isn't lost with the
        disk."""
        self.peers: dict[str, tuple[str, ...]] = {}
        """The lists of registers that don't have one of all of them, by host; empty: it is
        alone."""
        self._nursery = nursery
        self._lives: list[ProcessLife] = []
        """Processes whose tasks may not have ended yet."""
        self._changed = trio.Event()
        self._is_ended = False
        world.observe(self.decided, self.decided.kinds)
        world.observe(self.relays, self.relays.kinds)
        if self.agreed is not None:
            world.observe(self._note_id, {steps.A1Began.text, WIPE})
        for name in self._registers:
            self._add(name, "register", self._run_register)
        for _ in range(self.options.brokers):
            self.add_broker()

    # --- nodes ---------------------------------------------------------------------------

    @property
    def register(self) -> Node:
        """The register, or the first of them."""
        return self.nodes[REGISTER]

    @property
    def is_ring(self) -> bool:
        """Whether it is a cluster without a register."""
        return self.agreed is not None

    @property
    def registers(self) -> list[Node]:
        """The registers."""
        return [self.nodes[name] for name in self._registers]

    @property
    def brokers(self) -> list[Node]:
        """The brokers."""
        return [node for node in self.nodes.values() if node.kind == "broker"]

    @property
    def servers(self) -> list[Node]:
        """The register and the brokers."""
        return [node for node in self.nodes.values() if node.kind != "client"]

    @property
    def address(self) -> str:
        """The address that clients connect to."""
        return self.addresses[0]

    @property
    def addresses(self) -> list[str]:
        """The addresses of all registers; without a register, of all founders."""
        return [self.address_of(name) for name in self._registers or self._founders]

    @property
    def internal_logs(self) -> Sequence[str]:
        """The internal logs that each partition has."""
        return RING_LOGS if self.is_ring else INTERNAL_LOGS

    @property
    def _founders(self) -> list[str]:
        return [f"broker-{number}" for number in range(1, self.options.founders + 1)]

    def address_of(self, name: str) -> str:
        """The address of the node with this name."""
        return f"ws://{name}:{_PORT}"

    def add_broker(self) -> Node:
        """Add a broker, which `boot` starts."""
        number = len(self.brokers) + 1
        assert number < _IDS_PER_DISK
        return self._add(f"broker-{number}", "broker", self._run_broker)

    def add_client(self, name: str, program: Program) -> Node:
        """Add a host that runs *program*, which `boot` starts from its beginning each time."""

        async def run(_: Node, environment: Environment) -> None:
            await program(environment)

        return self._add(name, "client", run)

    def _add(self, name: str, kind: Kind, run: _Run) -> Node:
        assert name not in self.nodes, f"there is a host {name} already"
        node = self.nodes[name] = Node(SimulatedHost(self.world, self.network, name), kind, run)
        return node

    def host_of(self, broker: BrokerId) -> str:
        """The name of the host on which the broker with this id runs, or ran."""
        if self.is_ring:
            return self._hosts[broker]
        return f"broker-{broker % _IDS_PER_DISK}"

    def broker_of(self, host: str) -> BrokerId | None:
        """The id of the broker on *host*; None if it isn't a broker's host, or, without a register,
        if the broker has none yet."""
        node = self.nodes.get(host)
        if node is None or node.kind != "broker":
            return None
        if self.is_ring:
            return self._ids.get(host)
        # A broker that lost its disk is a new broker.
        return BrokerId(int(host.removeprefix("broker-")) + _IDS_PER_DISK * node.wipe_count)

    def is_in_memory(self, topic: str) -> bool:
        """Whether *topic* is one of relays, or was one before it was deleted."""
        record = self.decided.state.topic(topic)
        if record is not None and record.is_relay:
            self.relays.topics.add(topic)
        return topic in self.relays.topics

    def leader(self, partition: PartitionId) -> str:
        """The host of the leader that was decided last; empty if there is none."""
        record = self.decided.state.partitions.get(partition)
        return self.host_of(record.leader) if record is not None else ""

    # --- processes -----------------------------------------------------------------------

    def start(self) -> None:
        """Boot the register and all brokers."""
        for node in self.servers:
            self.boot(node.name)

    def boot(self, name: str) -> bool:
        """Start the program of a host.  Returns False if it runs already, or if all was ended."""
        node = self.nodes[name]
        if node.host.is_up or self._is_ended:
            return False
        node.url, node.stop, node.ring = "", trio.Event(), None
        node.life = node.host.boot(node.run, self._nursery)
        self._lives = [life for life in self._lives if not life.ended.is_set()]
        self._lives.append(node.life)
        return True

    def boot_after(self, name: str, seconds: float) -> None:
        """Start the program in *seconds*, unless it runs then; if it is stopping, start it when it
        has stopped."""
        ending = self.nodes[name].life

        def again() -> None:
            node = self.nodes[name]
            if node.host.is_up and node.life is ending and node.stop.is_set():
                self.world.after(_STOPPING_LOOK_S, again)
            else:
                self.boot(name)

        self.world.after(seconds, again)

    def stop(self, name: str) -> None:
        """Stop a node cleanly, as SIGTERM does.  A client has no clean stop: it is killed."""
        node = self.nodes[name]
        if node.kind == "client":
            node.host.kill()
            return
        assert node.host.is_up, f"{name} is down"
        self.world.note(STOP, name, node.host.life_count)
        node.stop.set()

    def wipe(self, name: str) -> None:
        """Give a host that is down an empty disk."""
        node = self.nodes[name]
        assert not node.host.is_up, f"{name} runs"
        self.world.note(WIPE, name)
        node.host.disk.wipe()
        node.wipe_count += 1
        node.has_lost_files = True

    async def wait_serving(self) -> None:
        """Wait until the register and all brokers serve; a broker serves once it has joined."""
        while not all(node.url for node in self.servers):
            await self._changed.wait()

    def kill_all(self) -> None:
        """Kill all processes for good."""
        self._is_ended = True
        for node in self.nodes.values():
            if node.host.is_up:
                node.host.kill()

    async def end(self) -> list[str]:
        """Kill all processes for good; return those whose tasks don't end, of which there should be
        none."""
        self.kill_all()
        with trio.move_on_after(_UNWINDING_S):
            for life in self._lives:
                await life.ended.wait()
        late = [life for life in self._lives if not life.ended.is_set()]
        return [f"{life.host.name}, life {life.number}" for life in late]

    # --- programs ------------------------------------------------------------------------

    async def _run_register(self, node: Node, environment: Environment) -> None:
        peers = tuple(self.addresses) if len(self._registers) > 1 else ()
        options = RegisterOptions(
            listen=f"{node.name}:{_PORT}",
            data_directory=DATA_DIRECTORY,
            partition_count=self.options.partitions,
            replica_count=self.options.replicas,
            # Brokers that the register knew may take longer to join than those of a new cluster.
            gather_s=GATHER_S if node.has_lost_files else self.options.gather_s,
            rebalance_interval_s=self.options.rebalance_interval_s,
            snapshot_entries=self.options.snapshot_entries,
            shedding=self.options.shedding,
            placement=self.options.placement,
            peers=self.peers.get(node.name, peers),
            advertise=self.address_of(node.name),
            secrets=lambda: self.secrets,
        )
        status = _Started(node, node.life, self._tell)
        await run_register(environment, options, stop=node.stop, task_status=status)

    async def _run_broker(self, node: Node, environment: Environment) -> None:
        if self.is_ring:
            await self._run_ring_broker(node, environment)
            return
        shedding = self.options.shedding
        options = BrokerOptions(
            listen=f"{node.name}:{_PORT}",
            data_directory=DATA_DIRECTORY,
            registers=self.addresses,
            secrets=lambda: self.secrets,
            broker=self.broker_of(node.name),
            flush=self.options.flush,
            retention_check_interval_s=self.options.retention_check_interval_s,
            keep_retired_s=self.options.keep_retired_s,
            load_interval_s=shedding.interval_s if shedding is not None else 0.0,
        )
        status = _Started(node, node.life, self._tell)
        await run_broker(environment, options, stop=node.stop, task_status=status)

    async def _run_ring_broker(self, node: Node, environment: Environment) -> None:
        life = node.life
        options = RingOptions(
            listen=f"{node.name}:{_PORT}",
            data_directory=DATA_DIRECTORY,
            join=tuple(self.addresses),
            secrets=lambda: self.secrets,
            advertise=self.address_of(node.name),
            partition_count=self.options.partitions,
            replica_count=self.options.replicas,
            flush=self.options.flush,
            retention_check_interval_s=self.options.retention_check_interval_s,
            keep_retired_s=self.options.keep_retired_s,
        )

        def show(ring: RingBroker) -> None:
            if node.life is life:
                node.ring = ring

        status = _Started(node, life, self._tell)
        await run_ring_broker(environment, options, stop=node.stop, show=show, task_status=status)

    def _note_id(self, event: Event) -> None:
        match event.about:
            case steps.A1Began(broker):
                self._ids[event.host] = broker
                self._hosts[broker] = event.host
            case _:
                self._ids.pop(event.host, None)

    def _is_topic(self, topic_id: TopicId) -> bool:
        """Whether there is a topic of that id."""
        state = self.decided.state
        return any(one.topic_id == topic_id for one in state.topics_after("", state.topic_count))

    def _topics_log(self, host: str, partition: PartitionId) -> ReplicaBytes:
        disk = self.nodes[host].host.disk
        return ReplicaBytes(disk, DATA_DIRECTORY, TOPICS_LOG, partition)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # --- disks ---------------------------------------------------------------------------

    def stored_records(self, name: str, topic: str, partition: PartitionId) -> bytes | None:
        """The bytes of a log as processes on that host see them; None if the host has no such
        log."""
        disk = self.nodes[name].host.disk
        directory = log_directory(DATA_DIRECTORY, PartitionId(partition), topic)
        files = disk.files(directory)
        if not files:
            return None
        return b"".join(disk.cached(path) for path in files if path.endswith(".log"))

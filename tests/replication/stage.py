"""Scenario files: steps in words, and what they change.

A line at the margin is a step, the indented lines below it are what it changed: brokers
(role, in-sync set with version, log as ``epoch:message``, highwater mark in records), the
register's decision, answers to producers.  Brokers are A, B, C; ``p1.0`` is the first
message of producer 1; nothing travels unless a step says so.

======================== ===============================================================
``produce A p0.0``       a producer sends its message to A
``replicate A B``        A sends the next record and its highwater mark to B, who gets it
``ack B A``              acknowledgements of B reach A
``announce``             the register announces the next epoch
``accept B``             B hears of it, its acceptance reaches the register
``conclude``             the register commits, if it can
``tell B``, ``tell B 1`` B learns the record in force, or the last one of that epoch
``follow B``             B opens a stream to its leader, asks, and is answered
``ask B``, ``agree B``   ... in two steps
``propose A AB``         A proposes that in-sync set
``decide A``             A's newest proposal reaches the register
``late A``               A's oldest proposal on its way reaches the register
``answer A``             the register's answer reaches A
``resend A``             A sends its proposal again
``lose A``               the first of the register's answers to A is lost
``flush A``              A's device takes all that A wrote
``crash A``              A's process ends
``copy A``               A's data directory is copied, while A is down
``restore A``            that copy is put in the place of what A has
``power A 0``            A's machine stops; so many records are left of its log
``restart A``            A's process starts
``join A``               A joins the register and is told the record in force
``tick A 5``             A's clock shows so many seconds
``restart register``     from its journal
``read A``               a consumer reads all it can get from A
======================== ===============================================================
"""

from __future__ import annotations

from octopi.errors import NotLeaderError, RefusedError
from octopi.replication.effects import CommitReceipt
from octopi.replication.partition_replica import Role
from octopi.wire import messages as m
from tests.replication.cluster import RECORD_BYTES, Cluster, Message, Node, Row


def replay(text: str) -> str:
    """*text* with the indented lines as they really are."""
    lines = text.splitlines()
    steps = [line for line in lines if not line.startswith(" ")]
    stage = Stage()
    shown: list[str] = []
    for step in steps:
        shown.append(step)
        if step and not step.startswith("#"):
            shown += [f"    {line}" for line in stage.take(step.split("#")[0].split())]
    return "\n".join(shown) + "\n"


def show(rows: list[Row]) -> str:
    return " ".join(f"{epoch}:{name(message)}" for epoch, message in rows) or "-"


def name(message: Message) -> str:
    return f"p{message[0]}.{message[1]}"


def letters(brokers: list[int]) -> str:
    return "".join("ABCDE"[broker - 1] for broker in sorted(brokers)) or "nobody"


class Stage:
    """A cluster and what was last seen of it."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        (self.topic,) = self.cluster.topics
        self.seen = self.look()
        self.answers_seen = 0

    def take(self, words: list[str]) -> list[str]:
        """Take a step; return what it changed."""
        if words[0] == "set":  # before anything happens
            self.cluster = Cluster(min_insync=int(words[2]))
            self.seen = self.look()
            return []
        said = getattr(self, f"do_{words[0]}")(*words[1:]) or []
        for message, content in self.cluster.answers[self.answers_seen :]:
            if isinstance(content, CommitReceipt):
                again = ", again" if content.duplicate else ""
                at = content.offset // RECORD_BYTES
                said.append(f"producer: {name(message)} is at {at}{again}")
            else:
                said.append(f"producer: {name(message)} refused: {content.reason}")
        self.answers_seen = len(self.cluster.answers)
        now = self.look()
        said += [f"{who}: {what}" for who, what in now.items() if self.seen.get(who) != what]
        self.seen = now
        return said or ["nothing changes"]

    def look(self) -> dict[str, str]:
        record = self.cluster.decided
        change = self.cluster.controller.elections.announcement(0)
        seen = {letters([one.broker]): self.look_at(one) for one in self.cluster.nodes.values()}
        seen["register"] = (
            f"epoch {record.epoch} v{record.version}, leader {letters([record.leader])}, "
            f"in sync {letters(record.in_sync)}"
            + (f"; epoch {change.epoch} is announced" if change else "")
        )
        return seen

    def look_at(self, node: Node) -> str:
        log = node.logs[self.topic]
        held = f"log {show(log.rows)}, highwater {log.highwater}"
        replica = node.replica
        if replica is None:
            return f"down, {held}"
        flag = ", sync flag" if replica.state.sync_flag else ""
        leader = replica.leader
        if leader is not None:
            pending = f" or {letters(leader.pending.in_sync)}" if leader.pending else ""
            role = (
                f"leads {leader.epoch}, in sync {letters(list(leader.in_sync))}"
                f"{pending} v{leader.version}"
            )
        elif replica.role == Role.FOLLOWER and replica.state.record is not None:
            role = f"follows {letters([replica.state.record.leader])} in {replica.state.promised}"
            if replica.follower is None or not replica.follower.agrees:
                role += ", not agreed yet"
        else:
            role = f"idle, promised {replica.state.promised}"
        return f"{role}, {held}{flag}"

    # --- steps -----------------------------------------------------------------------

    def node(self, letter: str) -> Node:
        return self.cluster.nodes["ABCDE".index(letter) + 1]

    def deliver(self, kind: type, sender: Node | None, to: Node | None) -> None:
        """Deliver all messages of *kind* between the two, in order."""
        ends = (sender.broker if sender else 0, to.broker if to else 0)
        at = 0
        while at < len(self.cluster.network):
            envelope = self.cluster.network[at]
            if (envelope.sender, envelope.to) == ends and isinstance(envelope.message, kind):
                self.cluster.deliver(at)
            else:
                at += 1

    def do_produce(self, broker: str, text: str) -> list[str]:
        producer, sequence = text.removeprefix("p").split(".")
        node = self.node(broker)
        try:
            node.perform(node.produce(self.topic, (int(producer), int(sequence))))
        except NotLeaderError:
            return [f"{broker} doesn't lead"]
        return []

    def do_replicate(self, leader: str, follower: str) -> list[str]:
        if not self.node(leader).stream(self.node(follower).broker, self.topic, 1):
            return ["there is no stream"]
        self.deliver(m.Replicate, self.node(leader), self.node(follower))
        return []

    def do_ack(self, follower: str, leader: str) -> None:
        self.deliver(m.Acknowledge, self.node(follower), self.node(leader))

    def do_announce(self) -> None:
        self.cluster.announce()

    def do_accept(self, broker: str) -> None:
        self.cluster.announced_to(self.node(broker))
        self.deliver(m.AcceptEpoch, self.node(broker), None)

    def do_conclude(self) -> list[str]:
        return [] if self.cluster.conclude() else ["nothing is decided"]

    def do_tell(self, broker: str, epoch: str = "") -> None:
        records = [one for one in self.cluster.records if epoch in {"", str(one.epoch)}]
        self.cluster.tell(self.node(broker), records[-1])

    def do_ask(self, follower: str) -> None:
        node = self.node(follower)
        self.cluster.open_stream(node)
        assert node.replica is not None
        assert node.replica.follower is not None
        leader = self.cluster.nodes[node.replica.follower.leader]
        self.deliver(m.Follow, node, leader)

    def do_agree(self, follower: str) -> None:
        for leader in self.cluster.nodes.values():
            self.deliver(m.Followed, leader, self.node(follower))

    def do_follow(self, follower: str) -> None:
        self.do_ask(follower)
        self.do_agree(follower)

    def do_propose(self, broker: str, in_sync: str) -> list[str]:
        node = self.node(broker)
        assert node.replica is not None
        leader = node.replica.leader
        assert leader is not None
        wanted = {self.node(one).broker for one in in_sync}
        (other,) = wanted ^ leader.in_sync
        joins = other in wanted
        if not (leader.may_join(other) if joins else leader.may_leave(other)):
            return [f"{letters([other])} may not {'join' if joins else 'leave'}"]
        change = leader.joining(other) if joins else leader.leaving(other)
        node.perform(node.replica.propose(change))
        return []

    def do_decide(self, leader: str) -> None:
        self.cluster.deliver(self.proposals(leader)[-1])

    def do_late(self, leader: str) -> None:
        self.cluster.deliver(self.proposals(leader)[0])

    def proposals(self, leader: str) -> list[int]:
        sender = self.node(leader).broker
        return [
            at
            for at, one in enumerate(self.cluster.network)
            if one.sender == sender and isinstance(one.message, m.AlterInSync)
        ]

    def do_answer(self, leader: str) -> None:
        self.deliver(m.InSyncAltered, None, self.node(leader))

    def do_resend(self, leader: str) -> None:
        node = self.node(leader)
        assert node.replica is not None
        assert node.replica.leader is not None
        self.cluster.send(node, 0, node.replica.leader.pending)

    def do_lose(self, leader: str) -> None:
        to = self.node(leader).broker
        answers = [one for one in self.cluster.network if (one.sender, one.to) == (0, to)]
        self.cluster.network.remove(answers[0])

    def do_flush(self, broker: str) -> None:
        self.node(broker).perform(self.node(broker).flush(self.topic))

    def do_crash(self, broker: str) -> None:
        self.node(broker).crash()

    def do_power(self, broker: str, keep: str) -> None:
        self.node(broker).lose_power(lambda _synced, _end: int(keep))

    def do_restart(self, who: str) -> None:
        if who == "register":
            self.cluster.restart_register()
        else:
            self.node(who).start()

    def do_copy(self, broker: str) -> None:
        self.node(broker).copy()

    def do_restore(self, broker: str) -> None:
        self.node(broker).restore()

    def do_join(self, broker: str) -> list[str]:
        try:
            self.cluster.register(self.node(broker))
        except RefusedError as error:
            return [f"{broker} is refused: {error.status.name.lower()}"]
        return []

    def do_tick(self, broker: str, now: str) -> None:
        node = self.node(broker)
        assert node.replica is not None
        node.perform(node.replica.tick(float(now)))

    def do_read(self, broker: str) -> list[str]:
        log = self.node(broker).logs[self.topic]
        return [f"{broker} serves {show(log.rows[: log.highwater])}"]

"""A register: a controller that decides, a log of decisions, and the parts that act on them.

The register takes each decision synchronously (ask the `Controller`, append to the journal, apply),
so decisions never interleave.  It waits only afterwards: a decision is told once the journal is
durable, and a client that created a topic is answered once the brokers have it.

Each part is given the parts that it needs, and no part knows the node.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import trio

from octopi.coordination.controller import Controller
from octopi.environment import Environment
from octopi.errors import OctopiError
from octopi.roles.register.admissions import Admissions
from octopi.roles.register.announcements import Announcements
from octopi.roles.register.decision_log import DecisionLog, EntryLog
from octopi.roles.register.departures import Departures
from octopi.roles.register.election_driver import ElectionDriver
from octopi.roles.register.event_log import EventLog
from octopi.roles.register.gathering import Gathering
from octopi.roles.register.generations import Generations
from octopi.roles.register.hand_overs import HandOvers
from octopi.roles.register.handing_over import HandingOver
from octopi.roles.register.leader_requests import LeaderRequests
from octopi.roles.register.members import Members
from octopi.roles.register.options import RegisterOptions
from octopi.roles.register.rebalancing import Rebalancing
from octopi.roles.register.register_tracer import RegisterTracer
from octopi.roles.register.relay_sets import RelaySets
from octopi.roles.register.shedding import LoadShedding
from octopi.roles.register.topics import Topics
from octopi.transport.memory_budget import MemoryBudget
from octopi.transport.server_statistics import ServerStatistics


class RegisterNode:
    """One running register; made and driven by `run_register`."""

    def __init__(
        self,
        environment: Environment,
        options: RegisterOptions,
        entries: EntryLog,
        tasks: trio.Nursery,
        stop: trio.Event,
        traffic: ServerStatistics | None = None,
    ) -> None:
        """*entries*: where decisions are kept.  *stop* is set, at the latest, when the register
        can't continue.  *traffic*: of the server, if it serves longer than this node."""
        self.environment = environment
        self.options = options
        self.started_at: Final = environment.clock.now()
        self.traffic = traffic or ServerStatistics(MemoryBudget(options.memory_budget_bytes))
        self.controller = Controller(options.partition_count, options.replica_count)
        self.events = EventLog(environment.clock)
        self.tracer = RegisterTracer(environment.trace)
        self.decisions = DecisionLog(
            environment, self.controller, entries, self.events, self.tracer, stop
        )
        self.gathering = Gathering(environment, self.controller, self.tracer)
        announcements = Announcements(self.controller, self.decisions, self.tracer)
        self.members = Members(self.controller, self.decisions, announcements)
        self.election_driver = ElectionDriver(
            environment,
            self.controller,
            self.decisions,
            self.events,
            self.tracer,
            self.members,
            announcements,
            tasks,
        )
        self.leader_requests = LeaderRequests(
            self.controller, self.decisions, self.members, self.election_driver
        )
        self.hand_overs = HandOvers(
            environment, self.controller, self.tracer, self.members, self.election_driver
        )
        self.handing_over = HandingOver(
            environment,
            self.controller,
            self.decisions,
            self.gathering,
            self.members,
            options.replica_count,
        )
        self.shedding = LoadShedding(
            environment,
            self.controller,
            self.events,
            self.tracer,
            self.election_driver,
            options.shedding,
        )
        self.rebalancing = Rebalancing(
            environment,
            self.controller,
            self.decisions,
            self.election_driver,
            self.hand_overs,
            options.replica_count,
            self.shedding.is_light,
        )
        self.departures = Departures(
            environment,
            options.agent,
            self.controller,
            self.events,
            self.tracer,
            self.members,
            self.election_driver,
            tasks,
            stop,
        )
        self.relay_sets = RelaySets(
            environment, self.controller, self.decisions, self.members, tasks
        )
        self.admissions = Admissions(
            environment,
            self.controller,
            self.decisions,
            self.tracer,
            self.gathering,
            self.members,
            announcements,
            self.election_driver,
            self.departures,
            self.hand_overs,
            self.relay_sets,
            tasks,
        )
        self.topics = Topics(
            environment,
            self.controller,
            self.decisions,
            self.tracer,
            self.gathering,
            self.members,
            self.relay_sets,
            partial(self.shedding.placement, options.placement),
            tasks,
        )

        self.generations = Generations(
            environment, self.controller, self.decisions, self.gathering, self.members, tasks
        )

    @property
    def failure(self) -> OctopiError | None:
        """Why the register can't go on."""
        return self.decisions.failure

    @property
    def is_gathering(self) -> bool:
        """Whether it still listens to brokers before it decides anything."""
        return self.gathering.is_under_way

    @property
    def journal_bytes(self) -> int:
        """How long the journal is."""
        return self.decisions.size_bytes

"""Which brokers share a machine, by the labels that their operators gave them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import attrs

from octopi.identifiers import BrokerId

Machine: TypeAlias = str | BrokerId
"""The label of a machine; a broker without a label is a machine of its own."""


@attrs.frozen
class Machines:
    """The machines of a cluster's brokers.  The replicas of a partition lie on different ones, so
    that the loss of a machine costs each partition one replica at most."""

    labels: Mapping[BrokerId, str]
    """Of the brokers that have one."""

    def of(self, broker: BrokerId) -> Machine:
        """The machine of *broker*."""
        return self.labels.get(broker) or broker

    def of_all(self, brokers: Iterable[BrokerId]) -> set[Machine]:
        """The machines of *brokers*."""
        return {self.of(one) for one in brokers}

    def shared(self, brokers: Iterable[BrokerId]) -> list[BrokerId]:
        """Those of *brokers* that share a machine with another one of them, in order."""
        known = sorted(brokers)
        machines = [self.of(one) for one in known]
        return [one for one in known if machines.count(self.of(one)) > 1]


NO_LABELS = Machines({})
"""Each broker is a machine of its own."""

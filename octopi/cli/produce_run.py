"""One run of a command that produces: `produce` and `import`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs

from octopi import Client, Producer, TopicExistsError, UnknownTopicError
from octopi.cli.client_request import connected
from octopi.cli.config import ClientSettings
from octopi.cli.failures import similar
from octopi.cli.output import say
from octopi.cli.producing import LineOptions, LineProducer
from octopi.cli.rate_meter import RateMeter
from octopi.cli.rendering import counted
from octopi.limits import LINGER_S


@attrs.define
class ProduceRun:
    """Connects, makes sure that the topic exists, and produces to it."""

    settings: ClientSettings
    topic: str
    options: LineOptions
    meter: RateMeter
    create_topic: bool
    """Whether a missing topic is created."""
    can_go_on: bool
    """Whether another run can read the input again."""
    linger_s: float = LINGER_S
    _producer: Producer | None = None
    _lines: LineProducer | None = None

    async def produce(self, work: Callable[[LineProducer], Awaitable[None]]) -> None:
        """Have *work* produce everything.

        Raises:
          UnknownTopicError: if there is no such topic, and it is not to be created.
          OctopiError, OSError: whatever *work* raises.
        """
        async with connected(self.settings) as client:
            # Reports a wrong topic name or address at once, not after the delivery time-out.
            await self._find_topic(client)
            async with client.producer(
                linger_s=self.linger_s,
                delivery_timeout_s=self.settings.retry_s,
                create_topics=self.create_topic,
            ) as producer:
                self._producer = producer
                self._lines = LineProducer(producer, self.topic, self.options, self.meter)
                await work(self._lines)

    @property
    def end(self) -> int | None:
        """Where the log ends behind the messages; None: they were appended wherever it ended."""
        return None if self._lines is None else self._lines.end

    def summary(self) -> str:
        """What to say when the command was interrupted."""
        count = 0 if self._producer is None else self._producer.acknowledged_count
        text = f"interrupted; {counted(count, 'message')} acknowledged"
        if self._lines is None or (self._lines.is_all_acknowledged and not self.can_go_on):
            return text
        return f"{text}; {self._lines.how_to_go_on()}"

    async def _find_topic(self, client: Client) -> None:
        try:
            await client.describe_topic(self.topic)
            return
        except UnknownTopicError:
            if not self.create_topic:
                raise
        others = [info.topic for info in await client.topics()]
        try:
            await client.create_topic(self.topic)
        except TopicExistsError:
            return  # another program has just created it
        hint = similar(self.topic, others)
        say(f"created topic {self.topic}" + (f"; there is {hint}, too" if hint else ""), err=True)

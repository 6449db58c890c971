"""A cluster for tests and benchmarks of Spark, filled and read with the ordinary client."""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio

import octopi
from harness.processes import NodeProcess
from octopi import cli
from octopi.identifiers import Offset
from octopi.operating_system import SystemDisk
from octopi.storage.ends_file import EndsFile, load_ends

_T = TypeVar("_T")

FLIGHTS = Path(cli.__file__).parent / "samples" / "flights-10k.csv.gz"


def flights(count: int) -> list[bytes]:
    """*count* rows of the flights data, each after its number, so that all of them differ."""
    lines = gzip.decompress(FLIGHTS.read_bytes()).splitlines()[1:]
    return [b"%d,%s" % (number, lines[number % len(lines)]) for number in range(count)]


@attrs.define
class Cluster:
    """A register and a broker."""

    register: NodeProcess
    broker: NodeProcess
    _topics: int = 0

    @property
    def url(self) -> str:
        """The url for the option ``server``."""
        return self.register.url

    def ask(self, question: Callable[[octopi.Client], Awaitable[_T]]) -> _T:
        """Connect a client, and return what *question* returns for it."""

        async def main() -> _T:
            async with octopi.connect(self.url) as client:
                return await question(client)

        return trio.run(main)

    def topic(self, partitions: int = 1, *, name: str = "", **options: int) -> str:
        """Create a topic, and return its name."""
        self._topics += 1
        name = name or f"topic-{self._topics}"
        self.ask(lambda client: client.create_topic(name, partitions, **options))  # type: ignore[arg-type]
        return name

    def fill(
        self, topic: str, values: Sequence[bytes], *, key: Callable[[bytes], bytes | None] = bytes
    ) -> None:
        """Produce *values*.  The key of each is what *key* returns for it."""

        async def produce(client: octopi.Client) -> None:
            async with client.producer() as producer:
                for value in values:
                    await producer.submit(topic, value, key=key(value))

        self.ask(produce)

    def retain(self, topic: str, *, segments: int = 2) -> None:
        """Remove all but the last *segments* of each log, as retention would."""
        self.broker.terminate()
        for directory in (self.broker.data_dir / "logs").glob(f"*/{topic}"):
            for old in sorted(directory.glob("*.log"))[:-segments]:
                old.unlink()
                old.with_suffix(".index").unlink(missing_ok=True)
            self._note_start(directory)
        self.broker.restart()

    def _note_start(self, directory: Path) -> None:
        """Note the log start in the file of ends.  Without it, the segments that are gone would
        count as damage."""
        disk, partition = SystemDisk(), directory.parent.name
        path = str(self.broker.data_dir / "replicas" / f"{partition}.ends")
        stored = load_ends(disk, path)
        assert stored is not None
        file = EndsFile(disk, path, stored.logs)
        start = Offset(int(min(directory.glob("*.log")).stem))
        for topic_id, log in stored.logs.items():
            if log.topic["topic"] == directory.name:
                file.note(topic_id, start=start, recovery_point=start, highwater=start)
        trio.run(file.store)
        file.close()

    def messages(self, topic: str) -> list[octopi.Message]:
        """All messages of *topic*; those of each partition are in order."""

        async def consume(client: octopi.Client) -> list[octopi.Message]:
            found: list[octopi.Message] = []
            async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
                async for batch in consumer.batches():
                    found += batch
            return found

        return self.ask(consume)


def by_partition(rows: Iterable[Any]) -> dict[int, list[bytes]]:
    """The values of each partition, in order."""
    found: defaultdict[int, list[bytes]] = defaultdict(list)
    for row in rows:
        found[row.partition].append(row.value)
    return dict(found)

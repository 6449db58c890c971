"""The account that loses an update, as a test of detangle (0.1.0), an asyncio simulator.

There is no broker that could take part: a server of a few lines stands for it.  Run it with
``pytest lost_update_detangle.py``; the first test fails, the second one passes.
"""

import asyncio
from contextlib import suppress

import detangle

DEPOSITS = [10] * 5


class Log:
    """Deposits and balances, behind a port: ``read`` is of those, ``last`` and ``add`` of these."""

    def __init__(self) -> None:
        self.balances: list[tuple[int, int]] = []  # balance, position

    async def serve(self) -> None:
        server = await asyncio.start_server(self.answer, "log", 7000)
        await server.serve_forever()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            while line := await reader.readline():
                match line.decode().split():
                    case ["read", number]:
                        answer = str(DEPOSITS[int(number)])
                    case ["add", balance, position]:
                        self.balances.append((int(balance), int(position)))
                        answer = "ok"
                    case _:
                        balance, position = self.balances[-1] if self.balances else (0, 0)
                        answer = f"{balance} {position}"
                writer.write(f"{answer}\n".encode())
                await writer.drain()


async def keep_account(notes: dict[str, int], is_right: bool) -> None:
    reader, writer = await asyncio.open_connection("log", 7000)

    async def ask(text: str) -> list[int]:
        writer.write(f"{text}\n".encode())
        return [int(one) for one in (await reader.readline()).decode().split() if one != "ok"]

    balance, position = await ask("last")
    if not is_right:
        position = notes.get("position", 0)
    while position < len(DEPOSITS):
        (deposit,) = await ask(f"read {position}")
        position += 1
        notes["position"] = position  # too early, unless it isn't used
        balance += deposit
        await ask(f"add {balance} {position}")


async def story(is_right: bool) -> None:
    log, notes = Log(), dict[str, int]()
    net = detangle.network()
    detangle.spawn(log.serve(), host="log")
    await asyncio.sleep(0.1)
    account = detangle.spawn(keep_account(notes, is_right), host="account")
    await asyncio.sleep(detangle.uniform(0.0, 0.1))  # a moment that the search chooses
    net.crash("account")
    await asyncio.wait([account])
    net.restart("account")
    await detangle.spawn(keep_account(notes, is_right), host="account")
    assert log.balances[-1][0] == sum(DEPOSITS)


@detangle.test(runs=200, net={"latency": (0.001, 0.005)})
async def test_every_deposit_counts() -> None:
    await story(is_right=False)


@detangle.test(runs=200, net={"latency": (0.001, 0.005)})
async def test_every_deposit_counts_with_position_and_balance_together() -> None:
    await story(is_right=True)

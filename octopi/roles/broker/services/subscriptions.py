"""Durable subscriptions: what clients ask the coordinator and the leaders of logs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

from octopi.errors import ConnectionLostError, OctopiError, ProtocolError, RefusedError, Status
from octopi.identifiers import (
    MemberId,
    Offset,
    PartitionId,
    SubscriptionId,
    SubscriptionName,
    TopicId,
    TopicName,
)
from octopi.limits import SUBSCRIPTION_SESSIONS_MAX, TEXT_BYTES_MAX
from octopi.model import SubscriptionDefinition
from octopi.roles.answers import refuse
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.services.asked import CONFIRMS_MAX, AskedSubscription, remembering
from octopi.roles.broker.services.context import ClientContext
from octopi.roles.broker.services.queues import QueueDeals, answers_of, seen_in
from octopi.roles.broker.subscriptions import answers
from octopi.roles.broker.subscriptions.broker_subscriptions import BrokerSubscriptions
from octopi.roles.broker.subscriptions.led_log import lag_ms
from octopi.roles.broker.subscriptions.led_partition import Call
from octopi.roles.broker.subscriptions.topic_partitions import check_partitions
from octopi.security.authorization import not_granted
from octopi.security.grants import Verb
from octopi.subscriptions import effects as e
from octopi.transport.failures import failure
from octopi.transport.memory_budget import MEMBERS
from octopi.transport.services import Service
from octopi.wire import messages as m

_RequestById = (
    m.FinishSubscription
    | m.DeleteSubscription
    | m.ResetSubscription
    | m.FinishReset
    | m.JoinGroup
    | m.Attach
    | m.SetMark
    | m.DeleteMarks
    | m.DescribeMarks
)
_Request = (
    _RequestById | m.CreateSubscription | m.DescribeSubscription | m.ListSubscriptions | m.OpenMarks
)

_PAGE_COUNT: Final = 200
"""Subscriptions that one answer lists."""
_PAGE_PARTITIONS: Final = 10_000
"""The partitions that these name together."""


class SubscriptionService(Service):
    """The requests of one connection; those that joined or attached last until they end."""

    def __init__(self, subscriptions: BrokerSubscriptions, context: ClientContext) -> None:
        super().__init__(
            {
                m.CreateSubscription: self._create,
                m.DescribeSubscription: self._describe,
                m.ListSubscriptions: self._list,
                m.FinishSubscription: self._finish,
                m.DeleteSubscription: self._delete,
                m.ResetSubscription: self._reset,
                m.FinishReset: self._finish_reset,
                m.JoinGroup: self._join,
                m.Holding: self._holding,
                m.LeaveGroup: self._leave,
                m.OpenMarks: self._open_marks,
                m.Attach: self._attach,
                m.Mark: self._mark,
                m.Detach: self._detach,
                m.QueueCredit: self._queue_credit,
                m.Settle: self._settle,
                m.SetMark: self._set_mark,
                m.DeleteMarks: self._delete_marks,
                m.DescribeMarks: self._describe_marks,
            }
        )
        self._subscriptions = subscriptions
        self._context = context
        self._connection = context.connection
        self._lasting: dict[int, AskedSubscription] = {}
        """Joins and attaches, by the numbers of their requests."""

    def sizes(self) -> dict[str, int]:
        """See `octopi.environment.Sized`."""
        return {"subscription sessions": len(self._lasting)}

    def closed(self) -> None:
        """The connection has ended: attached members store their marks, those that joined have
        until their session timeout to come back."""
        for asked in list(self._lasting.values()):
            self._finish_asked(asked)

    def token_refreshed(self) -> None:
        """Members whose subscription is granted no more end."""
        grants = self._connection.grants
        for asked in list(self._lasting.values()):
            if (verb := asked.missing(grants)) is not None:
                self._finish_asked(asked)
                reason = f"the token does not grant {verb} on it any more"
                self._post(failure(asked.request, Status.FORBIDDEN, reason))

    # --- to the coordinator --------------------------------------------------------------

    def _create(self, message: m.CreateSubscription) -> None:
        log = self._log(message.topic, message.partition, message.topic_id)
        check_partitions(message, log.topic)
        self._ask(
            message,
            lambda machine, session, now: machine.create_subscription(
                session,
                name=SubscriptionName(message.name),
                topic=TopicName(message.topic),
                topic_id=TopicId(message.topic_id),
                partitions=message.partitions,
                mode=message.mode,
                options=message.options,
                start=message.start,
                create=message.create,
                now=now,
            ),
        )

    def _describe(self, message: m.DescribeSubscription) -> None:
        topic_id = self._log(message.topic, message.partition).topic_id
        name = SubscriptionName(message.name)
        self._ask(
            message, lambda one, session, _: one.describe_subscription(session, topic_id, name)
        )

    def _list(self, message: m.ListSubscriptions) -> None:
        log = self._log(message.topic, message.partition)
        of_each = len(log.topic.log_partitions)
        count = max(1, min(_PAGE_COUNT, _PAGE_PARTITIONS // of_each, message.count_max))
        self._ask(
            message,
            lambda machine, session, _: machine.list_subscriptions(
                session, log.topic_id, message.after, count
            ),
            count=count,
        )

    def _finish(self, message: m.FinishSubscription) -> None:
        self._ask_by_id(
            message, lambda one, session, _: one.finish_subscription(session, message.sid)
        )

    def _delete(self, message: m.DeleteSubscription) -> None:
        self._ask_by_id(
            message,
            lambda one, session, _: one.delete_subscription(session, message.sid, message.step),
        )

    def _reset(self, message: m.ResetSubscription) -> None:
        asked = message.sid, message.log, Offset(message.offset)
        force, newest = message.force, message.newest
        self._ask_by_id(
            message,
            lambda one, session, now: one.reset_subscription(
                session, *asked, now, force=force, newest=newest
            ),
        )

    def _finish_reset(self, message: m.FinishReset) -> None:
        self._ask_by_id(
            message,
            lambda one, session, now: one.finish_reset(
                session, message.sid, message.log, message.claim, now
            ),
        )

    def _join(self, message: m.JoinGroup) -> None:
        self._ask_by_id(
            message,
            lambda one, session, now: one.join_group(
                session,
                message.sid,
                MemberId(message.member),
                static=message.static,
                held=[(log.partition, log.claim) for log in message.held],
                take_over=message.take_over,
                agent=self._connection.greeting.agent,
                subject=self._context.subject,
                name=self._context.name,
                now=now,
            ),
            lasts=True,
        )

    def _holding(self, message: m.Holding) -> None:
        if (asked := self._lasting.get(message.request)) is None:
            return  # it has been told why it has ended
        released = [(log.partition, log.claim) for log in message.released]
        self._tell_machine(asked, lambda one, session, now: one.holding(session, released, now))

    def _leave(self, message: m.LeaveGroup) -> None:
        self._end_session(
            message.request,
            lambda one, joined, session, now: one.leave_group(session, joined, now),
        )

    # --- to a log's leader ---------------------------------------------------------------

    def _open_marks(self, message: m.OpenMarks) -> None:
        log = self._log(message.topic, message.partition, message.topic_id)
        log.require_end()
        self._ask(
            message,
            lambda machine, session, now: machine.open_marks(
                session,
                message.sid,
                name=SubscriptionName(message.name),
                mode=message.mode,
                options=message.options,
                start=message.start,
                topic=TopicName(message.topic),
                topic_id=TopicId(message.topic_id),
                now=now,
            ),
        )

    def _attach(self, message: m.Attach) -> None:
        log = self._log(message.topic, message.partition)
        log.require_end()
        member = MemberId(message.member)
        credit = message.credit_messages, message.credit_bytes
        grants = self._connection.grants
        if any(credit) and not grants.allows(Verb.SUBSCRIBE, message.topic):
            raise RefusedError(not_granted(Verb.SUBSCRIBE, message.topic), Status.FORBIDDEN)
        self._ask_by_id(
            message,
            lambda one, at, now: one.attach(at, message.sid, member, message.claim, now, credit),
            lasts=True,
        )
        if (asked := self._lasting.get(message.request)) is not None:
            asked.reads = any(credit)

    def _mark(self, message: m.Mark) -> None:
        if (asked := self._lasting.get(message.request)) is None:
            return  # it has been told why it has ended
        if message.confirm and not self._may_confirm(asked):
            return
        number = message.acknowledge if message.confirm else None
        with contextlib.suppress(RefusedError):  # its leadership ended, and so did the session
            asked.led.take_mark(asked.session, Offset(message.offset), message.anchor, number)

    def _may_confirm(self, asked: AskedSubscription) -> bool:
        """Whether an attach may wait for one more confirmation; else it has ended."""
        if asked.may_confirm():
            return True
        self._finish_asked(asked)
        reason = f"an attach waits for at most {CONFIRMS_MAX} confirmations"
        self._post(m.Detached(asked.request, Status.TOO_MANY, reason))
        return False

    def _queue_credit(self, message: m.QueueCredit) -> None:
        if (asked := self._lasting.get(message.request)) is not None:
            count, size_bytes = message.messages, message.bytes
            self._tell_machine(
                asked,
                lambda one, session, now: one.queue_credit(session, count, size_bytes, now),
            )

    def _settle(self, message: m.Settle) -> None:
        answers = answers_of(message)
        asked = self._lasting.get(message.request)
        if asked is None or (message.confirm and not self._may_confirm(asked)):
            return  # it has been told why it has ended
        with contextlib.suppress(RefusedError):  # its leadership ended, and so did the session
            asked.led.take_answers(
                asked.session, answers, message.acknowledge, confirm=message.confirm
            )

    def _detach(self, message: m.Detach) -> None:
        seen = seen_in(message)
        if (asked := self._lasting.get(message.request)) is not None and seen is not None:
            asked.led.note_seen(asked.session, seen)
        self._end_session(
            message.request, lambda one, old, session, now: one.detach(session, old, now, seen)
        )

    def _set_mark(self, message: m.SetMark) -> None:
        log = self._log(message.topic, message.partition)
        log.require_end()
        offset = Offset(message.offset)
        self._ask_by_id(
            message,
            lambda one, session, now: one.set_mark(
                session, message.sid, message.claim, offset, now
            ),
        )

    def _delete_marks(self, message: m.DeleteMarks) -> None:
        self._ask_by_id(message, lambda one, session, _: one.delete_marks(session, message.sid))

    def _describe_marks(self, message: m.DescribeMarks) -> None:
        self._log(message.topic, message.partition).require_end()
        sid, later = message.sid, message.confirmed
        self._ask_by_id(
            message, lambda one, session, now: one.describe_marks(session, sid, now, later)
        )

    # --- asking --------------------------------------------------------------------------

    def _log(self, topic: str, partition: PartitionId, topic_id: str | None = None) -> LocalLog:
        """The log of a topic that is asked about.

        Raises:
          NotLeaderError: if this broker doesn't lead it.
          RefusedError: UNKNOWN_TOPIC, if *topic_id* is that of another creation of the topic.
        """
        self._subscriptions.led(partition)
        log = self._context.log(topic, partition)
        if topic_id is not None and log.topic_id != topic_id:
            raise RefusedError(
                f"topic {topic} was deleted and made again: its id is {log.topic_id}, not "
                f"{topic_id[:40]!r}",
                Status.UNKNOWN_TOPIC,
            )
        return log

    def _ask(
        self,
        message: _Request,
        call: Call,
        *,
        lasts: bool = False,
        name: str | None = None,
        count: int = 0,
    ) -> None:
        """Have the machine of the message's partition decide about it.

        Raises:
          RefusedError: if it can't.
        """
        led = self._subscriptions.led(message.partition)
        asked = AskedSubscription(
            self, message.request, led, message.topic, lasts, name, count_max=count
        )
        if lasts:
            self._begin_session(asked)
        try:
            led.ask(asked, partial(remembering, asked, call))
        except BaseException:
            self._release(asked)
            raise

    def _ask_by_id(self, message: _RequestById, call: Call, *, lasts: bool = False) -> None:
        """The same for a message that has only the subscription's id.

        Raises:
          RefusedError: if it can't, or if the token doesn't grant what the id stands for.
        """
        machine = self._subscriptions.led(message.partition).machine
        name = None
        if (found := machine.identity_of(SubscriptionId(message.sid))) is not None:
            name = found.name
            grants = self._connection.grants
            if found.topic != message.topic or not grants.allows(Verb.CONSUME, found.topic, name):
                raise RefusedError(
                    f"topic {message.topic} has no subscription with the id {message.sid[:40]!r}",
                    Status.UNKNOWN_SUBSCRIPTION,
                )
        self._ask(message, call, lasts=lasts, name=name)

    def _begin_session(self, asked: AskedSubscription) -> None:
        if asked.request in self._lasting:
            raise ProtocolError(f"request {asked.request} is a member already")
        if len(self._lasting) >= SUBSCRIPTION_SESSIONS_MAX:
            raise RefusedError(
                f"a connection joins and attaches at most {SUBSCRIPTION_SESSIONS_MAX} times",
                Status.TOO_MANY,
            )
        self._context.charge_task(MEMBERS)
        if (entry := self._connection.entry) is not None:
            try:
                entry.account.subscribe(entry.identity.quota)
            except RefusedError:
                self._context.release_task(MEMBERS)
                raise
        self._lasting[asked.request] = asked

    def _tell_machine(self, asked: AskedSubscription, call: Call) -> None:
        """Have the machine know something about a session; nothing of it is answered here."""
        with contextlib.suppress(RefusedError):  # its leadership ended, and so did the session
            machine = asked.led.machine
            now = self._context.environment.clock.now()
            asked.led.perform(call(machine, asked.session, now))

    def _end_session(self, request: int, call: Callable[..., list[e.Effect]]) -> None:
        """Leave or detach: answered with `Done`, also if it has ended before."""
        asked = self._lasting.get(request)
        if asked is None:
            self._post(m.Done(request))
            return
        old = asked.session
        self._release(asked)
        asked.led.forget(old)
        leaving = AskedSubscription(self, request, asked.led, asked.topic)
        try:
            asked.led.ask(leaving, lambda one, session, now: call(one, old, session, now))
        except OctopiError as error:
            refuse(self._connection, request, error)

    # --- answering -----------------------------------------------------------------------

    def tell(self, asked: AskedSubscription, effect: e.Effect) -> None:
        """Answer a request with what the machine says."""
        request = asked.request
        match effect:
            case e.TellAssigned() | e.TellRevoked():
                self._post(answers.assignment(request, effect))
                return
            case e.TellAttached():
                self._post(answers.attached(request, effect))
                return
            case e.TellMarked():
                asked.confirm_count -= 1
                self._post(m.Marked(request, effect.acknowledge))
                return
            case e.DealMessages():
                if asked.deals is None:
                    asked.deals = QueueDeals(self._context, request, asked.led, effect.session)
                asked.deals.add(effect)
                return
            case e.TellSettled():
                asked.confirm_count -= effect.is_confirmed
                self._post(m.QueueSettled(request, effect.acknowledge, list(effect.stale)))
                return
        self._finish_asked(asked)
        match effect:
            case e.TellDone():
                self._post(m.Done(request))
            case e.TellRefused():
                self._post(failure(request, effect.status, effect.reason[:TEXT_BYTES_MAX]))
            case e.TellDetached():
                reason = effect.reason[:TEXT_BYTES_MAX]
                self._post(m.Detached(request, int(effect.status), reason))
            case e.TellDescription():
                self._post(answers.description(request, effect))
            case e.TellSubscriptions():
                self._post(self._page(asked, effect.definitions))
            case e.TellResetBegun():
                self._post(m.ResetBegun(request, effect.claim))
            case e.TellMarks():
                self._context.tasks.start_soon(self._tell_marks, asked, effect)

    def ended(self, asked: AskedSubscription, error: OctopiError) -> None:
        """The leadership ended before the machine answered, or while a member was there."""
        self._release(asked)
        refuse(self._connection, asked.request, error)

    def _finish_asked(self, asked: AskedSubscription) -> None:
        """A request is over."""
        if not asked.is_over:
            self._release(asked)
            asked.led.close(asked.session)

    def _release(self, asked: AskedSubscription) -> None:
        asked.is_over = True
        if asked.deals is not None:
            asked.deals.is_over = True
        if asked.lasts and self._lasting.get(asked.request) is asked:
            del self._lasting[asked.request]
            self._context.release_task(MEMBERS)
            if self._connection.entry is not None:
                self._connection.entry.account.unsubscribed()

    def _post(self, message: object) -> None:
        with contextlib.suppress(ConnectionLostError):
            self._connection.post(message)

    def _page(
        self, asked: AskedSubscription, definitions: tuple[SubscriptionDefinition, ...]
    ) -> m.SubscriptionList:
        grants = self._connection.grants
        shown = [one for one in definitions if grants.allows(Verb.CONSUME, asked.topic, one.name)]
        is_last = len(definitions) < asked.count_max
        return m.SubscriptionList(asked.request, shown, "" if is_last else definitions[-1].name)

    async def _tell_marks(self, asked: AskedSubscription, marks: e.TellMarks) -> None:
        try:
            log = self._context.logs.find(asked.topic, asked.led.partition)
        except OctopiError as error:
            refuse(self._connection, asked.request, error)  # the topic was just deleted
            return
        with self._context.refusing(log, asked.request):
            wall_ms = self._context.environment.clock.wall_ms()
            age_ms = await lag_ms(log, marks.mark, wall_ms)
            self._connection.post(answers.marks_description(asked.request, marks, age_ms))

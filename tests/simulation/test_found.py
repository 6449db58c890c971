"""What the simulator found once, each with the smallest plan that showed it.

Plans are written out rather than given as tokens, so that one can read what happens.
"""

from octopi.simulation.history import Acknowledged
from sim.plan import Plan, Workload
from sim.simulation import Verdict, simulate

SMALL = Workload(producers=1, records=20, consumers=1, topic_partitions=1, pause_s=0.02)


def passing(plan: Plan) -> Verdict:
    """The verdict of a run in which all is well."""
    verdict = simulate(plan)
    assert verdict.violation is None, verdict.details
    assert any(isinstance(one, Acknowledged) for one in verdict.history.events)
    return verdict


def test_a_topic_deleted_before_its_records_were_flushed_disturbs_no_other_of_the_partition() -> (
    None
):
    workload = Workload(
        producers=1, records=20, consumers=1, topic_partitions=1, pause_s=0.02, chores=("topic",)
    )
    passing(Plan(1, partitions=1, flush_interval_s=0.05, workload=workload))

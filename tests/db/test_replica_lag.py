"""How far a replica is behind, by positions and the primary's moments alone (L2)."""

from broker.db.replica_lag import ReplicaLag


def test_a_replica_that_has_all_is_not_behind_however_long_nothing_is_written() -> None:
    lag = ReplicaLag(0.0)
    for second in (1.0, 2.0, 3.0):
        assert lag.primary_is_at(100, second)
        lag.replica_is_at(100)
        assert lag.seconds(second) == 0


def test_it_is_as_old_as_the_newest_moment_of_the_primary_that_it_has_reached() -> None:
    lag = ReplicaLag(0.0)
    for second, (written, replayed) in enumerate([(100, 100), (200, 100), (300, 250), (400, 250)]):
        lag.primary_is_at(written, second)
        lag.replica_is_at(replayed)
    assert lag.seconds(3) == 2  # what was written until second 1, and not all of second 2
    assert lag.seconds(10) == 9  # nothing is heard of it
    lag.replica_is_at(400)
    assert lag.seconds(10) == 7


def test_one_that_was_where_the_primary_never_was_follows_another() -> None:
    lag = ReplicaLag(0.0)
    assert lag.primary_is_at(100, 1.0)
    lag.replica_is_at(120)  # it went on while the answers came
    assert lag.primary_is_at(150, 2.0)
    lag.replica_is_at(190)
    assert not lag.primary_is_at(160, 3.0)


def test_a_primary_after_a_failover_may_begin_further_back() -> None:
    lag = ReplicaLag(0.0)
    lag.primary_is_at(500, 1.0)
    lag.replica_is_at(400)
    assert lag.primary_is_at(450, 2.0)
    lag.replica_is_at(450)
    assert lag.seconds(2.0) == 0

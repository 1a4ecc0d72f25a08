"""Which spellings of a database's URL are understood, and that a password in one is never shown."""

import pytest

from broker.db.database_url import check_database_url, check_schema_name, without_password

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("url", "understood"),
    [
        ("postgresql://u:p@h:5432/db", "postgresql://u:p@h:5432/db"),
        ("postgres://h/db?sslmode=require", "postgresql://h/db?sslmode=require"),
        ("postgresql+psycopg://u:p@h/db", "postgresql://u:p@h/db"),
        ("postgresql+asyncpg://u@h,other:5433/db", "postgresql://u@h,other:5433/db"),
        ("postgresql://u@[::1]:5432/db", "postgresql://u@[::1]:5432/db"),
        ("postgresql:///db?host=/run/postgresql", "postgresql:///db?host=/run/postgresql"),
        ("postgresql://u:a%40b%2Fc@h/db", "postgresql://u:a%40b%2Fc@h/db"),
        ("host=h dbname=db password='a b'", "host=h dbname=db password='a b'"),
    ],
)
def test_the_spellings_of_postgresql_and_of_sqlalchemy_are_understood(url: str, understood: str) -> None:
    assert check_database_url(url) == understood


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (f"mysql://u:{SECRET}@h/x", "begins with mysql://"),
        (f"mysql+pymysql://u:{SECRET}@h/x", "begins with mysql+pymysql://"),
        (f"sqlite:///{SECRET}.db", "begins with sqlite://"),
        (f"postgresql//u:{SECRET}@h/x", "is no URL"),
        (f"u:{SECRET}=@h", "is no URL"),
        (SECRET, "is no URL"),
        (f"postgresql://u:{SECRET}%zz@h/x", "%25"),
        (f"postgresql://u:x@{SECRET}@h/x", "not escaped"),
        (f"postgresql://u:12/{SECRET}@h/x", "not escaped"),
        (f"postgresql://u:x?{SECRET}@h/x", "not escaped"),
        (f"postgresql://u:{SECRET}/x", "port"),
        ("postgresql://h:65536/x", "port"),
        (f"postgresql://h/x?{SECRET}", "name=value"),
        (f"postgresql://h/x?password={SECRET}=", "name=value"),
    ],
)
def test_what_cannot_be_used_is_refused_without_a_word_of_it(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        check_database_url(url)
    assert reason in str(refused.value)
    assert SECRET not in str(refused.value)
    assert SECRET not in without_password(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql+psycopg://u:{SECRET}@h/db", "postgresql://u:***@h/db"),
        (f"postgresql://u:{SECRET}@h/db?user=a@b", "postgresql://u:***@h/db?user=a@b"),
        (f"postgresql://h/db?password={SECRET}&a=b", "postgresql://h/db?password=***&a=b"),
        (f"postgresql://h/db?sslpassword={SECRET}", "postgresql://h/db?sslpassword=***"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("", ""),  # none is given: nothing is hidden
        (f"host=h password={SECRET} dbname=db", "host=h dbname=db"),
        (f"host=h password = 'a \\' {SECRET}' dbname=db", "host=h dbname=db"),
        (f"password={SECRET} {SECRET}", "***"),
        (f"password='a host={SECRET}' user=u", "user=u"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_the_name_of_a_schema_needs_no_quotes() -> None:
    assert check_schema_name("pubsub_2") == "pubsub_2"
    for name in ("", "Broker", "2nd", "a b", "pg_toast", "information_schema", "x" * 41, 'a"b'):
        with pytest.raises(ValueError):  # noqa: PT011  (it has no message: the setting's own says all)
            check_schema_name(name)

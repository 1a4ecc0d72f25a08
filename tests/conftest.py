pytest_plugins = [
    "tests.fixtures.database",
    "tests.fixtures.broker",
    "tests.fixtures.log",
    "tests.fixtures.push_sink",
    "tests.fixtures.push_log",
    "tests.fixtures.pusher",
    "tests.fixtures.pushes",
]

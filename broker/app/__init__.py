"""The application: builds the parts of a broker process, connects them, runs and stops them.

Read it in this order; each module needs only what those before it have built.

    settings/     what operators may set: options, environment variables, defaults
    config.py     what one process is told of it
    core.py       what nearly every part needs: database, clock, tasks, counters, quotas, caches, wake-ups
    guard.py      who may call: credentials, permissions, the audit log
    messages.py   claiming, acknowledging, transforming and publishing messages, and how much of each at once
    jobs.py       what runs by itself: dead letters, schedules, retention, operations
    services.py   the meaning of each call, which REST and gRPC share
    reactions.py  how parts that are built first reach parts that are built later
    broker.py     all of these in one object: what is built, started and stopped, and in which order
    asgi.py       REST, gRPC and what surrounds the API, for the server of broker/port
"""

"""A worker with asyncio: at most ten messages at a time, each handled by a coroutine.

Google's client receives on threads of its own and extends the ack deadlines of what is being worked on; a coroutine
acknowledges when it is done.

python examples/asyncio_worker.py
"""

import asyncio
import contextlib
import os

from google.api_core.exceptions import NotFound
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.message import Message
from google.cloud.pubsub_v1.types import FlowControl

os.environ.setdefault("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")

TOPIC, SUBSCRIPTION = "projects/example-asyncio/topics/jobs", "projects/example-asyncio/subscriptions/worker"
JOBS, AT_ONCE = 50, 10


class Worker:
    """Counts what is being worked on, to show that it is never more than was asked for."""

    def __init__(self) -> None:
        self.busy = self.most = self.done = 0
        self.finished = asyncio.Event()

    async def handle(self, message: Message) -> None:
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            await asyncio.sleep(0.02)  # the work
        except Exception:
            message.nack()
            raise
        finally:
            self.busy -= 1
        message.ack()
        self.done += 1
        if self.done == JOBS:
            self.finished.set()


async def work(subscriber: pubsub_v1.SubscriberClient) -> None:
    worker, loop = Worker(), asyncio.get_running_loop()
    receiving = subscriber.subscribe(
        SUBSCRIPTION,
        # From the client's thread to the loop.  It does not wait: the message counts until it is acknowledged.
        callback=lambda message: asyncio.run_coroutine_threadsafe(worker.handle(message), loop),
        flow_control=FlowControl(max_messages=AT_ONCE),
    )
    try:
        await asyncio.wait_for(worker.finished.wait(), 60)  # a real worker would run until it is told to stop
    finally:
        receiving.cancel()
        await asyncio.to_thread(receiving.result)
    print(f"{worker.done} jobs done, at most {worker.most} at a time")


def clean_up() -> None:
    with contextlib.suppress(NotFound):
        subscriber.delete_subscription(subscription=SUBSCRIPTION)
    with contextlib.suppress(NotFound):
        publisher.delete_topic(topic=TOPIC)


with pubsub_v1.PublisherClient() as publisher, pubsub_v1.SubscriberClient() as subscriber:
    clean_up()
    publisher.create_topic(name=TOPIC)
    subscriber.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
    for future in [publisher.publish(TOPIC, f"job {number}".encode()) for number in range(JOBS)]:
        future.result()
    print(f"{JOBS} jobs wait")
    asyncio.run(work(subscriber))
    clean_up()

'use strict';

// Google's Node client against PUBSUB_EMULATOR_HOST: a story from creation to deletion.  Prints what it saw, as JSON.

const {PubSub} = require('@google-cloud/pubsub');

const SECONDS = 20; // for whatever comes soon if it comes at all
const QUICK = {maxMilliseconds: 10}; // how long the client collects acks

/** What a subscription receives until there are `count`; `react` does something with each, and may be slow. */
async function receive(subscription, count, react) {
  const messages = [];
  let settled = 0;
  await new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`${messages.length} of ${count} came`)), SECONDS * 1000);
    subscription.on('error', reject);
    subscription.on('message', async message => {
      messages.push(message);
      try {
        await react(message, messages);
      } catch (error) {
        reject(error);
      }
      if (++settled >= count) {
        clearTimeout(late);
        resolve();
      }
    });
  });
  subscription.removeAllListeners('message');
  await subscription.close();
  return messages;
}

const texts = messages => messages.map(message => message.data.toString());
const ack = message => message.ack();

async function codeOf(call) {
  try {
    await call;
    return 0;
  } catch (error) {
    return error.code;
  }
}

async function publishInOrder(pubsub, seen) {
  const topic = pubsub.topic('orders', {messageOrdering: true, batching: {maxMessages: 5}});
  const ids = [];
  for (let n = 0; n < 30; n++) {
    ids.push(topic.publishMessage({data: Buffer.from(`${n}`), orderingKey: `key-${n % 3}`, attributes: {n: `${n}`}}));
  }
  seen.ids = new Set(await Promise.all(ids)).size;
  seen.missing = await codeOf(pubsub.topic('missing').publishMessage({data: Buffer.from('x')}));
}

async function receiveInOrder(pubsub, seen) {
  const keys = {};
  await receive(pubsub.subscription('ordered', {batching: QUICK}), 30, message => {
    (keys[message.orderingKey] ||= []).push(Number(message.attributes.n));
    message.ack();
  });
  seen.ordered = keys;
}

async function keepToFlowControl(pubsub, seen) {
  let out = 0;
  let most = 0;
  const few = pubsub.subscription('plain', {
    batching: QUICK,
    flowControl: {maxMessages: 5}, // what the server sends beyond that would come here at once
    streamingOptions: {maxStreams: 1},
  });
  await receive(few, 30, async message => {
    most = Math.max(most, ++out);
    await new Promise(resolve => setTimeout(resolve, 5));
    out--;
    message.ack();
  });
  seen.most = most;
}

async function nackOnce(pubsub, topic, seen) {
  await topic.publishMessage({data: Buffer.from('nacked')});
  const attempts = new Map();
  const start = performance.now();
  const messages = await receive(pubsub.subscription('plain', {batching: QUICK}), 2, message => {
    const before = attempts.get(message.id) || 0;
    attempts.set(message.id, before + 1);
    return before ? message.ack() : message.nack();
  });
  seen.nacked = {texts: texts(messages), ids: attempts.size};
  seen.nackedSeconds = (performance.now() - start) / 1000;
}

async function confirmAcks(pubsub, topic, seen) {
  const answers = [];
  await topic.publishMessage({data: Buffer.from('once')});
  const messages = await receive(pubsub.subscription('once', {batching: QUICK}), 2, async (message, all) => {
    answers.push(await message.modAckWithResponse(60));
    answers.push(await (all.length > 1 ? message.ackWithResponse() : message.nackWithResponse()));
  });
  seen.once = {texts: texts(messages), answers};
}

async function changeMetadata(pubsub, seen) {
  const subscription = pubsub.subscription('plain');
  await subscription.setMetadata({ackDeadlineSeconds: 30, labels: {team: 'billing'}});
  const [metadata] = await subscription.getMetadata();
  await pubsub.topic('orders').setMetadata({labels: {team: 'billing'}});
  const [topic] = await pubsub.topic('orders').getMetadata();
  seen.metadata = [metadata.ackDeadlineSeconds, metadata.labels, topic.labels];
}

async function seek(pubsub, topic, seen) {
  const subscription = pubsub.subscription('plain', {batching: QUICK});
  const start = new Date(Date.now() - 60000);
  await topic.publishMessage({data: Buffer.from('kept')});
  await subscription.createSnapshot('before');
  await receive(subscription, 1, ack);
  await subscription.seek('before');
  const again = await receive(pubsub.subscription('plain', {batching: QUICK}), 1, ack);
  const [snapshots] = await pubsub.getSnapshots();
  await pubsub.snapshot('before').delete();
  await pubsub.subscription('once').seek(new Date(Date.now() + 3600000));
  await pubsub.subscription('ordered').seek(start);
  const replayed = await receive(pubsub.subscription('ordered', {batching: QUICK}), 30, ack);
  seen.sought = [texts(again), snapshots.map(snapshot => snapshot.name.split('/').pop()), Math.min(replayed.length, 30)];
}

async function remove(pubsub, seen) {
  const topic = pubsub.topic('orders');
  seen.again = await codeOf(pubsub.createTopic('orders'));
  await pubsub.detachSubscription('once');
  seen.detached = await pubsub.subscription('once').detached();
  await Promise.all(['plain', 'once', 'ordered'].map(name => pubsub.subscription(name).delete()));
  await topic.delete();
  const [exists] = await topic.exists();
  const [topics] = await pubsub.getTopics();
  seen.left = [exists, topics.length];
}

async function main(projectId) {
  const pubsub = new PubSub({projectId});
  const seen = {};
  const [topic] = await pubsub.createTopic('orders');
  await topic.createSubscription('ordered', {enableMessageOrdering: true, retainAckedMessages: true});
  await topic.createSubscription('plain', {ackDeadlineSeconds: 20});
  await publishInOrder(pubsub, seen);
  await receiveInOrder(pubsub, seen);
  await keepToFlowControl(pubsub, seen);
  await nackOnce(pubsub, topic, seen);
  await topic.createSubscription('once', {enableExactlyOnceDelivery: true});
  await confirmAcks(pubsub, topic, seen);
  await changeMetadata(pubsub, seen);
  await receive(pubsub.subscription('plain', {batching: QUICK}), 1, ack); // what the others published
  await seek(pubsub, topic, seen);
  await remove(pubsub, seen);
  await pubsub.close();
  console.log(JSON.stringify(seen));
}

main(process.argv[2]).catch(error => {
  console.error(error);
  process.exit(1);
});

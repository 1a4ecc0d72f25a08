// Where callers show who they are: the environment has a key file.  Arguments: endpoint and project.
const { PubSub } = require("@google-cloud/pubsub");

async function main(apiEndpoint, projectId) {
  // Without emulatorMode it takes every endpoint that is not Google's for an emulator in cleartext.
  const pubsub = new PubSub({ apiEndpoint, projectId, emulatorMode: false });
  const [topic] = await pubsub.createTopic("node");
  const [subscription] = await topic.createSubscription("node");
  await topic.publishMessage({ data: Buffer.from("hello") });
  const text = await new Promise((resolve, reject) => {
    subscription.on("error", reject);
    subscription.on("message", (message) => {
      message.ack();
      resolve(message.data.toString());
    });
  });
  await subscription.close();
  await pubsub.close();
  console.log(text);
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});

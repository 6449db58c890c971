// What few pages need, loaded when it is first needed: durable subscriptions, and digests of relay topics.

import { DigestChain } from "./digest_chain.js";
import { QueueSubscription } from "./queue_subscription.js";
import { Subscription } from "./subscription.js";
import { isQueue, subscriptionOptions } from "./subscription_options.js";

export { DigestChain };

// A member of a subscription of *topic*, which joins from now on.  *window*: bytes, if *given* has none.
// Throws `invalid_option`.
export function openSubscription(cluster, topic, given, window, hooks) {
  const options = subscriptionOptions(given, window);
  const Member = isQueue(options.mode) ? QueueSubscription : Subscription;
  return new Member(cluster, topic, options, hooks);
}

// Options of durable subscriptions, checked before anything is done with them.

import { OctopiError } from "./errors.js";

const NAME_LENGTH_MAX = 200;
const PREFETCH_MAX = 10_000;
const MARK_INTERVAL_MS = 250;
const OF_MARKS = ["takeOver", "mark", "onGap", "releaseTimeout", "window"];
const OF_QUEUES = ["attempts", "ackTimeout", "prefetch", "windowMessages"];

export const PREFETCH_BYTES = 1024 * 1024; // of one log that may be open at a member of a queue; one message may be larger

const DEFAULTS = {
  mode: "exclusive",
  member: "",
  takeOver: false,
  create: "create_or_attach",
  start: "earliest",
  mark: "auto",
  onGap: "throw",
  sessionTimeout: 10_000,
  releaseTimeout: 10_000,
  expires: 7 * 24 * 3600 * 1000,
  joinTimeout: 30_000,
  attempts: 5,
  ackTimeout: 30_000,
  prefetch: 100,
  windowMessages: 1_000,
};

const oneOf = (...words) => (value) => (words.includes(value) ? "" : `it must be ${words.join(" or ")}`);
const duration = (value) => (Number.isSafeInteger(value) && value >= 0 ? "" : "it must be a number of milliseconds");
const count = (value) => (Number.isSafeInteger(value) && value >= 1 ? "" : "it must be a number of at least 1");
export const consumerNameFault = (value) => {
  const isName = typeof value === "string" && value.length <= NAME_LENGTH_MAX && /^[A-Za-z0-9._-]+$/.test(value) && value !== "." && value !== "..";
  return isName ? "" : `a name has 1 to ${NAME_LENGTH_MAX} letters, digits, '.', '_' and '-' (ASCII), and is neither '.' nor '..'`;
};

const FAULTS = {
  name: consumerNameFault,
  member: (value) => (value === "" ? "" : consumerNameFault(value)),
  mode: oneOf("exclusive", "failover", "shared", "key_shared"),
  create: oneOf("create", "attach", "create_or_attach"),
  start: oneOf("earliest", "latest"),
  mark: oneOf("auto", "manual"),
  onGap: oneOf("throw", "skip"),
  takeOver: oneOf(true, false),
  sessionTimeout: duration,
  releaseTimeout: duration,
  expires: (value) => (value === null ? "" : duration(value)),
  joinTimeout: duration,
  window: (value) => (Number.isSafeInteger(value) && value >= 1 ? "" : "it must be a number of bytes"),
  attempts: (value) => (value === null ? "" : count(value)),
  ackTimeout: duration,
  prefetch: (value) => (value <= PREFETCH_MAX ? count(value) : `it must be at most ${PREFETCH_MAX}`),
  windowMessages: count,
};

// Whether messages are dealt one by one in that mode.
export function isQueue(mode) {
  return mode === "shared" || mode === "key_shared";
}

// Where the dead letters of the subscription *name* of *topic* are.  Throws `invalid_option`.
export function deadLetterTopic(topic, name) {
  const text = `${topic}.${name}.dead`;
  if (text.length > NAME_LENGTH_MAX) {
    throw new OctopiError("invalid_option", `the topic for dead letters would be ${text}: a topic's name has at most ${NAME_LENGTH_MAX} characters`);
  }
  return text;
}

// What `Octopi.subscription` was given, with the defaults.  Throws `invalid_option`.
export function subscriptionOptions(given, window) {
  const chosen = Object.fromEntries(Object.entries(given).filter(([, one]) => one !== undefined));
  const options = { ...DEFAULTS, window, ...chosen };
  for (const [option, wrong] of Object.entries(FAULTS)) {
    const fault = wrong(options[option]);
    if (fault) throw new OctopiError("invalid_option", `${option} is ${JSON.stringify(options[option])}; ${fault}`);
  }
  const [others, modes] = isQueue(options.mode) ? [OF_MARKS, "exclusive and failover"] : [OF_QUEUES, "shared and key_shared"];
  const misplaced = others.find((option) => option in chosen);
  if (misplaced) throw new OctopiError("invalid_option", `${misplaced} is for the modes ${modes}, not for ${options.mode}`);
  return options;
}

// `SubscriptionOptions` of octopi/model.py.
export function optionsOnWire({ sessionTimeout, releaseTimeout, expires, attempts, ackTimeout, windowMessages }) {
  return {
    session_timeout_ms: sessionTimeout,
    release_timeout_ms: releaseTimeout,
    expires_ms: expires,
    mark_interval_ms: MARK_INTERVAL_MS,
    attempts,
    ack_timeout_ms: ackTimeout,
    window: windowMessages,
  };
}

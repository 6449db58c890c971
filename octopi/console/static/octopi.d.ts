// Types of octopi.js, the client of an Octopi cluster for browsers and Node.

declare global {
  // Libraries before ESNext don't have it; the client then uses Symbol.for("Symbol.asyncDispose").
  interface SymbolConstructor {
    readonly asyncDispose: unique symbol;
  }
}

/** Bytes in any form, as `BufferSource` of browsers. */
export type Bytes = ArrayBuffer | ArrayBufferView;

export type State = "connecting" | "open" | "reconnecting" | "closed";

/**
 * A place to begin at: the start or the end of a log, an offset in one partition, the last
 * messages of each partition (from 1 on), the first message not older than a time, a position
 * (`Reading.position`) of any client in any language, or behind the message of a relay topic with
 * that id (`Receipt.id`).
 */
export type From = "earliest" | "latest" | number | { last: number } | Date | string | Uint8Array;

export interface ConnectOptions {
  /** What people see these connections called, in the console and in log lines; at most 200 bytes. */
  name?: string;
  /** Asked for before each connection, and again before it expires. */
  token?: string | (() => string | Promise<string>);
  /** Aborted: the client is closed. */
  signal?: AbortSignal;
  /** Bounds of the random waits between attempts, in ms (100 and 10,000). */
  minDelay?: number;
  maxDelay?: number;
  /** ms for all attempts of one request together, of connecting too (30,000). */
  requestTimeout?: number;
  /** Bytes of records on their way or waiting, per partition (1 MiB). */
  window?: number;
  /** The class to connect with where none is global, as in Node 20: for example that of the package ws. */
  WebSocket?: WebSocketClass;
}

/** A class as browsers have it; `any`, because the classes of packages differ in what they don't share. */
export type WebSocketClass = new (url: string, protocols: string[]) => any;

export interface SubscribeOptions {
  /** One partition, or (the default) all of them; order is per partition. */
  partition?: number | "all";
  /** Default: "latest". */
  from?: From;
  /** Aborted: iterating throws its reason. */
  signal?: AbortSignal;
  window?: number;
  /** What to do when retention removed what comes next; a "gap" event tells of it either way. */
  onGap?: "throw" | "skip";
  /** What to do when records that were read are gone, and others may be in their place; a "fork"
   *  event tells of it either way.  "resume": go on with what is there now. */
  onFork?: "throw" | "resume";
  /** ms to wait for a topic that doesn't exist (0); it is then read from its beginning. */
  waitForTopic?: number;
  /** Create a topic that doesn't exist, with default options, instead of waiting for it. */
  create?: boolean;
  /** Compute the digests of a relay topic from what arrives: iterating throws `digest_mismatch` if
   *  relays state others.  A topic in logs is refused with `wrong_kind`. */
  proven?: boolean;
}

export interface SubscriptionOptions {
  /** Of the subscription: 1 to 200 ASCII letters, digits, ".", "_" and "-". */
  name: string;
  /** "exclusive" (default): one member at a time; "failover": each log has one. */
  mode?: "exclusive" | "failover";
  /** A name for this member, which then keeps its logs while it is loaded again. */
  member?: string;
  /** Replace the member of an exclusive subscription. */
  takeOver?: boolean;
  /** Whether it is made if it is missing (default), has to be new, or has to be there. */
  create?: "create_or_attach" | "create" | "attach";
  /** Where a new one begins in each log: "earliest" (default) or "latest". */
  start?: "earliest" | "latest";
  /** "auto" (default): asking for the next message marks the one before; "manual": only `mark` does. */
  mark?: "auto" | "manual";
  /** What to do when retention removed what comes next; a "gap" event tells of it either way. */
  onGap?: "throw" | "skip";
  /** ms; a member that is silent for so long loses its logs (10,000; 1,000 to 300,000). */
  sessionTimeout?: number;
  /** ms that a member may work on a message of a log that is to move (10,000; 0 to 300,000). */
  releaseTimeout?: number;
  /** ms without use until it is deleted (7 days); null: never. */
  expires?: number | null;
  /** ms to wait for the member of an exclusive subscription to go, or for a broker (30,000). */
  joinTimeout?: number;
  /** Bytes of records on their way or waiting, per log. */
  window?: number;
  /** Aborted: iterating throws its reason, and nothing more is marked. */
  signal?: AbortSignal;
}

/** Of a queue: in the modes "shared" and "key_shared" messages are dealt to the members one by one. */
export interface QueueOptions {
  /** Of the subscription: 1 to 200 ASCII letters, digits, ".", "_" and "-". */
  name: string;
  /** "key_shared": messages of the same key come in their order, and to one member. */
  mode: "shared" | "key_shared";
  /** A name for this member. */
  member?: string;
  /** Whether it is made if it is missing (default), has to be new, or has to be there. */
  create?: "create_or_attach" | "create" | "attach";
  /** Where a new one begins in each log: "earliest" (default) or "latest". */
  start?: "earliest" | "latest";
  /** A message that was dealt so often becomes a dead letter (5; 1 to 100); null: never. */
  attempts?: number | null;
  /** ms; a message that is not answered for so long is dealt again (30,000; 1,000 to 43,200,000). */
  ackTimeout?: number;
  /** Messages of each log that may be open at this member (100; 1 to 10,000), in at most 1 MiB. */
  prefetch?: number;
  /** So many messages behind its mark may a log have dealt or settled (1,000; 1 to 10,000). */
  windowMessages?: number;
  /** ms; a member that is silent for so long is one no more (10,000; 1,000 to 300,000). */
  sessionTimeout?: number;
  /** ms without use until it is deleted (7 days); null: never. */
  expires?: number | null;
  /** ms to wait for a broker (30,000). */
  joinTimeout?: number;
  /** Aborted: iterating throws its reason, and what is open goes back to the queue. */
  signal?: AbortSignal;
}

export interface PublishOptions {
  /** Messages of a key keep their order: they share a partition. */
  key?: string | Bytes | null;
  headers?: Record<string, string | Bytes>;
  partition?: number;
  /** ms since 1970; default: now. */
  timestamp?: number;
  /** Where the log has to end: otherwise `condition_failed`, whose `end` says where it does. */
  expectedEnd?: number;
  signal?: AbortSignal;
}

export interface Receipt {
  partition: number;
  offset: number;
  /** Where the next message of the log begins. */
  nextOffset: number;
  /** Whether it had been stored by an earlier attempt. */
  duplicate: boolean;
  /** Of a topic in memory: 16 bytes that sort by time. */
  id?: Uint8Array;
  /** Of a topic in memory: SHA-256 of all that lies before the end of what was sent together. */
  digest?: Uint8Array;
}

export interface Gap {
  topic: string;
  partition: number;
  wanted: number;
  availableFrom: number;
}

export interface Fork {
  topic: string;
  partition: number;
  /** What was read is gone from here */
  offset: number;
  /** up to here. */
  readUntil: number;
}

/** A log that this member has no more: another member has it, or may have. */
export interface Loss {
  topic: string;
  subscription: string;
  partition: number;
  claim: number;
}

export interface PartitionInfo {
  partition: number;
  epoch: number;
  leader: number | null;
  leader_address: string;
  replicas: number[];
  in_sync: number[];
  readers: string[];
}

export interface TopicInfo {
  topic: string;
  topic_id: string;
  partitions: PartitionInfo[];
  options: Record<string, number | boolean | null>;
  /** Its lists of partitions, the oldest first, if it got others while it was in use. */
  generations?: { number: number; partitions: number[]; sealed: number[] }[];
  /** Where the partitions are that only have sealed logs of it. */
  sealed_partitions?: PartitionInfo[];
}

export interface ClusterInfo {
  cluster: string;
  topic_count: number;
  partition_count: number;
  brokers: { broker: number; address: string; incarnation: number; live: boolean; partitions_led: number }[];
  partitions: PartitionInfo[];
}

export interface LogInfo {
  topic: string;
  topic_id: string;
  partition: number;
  epoch: number;
  log_start: number;
  highwater: number;
  log_end: number;
  size_bytes: number;
  fault: string;
}

export declare class Message {
  readonly topic: string;
  readonly partition: number;
  /** The message's id in its log. */
  readonly offset: number;
  readonly nextOffset: number;
  /** ms since 1970, by its producer's clock; null if it has none. */
  readonly timestamp: number | null;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array;
  readonly headers: Record<string, Uint8Array>;
  text(): string;
  json<T = unknown>(): T;
}

export declare class Reading implements AsyncIterableIterator<Message> {
  /** Resolves when it is known where reading begins. */
  readonly ready: Promise<void>;
  /** Where to go on; store it, and give it as `from`.  Empty before `ready`. */
  readonly position: string;
  readonly lagBytes: number;
  readonly bufferedBytes: number;
  [Symbol.asyncIterator](): this;
  next(): Promise<IteratorResult<Message>>;
  return(): Promise<IteratorResult<Message>>;
  /** The messages in lists, as they arrived. */
  batches(): AsyncGenerator<Message[], void, void>;
  unsubscribe(): void;
}

/** A member of a durable subscription. */
export interface Subscription extends AsyncIterableIterator<Message> {
  readonly topic: string;
  readonly name: string;
  /** Resolves when it is a member; rejects with why it can't be. */
  readonly ready: Promise<void>;
  /** What the others call it; empty before `ready`. */
  readonly member: string;
  /** Partition -> claim, of the logs that it has.  A claim grows with each assignment of the log, so a
   *  store can refuse a member that was replaced. */
  readonly claims: Map<number, number>;
  readonly lagBytes: number;
  readonly bufferedBytes: number;
  [Symbol.asyncIterator](): this;
  /** The next message; the one before is done. */
  next(): Promise<IteratorResult<Message>>;
  return(): Promise<IteratorResult<Message>>;
  /** The messages in lists, each of one log; a list is the unit that is marked. */
  batches(): AsyncIterableIterator<Message[]>;
  /** Everything of its log up to the message is processed. */
  mark(message: Message): void;
  /** Marks what was handed out (with `mark: "auto"`); resolves when all marks are committed. */
  commit(): Promise<void>;
  /** Leaves the group.  Marks nothing more; what was marked is committed, for 5 seconds at most. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A message of a queue, dealt to this member.  The first answer counts, and none of them waits. */
export interface DealtMessage extends Message {
  /** How often it was dealt, this time included: 1 the first time. */
  readonly attempt: number;
  /** When the ack timeout ends: ms since 1970, by this machine's clock. */
  readonly deadline: number;
  /** Whether it was acknowledged, released or rejected. */
  readonly isAnswered: boolean;
  /** It is processed. */
  acknowledge(): void;
  /** Deal it again, to any member, at once or after so many ms (up to 12 hours). */
  release(delayMs?: number): void;
  /** It can't be processed: make it a dead letter, which carries the reason (up to 1,000 bytes). */
  reject(reason?: string | Error): void;
  /** It takes longer: the ack timeout begins anew. */
  extend(): void;
}

/** Messages of one log.  What was answered by itself stays so. */
export interface DealtBatch extends Array<DealtMessage> {
  /** All are processed. */
  acknowledge(): void;
  /** Deal all of them again, at once or after so many ms (up to 12 hours). */
  release(delayMs?: number): void;
}

/** A member of a durable subscription in the mode "shared" or "key_shared".  Several loops may iterate. */
export interface QueueSubscription extends AsyncIterableIterator<DealtMessage> {
  readonly topic: string;
  readonly name: string;
  /** Resolves when it is a member; rejects with why it can't be. */
  readonly ready: Promise<void>;
  /** What the others call it; empty before `ready`. */
  readonly member: string;
  /** Answers that did not count, since they came too late, and those of which that is unknown: these
   *  messages come again. */
  readonly staleCount: number;
  [Symbol.asyncIterator](): this;
  /** The next message; those before stay open until they are answered. */
  next(): Promise<IteratorResult<DealtMessage>>;
  return(): Promise<IteratorResult<DealtMessage>>;
  /** The messages in lists, each of one log. */
  batches(): AsyncIterableIterator<DealtBatch>;
  /** Resolves when all answers up to now are committed, with how many of them since the last `commit`
   *  did not count, or may not. */
  commit(): Promise<number>;
  /** Leaves the group.  What was answered is committed, for 5 seconds at most; what is open goes back
   *  to the queue. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface ProducerOptions {
  /** Where the earlier life ends before the producer is there; elsewhere with the first message. */
  topics?: string[];
}

/** A producer with a name, which one program has at a time. */
export declare class Producer {
  readonly name: string;
  /** As `Octopi.publish`; fails with `producer_fenced` when the name was opened again elsewhere. */
  publish(topic: string, value: string | Bytes, options?: PublishOptions): Promise<Receipt>;
}

export declare class OctopiError extends Error {
  /** A stable name; docs/browser.md has the table. */
  readonly code: string;
  /** Whether trying again can help. */
  readonly retryable: boolean;
  /** Of `condition_failed`: where the log ends. */
  readonly end?: number | null;
  /** Of `not_leader` and `no_quorum`, if brokers named each other as the leader until time was over: their addresses, in turn. Of a message: that of `cause`. */
  readonly tried?: string[];
}

export interface OctopiEvents {
  state: CustomEvent<{ state: State; error?: OctopiError; delay?: number }>;
  gap: CustomEvent<Gap>;
  fork: CustomEvent<Fork>;
  fenced: CustomEvent<Loss>;
}

type ListenerArguments = Parameters<EventTarget["addEventListener"]>;

export declare class Octopi extends EventTarget {
  /** To the cluster of these nodes, registers or brokers; the first that answers is used. */
  static connect(urls?: string | string[], options?: ConnectOptions): Promise<Octopi>;
  readonly state: State;
  subscribe(topic: string, options?: SubscribeOptions): Reading;
  /** Resolves when the code for subscriptions is loaded, at the first call; `ready` tells of joining. */
  subscription(topic: string, options: QueueOptions): Promise<QueueSubscription>;
  subscription(topic: string, options: SubscriptionOptions): Promise<Subscription>;
  publish(topic: string, value: string | Bytes, options?: PublishOptions): Promise<Receipt>;
  /** A producer with a name; opening it ends the one that was opened under this name before. */
  producer(name: string, options?: ProducerOptions): Promise<Producer>;
  topics(): Promise<TopicInfo[]>;
  describeCluster(): Promise<ClusterInfo>;
  describeLogs(address: string, topic?: string): Promise<LogInfo[]>;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
  addEventListener<K extends keyof OctopiEvents>(type: K, listener: (event: OctopiEvents[K]) => void, options?: ListenerArguments[2]): void;
  addEventListener(...listener: ListenerArguments): void;
}

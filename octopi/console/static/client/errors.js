// What can go wrong: one class, told apart by `code`, a stable name.

// By number: name, and whether the same request can succeed later; `octopi/errors.py` has the
// meanings.
const STATUSES = new Map([
  [1, ["malformed_message", false]],
  [2, ["unknown_message", false]],
  [3, ["unsupported_version", false]],
  [4, ["wrong_endpoint", false]],
  [5, ["message_too_large", false]],
  [6, ["too_many", true]],
  [7, ["too_slow", true]],
  [20, ["unknown_topic", false]],
  [21, ["invalid_topic", false]],
  [22, ["topic_exists", false]],
  [23, ["unknown_partition", false]],
  [24, ["invalid_option", false]],
  [25, ["wrong_kind", false]],
  [26, ["topic_closed", false]],
  [30, ["malformed_record", false]],
  [31, ["record_checksum", true]],
  [32, ["condition_failed", false]],
  [33, ["offset_inside_record", false]],
  [34, ["offset_out_of_range", false]],
  [35, ["sequence_gap", false]],
  [36, ["producer_fenced", false]],
  [37, ["unknown_producer", false]],
  [38, ["receipt_forgotten", false]],
  [39, ["uncommitted", true]],
  [40, ["not_leader", true]],
  [41, ["not_ready", true]],
  [42, ["no_broker", true]],
  [43, ["shutting_down", true]],
  [44, ["no_quorum", true]],
  [45, ["stale_route", true]],
  [46, ["history_forked", false]],
  [48, ["buffer_full", true]],
  [49, ["answer_lost", true]],
  [50, ["disk_full", true]],
  [51, ["log_read_only", false]],
  [52, ["log_corrupt", false]],
  [53, ["internal", false]],
  [60, ["duplicate_broker", true]],
  [61, ["wrong_cluster", false]],
  [62, ["broker_fenced", false]],
  [63, ["register_superseded", true]],
  [64, ["broker_in_use", false]],
  [70, ["unauthenticated", false]],
  [71, ["forbidden", false]],
  [72, ["expired", false]],
  [73, ["over_limit", true]],
  [74, ["quota_exceeded", false]],
  [75, ["not_a_member", false]],
  [80, ["unknown_subscription", false]],
  [81, ["subscription_exists", false]],
  [82, ["subscription_busy", true]],
  [83, ["member_fenced", false]],
  [84, ["stale_delivery", false]],
  [85, ["unknown_member", false]],
  [86, ["wrong_mode", false]],
]);

// Codes that no node sends:
const OWN = new Map([
  ["unreachable", true], // no connection could be made, so nothing was sent
  ["page_refused", false], // the node lets no pages of this origin in
  ["connection_lost", true], // a connection ended; what had no answer may have been processed
  ["protocol", false], // a node sent what the protocol doesn't allow
  ["record_damaged", false], // a record's checksum or layout is wrong
  ["history_lost", false], // retention removed what a reading would read next
  ["digest_mismatch", false], // what a relay sent is not what the digests say
  ["topic_replaced", false], // a position belongs to a topic that was deleted
  ["not_delivered", true], // the message is certainly not stored
  ["outcome_unknown", false], // the message may or may not be stored; sending it again may double it
  ["closed", false], // it was used after it was closed
  ["token", true], // the page's token function failed
]);

// code -> whether trying again can help.
export const CODES = new Map([...STATUSES.values(), ...OWN]);

// Of a node whose disk or program fails: another one may do what was asked.
export const NODE_FAULTS = new Set(["log_read_only", "log_corrupt", "internal"]);

export class OctopiError extends Error {
  constructor(code, message, details = {}) {
    super(message);
    this.name = "OctopiError";
    this.code = code;
    this.retryable = CODES.get(code) ?? false;
    Object.assign(this, details);
  }
}

// The error that a node's `failure` stands for.  *address*: where to go instead, or empty; *epoch*:
// of the leader there; *offset*: of history_forked, up to where the log and what was read agree, and
// of condition_failed the log's end.
// The last two are null where the node didn't say them.
export function refusal({ status, reason, address, epoch, offset }) {
  const [code] = STATUSES.get(status) ?? [`status_${status}`];
  return new OctopiError(code, reason, { status, address: address ?? "", epoch: epoch ?? null, offset: offset ?? null });
}

export function statusTable() {
  return Object.fromEntries(STATUSES);
}

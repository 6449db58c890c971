// Addresses of the console: behind "#", a tab, then names, then what is chosen there, as in
// "#/topics/orders" and "#/topics?search=ord&first=20".

export const TABS = ["overview", "topics", "subscriptions", "brokers", "events", "messages"];
const OTHERS = ["runbook"]; // views without a tab of their own

// The view that *hash* names: its tab, the names behind that, and a Map of what is chosen.
// What was mistyped is the overview.
export function viewOf(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [tab, ...names] = path.split("/").filter((one) => one !== "");
  if (![...TABS, ...OTHERS].includes(tab)) return { tab: "overview", names: [], chosen: new Map() };
  try {
    return { tab, names: names.map(decodeURIComponent), chosen: new Map(new URLSearchParams(query)) };
  } catch {
    return { tab, names: [], chosen: new Map() };
  }
}

// The address of a view.  *chosen*: an object; what is empty is left out.
export function addressOf(tab, names = [], chosen = {}) {
  const query = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  const path = [tab, ...names.map((one) => encodeURIComponent(one))].join("/");
  return `#/${path}${query.size ? `?${query}` : ""}`;
}

export const topicAddress = (topic) => addressOf("topics", [topic]);
export const brokerAddress = (broker) => addressOf("brokers", [broker]);
export const subscriptionAddress = (topic, name) => addressOf("subscriptions", [topic, name]);
export const messagesAddress = (topic, chosen) => addressOf("messages", [topic], chosen);
export const messageAddress = (topic, partition, offset) => addressOf("messages", [topic, partition, offset]);

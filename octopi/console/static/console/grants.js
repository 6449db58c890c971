// What a token is granted.  Nodes check it themselves; here it only decides what is offered.

// Whether *grants* (verb -> patterns) has *verb* on a topic, on a subscription of it, or (topic
// null) on the whole cluster.  As octopi/security/grants.py.
export function allows(grants, verb, topic = null, subscription = null) {
  if (topic?.startsWith("_octopi.") && ["create", "publish", "admin"].includes(verb)) return allows(grants, "replicate");
  return (grants[verb] ?? []).some((pattern) => {
    if (pattern === "*") return true;
    if (topic === null) return false;
    if (verb !== "consume") return matches(pattern, topic);
    const [ofTopics, ofSubscriptions = ""] = pattern.split("/");
    return matches(ofTopics, topic) && (subscription === null || matches(ofSubscriptions, subscription));
  });
}

// In a pattern * stands for any characters, or none.
function matches(pattern, name) {
  const [first, ...rest] = pattern.split("*");
  if (!rest.length) return pattern === name;
  const last = rest.pop();
  if (name.length < first.length + last.length || !name.startsWith(first) || !name.endsWith(last)) return false;
  let at = first.length;
  const end = name.length - last.length;
  return rest.every((part) => {
    const found = name.indexOf(part, at);
    at = found + part.length;
    return found >= 0 && at <= end;
  });
}

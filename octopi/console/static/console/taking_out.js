// What leaves the page: texts to the clipboard, messages to files.

const fromUtf8 = new TextDecoder("utf-8", { fatal: true });

// Whether the browser let us; over plain HTTP, only the older way is there.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyAsSelected(text);
  }
}

function copyAsSelected(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "sr";
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  return isCopied;
}

// Has the browser store *content*, text or bytes, as a file.
export function download(name, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href));
}

// A row of a table of messages, as `octopi-node consume --json` prints it.  What was cut says so.
export function asJsonLine({ topic, partition, offset, nextOffset, timestamp, keyText, value, valueBytes, headers }) {
  const cut = value.length < valueBytes ? { value_bytes: valueBytes } : {};
  return `${JSON.stringify({ topic, partition, offset, next_offset: nextOffset, timestamp_ms: timestamp, key: keyText, ...textOrBase64("value", value), ...cut, headers: Object.fromEntries(headers) })}\n`;
}

function textOrBase64(name, bytes) {
  try {
    return { [name]: fromUtf8.decode(bytes) };
  } catch {
    let binary = "";
    for (const byte of bytes) binary += String.fromCharCode(byte);
    return { [`${name}_base64`]: btoa(binary) };
  }
}

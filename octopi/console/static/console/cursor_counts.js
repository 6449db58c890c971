// Which positions of which cursor came, are missing, and came twice.  Whoever has a cursor numbers its
// positions from 0.  octopi/cli/cursor_counts.py counts in the same way.

const WHO_CHARACTERS_MAX = 40;
const CURSORS_MAX = 100;

const isPart = (value) => typeof value === "number" && value >= 0 && value <= 1;

// The position in a message's text; null if it is none.
export function positionIn(text) {
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    return null;
  }
  const { who, number, x, y, relay } = found ?? {};
  if (typeof who !== "string" || !who || who.length > WHO_CHARACTERS_MAX) return null;
  if (!Number.isSafeInteger(number) || number < 0 || !isPart(x) || !isPart(y)) return null;
  return { who, number, x, y, relay: Number.isSafeInteger(relay) ? relay : null, isLast: found.isLast === true };
}

export class CursorCounts {
  cursors = new Map(); // who -> { who, next, read, missing, twice, x, y, relay, heardAt }
  missing = 0;
  twice = 0;

  // A position came, at *now* (ms); returns its cursor.
  take({ who, number, x, y, relay }, now) {
    let cursor = this.cursors.get(who);
    if (!cursor) {
      // The first one of somebody is where counting begins.
      cursor = { who, next: number, read: 0, missing: 0, twice: 0 };
      if (this.cursors.size >= CURSORS_MAX) this.#forgetTheQuietest();
      this.cursors.set(who, cursor);
    }
    cursor.read++;
    cursor.heardAt = now;
    if (number < cursor.next) {
      cursor.twice++;
      this.twice++;
      return cursor;
    }
    cursor.missing += number - cursor.next;
    this.missing += number - cursor.next;
    return Object.assign(cursor, { next: number + 1, x, y, relay });
  }

  #forgetTheQuietest() {
    const quietest = [...this.cursors.values()].reduce((one, other) => (other.heardAt < one.heardAt ? other : one));
    this.cursors.delete(quietest.who);
  }
}

// Numbers, sizes and times for people.

const INTEGER = new Intl.NumberFormat("en");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SERIAL_BITS = 16n;
// Epochs that a user chose as small numbers carry no time; these bounds keep them from being shown as 1970.
const EARLIEST_MS = 946_684_800_000;
const LATEST_MS = 5 * EARLIEST_MS;

/**
 * JSON with exact integers: epochs have up to 63 bits and become BigInt where a Number would round them.
 */
export function parseExactly(text) {
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value)
      ? BigInt(context?.source ?? value)
      : value);
}

/** `12,345`. */
export const count = (value) => INTEGER.format(value);

/** `1 row`, `2,000 rows`. */
export const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** `12.3 KiB`. */
export function bytes(size) {
  let value = Number(size);
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return unit ? `${value.toFixed(1)} ${UNITS[unit]}` : `${value} B`;
}

/** `3.4`, `27`, `1,200`: three digits or so. */
export function rate(value) {
  return value > 0 && value < 10 ? value.toFixed(1) : count(Math.round(value));
}

/** `0.4 s`, `12 s`, `3 min`, `5 h`, `2 d`. */
export function span(ms) {
  const seconds = Math.max(Number(ms), 0) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** `12 s ago`; "never" for the time 0. */
export const ago = (ms, nowMs) => (ms ? `${span(nowMs - ms)} ago` : "never");

/** ISO 8601 in UTC, for titles and programs. */
export const iso = (ms) => new Date(Number(ms)).toISOString();

/** The time that an epoch carries, in milliseconds; 0 for one that carries none. */
export function epochMs(epoch) {
  const ms = Number(BigInt(epoch) >> SERIAL_BITS);
  return ms >= EARLIEST_MS && ms < LATEST_MS ? ms : 0;
}

/** A share from 0 to 1 as `42 %`. */
export const percent = (share) => `${Math.round(share * 100)} %`;

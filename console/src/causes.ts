// Objects that are not ready for the same cause.
import type { NotReady } from "./api";

/** A cause: the objects that it holds up, the one that tells most of it first. */
export interface Cause {
  /** The devices; none: the cause is in the object itself. */
  devices: string[];
  rows: NotReady[];
}

/**
 * Rows by their cause, in the order of the first row of each. Objects behind the same devices have one cause. Each other
 * object is one of its own.
 */
export function byCause(rows: readonly NotReady[]): Cause[] {
  const causes: Cause[] = [];
  const ofDevices = new Map<string, Cause>();
  for (const row of rows) {
    const key = JSON.stringify(row.devices);
    const known = ofDevices.get(key);
    if (known) {
      if (isDevice(row)) known.rows.unshift(row);
      else known.rows.push(row);
      continue;
    }
    const cause = { devices: row.devices, rows: [row] };
    causes.push(cause);
    if (row.devices.length > 0) ofDevices.set(key, cause);
  }
  return causes;
}

/** True for the row of a device itself. */
const isDevice = (row: NotReady): boolean => row.devices.some((d) => row.object === `FabricDevice/${d}`);

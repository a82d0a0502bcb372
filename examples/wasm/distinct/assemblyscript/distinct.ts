// Counts how many different values come with each key, exactly: the users of each day, for example. A record is a key, a
// tab and a value:
//
//   2026-03-01	omar
//
// Use it with combine combine, which leaves each storage's different values, and reduce module, which counts those of all.
// The different values of one key must fit the guest's memory.
import { Slice, emit, emitI64, failAt, flush, records } from "../../../../sdk/assemblyscript/pmr";
export { pmr_alloc, pmr_init, pmr_end } from "../../../../sdk/assemblyscript/pmr";

const key = new Slice(), value = new Slice();

export function map(ptr: usize, len: u32): u32 {
  const r = records(ptr, len);
  while (r.next()) {
    const tab = r.value.indexOf(0x09);
    if (tab < 0) failAt("a record must be a key, a tab and a value; this one is ", r.value);
    key.cut(r.value, 0, tab);
    value.cut(r.value, tab + 1, r.value.len);
    emit(key, value);
  }
  return flush();
}

// The values of the present key: its pairs may come in several batches.
const seen = new Set<string>();

export function combine(ptr: usize, len: u32): u32 {
  const r = records(ptr, len);
  while (r.next()) {
    if (r.first) seen.clear();
    const user = r.value.toString();
    if (seen.has(user)) continue;
    seen.add(user);
    emit(r.key, r.value);
  }
  return flush();
}

export function reduce(ptr: usize, len: u32): u32 {
  const r = records(ptr, len);
  while (r.next()) {
    if (r.first) seen.clear();
    seen.add(r.value.toString());
    if (r.last) emitI64(r.key, seen.size);
  }
  return flush();
}

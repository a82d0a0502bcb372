// Uses each part of pmr.ts; sdk_test.go knows what has to come out. The same functions are in ../c/sdk.c.
import {
  Counter, Words, count, emit, emitF64, emitI64, failAt, fail, flush, hasParam, log, onBegin, onEnd, param, records, text,
} from "../../../../../sdk/assemblyscript/pmr";
export { pmr_alloc, pmr_init, pmr_end } from "../../../../../sdk/assemblyscript/pmr";

let seen: i64 = 0, total: i64 = 0;
const sum = new Counter(), word = new Words();

onBegin(() => {
  seen = 0;
  if (param("begin") == "fail") fail("begin was told to fail");
});

onEnd(() => {
  if (seen > 0) emitI64(text("records"), seen);
});

// map emits its record in all forms.
export function map(ptr: usize, len: u32): u32 {
  const r = records(ptr, len);
  while (r.next()) {
    seen++;
    emit(r.key, r.value);
    emitI64(r.value, -<i64>r.value.len);
    emitF64(r.value, 0.5);
    log(r.value.toString());
    count("map", 2);
  }
  return flush();
}

// params emits the parameter a, and whether b was given.
export function params(ptr: usize, len: u32): u32 {
  const r = records(ptr, len);
  while (r.next()) {
    emit(r.key, text(param("a")));
    emit(r.key, text(hasParam("b") ? "given" : "missing"));
  }
  return flush();
}

// sums adds up the words.
export function sums(ptr: usize, len: u32): u32 {
  const r = records(ptr, len);
  while (r.next()) {
    word.of(r.value);
    while (word.next()) sum.add(word, 1 << 62);
  }
  return flush();
}

// words emits the words.
export function words(ptr: usize, len: u32): u32 {
  const r = records(ptr, len);
  while (r.next()) {
    word.of(r.value);
    while (word.next()) emit(r.key, word);
  }
  return flush();
}

export function failing(ptr: usize, len: u32): u32 {
  const r = records(ptr, len);
  while (r.next()) failAt("cannot take it: ", r.value);
  return flush();
}

export function panicking(ptr: usize, len: u32): u32 {
  const r = records(ptr, len);
  while (r.next()) r.value.cut(r.value, 0, r.value.len + 1);
  return flush();
}

// reduce adds up the i64s of a key.
export function reduce(ptr: usize, len: u32): u32 {
  const r = records(ptr, len);
  while (r.next()) {
    if (r.first) total = 0;
    total += r.int;
    if (r.last) emitI64(r.key, total);
  }
  return flush();
}

export function floats(ptr: usize, len: u32): u32 {
  const r = records(ptr, len);
  while (r.next()) {
    if (r.first) emitF64(r.key, 2 * r.float);
  }
  return flush();
}

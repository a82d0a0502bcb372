// pmr.ts is the SDK for guests in AssemblyScript: records in, pairs out. A guest that counts words:
//
//   import { Counter, Words, flush, records } from "./pmr";
//   export { pmr_alloc, pmr_init, pmr_end } from "./pmr";
//
//   const counts = new Counter(), word = new Words();
//
//   export function map(ptr: usize, len: u32): u32 {
//     const r = records(ptr, len);
//     while (r.next()) {
//       word.of(r.value);
//       while (word.next()) counts.add(word, 1);
//     }
//     return flush();
//   }
//
// Build it with
//
//   asc guest.ts -o guest.wasm -O3 --enable simd
//
// Each exported function of this shape is one that a job may name: map, combine, reduce or any other. A guest carries
// nothing from one bucket to the next. What abort() or a failed assert says becomes the job's error.
//
// Bytes are handled as a Slice, a range of memory, so that nothing is allocated for each record. Slices, Records,
// Words and Counters are not garbage collected: make them once, outside of functions.

@external("pmr1", "emit") declare function hostEmit(ptr: usize, len: u32): void;
@external("pmr1", "log") declare function hostLog(level: u32, ptr: usize, len: u32): void;
@external("pmr1", "count") declare function hostCount(name: usize, len: u32, delta: i64): void;
@external("pmr1", "fail") declare function hostFail(ptr: usize, len: u32): void;

// Bytes in memory.
@unmanaged export class Slice {
  ptr: usize = 0;
  len: u32 = 0;

  // The bytes as text, which is a copy; they must be UTF-8.
  toString(): string {
    return String.UTF8.decodeUnsafe(this.ptr, this.len);
  }

  // The byte at an index, which must be less than len.
  @inline at(index: u32): u8 {
    return load<u8>(this.ptr + index);
  }

  // The index of the first byte of this value, from an index on, or -1.
  indexOf(byte: u8, from: u32 = 0): i32 {
    for (let i = from; i < this.len; i++) {
      if (load<u8>(this.ptr + i) == byte) return i;
    }
    return -1;
  }

  equals(other: Slice): bool {
    return this.len == other.len && memory.compare(this.ptr, other.ptr, this.len) == 0;
  }

  // Becomes a part of another slice, or of itself.
  cut(whole: Slice, begin: u32, end: u32): void {
    assert(begin <= end && end <= whole.len, "cut is out of range");
    this.ptr = whole.ptr + begin;
    this.len = end - begin;
  }
}

// Text as UTF-8, for example as a key. It is valid until the guest's function returns.
export function text(s: string): Slice {
  const len = String.UTF8.byteLength(s);
  const block = heap.alloc(sizeof<usize>() + offsetof<Slice>() + len);
  store<usize>(block, texts);
  texts = block;
  const slice = changetype<Slice>(block + sizeof<usize>());
  slice.ptr = block + sizeof<usize>() + offsetof<Slice>();
  slice.len = len;
  String.UTF8.encodeUnsafe(changetype<usize>(s), s.length, slice.ptr);
  return slice;
}

// Those of the present call: each begins with a pointer to the one before.
let texts: usize = 0;

function freeTexts(): void {
  while (texts != 0) {
    const block = texts;
    texts = load<usize>(block);
    heap.free(block);
  }
}

// The frames of a batch, one after another: the records of a bucket, or the pairs of groups (combine, reduce).
@unmanaged export class Records {
  private at: usize = 0;
  private end: usize = 0;
  private flags: u32 = 0;
  key: Slice = new Slice();
  value: Slice = new Slice();

  of(ptr: usize, len: u32): Records {
    this.at = ptr;
    this.end = ptr + len;
    return this;
  }

  // Goes on to the next record. False at the end.
  next(): bool {
    const at = this.at;
    if (at >= this.end) return false;
    const klen = load<u32>(at, 4), vlen = load<u32>(at, 8), key = this.key, value = this.value;
    this.flags = load<u32>(at);
    key.ptr = at + HEADER;
    key.len = klen;
    value.ptr = at + HEADER + klen;
    value.len = vlen;
    this.at = at + HEADER + klen + vlen;
    return true;
  }

  // Whether it is the first, or the last, pair of its key (combine, reduce).
  get first(): bool { return (this.flags & 1) != 0; }
  get last(): bool { return (this.flags & 2) != 0; }

  // What the value is: an i64, an f64, or, if neither, bytes.
  get isInt(): bool { return (this.flags & INT) != 0; }
  get isFloat(): bool { return (this.flags & FLOAT) != 0; }

  // The value as a number. If it is none of the kind, the job fails.
  get int(): i64 {
    if (!this.isInt) failAt("the value is no i64; the key is ", this.key);
    return load<i64>(this.value.ptr);
  }
  get float(): f64 {
    if (!this.isFloat) failAt("the value is no f64; the key is ", this.key);
    return load<f64>(this.value.ptr);
  }
}

// The records that an exported function was given.
export function records(ptr: usize, len: u32): Records {
  freeTexts();
  return batch.of(ptr, len);
}

const batch = new Records();

// The parts of a slice between ASCII white space, one after another: each time, the object itself is the next one.
@unmanaged export class Words extends Slice {
  private block: usize = 0; // of the block of 64 bytes that marks tells of
  private end: usize = 0;
  private edges: u64 = 0; // bytes of the block where a word begins, or has just ended

  of(s: Slice): Words {
    this.block = s.ptr;
    this.end = s.ptr + s.len;
    this.edges = s.len > 0 ? edges(s.ptr, s.len, false) : 0;
    return this;
  }

  // Goes on to the next word. False at the end.
  next(): bool {
    let at = this.block, marks = this.edges;
    while (marks == 0) {
      if (this.end - at <= 64 || this.end == 0) return false;
      at += 64;
      marks = edges(at, <u32>(this.end - at), false);
    }
    const begin = at + <usize>ctz(marks);
    marks &= marks - 1;
    while (marks == 0 && this.end - at > 64) { // the word goes on in the next block
      at += 64;
      marks = edges(at, <u32>(this.end - at), true);
    }
    let end = this.end;
    if (marks != 0) {
      end = at + <usize>ctz(marks);
      marks &= marks - 1;
    }
    this.ptr = begin;
    this.len = <u32>(end - begin);
    this.block = at;
    this.edges = marks;
    return true;
  }
}

// A bit for each of up to 64 bytes that differs from the one before it in being white space. What is behind the end
// is white space, and so is what is before the beginning, unless a word goes on there.
function edges(p: usize, len: u32, inside: bool): u64 {
  let space: u64 = ~0;
  if (len >= 64 || readable(p, 64)) {
    space = spaces(p) | spaces(p + 16) << 16 | spaces(p + 32) << 32 | spaces(p + 48) << 48;
    if (len < 64) space |= ~(<u64>0) << len;
  } else {
    for (let i: u32 = 0; i < len; i++) {
      const c = load<u8>(p + i);
      if (!(c == 0x20 || c - 9 < 5)) space &= ~((<u64>1) << i);
    }
  }
  return space ^ (space << 1 | <u64>!inside);
}

@inline function spaces(p: usize): u64 {
  const x = v128.load(p);
  const controls = i8x16.lt_u(i8x16.sub(x, i8x16.splat(9)), i8x16.splat(5)); // \t \n \v \f \r
  return <u64>i8x16.bitmask(v128.or(controls, i8x16.eq(x, i8x16.splat(0x20))));
}

const HEADER: u32 = 12, INT: u32 = 4, FLOAT: u32 = 8;

// Frames are gathered here, and given to the host when it is full. Up to SLACK bytes behind a frame may be written.
const SLACK: u32 = 16;
let capacity: u32 = 64 << 10;
let block: usize = heap.alloc(capacity);
let filled: u32 = 0;

// Emits a pair. Key and value are copied.
export function emit(key: Slice, value: Slice): void {
  const p = frame(0, key.len, value.len);
  put(p, key);
  memory.copy(p + key.len, value.ptr, value.len);
}

// Emits a pair with a number.
export function emitI64(key: Slice, value: i64): void {
  emitNumber(INT, key, value);
}

export function emitF64(key: Slice, value: f64): void {
  emitNumber(FLOAT, key, reinterpret<i64>(value));
}

function emitNumber(flag: u32, key: Slice, bits: i64): void {
  const p = frame(flag, key.len, 8);
  put(p, key);
  store<i64>(p + key.len, bits);
}

// Copies a key. For most it is faster than memory.copy, which calls the host's.
@inline function put(p: usize, key: Slice): void {
  if (key.len <= 16 && readable(key.ptr, 16)) {
    v128.store(p, v128.load(key.ptr));
  } else {
    memory.copy(p, key.ptr, key.len);
  }
}

// Whether so many bytes can be read from p on, whatever they are.
@inline function readable(p: usize, n: usize): bool {
  return p + n <= <usize>memory.size() << 16;
}

// Makes room for a frame and writes its header. Returns where its key goes.
function frame(flags: u32, klen: u32, vlen: u32): usize {
  const size = HEADER + klen + vlen;
  if (filled + size + SLACK > capacity) {
    flush();
    if (size + SLACK > capacity) {
      heap.free(block);
      capacity = size + SLACK;
      block = heap.alloc(capacity);
    }
  }
  const p = block + filled;
  filled += size;
  store<u32>(p, flags);
  store<u32>(p, klen, 4);
  store<u32>(p, vlen, 8);
  return p + HEADER;
}

// Gives the host what was emitted so far. Returns 0, the result of a function that did its work.
export function flush(): u32 {
  if (filled > 0) hostEmit(block, filled);
  filled = 0;
  return 0;
}

// Adds up integers by key inside the guest, and emits the sums: fewer pairs for a job whose reducer is sum. It holds a
// fixed number of keys; one that needs the place of another has that one emitted. What is left is emitted at the end of
// the bucket. Use it in maps only.
@unmanaged export class Counter {
  private slots: usize = heap.alloc(SLOTS * offsetof<Slot>());
  private another: Counter | null = counters;

  constructor() {
    memory.fill(this.slots, 0, SLOTS * offsetof<Slot>());
    counters = this;
  }

  // Adds to the sum of a key.
  add(key: Slice, n: i64): void {
    const len = key.len, p = key.ptr;
    if (len > MAX_KEY) return emitI64(key, n);
    let first: u64 = 0, last: u64 = 0, second: u64 = 0, before: u64 = 0;
    if (len >= 8) {
      first = load<u64>(p);
      last = load<u64>(p + len - 8);
      if (len > 16) {
        second = load<u64>(p, 8);
        before = load<u64>(p + len - 16);
      }
    } else if (readable(p, 8)) {
      first = load<u64>(p) & (((<u64>1) << (len * 8)) - 1);
    } else {
      memory.copy(SCRATCH, p, len);
      first = load<u64>(SCRATCH) & (((<u64>1) << (len * 8)) - 1);
    }
    const h = ((first ^ rotl(last, 32)) * 0x9e3779b97f4a7c15) ^ ((second ^ rotl(before, 32) ^ len) * 0xc2b2ae3d27d4eb4f);
    const s = changetype<Slot>(this.slots + <usize>(((h ^ h >> 29) * 0x165667b19e3779f9) >> (64 - SLOT_BITS)) * offsetof<Slot>());
    if (s.size == len + 1 && s.first == first && s.last == last && s.second == second && s.before == before) {
      const sum = s.sum + n;
      if (((sum ^ s.sum) & (sum ^ n)) >= 0) { // no overflow
        s.sum = sum;
        return;
      }
    }
    if (s.size > 0) s.emit();
    s.size = len + 1;
    s.first = first;
    s.last = last;
    s.second = second;
    s.before = before;
    s.sum = n;
  }

  // Emits all sums and forgets them. pmr_end does it by itself.
  flush(): void {
    for (let i: usize = 0; i < SLOTS; i++) {
      const s = changetype<Slot>(this.slots + i * offsetof<Slot>());
      if (s.size > 0) s.emit();
      s.size = 0;
    }
  }

  next(): Counter | null { return this.another; }
}

let counters: Counter | null = null;

const SLOT_BITS: u32 = 13, SLOTS: usize = 1 << SLOT_BITS, MAX_KEY: u32 = 32;
const SCRATCH = memory.data(8);

// A sum and its key: the key's first 8 bytes, its last 8, its second 8, and those before the last 8, as far as it
// reaches. They may overlap. Behind a key of less than 8 bytes are zeros.
@unmanaged class Slot {
  size: u32; // of the key and 1; 0 if the slot is free
  first: u64;
  last: u64;
  second: u64;
  before: u64;
  sum: i64;

  emit(): void {
    const len = this.size - 1;
    const p = frame(INT, len, 8);
    store<u64>(p, this.first);
    if (len > 16) {
      store<u64>(p, this.second, 8);
      store<u64>(p + len - 16, this.before);
    }
    if (len > 8) store<u64>(p + len - 8, this.last);
    store<i64>(p + len, this.sum);
  }
}

// A parameter of the job as text; empty if it was not given.
export function param(name: string): string {
  const p = findParam(name);
  return p ? p.value.toString() : "";
}

// Whether a parameter was given, though it may be empty.
export function hasParam(name: string): bool {
  return findParam(name) != null;
}

function findParam(name: string): Records | null {
  const want = text(name);
  given.of(params, paramsSize);
  while (given.next()) {
    if (given.key.equals(want)) return given;
  }
  return null;
}

const given = new Records();
let params: usize = 0;
let paramsSize: u32 = 0;

// Has a function called before the first record of each bucket, with the parameters known; or after the last one, where
// it may emit what a map has gathered. Call these outside of functions.
export function onBegin(f: () => void): void { begins.push(f); }
export function onEnd(f: () => void): void { ends.push(f); }

const begins: (() => void)[] = [];
const ends: (() => void)[] = [];

// Writes a line to the job's log.
export function log(message: string): void {
  const t = text(message);
  hostLog(1, t.ptr, t.len);
}

// Adds to a counter of the job, which is shown beside its result.
export function count(name: string, delta: i64): void {
  const t = text(name);
  hostCount(t.ptr, t.len, delta);
}

// Ends the job with a message. Does not return.
export function fail(message: string): void {
  const t = text(message);
  hostFail(t.ptr, t.len);
}

// The same, with the first 1,000 bytes of what could not be used.
export function failAt(message: string, at: Slice): void {
  const t = text(message), p = heap.alloc(t.len + 1000), n = min<u32>(at.len, 1000);
  memory.copy(p, t.ptr, t.len);
  memory.copy(p + t.len, at.ptr, n);
  hostFail(p, t.len + n);
}

// What follows is called by the host. Export it from the guest's main file.

let input: usize = 0, inputEnd: usize = 0;

// The input lies in memory of its own, which the garbage collector does not know of: where there is none left it can
// say so, which heap.alloc cannot.
export function pmr_alloc(len: u32): usize {
  const end = <usize>memory.size() << 16;
  if (inputEnd != end) input = inputEnd = end; // it is not the last in memory, and cannot grow in place
  const missing = <u64>input + len - inputEnd;
  if (memory.grow(<i32>((missing + 0xffff) >> 16)) < 0) {
    input = inputEnd = 0;
    return 0;
  }
  inputEnd = <usize>memory.size() << 16;
  return input;
}

export function pmr_init(ptr: usize, len: u32): u32 {
  freeTexts();
  if (params != 0) heap.free(params);
  params = heap.alloc(len);
  paramsSize = len;
  memory.copy(params, ptr, len);
  for (let i = 0; i < begins.length; i++) begins[i]();
  return 0;
}

export function pmr_end(): u32 {
  freeTexts();
  for (let i = 0; i < ends.length; i++) ends[i]();
  let c = counters;
  while (c != null) {
    c.flush();
    c = c.next();
  }
  return flush();
}

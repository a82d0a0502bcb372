//! All that a Pinion guest in Rust needs. A guest that counts words:
//!
//! ```
//! mod pmr;
//!
//! pmr::function!(map, |r| {
//!     for word in pmr::words(r.value) {
//!         pmr::emit_i64(word, 1);
//!     }
//! });
//! ```
//!
//!     rustc --target wasm32-unknown-unknown --edition 2021 --crate-type cdylib -O -C panic=abort -o words.wasm words.rs
//!
//! A job names one function of a module, map unless it says otherwise; a file may have any number of them. Those that
//! combine or reduce get the pairs of one key after another ([`Record::first`], [`Record::last`]) and may emit only
//! that key. Nothing may be carried from one bucket to the next: keep what you gather in a [`Static`], which
//! `pmr::bucket!` sets back before each bucket and emits after its last record. A panic fails the job with its message.
//!
//! This needs nothing but `core`. With `#![no_std]` build with `--cfg pmr_no_std`, which adds a panic handler.
#![allow(dead_code, unused_macros, unused_imports)]

use core::cell::{Cell, RefCell};
use core::fmt::Write;
use core::{ops::Deref, ptr, slice};

/// A record of the bucket or, in combine and reduce, a pair of a key. Its bytes are valid until the function that got
/// it returns.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    flags: u32,
}

const FIRST: u32 = 1;
const LAST: u32 = 2;
const I64: u32 = 4;
const F64: u32 = 8;

impl Record<'_> {
    /// Whether this is the first pair of its key (combine, reduce).
    pub fn first(&self) -> bool {
        self.flags & FIRST != 0
    }

    /// Whether this is the last pair of its key (combine, reduce). What is emitted for it must be emitted by then.
    pub fn last(&self) -> bool {
        self.flags & LAST != 0
    }

    /// The i64 that is the value; any other value fails the job.
    pub fn i64(&self) -> i64 {
        i64::from_le_bytes(self.number(I64, "i64"))
    }

    /// The f64 that is the value; any other value fails the job.
    pub fn f64(&self) -> f64 {
        f64::from_le_bytes(self.number(F64, "f64"))
    }

    fn number(&self, flag: u32, name: &str) -> [u8; 8] {
        match (self.flags & flag, self.value.try_into()) {
            (f, Ok(bytes)) if f != 0 => bytes,
            _ => fail(format_args!("the value is no {}; the key is {}", name, Text(self.key))),
        }
    }
}

/// `pmr::function!(map, |r| { .. })` exports the function map, which gets each record of a batch.
macro_rules! function {
    ($name:ident, $each:expr) => {
        #[no_mangle]
        pub extern "C" fn $name(batch: *const u8, len: usize) -> i32 {
            unsafe { $crate::pmr::each(batch, len, $each) }
        }
    };
}
pub(crate) use function;

/// `pmr::bucket!(begin, finish)` has `begin()` called before each bucket, to set a [`Static`] back, and `finish()`
/// after its last record, where it may emit. A file has one at the most.
macro_rules! bucket {
    ($begin:expr, $finish:expr) => {
        #[no_mangle]
        pub extern "C" fn _initialize() {
            $crate::pmr::HOOKS.set(Some(($begin, $finish)));
        }
    };
}
pub(crate) use bucket;

/// A static variable: a RefCell. A guest runs on one thread.
pub struct Static<T>(RefCell<T>);

unsafe impl<T> Sync for Static<T> {}

impl<T> Static<T> {
    pub const fn new(value: T) -> Self {
        Static(RefCell::new(value))
    }
}

impl<T> Deref for Static<T> {
    type Target = RefCell<T>;
    fn deref(&self) -> &RefCell<T> {
        &self.0
    }
}

// ---- output, which is gathered and handed over in blocks of 64 KiB

const BLOCK: usize = 64 << 10;
const SLACK: usize = 24; // short copies move as many bytes

struct Block(Cell<usize>, core::cell::UnsafeCell<[u8; BLOCK + SLACK]>);
unsafe impl Sync for Block {}
static OUT: Block = Block(Cell::new(0), core::cell::UnsafeCell::new([0; BLOCK + SLACK]));

/// Emits a pair with a raw value; key and value are copied. A key has at most 65,535 bytes.
#[inline]
pub fn emit(key: &[u8], value: &[u8]) {
    unsafe {
        match frame(0, key, value.len()) {
            Some(to) => copy(to, value),
            None => host::emit_kv(key.as_ptr(), key.len(), value.as_ptr(), value.len()),
        }
    }
}

/// Emits a pair with an i64.
#[inline]
pub fn emit_i64(key: &[u8], value: i64) {
    unsafe {
        match frame(I64, key, 8) {
            Some(to) => (to as *mut i64).write_unaligned(value),
            None => host::emit_i64(key.as_ptr(), key.len(), value),
        }
    }
}

/// Emits a pair with an f64.
#[inline]
pub fn emit_f64(key: &[u8], value: f64) {
    unsafe {
        match frame(F64, key, 8) {
            Some(to) => (to as *mut f64).write_unaligned(value),
            None => host::emit_f64(key.as_ptr(), key.len(), value),
        }
    }
}

/// Puts a frame's header and key into the block and returns the place for its value. A frame that is larger than a
/// block goes to the host by itself, after what was emitted before: None.
#[inline]
unsafe fn frame(flags: u32, key: &[u8], value_len: usize) -> Option<*mut u8> {
    let size = 12 + key.len() as u64 + value_len as u64;
    if size > (BLOCK - OUT.0.get()) as u64 {
        flush();
    }
    if size > BLOCK as u64 {
        return None;
    }
    let at = (OUT.1.get() as *mut u8).add(OUT.0.get());
    (at as *mut [u32; 3]).write_unaligned([flags, key.len() as u32, value_len as u32]);
    copy(at.add(12), key);
    OUT.0.set(OUT.0.get() + size as usize);
    Some(at.add(12 + key.len()))
}

/// Copies bytes to a place that has SLACK bytes more.
#[inline]
unsafe fn copy(to: *mut u8, from: &[u8]) {
    if from.len() <= SLACK && near(from.as_ptr()) {
        (to as *mut [u64; 3]).write_unaligned((from.as_ptr() as *const [u64; 3]).read_unaligned());
    } else {
        ptr::copy_nonoverlapping(from.as_ptr(), to, from.len());
    }
}

/// Whether SLACK bytes can be read at p, whatever they are.
#[inline]
fn near(p: *const u8) -> bool {
    p as usize + SLACK <= INPUT.end.get()
}

#[inline(never)]
fn flush() -> i32 {
    if OUT.0.get() > 0 {
        unsafe { host::emit(OUT.1.get() as *const u8, OUT.0.get()) };
        OUT.0.set(0);
    }
    0
}

// ---- sums: what has few keys is added up here before it is emitted

const SLOTS: usize = 1 << 14;

/// The key is padded with zeros; its last byte is its length + 1, or 0 if the slot is free.
#[derive(Clone, Copy)]
struct Slot {
    key: [u64; 3],
    sum: i64,
}

/// The slots, and a bit for each that is set if it is taken.
struct Sums {
    slots: [Slot; SLOTS],
    taken: [u64; SLOTS / 64],
}

struct Shared(core::cell::UnsafeCell<Sums>);
unsafe impl Sync for Shared {}
static SUMS: Shared =
    Shared(core::cell::UnsafeCell::new(Sums { slots: [Slot { key: [0; 3], sum: 0 }; SLOTS], taken: [0; SLOTS / 64] }));

/// The SLACK bytes from n before the middle keep the first n bytes of others.
static KEPT: [[u8; SLACK]; 2] = [[255; SLACK], [0; SLACK]];

impl Slot {
    #[inline]
    fn evict(&mut self) {
        let size = (self.key[2] >> 56) as usize;
        if size > 0 {
            emit_i64(unsafe { slice::from_raw_parts(self.key.as_ptr() as *const u8, size - 1) }, self.sum);
            self.key[2] = 0;
        }
    }
}

fn drain() {
    let sums = unsafe { &mut *SUMS.0.get() };
    for (i, taken) in sums.taken.iter_mut().enumerate() {
        while *taken != 0 {
            sums.slots[64 * i + taken.trailing_zeros() as usize].evict();
            *taken &= *taken - 1;
        }
    }
}

/// As [`emit_i64`] for jobs that sum: adds up the numbers of a key and emits the sum when another key needs its place,
/// and at the end of the bucket. Not for combine and reduce. Keys of more than 23 bytes are emitted as they come.
#[inline]
pub fn sum(key: &[u8], value: i64) {
    let n = key.len();
    if n >= SLACK {
        return emit_i64(key, value);
    }
    let mut k = [0u64; 3];
    if near(key.as_ptr()) {
        unsafe {
            let kept = ((KEPT.as_ptr() as *const u8).add(SLACK - n) as *const [u64; 3]).read_unaligned();
            let read = (key.as_ptr() as *const [u64; 3]).read_unaligned();
            k = [read[0] & kept[0], read[1] & kept[1], read[2] & kept[2]];
        }
    } else {
        unsafe { ptr::copy_nonoverlapping(key.as_ptr(), k.as_mut_ptr() as *mut u8, n) };
    }
    k[2] |= (n as u64 + 1) << 56;
    let hash = k[0] ^ k[1].wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ k[2].wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    let at = ((hash ^ hash >> 32).wrapping_mul(0xff51_afd7_ed55_8ccd) >> 50) as usize; // of 2^14
    let sums = unsafe { &mut *SUMS.0.get() };
    let slot = &mut sums.slots[at];
    if slot.key[0] ^ k[0] | slot.key[1] ^ k[1] | slot.key[2] ^ k[2] == 0 {
        if let Some(sum) = slot.sum.checked_add(value) {
            slot.sum = sum;
            return;
        }
    }
    INPUT.drain.set(Some(drain));
    slot.evict();
    *slot = Slot { key: k, sum: value };
    sums.taken[at / 64] |= 1 << (at % 64);
}

// ---- texts

fn is_space(c: u8) -> bool {
    c == b' ' || c.wrapping_sub(b'\t') < 5
}

/// The words of a text: bytes between ASCII white space (space, \t \n \v \f \r).
pub fn words(text: &[u8]) -> Words {
    Words(text)
}

pub struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let begin = self.0.iter().position(|&c| !is_space(c))?;
        let rest = &self.0[begin..];
        let end = rest.iter().position(|&c| is_space(c)).unwrap_or(rest.len());
        self.0 = &rest[end..];
        Some(&rest[..end])
    }
}

/// Shows bytes in a message, as text: `format_args!("{} is no number", pmr::Text(field))`.
pub struct Text<'a>(pub &'a [u8]);

impl core::fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter) -> core::fmt::Result {
        let shown = &self.0[..self.0.len().min(200)];
        match core::str::from_utf8(shown) {
            Ok(text) => f.write_str(text),
            Err(_) => shown.iter().try_for_each(|b| write!(f, "{}", core::ascii::escape_default(*b))),
        }
    }
}

// ---- the job

/// A parameter of the job, if it was given.
pub fn param(name: &str) -> Option<&'static [u8]> {
    let mut rest = INPUT.params.get();
    while !rest.is_empty() {
        let (r, tail) = unsafe { cut(rest) };
        if r.key == name.as_bytes() {
            return Some(r.value);
        }
        rest = tail;
    }
    None
}

/// Fails the job with a message: `pmr::fail(format_args!("no number in {}", pmr::Text(r.value)))`.
pub fn fail(message: core::fmt::Arguments) -> ! {
    let mut line = Line([0; 1024], 0);
    let _ = line.write_fmt(message);
    unsafe { host::fail(line.0.as_ptr(), line.1) };
    core::arch::wasm32::unreachable() // not reached: the host has ended the call
}

/// Writes a line to the job's log.
pub fn log(text: &str) {
    unsafe { host::log(1, text.as_ptr(), text.len()) };
}

/// Adds to a counter of the job.
pub fn count(name: &str, delta: i64) {
    unsafe { host::count(name.as_ptr(), name.len(), delta) };
}

/// Gathers a message, and drops what is too long.
struct Line([u8; 1024], usize);

impl Write for Line {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        let n = s.len().min(self.0.len() - self.1);
        self.0[self.1..self.1 + n].copy_from_slice(&s.as_bytes()[..n]);
        self.1 += n;
        Ok(())
    }
}

#[cfg(pmr_no_std)]
#[panic_handler]
fn panicked(info: &core::panic::PanicInfo) -> ! {
    fail(format_args!("{}", info))
}

#[cfg(pmr_no_std)]
fn catch_panics() {}

#[cfg(not(pmr_no_std))]
fn catch_panics() {
    std::panic::set_hook(std::boxed::Box::new(|info| fail(format_args!("{}", info))));
}

// ---- what the host calls

mod host {
    #[link(wasm_import_module = "pmr1")]
    extern "C" {
        pub fn emit(block: *const u8, len: usize);
        pub fn emit_kv(key: *const u8, key_len: usize, value: *const u8, value_len: usize);
        pub fn emit_i64(key: *const u8, key_len: usize, value: i64);
        pub fn emit_f64(key: *const u8, key_len: usize, value: f64);
        pub fn log(level: i32, text: *const u8, len: usize);
        pub fn count(name: *const u8, len: usize, delta: i64);
        pub fn fail(text: *const u8, len: usize);
    }
}

struct Input {
    buffer: Cell<usize>,
    end: Cell<usize>, // of the memory, when the buffer was made; more may have been added since
    params: Cell<&'static [u8]>,
    drain: Cell<Option<fn()>>,
}

unsafe impl Sync for Input {}
static INPUT: Input = Input { buffer: Cell::new(0), end: Cell::new(0), params: Cell::new(&[]), drain: Cell::new(None) };

/// Set by `bucket!`.
pub struct Hooks(Cell<Option<(fn(), fn())>>);

unsafe impl Sync for Hooks {}
pub static HOOKS: Hooks = Hooks(Cell::new(None));

impl Hooks {
    pub fn set(&self, hooks: Option<(fn(), fn())>) {
        self.0.set(hooks);
    }
}

/// Takes the first frame off a batch, which the host has checked.
#[inline]
unsafe fn cut(batch: &[u8]) -> (Record, &[u8]) {
    let [flags, key_len, value_len] = (batch.as_ptr() as *const [u32; 3]).read_unaligned();
    let key = slice::from_raw_parts(batch.as_ptr().add(12), key_len as usize);
    let value = slice::from_raw_parts(key.as_ptr().add(key.len()), value_len as usize);
    (Record { key, value, flags }, &batch[12 + key.len() + value.len()..])
}

/// The body of an exported function: calls f for each record and emits what is left.
#[inline]
pub unsafe fn each(batch: *const u8, len: usize, mut f: impl FnMut(Record)) -> i32 {
    let mut rest = slice::from_raw_parts(batch, len);
    while !rest.is_empty() {
        let (record, tail) = cut(rest);
        f(record);
        rest = tail;
    }
    flush()
}

/// Gives the host memory at the end of what there is, and lets it grow there if nothing else was put behind it.
#[no_mangle]
pub extern "C" fn pmr_alloc(len: usize) -> usize {
    use core::arch::wasm32::{memory_grow, memory_size};
    const PAGE: u64 = 1 << 16;
    let end = memory_size(0) as u64 * PAGE;
    if INPUT.buffer.get() == 0 || INPUT.end.get() as u64 != end {
        INPUT.buffer.set(end as usize);
    }
    let need = INPUT.buffer.get() as u64 + len as u64;
    if need > end && memory_grow(0, ((need - end + PAGE - 1) / PAGE) as usize) == usize::MAX {
        return 0;
    }
    INPUT.end.set(memory_size(0) << 16);
    INPUT.buffer.get()
}

#[no_mangle]
pub extern "C" fn pmr_init(params: *const u8, len: usize) -> i32 {
    static KEPT: Static<[u8; 4096]> = Static::new([0; 4096]);
    if INPUT.params.get().is_empty() && len > 0 {
        // Once: the parameters of a job do not change.
        if len > 4096 {
            fail(format_args!("the job's parameters have {} bytes; pmr.rs has room for 4096", len));
        }
        unsafe {
            ptr::copy_nonoverlapping(params, KEPT.as_ptr() as *mut u8, len);
            INPUT.params.set(slice::from_raw_parts(KEPT.as_ptr() as *const u8, len));
        }
    }
    catch_panics();
    if let Some((begin, _)) = HOOKS.0.get() {
        begin();
    }
    0
}

#[no_mangle]
pub extern "C" fn pmr_end() -> i32 {
    if let Some((_, finish)) = HOOKS.0.get() {
        finish();
    }
    if let Some(drain) = INPUT.drain.get() {
        drain();
    }
    flush()
}

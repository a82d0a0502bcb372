//! Groups the lines of a CSV file by one column and gives the least, mean and greatest of another: min/mean/max. Use it
//! with combine combine and reduce module. Numbers are exact decimals; the mean is rounded half up.
//!
//! Parameters: key and value, the numbers of the columns from 1 (1 and 2); separator (,); digits after the point (1);
//! header, the name of the first column, whose line is left out. So it reads the format of the one billion row
//! challenge, `Hamburg;12.0`, with `-p separator=;`. Fields may be in double quotes. Lines without a value are left out
//! and counted; other text than a number fails the job.

use std::borrow::Cow;
use std::collections::BTreeMap;

#[path = "../../../../sdk/rust/pmr.rs"]
mod pmr;

/// What is known of a key, in units of the last digit.
#[derive(Clone, Copy)]
struct Stats {
    count: i64,
    sum: i64,
    min: i64,
    max: i64,
}

impl Stats {
    fn of(n: i64) -> Stats {
        Stats { count: 1, sum: n, min: n, max: n }
    }

    fn add(&mut self, other: Stats) {
        self.count += other.count;
        self.sum = self.sum.checked_add(other.sum).expect("the sum of a key leaves the range of an i64");
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    fn to_bytes(self) -> [u8; 32] {
        let mut b = [0; 32];
        for (place, n) in b.chunks_exact_mut(8).zip([self.count, self.sum, self.min, self.max]) {
            place.copy_from_slice(&n.to_le_bytes());
        }
        b
    }

    fn from_bytes(b: &[u8]) -> Stats {
        let n = |i: usize| i64::from_le_bytes(b[8 * i..8 * i + 8].try_into().unwrap());
        Stats { count: n(0), sum: n(1), min: n(2), max: n(3) }
    }

    fn show(&self, digits: u32) -> String {
        // floor(sum / count + 1/2), in i128 since twice the sum may be too much.
        let mean = (2 * self.sum as i128 + self.count as i128).div_euclid(2 * self.count as i128);
        format!("{}/{}/{}", decimal(self.min as i128, digits), decimal(mean, digits), decimal(self.max as i128, digits))
    }
}

/// Writes n units of the last of so many digits.
fn decimal(n: i128, digits: u32) -> String {
    let (sign, unit, n) = (if n < 0 { "-" } else { "" }, 10u128.pow(digits), n.unsigned_abs());
    match digits {
        0 => format!("{}{}", sign, n),
        _ => format!("{}{}.{:0width$}", sign, n / unit, n % unit, width = digits as usize),
    }
}

/// Reads a decimal number in units of the last of so many digits. None if it is no number or has more digits.
fn units(text: &[u8], digits: u32) -> Option<i64> {
    let (minus, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, part) = match text.iter().position(|&c| c == b'.') {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, &text[text.len()..]),
    };
    if whole.len() + part.len() == 0 || part.len() > digits as usize {
        return None;
    }
    let mut n = 0i64;
    for &c in whole.iter().chain(part) {
        let digit = char::from(c).to_digit(10)?;
        n = n.checked_mul(10)?.checked_add(digit as i64)?;
    }
    n = n.checked_mul(10i64.pow(digits - part.len() as u32))?;
    Some(if minus { -n } else { n })
}

/// The n-th field of a line, from 1, without its quotes.
fn field(line: &[u8], separator: u8, n: usize) -> Option<Cow<[u8]>> {
    let mut rest = line;
    for i in 1.. {
        let quoted = rest.first() == Some(&b'"');
        let end = if quoted { after_quotes(rest)? } else { 0 };
        let end = end + rest[end..].iter().position(|&c| c == separator).unwrap_or(rest.len() - end);
        if i == n {
            return Some(if quoted { Cow::Owned(unquote(&rest[..end])) } else { Cow::Borrowed(&rest[..end]) });
        }
        rest = rest.get(end + 1..)?;
    }
    None
}

/// The place after the closing quote of a text that begins with one; "" stands for a quote.
fn after_quotes(text: &[u8]) -> Option<usize> {
    let mut i = 1;
    loop {
        i += text.get(i..)?.iter().position(|&c| c == b'"')? + 1;
        if text.get(i) != Some(&b'"') {
            return Some(i);
        }
        i += 1;
    }
}

fn unquote(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut inner = text[1..].iter();
    while let Some(&c) = inner.next() {
        if c != b'"' {
            out.push(c);
        } else if inner.as_slice().first() == Some(&b'"') {
            out.push(c);
            inner.next();
        }
    }
    out
}

/// The job's parameters.
struct Job {
    key: usize,
    value: usize,
    separator: u8,
    digits: u32,
    header: &'static [u8],
}

impl Job {
    const fn new() -> Job {
        Job { key: 1, value: 2, separator: b',', digits: 1, header: b"" }
    }

    fn read() -> Job {
        let job = Job::new();
        let separator = pmr::param("separator").unwrap_or(b",");
        if separator.len() != 1 {
            pmr::fail(format_args!("the parameter separator must be one byte; it is {:?}", pmr::Text(separator).to_string()));
        }
        Job {
            key: number("key", job.key as u32, 1..=1000) as usize,
            value: number("value", job.value as u32, 1..=1000) as usize,
            separator: separator[0],
            digits: number("digits", job.digits, 0..=9),
            header: pmr::param("header").unwrap_or(job.header),
        }
    }
}

fn number(name: &str, default: u32, range: std::ops::RangeInclusive<u32>) -> u32 {
    let text = match pmr::param(name) {
        Some(text) => String::from_utf8_lossy(text),
        None => return default,
    };
    match text.parse() {
        Ok(n) if range.contains(&n) => n,
        _ => pmr::fail(format_args!("the parameter {} must be a number of {:?}; it is {:?}", name, range, text)),
    }
}

static JOB: pmr::Static<Job> = pmr::Static::new(Job::new());
static GROUPS: pmr::Static<Option<BTreeMap<Vec<u8>, Stats>>> = pmr::Static::new(None);

/// With more keys than this, what is known is emitted, so that memory stays bounded.
const MAX_GROUPS: usize = 20_000;

fn begin() {
    JOB.replace(Job::read());
    GROUPS.replace(Some(BTreeMap::new()));
}

fn finish() {
    for (key, stats) in GROUPS.borrow_mut().iter_mut().flat_map(std::mem::take) {
        pmr::emit(&key, &stats.to_bytes());
    }
}

pmr::bucket!(begin, finish);

pmr::function!(map, |r| {
    let job = JOB.borrow();
    let line = r.value.strip_suffix(b"\r").unwrap_or(r.value);
    let value = field(line, job.separator, job.value).unwrap_or_default();
    let key = match field(line, job.separator, job.key) {
        Some(key) if !value.is_empty() => key,
        _ => return pmr::count("lines without a value", 1),
    };
    if !job.header.is_empty() && field(line, job.separator, 1).as_deref() == Some(job.header) {
        return;
    }
    let n = units(&value, job.digits).unwrap_or_else(|| {
        pmr::fail(format_args!("column {} is {:?}; it must be a number with at most {} digits after the point",
            job.value, pmr::Text(&value).to_string(), job.digits))
    });
    let mut borrowed = GROUPS.borrow_mut();
    let groups = borrowed.as_mut().unwrap(); // begin has made it
    match groups.get_mut(&*key) {
        Some(stats) => stats.add(Stats::of(n)),
        None => {
            groups.insert(key.into_owned(), Stats::of(n));
        }
    }
    if groups.len() > MAX_GROUPS {
        drop(borrowed);
        finish();
    }
});

/// The key whose pairs are being read.
static GROUP: pmr::Static<Option<Stats>> = pmr::Static::new(None);

/// Adds a pair to its group, and takes the group with the last one.
fn gather(r: pmr::Record) -> Option<Stats> {
    let mut group = GROUP.borrow_mut();
    let stats = Stats::from_bytes(r.value);
    match &mut *group {
        Some(g) if !r.first() => g.add(stats),
        g => *g = Some(stats),
    }
    if r.last() { group.take() } else { None }
}

pmr::function!(combine, |r| {
    if let Some(stats) = gather(r) {
        pmr::emit(r.key, &stats.to_bytes());
    }
});

pmr::function!(reduce, |r| {
    if let Some(stats) = gather(r) {
        pmr::emit(r.key, stats.show(JOB.borrow().digits).as_bytes());
    }
});

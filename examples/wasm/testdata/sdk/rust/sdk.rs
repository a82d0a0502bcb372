//! Uses each part of pmr.rs; sdk_test.go knows what has to come out. The same functions are in ../c/sdk.c.
#![cfg_attr(pmr_no_std, no_std)]

#[path = "../../../../../sdk/rust/pmr.rs"]
mod pmr;

static RECORDS: pmr::Static<i64> = pmr::Static::new(0);
static TOTAL: pmr::Static<i64> = pmr::Static::new(0);

fn begin() {
    RECORDS.replace(0);
    if pmr::param("begin") == Some(b"fail") {
        pmr::fail(format_args!("begin was told to fail"));
    }
}

fn finish() {
    if *RECORDS.borrow() > 0 {
        pmr::emit_i64(b"records", *RECORDS.borrow());
    }
}

pmr::bucket!(begin, finish);

// Emits its record in all forms.
pmr::function!(map, |r| {
    *RECORDS.borrow_mut() += 1;
    pmr::emit(r.key, r.value);
    pmr::emit_i64(r.value, -(r.value.len() as i64));
    pmr::emit_f64(r.value, 0.5);
    pmr::log(core::str::from_utf8(r.value).unwrap_or("no text"));
    pmr::count("map", 2);
});

// Emits the parameter a, and whether b was given.
pmr::function!(params, |r| {
    pmr::emit(r.key, pmr::param("a").unwrap_or_default());
    pmr::emit(r.key, if pmr::param("b").is_some() { b"given" } else { b"missing" });
});

// Adds up the words.
pmr::function!(sums, |r| {
    for word in pmr::words(r.value) {
        pmr::sum(word, 1 << 62);
    }
});

// Emits the words.
pmr::function!(words, |r| {
    for word in pmr::words(r.value) {
        pmr::emit(r.key, word);
    }
});

pmr::function!(failing, |r| pmr::fail(format_args!("cannot take it: {}", pmr::Text(r.value))));

pmr::function!(panicking, |r| {
    let _ = r.value[r.value.len()];
});

// Adds up the i64s of a key.
pmr::function!(reduce, |r| {
    let mut total = TOTAL.borrow_mut();
    if r.first() {
        *total = 0;
    }
    *total += r.i64();
    if r.last() {
        pmr::emit_i64(r.key, *total);
    }
});

pmr::function!(floats, |r| {
    if r.first() {
        pmr::emit_f64(r.key, 2.0 * r.f64());
    }
});

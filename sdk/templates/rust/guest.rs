//! Counts the words of each record. pmr.rs says what else there is.

mod pmr;

pmr::function!(map, |r| {
    for word in pmr::words(r.value) {
        pmr::emit_i64(word, 1);
    }
});

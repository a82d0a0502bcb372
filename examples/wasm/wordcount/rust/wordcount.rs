//! Counts the words of values, split at ASCII white space. Reduce it with sum.

#[path = "../../../../sdk/rust/pmr.rs"]
mod pmr;

pmr::function!(map, |r| {
    for word in pmr::words(r.value) {
        pmr::sum(word, 1);
    }
});

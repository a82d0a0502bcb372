//! Counts words as a plain program: records come as lines on stdin, and each word goes to stdout with a tab and 1.
//! Reduce it with sum.

use std::io::{self, BufRead, BufWriter, Write};

fn main() -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().split(b'\n') {
        let line = line?;
        // \v is white space too, which u8::is_ascii_whitespace does not know.
        for word in line.split(|&c| c == b' ' || (b'\t'..=b'\r').contains(&c)).filter(|w| !w.is_empty()) {
            out.write_all(word)?;
            out.write_all(b"\t1\n")?;
        }
    }
    out.flush()
}

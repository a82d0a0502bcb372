// Counts words: splits values at ASCII white space and emits each word with 1, or several occurrences at once.
import { Counter, Words, flush, records } from "../../../../sdk/assemblyscript/pmr";
export { pmr_alloc, pmr_init, pmr_end } from "../../../../sdk/assemblyscript/pmr";

const counts = new Counter(), word = new Words();

export function map(ptr: usize, len: u32): u32 {
  const r = records(ptr, len);
  while (r.next()) {
    word.of(r.value);
    while (word.next()) counts.add(word, 1);
  }
  return flush();
}

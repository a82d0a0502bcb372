// Counts the words of each record. pmr.ts says what else there is.
import { Words, emitI64, flush, records } from "./pmr";
export { pmr_alloc, pmr_init, pmr_end } from "./pmr";

const word = new Words();

export function map(ptr: usize, len: u32): u32 {
  const r = records(ptr, len);
  while (r.next()) {
    word.of(r.value);
    while (word.next()) emitI64(word, 1);
  }
  return flush();
}

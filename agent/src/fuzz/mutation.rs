//! Changes of bytes that find what random bytes do not reach.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// Longest input, bytes: longer than anything that a target gets in one piece, and short enough for thousands of inputs a second.
pub const LONGEST: usize = 256 << 10;

/// Text that parsers give a meaning.
const WORDS: [&str; 20] = [
    "\n",
    "\0",
    "\"",
    "\\",
    "/",
    "/../",
    ":",
    "=",
    ")",
    "(",
    "[[",
    "{}",
    "null",
    "-1",
    "18446744073709551615",
    "1e999",
    "9223372036854775808",
    "\u{1b}[2J",
    "\u{202e}",
    " (deleted)",
];

/// Numbers at which arithmetic and limits break.
const NUMBERS: [u64; 12] = [
    0,
    1,
    0x7f,
    0xff,
    0xffff,
    0x000f_ffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX - 1,
    u64::MAX,
];

#[derive(Clone, Debug)]
enum Mutation {
    Set(Index, u8),
    Flip(Index, u8),
    /// A little-endian number of 1, 2, 4 or 8 bytes.
    Number(Index, u64, u32),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize, usize),
    /// A part of another seed.
    Splice(Index, Index, Index, usize),
}

#[derive(Clone, Debug)]
pub struct Mutations(Vec<Mutation>);

/// A seed's number, and what to change.
pub fn mutations() -> impl Strategy<Value = (usize, Mutations)> {
    let at = any::<Index>;
    let one = prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, to)| Mutation::Set(at, to)),
        (at(), 0..8_u8).prop_map(|(at, bit)| Mutation::Flip(at, bit)),
        (at(), prop::sample::select(NUMBERS.to_vec()), 0..4_u32).prop_map(|(at, of, size)| Mutation::Number(at, of, size)),
        (at(), prop::sample::select(WORDS.to_vec())).prop_map(|(at, word)| Mutation::Insert(at, word.into())),
        (at(), vec(any::<u8>(), 1..16)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (at(), 1..64_usize).prop_map(|(at, length)| Mutation::Remove(at, length)),
        (at(), 1..64_usize, 2..200_usize).prop_map(|(at, length, times)| Mutation::Repeat(at, length, times)),
        (at(), at(), at(), 1..256_usize).prop_map(|(at, other, from, length)| Mutation::Splice(at, other, from, length)),
    ];
    (any::<usize>(), vec(one, 1..12)).prop_map(|(seed, mutations)| (seed, Mutations(mutations)))
}

impl Mutations {
    pub fn apply(&self, seed: &[u8], pool: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for mutation in &self.0 {
            mutation.apply(&mut bytes, pool);
            bytes.truncate(LONGEST);
        }
        bytes
    }

    /// Each mutation on one of `parts`, or of the parts themselves: some of them doubled, dropped or exchanged.
    pub fn apply_to_parts(&self, parts: &mut Vec<Vec<u8>>) {
        for (number, mutation) in self.0.iter().enumerate() {
            if parts.is_empty() {
                return;
            }
            let (at, pool) = (mutation.place().index(parts.len()), parts.clone());
            match (number % 4, mutation) {
                (3, Mutation::Set(..) | Mutation::Remove(..)) => drop(parts.remove(at)),
                (3, Mutation::Flip(..) | Mutation::Insert(..)) => {
                    let other = (at + 1 + number) % parts.len();
                    parts.swap(at, other);
                }
                (3, Mutation::Repeat(_, _, times)) => {
                    let again = parts[at].clone();
                    parts.splice(at..at, std::iter::repeat_n(again, *times));
                }
                _ => mutation.apply(&mut parts[at], &pool),
            }
        }
    }
}

impl Mutation {
    fn place(&self) -> &Index {
        let (Mutation::Set(at, _)
        | Mutation::Flip(at, _)
        | Mutation::Number(at, ..)
        | Mutation::Insert(at, _)
        | Mutation::Remove(at, _)
        | Mutation::Repeat(at, ..)
        | Mutation::Splice(at, ..)) = self;
        at
    }

    fn apply(&self, bytes: &mut Vec<u8>, pool: &[Vec<u8>]) {
        // One place more than bytes: the end.
        let at = self.place().index(bytes.len() + 1);
        let all = bytes.len();
        let end = |length: usize| (at + length).min(all);
        match self {
            Mutation::Set(_, to) => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = *to;
                }
            }
            Mutation::Flip(_, bit) => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
            Mutation::Number(_, of, size) => {
                let number = of.to_le_bytes();
                let end = end(1_usize << *size);
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            Mutation::Insert(_, what) => drop(bytes.splice(at..at, what.iter().copied())),
            Mutation::Remove(_, length) => drop(bytes.drain(at..end(*length))),
            Mutation::Repeat(_, length, times) => {
                let again = bytes[at..end(*length)].repeat(*times);
                bytes.splice(at..at, again);
            }
            Mutation::Splice(_, other, from, length) => {
                let other = &pool[other.index(pool.len())];
                let from = from.index(other.len() + 1);
                let part = &other[from..(from + length).min(other.len())];
                bytes.splice(at..at, part.iter().copied());
            }
        }
    }
}

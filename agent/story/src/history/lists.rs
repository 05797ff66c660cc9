//! Lists of a report, bounded while they are read: a line of 1 MiB has room for hundreds of thousands of entries.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Report, Text};

/// Most entries of all lists of one object together. A pod of a hundred containers has some thousands.
const ENTRIES: usize = 8192;
/// Most containers of a pod.
const CONTAINERS: usize = 512;

/// Of the object that is being read.
#[derive(Clone, Copy)]
struct Bound {
    left: usize,
    left_out: u64,
    /// A container has no containers.
    is_container: bool,
}

const NEW: Bound = Bound {
    left: ENTRIES,
    left_out: 0,
    is_container: false,
};

thread_local! {
    // serde has no other way from one list to the next.
    static BOUND: Cell<Bound> = const { Cell::new(NEW) };
}

fn change<T>(how: impl FnOnce(&mut Bound) -> T) -> T {
    BOUND.with(|bound| {
        let mut new = bound.get();
        let result = how(&mut new);
        bound.set(new);
        result
    })
}

/// Reads one object; with it the number of entries that were left out.
pub(super) fn bounded<T, E>(read: impl FnOnce() -> Result<T, E>) -> Result<(T, u64), E> {
    change(|bound| *bound = NEW);
    read().map(|object| (object, change(|bound| bound.left_out)))
}

fn take() -> bool {
    change(|bound| {
        let any = bound.left > 0;
        bound.left -= usize::from(any);
        any
    })
}

/// The first `MOST` entries.
pub(super) fn list<'de, D, T, const MOST: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Visit<T, const MOST: usize>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Visit<T, MOST> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<T>, A::Error> {
            let mut kept = Vec::new();
            while kept.len() < MOST && take() {
                match entries.next_element()? {
                    Some(entry) => kept.push(entry),
                    None => return Ok(kept),
                }
            }
            while entries.next_element::<IgnoredAny>()?.is_some() {
                change(|bound| bound.left_out += 1);
            }
            Ok(kept)
        }
    }
    from.deserialize_seq(Visit::<T, MOST>(PhantomData))
}

/// Of a pod.
pub(super) fn containers<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Report>, D::Error> {
    if change(|bound| std::mem::replace(&mut bound.is_container, true)) {
        return list::<D, Report, 0>(from);
    }
    let containers = list::<D, Report, CONTAINERS>(from);
    change(|bound| bound.is_container = false);
    containers
}

/// Numbers by name.
pub(super) fn numbers<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<Text, u64>, D::Error> {
    struct Visit;
    impl<'de> Visitor<'de> for Visit {
        type Value = BTreeMap<Text, u64>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of numbers")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
            let mut kept = BTreeMap::new();
            while take() {
                match entries.next_entry()? {
                    Some((name, number)) => kept.insert(name, number),
                    None => return Ok(kept),
                };
            }
            while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                change(|bound| bound.left_out += 1);
            }
            Ok(kept)
        }
    }
    from.deserialize_map(Visit)
}

//! Maps keyed by the kernel's own ids.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};

pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Slots for which memory is always kept.
const SLOTS: usize = 64;

/// Gives back the memory of a map that was much larger. Cheap enough for each removal: a map shrinks to twice its size, so the next
/// time is far away.
pub(crate) fn slim<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if map.capacity() > SLOTS && map.len() < map.capacity() / 4 {
        map.shrink_to(2 * map.len());
    }
}

/// Bytes of a map with that capacity.
pub(crate) const fn table<K, V>(capacity: usize) -> usize {
    slots(capacity) * slot::<K, V>()
}

/// Bytes that a map takes more when another entry is added: a full one doubles.
pub(crate) fn growth<K, V, S>(map: &HashMap<K, V, S>) -> usize {
    match slots(map.capacity()) {
        _ if map.len() < map.capacity() => 0,
        0 => table::<K, V>(1),
        slots => slots * slot::<K, V>(),
    }
}

/// Slots of a map with that capacity, as the standard library has them: of few slots one stays free, of many an eighth.
///
/// A removed entry of a full map leaves a mark in its slot, and the capacity has one less. So a map that was full counts as a half of what it is
/// when most of its entries are gone, until [`slim`] or the next entries give the marks back.
const fn slots(capacity: usize) -> usize {
    match capacity {
        0 => 0,
        1..4 => 4,
        4..8 => 8,
        _ => (capacity * 8 / 7).next_power_of_two(),
    }
}

/// Bytes of a slot: each has a byte of its own besides.
const fn slot<K, V>() -> usize {
    size_of::<(K, V)>() + 1
}

/// The keys are inode numbers and process ids that the kernel gives out one after the other: one multiplication spreads
/// them, and no process can choose ids that collide.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        let wide = u128::from(self.0 ^ n) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (wide as u64) ^ ((wide >> 64) as u64);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: usize = 17;

    /// By the standard library's own capacities: each is the largest of its number of slots.
    #[test]
    fn a_table_is_counted_once() {
        assert_eq!(table::<u64, u64>(Map::<u64, u64>::default().capacity()), 0);
        for (room, slots) in [
            (3, 4),
            (7, 8),
            (14, 16),
            (28, 32),
            (1_792, 2_048),
            (3_584, 4_096),
            (7_168, 8_192),
        ] {
            let map: Map<u64, u64> = Map::with_capacity_and_hasher(room, BuildHasherDefault::default());
            assert_eq!(map.capacity(), room);
            assert_eq!(table::<u64, u64>(room), slots * SLOT, "{room}");
        }
    }

    #[test]
    fn a_map_grows_as_it_is_said_to() {
        let mut map: Map<u64, u64> = Map::default();
        for key in 0..10_000 {
            let (before, grows) = (map.capacity(), growth(&map));
            map.insert(key, 0);
            assert_eq!(table::<u64, u64>(map.capacity()) - table::<u64, u64>(before), grows, "{key}");
        }
    }

    /// As containers come and go.
    #[test]
    fn marks_of_removed_entries_hide_a_half_at_most() {
        for room in [1_792, 3_584] {
            let mut map: Map<u64, u64> = (0..room).map(|key| (key, 0)).collect();
            let mut full = table::<u64, u64>(map.capacity());
            for key in 0..room {
                map.remove(&key);
                let before = map.capacity();
                slim(&mut map);
                if map.capacity() != before {
                    full = table::<u64, u64>(map.capacity());
                }
                let counted = table::<u64, u64>(map.capacity());
                assert!((full / 2..=full).contains(&counted), "{counted} of {full}: {key} of {room}");
            }
        }
    }
}

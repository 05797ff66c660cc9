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

/// Bytes of a map with that capacity: an eighth of the slots stays free, and each has a byte of its own.
pub(crate) const fn table<K, V>(capacity: usize) -> usize {
    if capacity == 0 {
        return 0;
    }
    let slots = (capacity + capacity / 7 + 1).next_power_of_two();
    slots * (size_of::<(K, V)>() + 1)
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

//! A map that forgets its oldest entry when it is full.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

#[derive(Debug)]
pub(in crate::source) struct Cache<K, V> {
    values: HashMap<K, V>,
    /// Oldest first.
    order: VecDeque<K>,
    room: usize,
}

impl<K: Hash + Eq + Clone, V> Cache<K, V> {
    pub fn new(room: usize) -> Self {
        Cache {
            values: HashMap::new(),
            order: VecDeque::new(),
            room,
        }
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key)
    }

    pub fn insert(&mut self, key: K, value: V) {
        if self.values.insert(key.clone(), value).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > self.room
            && let Some(oldest) = self.order.pop_front()
        {
            self.values.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room() {
        let mut cache = Cache::new(2);
        for key in [1, 2, 1, 3] {
            cache.insert(key, key * 10);
        }
        assert_eq!([1, 2, 3].map(|key| cache.get(&key).copied()), [None, Some(20), Some(30)]);
    }
}

//! A map that drops its oldest entry when it is full.

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    values: HashMap<K, V>,
    /// Oldest first.
    order: VecDeque<K>,
    capacity: usize,
}

impl<K: Hash + Eq + Clone, V> Cache<K, V> {
    pub fn new(capacity: usize) -> Self {
        Cache {
            values: HashMap::new(),
            order: VecDeque::new(),
            capacity,
        }
    }

    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.values.get(key)
    }

    pub fn insert(&mut self, key: K, value: V) {
        if self.values.insert(key.clone(), value).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.values.remove(&oldest);
        }
    }

    pub fn remove(&mut self, key: &K) {
        if self.values.remove(key).is_some() {
            self.order.retain(|known| known != key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_drops_its_oldest_entry() {
        let mut cache = Cache::new(2);
        for key in [1, 2, 1, 3] {
            cache.insert(key, key * 10);
        }
        assert_eq!([1, 2, 3].map(|key| cache.get(&key).copied()), [None, Some(20), Some(30)]);
        cache.remove(&2);
        for key in [4, 5] {
            cache.insert(key, key * 10);
        }
        assert_eq!(
            [2, 3, 4, 5].map(|key| cache.get(&key).copied()),
            [None, None, Some(40), Some(50)]
        );
    }
}

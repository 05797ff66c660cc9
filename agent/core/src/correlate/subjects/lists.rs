//! Lists that are mostly short.

/// Most lists of a termination have one entry, and the standard library makes room for four at the first.
pub(super) fn push_one<T>(list: &mut Vec<T>, one: T) {
    if list.capacity() == 0 {
        list.reserve_exact(1);
    }
    list.push(one);
}

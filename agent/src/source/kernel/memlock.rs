//! Kernels before 5.11 charge maps and programs to `RLIMIT_MEMLOCK`, all those of one user together.

use std::fs;
use std::time::Duration;

use epitaph_ebpf::capacity;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, rlim_t, setrlimit};

/// Time in which such a kernel frees the memory of dropped maps and programs (measured).
pub const SETTLE: Duration = Duration::from_millis(100);

/// Whether the limit can be the reason for refused memory on this kernel.
pub fn limits() -> bool {
    let is_finite = getrlimit(Resource::RLIMIT_MEMLOCK).is_ok_and(|(soft, _)| soft != RLIM_INFINITY);
    is_finite && counts()
}

fn counts() -> bool {
    is_old(&fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default())
}

fn is_old(release: &str) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|part| part.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) < (5, 11))
}

/// The original limit, restored on drop: once the probes are loaded, nothing more is charged.
///
/// During loading the limit is removed if we may remove it. The size of our own maps would not be enough as a limit: the maps
/// of all other programs of the same user (mostly root) count against the same limit.
pub struct Raised(Option<(rlim_t, rlim_t)>);

impl Raised {
    /// Without CAP_SYS_RESOURCE only up to the hard limit; the maps may fit all the same.
    pub fn where_it_counts() -> Raised {
        if !counts() {
            return Raised(None);
        }
        let before = getrlimit(Resource::RLIMIT_MEMLOCK).ok();
        if setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).is_err()
            && let Some((_, hard)) = before
        {
            let _ = setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard);
        }
        Raised(before)
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        if let Some((soft, hard)) = self.0 {
            let _ = setrlimit(Resource::RLIMIT_MEMLOCK, soft, hard);
        }
    }
}

/// How large the maps are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// A power of two of at least one page.
    pub ring_bytes: u32,
    /// Number of bits by which the tables' capacity is shifted right.
    shift: u32,
    /// Bytes of the kernel's page: 4 KiB, and on arm64 also 16 KiB or 64 KiB.
    page: u32,
}

impl Sizes {
    /// Below, the tables are of no use on a node, and the ring buffer is smaller than a burst.
    const MOST_SHIFT: u32 = 4;
    const LEAST_RING: u32 = 64 << 10;

    /// Of at least `least` bytes for the ring buffer. None if no such size fits.
    pub fn all(least: u32, page: u32) -> Option<Sizes> {
        let ring_bytes = least.max(page).checked_next_power_of_two()?;
        Some(Sizes {
            ring_bytes,
            shift: 0,
            page,
        })
    }

    /// Half of every size, and at the smallest tables half of the ring buffer alone. None if the result would be too small.
    pub fn smaller(self) -> Option<Sizes> {
        let ring_bytes = (self.ring_bytes / 2).max(Self::LEAST_RING.min(self.ring_bytes));
        let shift = (self.shift + 1).min(Self::MOST_SHIFT);
        let smaller = Sizes {
            ring_bytes,
            shift,
            ..self
        };
        (smaller != self).then_some(smaller)
    }

    /// Of the ring buffer for rare records: they are an eighth of all on a busy node at most, and a container's budget of them is
    /// that much smaller.
    pub fn rare_bytes(self) -> u32 {
        (self.ring_bytes / 8).max(self.page)
    }

    pub fn all_ring_bytes(self) -> u64 {
        u64::from(self.ring_bytes) + u64::from(self.rare_bytes())
    }

    /// Every table: its map's name and number of entries.
    pub fn tables(self) -> impl Iterator<Item = (&'static str, u32)> {
        capacity::ALL.into_iter().map(move |(name, most)| (name, most >> self.shift))
    }

    /// As text; None at full size.
    pub fn shrunk(self) -> Option<String> {
        (self.shift > 0).then(|| {
            format!(
                "the locked-memory limit (RLIMIT_MEMLOCK) that kernels before 5.11 count does not hold all that the probes can use: \
                 their tables are 1/{} of it, and the ring buffers have {} KiB; what finds no room is counted, and makes verdicts unknown",
                1 << self.shift,
                self.all_ring_bytes() >> 10
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_before_5_11_count() {
        for old in ["5.10.0-28-amd64", "5.4.0", "4.18.0-553.el8"] {
            assert!(is_old(old), "{old}");
        }
        for new in ["5.11.0", "5.15.0-100-generic", "6.1.0", "10.1", "", "odd"] {
            assert!(!is_old(new), "{new}");
        }
    }

    fn all(ring_bytes: u32) -> Sizes {
        Sizes::all(ring_bytes, 4096).unwrap()
    }

    #[test]
    fn sizes_shrink_to_the_smallest_useful_ones() {
        let mut sizes = all(8 << 20);
        let mut rings = vec![sizes.ring_bytes];
        while let Some(smaller) = sizes.smaller() {
            sizes = smaller;
            rings.push(sizes.ring_bytes);
        }
        assert_eq!(rings, [8192, 4096, 2048, 1024, 512, 256, 128, 64].map(|kib| kib << 10));
        let words = sizes.shrunk().unwrap();
        assert!(words.contains(" 1/16 ") && words.contains(" 72 KiB"), "{words}");
        assert_eq!(all(8 << 20).shrunk(), None);
        assert!(sizes.tables().all(|(name, entries)| entries >= 256 && !name.is_empty()));
        assert_eq!(all(4096).smaller().map(|s| s.ring_bytes), Some(4096));
    }

    #[test]
    fn ring_buffers_are_whole_pages_and_powers_of_two() {
        let sizes = |least, page| Sizes::all(least, page).map(|sizes| (sizes.ring_bytes, sizes.rare_bytes()));
        assert_eq!(sizes(1, 4096), Some((4096, 4096)));
        assert_eq!(sizes(100_000, 4096), Some((128 << 10, 16 << 10)));
        // The kernel refuses a ring buffer of a part of a page.
        assert_eq!(sizes(64 << 10, 64 << 10), Some((64 << 10, 64 << 10)));
        assert_eq!(sizes(u32::MAX, 4096), None);
    }
}

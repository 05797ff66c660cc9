//! What the probes could not record: of whom, and how much. And the budgets, whose entries are given back here.

use std::collections::HashMap as Map;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData, PerCpuArray};
use aya::programs::ProgramFd;
use epitaph_core::input::LossScope;
use epitaph_core::time::Boot;
use epitaph_ebpf::{Account, Class, Kind, SHARED, armed_count, limits, nested};

use super::error::{LoadError, MapError};
use super::{Hierarchies, held, take};

/// An account that nothing has used for so many windows is removed; its owner gets a new one when it needs one.
const IDLE_WINDOWS: u64 = 60;
/// More than the kernel writes of a program: a dozen short lines.
const FDINFO_LEN: usize = 1024;

/// Lost records since the last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    pub kind: Kind,
    pub scope: LossScope,
    pub count: u64,
}

/// See the module.
pub struct Losses {
    /// By class, of no known owner; see [`Class::BY_OWNER`].
    unowned: PerCpuArray<MapData, u64>,
    recovered: PerCpuArray<MapData, u64>,
    accounts: HashMap<MapData, u64, Entry>,
    connects: HashMap<MapData, u32, u64>,
    attached: Vec<Attached>,
    reported_unowned: [u64; Class::SLOTS],
    reported: Map<u64, [u64; Class::SLOTS]>,
}

/// An attached program, to count the runs that the kernel skipped.
struct Attached {
    kind: Kind,
    /// The descriptor's text in /proc, open: reading it takes a few microseconds. None if it cannot be opened.
    text: Option<File>,
    /// The tracepoint's place in [`nested::TRACEPOINTS`].
    nested: Option<u32>,
    /// Events that the second program reported although this one was not skipped: such an event makes up for no other.
    excess: u64,
    /// The skipped runs that no second program had made up for at the last two calls.
    before: [u64; 2],
    _program: ProgramFd,
}

/// Whether cgroups were armed.
#[derive(Default)]
pub struct WasArmed {
    before: bool,
    by_kernel: u64,
    /// User space armed one since the last look.
    pub by_user: bool,
}

impl WasArmed {
    /// Since the last call. `counts`: the map with the [`armed_count`]s; true if it cannot be read.
    pub fn since_last(&mut self, counts: &Array<MapData, u64>) -> bool {
        let of = |place| counts.get(&place, 0);
        let (Ok(by_kernel), Ok(by_user)) = (of(armed_count::KERNEL), of(armed_count::USER)) else {
            return true;
        };
        let is_armed = by_kernel.wrapping_add(by_user) != 0;
        let was_armed = std::mem::replace(&mut self.before, is_armed);
        // The probes only add.
        let more = std::mem::replace(&mut self.by_kernel, by_kernel) != by_kernel;
        std::mem::take(&mut self.by_user) || more || was_armed || is_armed
    }
}

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Entry(Account);

#[expect(unsafe_code, reason = "aya reads map values as plain bytes")]
// SAFETY: integers only, without padding.
unsafe impl aya::Pod for Entry {}

impl Losses {
    pub fn take(ebpf: &mut Ebpf) -> Result<Losses, LoadError> {
        let mut accounts: HashMap<MapData, u64, Entry> = HashMap::try_from(take(ebpf, "ACCOUNTS")?).map_err(LoadError::Map)?;
        let empty = Entry(Account {
            since_ns: 0,
            used: [0; Class::SLOTS],
            lost: [0; Class::SLOTS],
        });
        let made = accounts.insert(SHARED, empty, 0);
        made.map_err(|source| LoadError::Watch(MapError::Write { map: "ACCOUNTS", source }))?;
        Ok(Losses {
            unowned: PerCpuArray::try_from(take(ebpf, "LOST")?).map_err(LoadError::Map)?,
            recovered: PerCpuArray::try_from(take(ebpf, "RECOVERED")?).map_err(LoadError::Map)?,
            accounts,
            connects: HashMap::try_from(take(ebpf, "LOST_CONNECTS")?).map_err(LoadError::Map)?,
            attached: Vec::new(),
            reported_unowned: [0; Class::SLOTS],
            reported: Map::new(),
        })
    }

    /// `at`: the tracepoint or the function.
    pub fn attached(&mut self, kind: Kind, at: &str, program: ProgramFd) {
        let text = File::open(format!("/proc/self/fdinfo/{}", program.as_fd().as_raw_fd()));
        let text = text.inspect_err(|error| {
            tracing::warn!("how many events the kernel skips at {at} cannot be read, and counts as lost: {error}");
        });
        self.attached.push(Attached {
            kind,
            text: text.ok(),
            nested: (0..)
                .zip(nested::TRACEPOINTS)
                .find_map(|(place, tracepoint)| (tracepoint == at).then_some(place)),
            excess: 0,
            before: [0; 2],
            _program: program,
        });
    }

    pub fn has_attached(&self) -> bool {
        !self.attached.is_empty()
    }

    /// Records lost since the last call: over a budget, no room in a ring buffer or in a map, or the probe's own program was
    /// already running on that CPU (an interrupt; before 6.1 the kernel runs the program once more, and nothing is lost).
    ///
    /// `was_armed`: whether any cgroup was armed since the last call. Without one, no event of a socket was to be recorded.
    pub fn read(&mut self, hierarchies: Hierarchies, was_armed: impl FnOnce() -> bool) -> Vec<Loss> {
        let mut losses = Vec::new();
        let skipped = Kind::ALL.map(|kind| (kind, self.skipped(kind)));
        // After the skipped runs: whatever was armed at one of these is seen.
        let armed = was_armed();
        // Before the accounts: what is counted in between is read now, and once more for nothing.
        if self.grown(Class::BY_OWNER) > 0 {
            self.by_owner(hierarchies, &mut losses);
        }
        if self.grown(Class::BY_SERVER) > 0 {
            self.by_server(&mut losses);
        }
        let mut unowned: Map<Kind, u64> = Map::new();
        for class in Class::ALL {
            *unowned.entry(class.kind()).or_default() += self.grown(class as u32);
        }
        for (kind, skipped) in skipped {
            let skipped = if armed || kind != Kind::Tcp { skipped } else { 0 };
            let count = unowned.get(&kind).copied().unwrap_or(0) + skipped;
            if count > 0 {
                let scope = LossScope::Machine;
                losses.push(Loss { kind, scope, count });
            }
        }
        losses
    }

    /// Removes the accounts that nothing uses. Call after [`Losses::read`]: the removed ones have nothing left to report.
    pub fn forget_idle(&mut self, now: Boot) {
        let oldest = now.0.saturating_sub(IDLE_WINDOWS * limits::WINDOW_NS);
        let entries = self.accounts.iter().flatten();
        let idle = entries.filter(|(owner, entry)| {
            let lost = entry.0.lost;
            let reported = self.reported.get(owner).copied().unwrap_or_default();
            *owner != SHARED && entry.0.since_ns < oldest && lost == reported
        });
        for owner in idle.map(|(owner, _)| owner).collect::<Vec<_>>() {
            if self.accounts.remove(&owner).is_ok() {
                self.reported.remove(&owner);
            }
        }
    }

    fn by_owner(&mut self, hierarchies: Hierarchies, losses: &mut Vec<Loss>) {
        for (owner, entry) in self.accounts.iter().flatten() {
            let lost = entry.0.lost;
            if lost == [0; Class::SLOTS] {
                continue;
            }
            let reported = self.reported.entry(owner).or_default();
            for class in Class::ALL {
                let place = class as usize;
                let count = lost[place].saturating_sub(reported[place]);
                if count > 0 && class != Class::Client {
                    let (kind, scope) = (class.kind(), scope(hierarchies, owner, class));
                    losses.push(Loss { kind, scope, count });
                }
            }
            *reported = lost;
        }
    }

    /// What a client's connects show is about the server. An entry is given back once it is reported: what is counted in between
    /// happens before the time of the report.
    fn by_server(&mut self, losses: &mut Vec<Loss>) {
        for (hash, count) in self.connects.iter().flatten().collect::<Vec<_>>() {
            let (kind, scope) = (Kind::Tcp, LossScope::ConnectsTo(hash));
            losses.push(Loss { kind, scope, count });
            let _ = self.connects.remove(&hash);
        }
    }

    /// By how much the counter at `place` has grown.
    fn grown(&mut self, place: u32) -> u64 {
        let per_cpu = self.unowned.get(&place, 0);
        let total: u64 = per_cpu.map_or(0, |counts| counts.iter().sum());
        let reported = std::mem::replace(&mut self.reported_unowned[place as usize], total);
        total.saturating_sub(reported)
    }

    /// Skipped runs since the last call that no other program made up for.
    fn skipped(&mut self, kind: Kind) -> u64 {
        let programs = self.attached.iter_mut().filter(|program| program.kind == kind);
        programs.map(|program| program.lost(&self.recovered)).sum()
    }
}

impl Attached {
    /// Skipped runs since the last call that the second program did not make up for; 1 if that cannot be read.
    fn lost(&mut self, recovered: &PerCpuArray<MapData, u64>) -> u64 {
        /// Of two reads with events in between; each takes some microseconds.
        const ATTEMPTS: usize = 16;
        // Events that were on their way to the second program at the last call have arrived by now, and would hide as many lost ones.
        let [earlier, last] = self.before;
        let before = if self.nested.is_some() { earlier.min(last) } else { last };
        let mut least = u64::MAX;
        for _ in 0..ATTEMPTS {
            // Read before the skipped runs: an event that was reported counts as skipped by then, and what happens in between counts as
            // lost, never the other way round. The least difference is nearest to what was lost by the first read.
            let Some(recovered) = self.recovered(recovered) else {
                return 1;
            };
            let Some(skipped) = self.recursion_misses() else { return 1 };
            self.excess = self.excess.max(recovered.saturating_sub(skipped));
            least = least.min(skipped.saturating_sub(recovered.saturating_sub(self.excess)));
            if least <= before {
                break;
            }
        }
        self.before = [last, least];
        least.saturating_sub(before)
    }

    /// Events of skipped runs that the second program reported all the same.
    fn recovered(&self, recovered: &PerCpuArray<MapData, u64>) -> Option<u64> {
        let Some(place) = self.nested else { return Some(0) };
        Some(recovered.get(&place, 0).ok()?.iter().sum())
    }

    /// Kernels skip and count runs of a program at a tracepoint since 6.1, or with its backport (6.0.10); of one at a function since 5.12.
    fn recursion_misses(&self) -> Option<u64> {
        let mut text = [0; FDINFO_LEN];
        let length = self.text.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = String::from_utf8_lossy(&text[..length]);
        Some(held::number(&text, "recursion_misses").unwrap_or(0))
    }
}

fn scope(hierarchies: Hierarchies, owner: u64, class: Class) -> LossScope {
    match class {
        _ if owner == SHARED => LossScope::Machine,
        Class::SignalToOther | Class::ExitOfOther => LossScope::Others(hierarchies.cgroup(owner)),
        _ => LossScope::Within(hierarchies.cgroup(owner)),
    }
}

//! The maps: what the probes keep and share with user space.

use core::arch::asm;

use aya_ebpf::bindings::{BPF_F_NO_PREALLOC, BPF_NOEXIST};
use aya_ebpf::helpers::{bpf_get_smp_processor_id, bpf_ktime_get_boot_ns};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf, ring_buf::RingBufEntry};
use epitaph_ebpf::{Header, Kind, VERSION, Watched, armed_count, capacity, nested, watch};

use super::kernel::{Cgroups, hierarchy, v1_hierarchy};

/// Records; user space sets the size.
#[map]
static EVENTS: RingBuf = RingBuf::with_byte_size(8 << 20, 0);

/// Records that found no room in the ring buffer, by [`Kind`].
#[map]
static LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(Kind::SLOTS, 0);

/// See [`Watched`]. Not preallocated: a node has some hundreds of cgroups, and both writers (cgroup_mkdir,
/// user space) may allocate.
#[map]
static WATCHED: HashMap<u64, Watched> = HashMap::with_max_entries(capacity::WATCHED, BPF_F_NO_PREALLOC);

/// Signalled processes whose exit would not be recorded otherwise. Bounded: on a host with more than that many
/// signalled processes, alive and in no watched cgroup, the least recently used are forgotten.
#[map]
static SIGNALLED: LruHashMap<u32, u64> = LruHashMap::with_max_entries(capacity::SIGNALLED, 0);

/// Exits already seen (process id to start time), for kernels that do not report which thread is the last.
#[map]
static ENDED: LruHashMap<u32, u64> = LruHashMap::with_max_entries(capacity::ENDED, 0);

/// cgroup v2 ids whose sockets are recorded.
#[map]
static ARMED: HashMap<u64, u32> = HashMap::with_max_entries(capacity::ARMED, 0);

/// See [`armed_count`].
#[map]
static ARMED_COUNT: Array<u64> = Array::with_max_entries(armed_count::SLOTS, 0);

/// See [`nested`].
#[map]
static NESTED: PerCpuArray<u64> = PerCpuArray::with_max_entries(nested::SLOTS, 0);

/// [`epitaph_ebpf::closed_port`] to cgroup v2 id.
#[map]
static CLOSED_PORTS: HashMap<u64, u64> = HashMap::with_max_entries(capacity::CLOSED_PORTS, 0);

/// cgroup v2 ids of the kubelet.
#[map]
static KUBELETS: HashMap<u64, u32> = HashMap::with_max_entries(64, 0);

/// Reserves a record of `kind` and writes its header; None (and counted) if there is no room.
#[inline(always)]
pub fn reserve<T: 'static>(kind: Kind) -> Option<RingBufEntry<T>> {
    let Some(mut entry) = EVENTS.reserve::<T>(0) else {
        lost(kind);
        return None;
    };
    let header = entry.as_mut_ptr().cast::<Header>();
    // SAFETY: every record starts with a header.
    unsafe {
        (*header).kind = kind as u16;
        (*header).version = VERSION;
        (*header).cpu = bpf_get_smp_processor_id() as u16;
        (*header).hierarchy = hierarchy();
        (*header).boot_ns = bpf_ktime_get_boot_ns();
    }
    Some(entry)
}

#[inline(always)]
pub fn lost(kind: Kind) {
    if let Some(count) = LOST.get_ptr_mut(kind as u32) {
        // SAFETY: this CPU's own slot; atomic, because a probe in an interrupt can run in between.
        unsafe { add_one(count) };
    }
}

#[inline(always)]
pub fn watched(cgroup: u64) -> Watched {
    WATCHED.get_ptr(cgroup).map_or([0; 2], |entry| unsafe { *entry })
}

/// What is known of the cgroups that a task is in.
#[derive(Clone, Copy)]
pub struct Known {
    pub is_watched: bool,
    /// Watched, and in the hierarchy of tasks. The sockets of a cgroup of v1 alone cannot be distinguished from others.
    pub has_sockets: bool,
    /// [`epitaph_ebpf::Task::container`].
    pub container: u64,
}

#[inline(always)]
pub fn known(cgroups: Cgroups) -> Known {
    let entry = watched(cgroups.id);
    let has_sockets = entry[watch::BITS] & watch::SELF != 0;
    let mut known = Known {
        is_watched: has_sockets,
        has_sockets,
        container: entry[watch::CONTAINER],
    };
    if v1_hierarchy() != 0 {
        let entry = watched(cgroups.v1_cgroup);
        known.is_watched |= entry[watch::BITS] & watch::SELF != 0;
        if known.container == 0 {
            known.container = entry[watch::CONTAINER];
        }
    }
    known
}

/// False if the map is full.
#[inline(always)]
pub fn watch_child(cgroup: u64, container: u64) -> bool {
    WATCHED.insert(cgroup, [watch::SELF | watch::CHILDREN, container], 0).is_ok()
}

#[inline(always)]
pub fn unwatch(cgroup: u64) {
    let _ = WATCHED.remove(cgroup);
}

#[inline(always)]
pub fn remember_signalled(tgid: u32, start_ns: u64) {
    if SIGNALLED.get_ptr(tgid).is_none() {
        let _ = SIGNALLED.insert(tgid, start_ns, 0);
    }
}

/// Whether the process was signalled; removes the entry.
#[inline(always)]
pub fn take_signalled(tgid: u32) -> bool {
    SIGNALLED.remove(tgid).is_ok()
}

/// False if this process's exit was seen before: two threads that exit at once can both look like the last.
#[inline(always)]
pub fn first_end(tgid: u32, start_ns: u64) -> bool {
    if ENDED.insert(tgid, start_ns, BPF_NOEXIST as u64).is_ok() {
        return true;
    }
    if ENDED.get_ptr(tgid).is_some_and(|start| unsafe { *start } == start_ns) {
        return false;
    }
    let _ = ENDED.insert(tgid, start_ns, 0);
    true
}

/// Whether any cgroup is armed: two loads and a comparison.
#[inline(always)]
pub fn any_armed() -> bool {
    let by_kernel = ARMED_COUNT.get(armed_count::KERNEL).copied().unwrap_or(0);
    let by_user = ARMED_COUNT.get(armed_count::USER).copied().unwrap_or(0);
    by_kernel.wrapping_add(by_user) != 0
}

#[inline(always)]
pub fn is_armed(cgroup: u64) -> bool {
    ARMED.get_ptr(cgroup).is_some()
}

/// Arms the cgroup of a task if there is a reason to. As flags: `armed` if the cgroup is armed now, and `arms` for the reason.
#[inline(always)]
pub fn arm_where(reason: bool, cgroup: u64, armed: u32, arms: u32) -> u32 {
    // A socket's cgroup is always of v2; a task's may be of v1.
    if hierarchy() != 0 {
        0
    } else if reason {
        arms | if arm(cgroup) { armed } else { 0 }
    } else if any_armed() && is_armed(cgroup) {
        armed
    } else {
        0
    }
}

/// Whether the cgroup is armed now.
#[inline(always)]
fn arm(cgroup: u64) -> bool {
    if is_armed(cgroup) {
        return true;
    }
    match ARMED.insert(cgroup, 1, BPF_NOEXIST as u64) {
        Ok(()) => {
            if let Some(count) = ARMED_COUNT.get_ptr_mut(armed_count::KERNEL) {
                // SAFETY: the probes' own slot; other CPUs add to it too.
                unsafe { add_one(count) };
            }
            true
        }
        // Another CPU was first.
        Err(-17) => true,
        Err(_) => {
            lost(Kind::Tcp);
            false
        }
    }
}

/// Runs `program`; meanwhile [`is_nested`] returns true on this CPU.
#[inline(always)]
pub fn while_running(program: impl FnOnce()) {
    set_running(1);
    program();
    set_running(0);
}

#[inline(always)]
fn set_running(to: u64) {
    if let Some(running) = NESTED.get_ptr_mut(nested::RUNNING) {
        // SAFETY: this CPU's own slot. Volatile: an interrupting program reads it.
        unsafe { running.write_volatile(to) };
    }
}

/// Whether this program interrupts [`while_running`] on this CPU; counts the event.
#[inline(always)]
pub fn is_nested() -> bool {
    let is_running = |running: *mut u64| unsafe { running.read_volatile() } != 0;
    if !NESTED.get_ptr_mut(nested::RUNNING).is_some_and(is_running) {
        return false;
    }
    if let Some(count) = NESTED.get_ptr_mut(nested::REPORTED) {
        // SAFETY: as in `lost`.
        unsafe { add_one(count) };
    }
    true
}

#[inline(always)]
pub fn is_kubelet(cgroup: u64) -> bool {
    KUBELETS.get_ptr(cgroup).is_some()
}

#[inline(always)]
pub fn close_port(key: u64, cgroup: u64) {
    if CLOSED_PORTS.insert(key, cgroup, 0).is_err() {
        lost(Kind::Tcp);
    }
}

#[inline(always)]
pub fn reopen_port(key: u64) {
    let _ = CLOSED_PORTS.remove(key);
}

/// cgroup of the listener that was closed on this port.
#[inline(always)]
pub fn closed_by(key: u64) -> Option<u64> {
    CLOSED_PORTS.get_ptr(key).map(|cgroup| unsafe { *cgroup })
}

/// The BPF target has no `fetch_add`, and the form that returns the old value needs 5.12: this form is as old as maps.
#[inline(always)]
unsafe fn add_one(to: *mut u64) {
    unsafe { asm!("lock *(u64 *)({0} + 0) += {1}", in(reg) to, in(reg) 1u64, options(nostack)) };
}

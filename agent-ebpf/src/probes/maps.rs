//! The maps: what the probes keep and share with user space.

use core::arch::asm;
use core::ptr::addr_of_mut;

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::{BPF_F_NO_PREALLOC, BPF_NOEXIST};
use aya_ebpf::helpers::{bpf_get_smp_processor_id, bpf_ktime_get_boot_ns};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf, ring_buf::RingBufEntry};
use aya_ebpf::programs::BtfTracePointContext;
use epitaph_ebpf::{
    Account, Class, ClosedPort, Header, Kind, ListenerKey, Netns, Part, SHARED, VERSION, Watched, address, armed_by,
    armed_count, armed_flags, at_functions, capacity, closed_by, closed_port, limits, nested, watch,
};

use super::kernel::{Cgroups, distance, hierarchy, stops_after, v1_hierarchy};

/// Records that no container makes many of: what a first process got from outside, its exit, OOM victims, cgroups. User space
/// sets the sizes of both.
#[map]
static RARE: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

/// All other records.
#[map]
static EVENTS: RingBuf = RingBuf::with_byte_size(8 << 20, 0);

/// Losses of no known owner, by [`Class`]; at [`Class::BY_OWNER`] the number of those in `ACCOUNTS`.
#[map]
static LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(Class::SLOTS as u32, 0);

/// By owner: see [`Account`].
#[map]
static ACCOUNTS: HashMap<u64, Account> = HashMap::with_max_entries(capacity::ACCOUNTS, 0);

/// A new entry of `ACCOUNTS`: too large to be built on the stack of every program.
#[map]
static EMPTY: Array<Account> = Array::with_max_entries(1, 0);

/// See [`epitaph_ebpf::connects`].
#[map]
static LOST_CONNECTS: HashMap<u32, u64> = HashMap::with_max_entries(capacity::LOST_CONNECTS, 0);

/// Entries of `CLOSED_PORTS` by owner, no more than [`limits::PORTS`] each.
#[map]
static PORTS_HELD: HashMap<u64, u64> = HashMap::with_max_entries(capacity::PORTS_HELD, 0);

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

/// cgroup v2 ids whose sockets are recorded, with an [`armed_by`].
#[map]
static ARMED: HashMap<u64, u32> = HashMap::with_max_entries(capacity::ARMED, 0);

/// See [`armed_count`].
#[map]
static ARMED_COUNT: Array<u64> = Array::with_max_entries(armed_count::SLOTS, 0);

/// See [`nested::PLACES`].
#[map]
static TAKEN: Array<[u64; nested::PLACES]> = Array::with_max_entries(1, 0);

/// See [`nested`].
#[map]
static RECOVERED: PerCpuArray<u64> = PerCpuArray::with_max_entries(nested::TRACEPOINTS.len() as u32, 0);

/// By [`epitaph_ebpf::closed_port`].
#[map]
static CLOSED_PORTS: HashMap<ListenerKey, ClosedPort> = HashMap::with_max_entries(capacity::CLOSED_PORTS, 0);

/// 1 where no probe shows a SYN to a closed port: the client's error is used instead. User space writes it when it knows which programs
/// the kernel accepts.
#[map]
static REFUSED_BY_CLIENT: Array<u32> = Array::with_max_entries(1, 0);

/// Resets without a socket that passed each program at a function, while any cgroup was armed. User space sends itself one of each when it
/// has attached them, and again and again: a compiler may have inlined the function at the place that calls it, and a setting can stop them.
#[map]
static AT_FUNCTIONS: Array<u64> = Array::with_max_entries(at_functions::SLOTS, 0);

/// cgroup v2 ids of the kubelet.
#[map]
static KUBELETS: HashMap<u64, u32> = HashMap::with_max_entries(64, 0);

/// What a record is budgeted as.
#[derive(Clone, Copy)]
pub struct Charge {
    pub class: Class,
    pub owner: Owner,
    /// Written to the ring of rare records.
    pub is_rare: bool,
}

/// The owner of the processes that make a record.
#[derive(Clone, Copy)]
pub struct Owner {
    /// See [`Watched`]; a cgroup's own id while user space has not named its owner.
    pub id: u64,
    /// User space has named it: a container or a unit.
    pub is_named: bool,
    /// Not even one that user space may name yet: its exits are not watched.
    pub is_machine: bool,
}

impl Owner {
    pub const MACHINE: Owner = Owner {
        id: SHARED,
        is_named: false,
        is_machine: true,
    };
}

/// Reserves a record of `kind` and writes its header; None (and counted) if there is no room, or over the owner's budget.
///
/// Neither ring has flags for its wake-ups: the kernel wakes the reader only for a record that it has caught up with, and the
/// reader itself does not look at `EVENTS` for some time after it has emptied it.
#[inline(always)]
pub fn reserve<T: 'static>(kind: Kind, charge: Charge) -> Option<RingBufEntry<T>> {
    let now = unsafe { bpf_ktime_get_boot_ns() };
    if stops_after(Part::Clock) {
        return None;
    }
    let account = account(charge.owner.id);
    if !spend(account, charge, now) {
        lost_by(account, charge.class);
        return None;
    }
    if stops_after(Part::Account) {
        return None;
    }
    let reserved = if charge.is_rare {
        RARE.reserve::<T>(0)
    } else {
        EVENTS.reserve::<T>(0)
    };
    let Some(mut entry) = reserved else {
        lost_by(account, charge.class);
        return None;
    };
    let header = entry.as_mut_ptr().cast::<Header>();
    // SAFETY: every record starts with a header.
    unsafe {
        (*header).kind = kind as u16;
        (*header).version = VERSION;
        (*header).cpu = bpf_get_smp_processor_id() as u16;
        (*header).hierarchy = hierarchy();
        (*header).boot_ns = now;
    }
    Some(entry)
}

/// NULL if there is no account at all: user space makes the shared one before it attaches the programs.
#[inline(always)]
fn account(owner: u64) -> *mut Account {
    if let Some(known) = ACCOUNTS.get_ptr_mut(owner) {
        return known;
    }
    if let Some(empty) = EMPTY.get(0) {
        let _ = ACCOUNTS.insert(owner, empty, BPF_NOEXIST as u64);
    }
    if let Some(made) = ACCOUNTS.get_ptr_mut(owner) {
        return made;
    }
    ACCOUNTS.get_ptr_mut(SHARED).unwrap_or_default()
}

/// False if the owner's budget is used up.
#[inline(always)]
fn spend(account: *mut Account, charge: Charge, now: u64) -> bool {
    if account.is_null() {
        return true;
    }
    // SAFETY: an entry of the map. Volatile: other CPUs write it, too.
    unsafe {
        let since = addr_of_mut!((*account).since_ns);
        if now.wrapping_sub(since.read_volatile()) >= limits::WINDOW_NS {
            since.write_volatile(now);
            let used = addr_of_mut!((*account).used).cast::<u64>();
            (0..Class::SLOTS / 2).for_each(|i| used.add(i).write_volatile(0));
        }
        let used = addr_of_mut!((*account).used[charge.class as usize]);
        let more = if charge.owner.is_machine { limits::OF_MACHINE } else { 0 };
        if used.read_volatile() >= charge.class.budget() << more {
            return false;
        }
        asm!("lock *(u32 *)({0} + 0) += {1}", in(reg) used, in(reg) 1u64, options(nostack));
    }
    true
}

/// Counts a lost record by its owner.
#[inline(always)]
pub fn lost_of(owner: Owner, class: Class) {
    lost_by(account(owner.id), class);
}

#[inline(always)]
fn lost_by(account: *mut Account, class: Class) {
    if account.is_null() {
        lost(class);
        return;
    }
    // SAFETY: an entry of the map; atomic, because other CPUs add to it.
    unsafe { add(addr_of_mut!((*account).lost[class as usize]), 1) };
    count_lost(Class::BY_OWNER);
}

/// Counts a lost record of [`Class::Client`], by its server's address.
#[inline(always)]
pub fn lost_connect(bucket: u32) {
    let _ = LOST_CONNECTS.insert(bucket, 0, BPF_NOEXIST as u64);
    let Some(count) = LOST_CONNECTS.get_ptr_mut(bucket) else {
        return lost(Class::Client);
    };
    // SAFETY: an entry of the map; atomic, because other CPUs add to it.
    unsafe { add(count, 1) };
    count_lost(Class::BY_SERVER);
}

/// Counts a lost record of no known owner.
#[inline(always)]
pub fn lost(class: Class) {
    count_lost(class as u32);
}

#[inline(always)]
fn count_lost(place: u32) {
    if let Some(count) = LOST.get_ptr_mut(place) {
        // SAFETY: this CPU's own slot; atomic, because a probe in an interrupt can run in between.
        unsafe { add(count, 1) };
    }
}

#[inline(always)]
pub fn watched(cgroup: u64) -> Watched {
    WATCHED.get_ptr(cgroup).map_or([0; 3], |entry| unsafe { *entry })
}

/// What is known of the cgroups that a task is in.
#[derive(Clone, Copy)]
pub struct Known {
    pub is_watched: bool,
    /// Watched, and in the hierarchy of tasks. The sockets of a cgroup of v1 alone cannot be distinguished from others.
    pub has_sockets: bool,
    /// [`epitaph_ebpf::Task::container`].
    pub container: u64,
    pub owner: Owner,
}

#[inline(always)]
pub fn known(cgroups: Cgroups) -> Known {
    let entry = watched(cgroups.id);
    let has_sockets = entry[watch::BITS] & watch::SELF != 0;
    let (mut owned, mut named_by) = (cgroups.id, entry);
    let mut is_watched = has_sockets;
    let mut container = entry[watch::CONTAINER];
    if v1_hierarchy() != 0 {
        let of_v1 = watched(cgroups.v1_cgroup);
        is_watched |= of_v1[watch::BITS] & watch::SELF != 0;
        if container == 0 {
            container = of_v1[watch::CONTAINER];
            // A new container that only v2 has, and that user space has not named yet, shares its v1 cgroup with its runtime: by
            // that cgroup's owner the runtime's signals would come from within, and arm nothing.
            if container != 0 || !has_sockets && entry[watch::OWNER] == 0 {
                (owned, named_by) = (cgroups.v1_cgroup, of_v1);
            }
        }
    }
    Known {
        is_watched,
        has_sockets,
        container,
        owner: owner(owned, named_by),
    }
}

/// Whether a task of `others` has the owner of a task of `cgroups`.
#[inline(always)]
pub fn is_within(others: Cgroups, cgroups: Cgroups, owner: Owner) -> bool {
    others.are(cgroups) || known(others).owner.id == owner.id
}

/// The owner of a cgroup with that entry.
#[inline(always)]
pub fn owner(cgroup: u64, entry: Watched) -> Owner {
    match entry[watch::OWNER] {
        0 => Owner {
            id: cgroup,
            is_named: false,
            is_machine: entry[watch::BITS] & watch::SELF == 0,
        },
        id => Owner {
            id,
            is_named: true,
            is_machine: false,
        },
    }
}

/// The owner in an entry, or the machine.
#[inline(always)]
pub fn named_owner(entry: Watched) -> Owner {
    match entry[watch::OWNER] {
        0 => Owner::MACHINE,
        id => Owner {
            id,
            is_named: true,
            is_machine: false,
        },
    }
}

/// Inherits the parent's container and owner. False if the map is full.
#[inline(always)]
pub fn watch_child(cgroup: u64, of_parent: Watched) -> bool {
    let entry = [
        watch::SELF | watch::CHILDREN,
        of_parent[watch::CONTAINER],
        of_parent[watch::OWNER],
    ];
    WATCHED.insert(cgroup, entry, 0).is_ok()
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

/// As [`is_armed`], at the price of a comparison while no cgroup is armed.
#[inline(always)]
pub fn is_any_armed(cgroup: u64) -> bool {
    any_armed() && is_armed(cgroup)
}

#[inline(always)]
pub fn is_armed(cgroup: u64) -> bool {
    ARMED.get_ptr(cgroup).is_some()
}

/// Armed, and not for its own doing only.
#[inline(always)]
pub fn is_armed_by_others(cgroup: u64) -> bool {
    ARMED
        .get_ptr(cgroup)
        .is_some_and(|by| unsafe { by.read_volatile() } != armed_by::OWN)
}

/// Arms the cgroup of a task if there is a reason to. As flags: `armed` if the cgroup is armed now, and `arms` for the reason.
///
/// Called after the record is reserved: user space disarms only cgroups that a record shows, and a record over its budget must not take
/// room in the map. The record's time is set again, because the sockets are watched from this moment on.
#[inline(always)]
pub fn arm_where<T>(record: *mut T, reason: bool, cgroup: u64, owner: Owner, armed: u32, arms: u32) -> u32 {
    // A socket's cgroup is always of v2; a task's may be of v1.
    if hierarchy() != 0 {
        0
    } else if reason {
        let flags = arms | if arm(cgroup, owner) { armed } else { 0 };
        // SAFETY: every record starts with a header.
        unsafe { (*record.cast::<Header>()).boot_ns = bpf_ktime_get_boot_ns() };
        flags
    } else if is_any_armed(cgroup) {
        armed
    } else {
        0
    }
}

/// Arms the cgroup of a task or of a socket for its own doing, within the owner's budget. As [`armed_flags`]; called after the record is
/// reserved, as [`arm_where`].
#[inline(always)]
pub fn arm_for_own<T>(record: *mut T, cgroup: u64, owner: Owner) -> u32 {
    let charge = Charge {
        class: Class::Arm,
        owner,
        is_rare: false,
    };
    let now = unsafe { bpf_ktime_get_boot_ns() };
    let is_armed = if is_armed(cgroup) {
        true
    } else if spend(account(owner.id), charge, now) {
        insert_armed(cgroup, owner, armed_by::OWN)
    } else {
        lost_of(owner, Class::Arm);
        false
    };
    if !is_armed {
        return 0;
    }
    // SAFETY: every record starts with a header.
    unsafe { (*record.cast::<Header>()).boot_ns = bpf_ktime_get_boot_ns() };
    armed_flags::ARMED | armed_flags::ARMS | armed_flags::BY_OWN
}

/// Whether the cgroup is armed now.
#[inline(always)]
fn arm(cgroup: u64, owner: Owner) -> bool {
    if let Some(by) = ARMED.get_ptr_mut(cgroup) {
        // SAFETY: an entry of the map; other CPUs write the same.
        unsafe { by.write_volatile(armed_by::OTHERS) };
        return true;
    }
    insert_armed(cgroup, owner, armed_by::OTHERS)
}

#[inline(always)]
fn insert_armed(cgroup: u64, owner: Owner, by: u32) -> bool {
    match ARMED.insert(cgroup, by, BPF_NOEXIST as u64) {
        Ok(()) => {
            if let Some(count) = ARMED_COUNT.get_ptr_mut(armed_count::KERNEL) {
                // SAFETY: the probes' own slot; other CPUs add to it too.
                unsafe { add(count, 1) };
            }
            true
        }
        // Another CPU was first.
        Err(EEXIST) => true,
        Err(_) => {
            lost_of(owner, Class::Tcp);
            false
        }
    }
}

/// The place for the event of the tracepoint's stack frame. Both programs have the frame in common; meanwhile no other event has it. Where
/// the second program was skipped, the next event of the place overwrites the event.
#[inline(always)]
fn taken(ctx: &BtfTracePointContext) -> Option<*mut u64> {
    let places: *mut u64 = TAKEN.get_ptr_mut(0)?.cast();
    let frame = distance(ctx.as_ptr().cast(), places.cast());
    // Fibonacci hashing.
    let place = frame.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - nested::PLACES.ilog2());
    // SAFETY: less than the number of places.
    Some(unsafe { places.add(place as usize) })
}

/// The first program at a tracepoint takes the event.
#[inline(always)]
pub fn take(ctx: &BtfTracePointContext, event: u64) {
    if let Some(taken) = taken(ctx) {
        // SAFETY: a word of the value. Volatile: other programs write it, too.
        unsafe { taken.write_volatile(event) }
    }
}

/// The second program at a tracepoint. If the first program was skipped for the event: counts the event, and calls `report` if any cgroup
/// is armed. Events count also while no cgroup is armed: otherwise skipped runs from before a stop would count as losses of the stop.
#[inline(always)]
pub fn if_skipped(tracepoint: u32, ctx: &BtfTracePointContext, event: u64, report: impl FnOnce()) {
    let Some(taken) = taken(ctx) else { return };
    // SAFETY: as above.
    unsafe {
        if taken.read_volatile() == event {
            return taken.write_volatile(0);
        }
        if let Some(recovered) = RECOVERED.get_ptr_mut(tracepoint) {
            add(recovered, 1);
        }
    }
    if any_armed() {
        report();
    }
}

#[inline(always)]
pub fn refused_by_client() -> bool {
    REFUSED_BY_CLIENT.get(0).is_some_and(|&is| is != 0)
}

#[inline(always)]
pub fn passed_function(slot: u32) {
    if let Some(count) = AT_FUNCTIONS.get_ptr_mut(slot) {
        // SAFETY: a place of the map.
        unsafe { add(count, 1) }
    }
}

#[inline(always)]
pub fn is_kubelet(cgroup: u64) -> bool {
    KUBELETS.get_ptr(cgroup).is_some()
}

/// Keeps the port of a closed listener. A port that found no room is a loss: its refusals are not seen.
///
/// `by_own`: the cgroup is observed for its own doing only, which any container can make happen. It does not get the port of another.
#[inline(always)]
pub fn close_port(key: ListenerKey, cgroup: u64, owner: Owner, by_own: bool) {
    if by_own && listener(&key).is_some_and(|port| unsafe { (*port)[closed_by::OWNER] } != owner.id) {
        return lost_of(owner, Class::Tcp);
    }
    // The entry of an earlier listener would keep the earlier owner. From now on the refusals of its clients count for this owner.
    if let Some(earlier) = forget_port(&key)
        && earlier != owner.id
    {
        lost_by(account(earlier), Class::Tcp);
    }
    let Some(held) = ports_held(owner.id) else {
        return lost_of(owner, Class::Tcp);
    };
    // SAFETY: an entry of the map; other CPUs write it, too.
    if unsafe { held.read_volatile() } >= limits::PORTS {
        return lost_of(owner, Class::Tcp);
    }
    match CLOSED_PORTS.insert(key, [cgroup, owner.id], BPF_NOEXIST as u64) {
        // SAFETY: as above.
        Ok(()) => unsafe { add(held, 1) },
        // Another CPU was first: its listener is as closed as this one.
        Err(EEXIST) => {}
        Err(_) => lost_of(owner, Class::Tcp),
    }
}

#[inline(always)]
fn ports_held(owner: u64) -> Option<*mut u64> {
    if let Some(held) = PORTS_HELD.get_ptr_mut(owner) {
        return Some(held);
    }
    let _ = PORTS_HELD.insert(owner, 0, BPF_NOEXIST as u64);
    PORTS_HELD.get_ptr_mut(owner)
}

/// The owner of the port until now.
#[inline(always)]
fn forget_port(key: &ListenerKey) -> Option<u64> {
    let owner = CLOSED_PORTS.get_ptr(key).map(|port| unsafe { (*port)[closed_by::OWNER] })?;
    if CLOSED_PORTS.remove(key).is_ok()
        && let Some(held) = PORTS_HELD.get_ptr_mut(owner)
    {
        // SAFETY: as in `close_port`. Less one.
        unsafe { add(held, u64::MAX) };
    }
    Some(owner)
}

/// The listener that would have accepted a connection to this address. A later listener there does not count: a connection that is
/// refused was refused by none, and any process of the network namespace could listen for a moment.
#[inline(always)]
pub fn closed_by(netns: Netns, port: u16, address: [u64; 2]) -> Option<u64> {
    let mut key = closed_port(netns, port, address);
    let mut found = listener(&key);
    if found.is_none() && address::is_v4(address) {
        set_address(&mut key, address::ANY_V4);
        found = listener(&key);
    }
    if found.is_none() {
        set_address(&mut key, address::ANY_V6);
        found = listener(&key);
    }
    found.map(|port| unsafe { (*port)[closed_by::CGROUP] })
}

#[inline(always)]
fn listener(key: &ListenerKey) -> Option<*const ClosedPort> {
    CLOSED_PORTS.get_ptr(key)
}

/// Volatile, because the compiler would have a memset write an address of zeroes, and a program must call no function.
#[inline(always)]
fn set_address(key: &mut ListenerKey, address: [u64; 2]) {
    let words = key.as_mut_ptr();
    // SAFETY: two of three words.
    unsafe { (0..2).for_each(|i| words.add(1 + i).write_volatile(address[i])) };
}

const EEXIST: i32 = -17;

/// The BPF target has no `fetch_add`, and the form that returns the old value needs 5.12: this form is as old as maps.
#[inline(always)]
unsafe fn add(to: *mut u64, number: u64) {
    unsafe { asm!("lock *(u64 *)({0} + 0) += {1}", in(reg) to, in(reg) number, options(nostack)) };
}

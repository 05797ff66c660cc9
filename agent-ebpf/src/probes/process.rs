//! sched_process_exit, sched_process_exec, mark_victim.

use core::ptr::addr_of_mut;

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use epitaph_ebpf::{Class, Field, Kind, OomVictim, ProcessExec, ProcessExit, armed_flags, watch};

use super::files::{self, Look};
use super::kernel::{Direct, Ptr, Read, copy_comm, fill_task, hierarchy, is_ns_init, ns_level, place, task_cgroups};
use super::maps::{self, Charge, Owner};

/// For kernels that report which thread is the last one (6.16 and later).
#[btf_tracepoint(function = "sched_process_exit")]
pub fn process_exit_group_dead(ctx: BtfTracePointContext) -> i32 {
    if ctx.arg::<u8>(1) != 0 {
        unsafe { process_exit(ctx.arg(0)) }
    }
    0
}

/// For earlier kernels: two threads that exit at once can both see no thread alive, so an exit is kept once per process.
#[btf_tracepoint(function = "sched_process_exit")]
pub fn process_exit_live(ctx: BtfTracePointContext) -> i32 {
    let task: Ptr = ctx.arg(0);
    unsafe {
        let signal: Ptr = Direct::get(task, Field::TaskSignal);
        if Direct::get::<i32>(signal, Field::SignalLive) != 0 {
            return 0;
        }
        let leader: Ptr = Direct::get(task, Field::TaskGroupLeader);
        let start = Direct::get(leader, Field::TaskStartBoottime);
        if maps::first_end(Direct::get(task, Field::TaskTgid), start) {
            process_exit(task);
        }
    }
    0
}

/// What only a server has, wherever its parent is: a process that came in from outside is a probe, or a client.
const OF_SERVER: u32 = armed_flags::LISTENER | armed_flags::CONNECTION;

/// Sockets that clients may use.
const OF_CLIENTS: u32 = OF_SERVER | armed_flags::MORE;

/// Also of a process that came in from outside, as a first process does, and a daemon whose parent is gone.
const OF_ANY: u32 = armed_flags::UNOBSERVED | armed_flags::UDP | armed_flags::UNIX_LISTENER | armed_flags::UNIX_LAST;

/// The last thread of a process exits; its files and sockets are still open.
#[inline(always)]
unsafe fn process_exit(task: Ptr) {
    unsafe {
        let cgroups = task_cgroups::<Direct>(task);
        // First of all: the verifier goes through the loop once for each set of values that it knows by then.
        let held = if hierarchy() == 0 && maps::watched(cgroups.id)[watch::BITS] & watch::SELF != 0 {
            files::look::<Direct>(task, Look::AtExit)
        } else {
            0
        };
        let leader: Ptr = Direct::get(task, Field::TaskGroupLeader);
        let tgid: u32 = Direct::get(task, Field::TaskTgid);
        let level = ns_level::<Direct>(leader);
        let ns_init = is_ns_init::<Direct>(leader, level);
        let known = maps::known(cgroups);
        if !known.is_watched && !maps::take_signalled(tgid) && !ns_init {
            return;
        }
        let status = exit_status(task, leader);
        let place = place::<Direct>(task, cgroups);
        let from_outside = place.is_first() && !maps::is_within(place.parents, cgroups, known.owner);
        let arms = known.has_sockets && from_outside && may_be_main(level, ns_init, status);
        let charge = Charge {
            class: if place.is_first() { Class::Exit } else { Class::ExitOfOther },
            owner: known.owner,
            is_rare: from_outside && known.is_watched,
        };
        let Some(mut entry) = maps::reserve::<ProcessExit>(Kind::ProcessExit, charge) else {
            return;
        };
        let record = entry.as_mut_ptr();
        let to = addr_of_mut!((*record).task);
        fill_task::<Direct>(to, task, cgroups, known.container);
        (*record).status = status;
        let armed = if !from_outside && held & OF_CLIENTS != 0 {
            maps::arm_for_own(record, cgroups.id, known.owner)
        } else {
            maps::arm_where(record, arms, cgroups.id, known.owner, armed_flags::ARMED, armed_flags::ARMS)
        };
        // A probe may have as many files as it likes.
        let of_outside = if may_be_main(level, ns_init, status) {
            OF_SERVER | OF_ANY | armed_flags::MORE
        } else {
            OF_SERVER | OF_ANY
        };
        let held = if from_outside { held & of_outside } else { held };
        (*record).flags = armed | held | leaves_others(task);
        entry.submit(0);
    }
}

/// The exiting task itself is still one of them.
#[inline(always)]
unsafe fn leaves_others(task: Ptr) -> u32 {
    unsafe {
        let set: Ptr = Direct::get(task, Field::TaskCgroups);
        if Direct::get::<i32>(set, Field::CssSetNrTasks) > 1 {
            armed_flags::OTHERS
        } else {
            0
        }
    }
}

/// As wait(2) reports it, whichever thread was last: `exit_code` of the event's own task is wrong on 5.10 if that task is not the
/// leader, and `group_exit_code` is 0 there after a plain exit.
#[inline(always)]
unsafe fn exit_status(task: Ptr, leader: Ptr) -> u32 {
    const SIGNAL_GROUP_EXIT: u32 = 4;
    unsafe {
        let signal: Ptr = Direct::get(task, Field::TaskSignal);
        // Both are read, then one is chosen: with a conditional read, LLVM makes one load of them from a chosen pointer at
        // a chosen offset, and up to 6.1 the verifier cannot see that the two choices go together.
        let of_group: u32 = Direct::get(signal, Field::SignalGroupExitCode);
        let of_leader: u32 = Direct::get(leader, Field::TaskExitCode);
        if Direct::get::<u32>(signal, Field::SignalFlags) & SIGNAL_GROUP_EXIT != 0 {
            of_group
        } else {
            of_leader
        }
    }
}

/// Whether the exit of a process that came in from outside may terminate a subject, so that the sockets it closes are worth
/// watching. Outside a pid namespace of its own (in a shared one or the host's), such a process is more often a probe or a hook:
/// the exit then counts only if the process failed.
#[inline(always)]
fn may_be_main(level: u32, ns_init: bool, status: u32) -> bool {
    ns_init || level == 0 || status != 0
}

#[btf_tracepoint(function = "sched_process_exec")]
pub fn process_exec(ctx: BtfTracePointContext) -> i32 {
    let task: Ptr = ctx.arg(0);
    unsafe {
        let cgroups = task_cgroups::<Direct>(task);
        let known = maps::known(cgroups);
        // A namespace's init is kept anyway, as its exit is: on a machine with v1, v2 may not know its container.
        if !known.is_watched {
            let leader: Ptr = Direct::get(task, Field::TaskGroupLeader);
            if !is_ns_init::<Direct>(leader, ns_level::<Direct>(leader)) {
                return 0;
            }
        }
        let parent: Ptr = Direct::get(task, Field::TaskRealParent);
        let parents = task_cgroups::<Direct>(parent);
        let of_parent = if parents.are(cgroups) { known } else { maps::known(parents) };
        let charge = Charge {
            class: Class::Exec,
            owner: known.owner,
            is_rare: known.is_watched && of_parent.owner.id != known.owner.id,
        };
        let Some(mut entry) = maps::reserve::<ProcessExec>(Kind::ProcessExec, charge) else {
            return 0;
        };
        let record = entry.as_mut_ptr();
        fill_task::<Direct>(addr_of_mut!((*record).task), task, cgroups, known.container);
        (*record).parent_cgroup = parents.id;
        (*record).parent_v1_cgroup = parents.v1_cgroup;
        (*record).parent_container = of_parent.container;
        copy_comm::<Direct>(
            addr_of_mut!((*record).parent_comm),
            Direct::get(parent, Field::TaskGroupLeader),
        );
        entry.submit(0);
    }
    0
}

#[btf_tracepoint(function = "mark_victim")]
pub fn mark_victim_task(ctx: BtfTracePointContext) -> i32 {
    let task: Ptr = ctx.arg(0);
    unsafe {
        let cgroups = task_cgroups::<Direct>(task);
        let known = maps::known(cgroups);
        let Some(mut entry) = maps::reserve::<OomVictim>(Kind::OomVictim, oom(known.owner)) else {
            return 0;
        };
        let record = entry.as_mut_ptr();
        let flags = maps::arm_where(
            record,
            known.has_sockets,
            cgroups.id,
            known.owner,
            armed_flags::ARMED,
            armed_flags::ARMS,
        );
        fill_task::<Direct>(addr_of_mut!((*record).victim), task, cgroups, known.container);
        (*record).trigger_tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
        (*record).flags = flags;
        entry.submit(0);
    }
    0
}

/// For kernels whose tracepoint has only the process id.
#[btf_tracepoint(function = "mark_victim")]
pub fn mark_victim_pid(ctx: BtfTracePointContext) -> i32 {
    unsafe {
        let Some(mut entry) = maps::reserve::<OomVictim>(Kind::OomVictim, oom(Owner::MACHINE)) else {
            return 0;
        };
        let record = entry.as_mut_ptr();
        let words = addr_of_mut!((*record).victim).cast::<u64>();
        (0..size_of::<epitaph_ebpf::Task>() / 8).for_each(|i| words.add(i).write_volatile(0));
        (*record).victim.tgid = ctx.arg::<i32>(0) as u32;
        (*record).trigger_tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
        (*record).flags = 0;
        entry.submit(0);
    }
    0
}

#[inline(always)]
fn oom(owner: Owner) -> Charge {
    Charge {
        class: Class::Oom,
        owner,
        is_rare: true,
    }
}

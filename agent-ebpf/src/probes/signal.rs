//! signal_generate and signal_deliver.

use core::ptr::addr_of_mut;

use aya_ebpf::Global;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use epitaph_ebpf::{
    Class, Field, Kind, Part, SIGNAL_MASK, SignalDeliver, SignalGenerate, call_abi, deliver_flags, disposition, signal_flags,
};

use super::files::{self, Look};
use super::kernel::{
    Cgroups, Direct, Probed, Ptr, Read, copy_comm, fill_task, has, hierarchy, is_ns_init, ns_level, offset, place, stops_after,
    task_cgroups, with_current,
};
use super::maps::{self, Charge};

/// Ends the program after this part of it, for a profile: see [`Part`]. Without the feature nothing.
macro_rules! part {
    ($part:ident) => {
        if stops_after(Part::$part) {
            return;
        }
    };
    ($part:ident, $entry:ident) => {
        if stops_after(Part::$part) {
            return $entry.submit(0);
        }
    };
}

/// Bit `sig - 1`: kept.
#[unsafe(no_mangle)]
static SIGNALS: Global<u64> = Global::new(SIGNAL_MASK);

const SIGKILL: u32 = 9;
const SIGPIPE: u32 = 13;
const SIGTERM: u32 = 15;
const SIGCONT: u32 = 18;
const SIGSTOP: u32 = 19;
const SIGWINCH: u32 = 28;
const SIGSYS: u32 = 31;
/// The first real-time signal that is not glibc's own.
const SIGRTMIN: u32 = 34;
const SI_USER: i32 = 0;
const SI_TIMER: i32 = -2;
const SI_SIGIO: i32 = -5;
const SI_TKILL: i32 = -6;
const SI_ASYNCNL: i32 = -60;
const SI_KERNEL: i32 = 128;

#[btf_tracepoint(function = "signal_generate")]
pub fn signal_generate(ctx: BtfTracePointContext) -> i32 {
    let sig = ctx.arg::<i32>(0) as u32;
    if !kept(sig) || stops_after(Part::Filter) {
        return 0;
    }
    let info: u64 = ctx.arg(1);
    let task: Ptr = ctx.arg(2);
    // SAFETY: the tracepoint gives a task, never NULL; `info` stays a number.
    unsafe { generate(sig, info, task, ctx.arg::<i32>(3) as u8, ctx.arg::<i32>(4) as u8) }
    0
}

/// The lower bound of the cost of a program at this tracepoint: `cargo xtask bench` measures the others against it.
#[btf_tracepoint(function = "signal_generate")]
pub fn signal_generate_empty(_ctx: BtfTracePointContext) -> i32 {
    0
}

#[inline(always)]
fn kept(sig: u32) -> bool {
    SIGNALS.load() >> (sig.wrapping_sub(1) & 63) & 1 != 0
}

/// Signals that a program's own fault raises (a JVM raises thousands, for null checks), and SIGPIPE: recorded only from others.
#[inline(always)]
fn is_own_fault(sig: u32) -> bool {
    matches!(sig, 4 | 5 | 7 | 8 | 11 | SIGPIPE)
}

/// `info` is 0 or 1 for signals that the kernel makes, else a pointer. **Never load through it**: see the module's parent.
#[inline(always)]
unsafe fn signal_code(info: u64) -> i32 {
    match info {
        0 => SI_USER,
        info if is_from_kernel(info) => SI_KERNEL,
        info => unsafe { Probed::get(info as Ptr, Field::SiginfoCode) },
    }
}

/// `SYS_SECCOMP` and `SYS_USER_DISPATCH`: of SIGSYS, whose `siginfo`, a pointer then, has the system call. A process can give only its own
/// signals a positive code.
#[inline(always)]
fn is_of_call(code: i32) -> bool {
    matches!(code, 1 | 2)
}

/// `SEND_SIG_PRIV`, which no system call passes on for a process. A pointer's `si_code` of `SI_KERNEL` does not prove as much: a
/// process may queue itself a signal of any code.
#[inline(always)]
fn is_from_kernel(info: u64) -> bool {
    matches!(info, 1 | 2)
}

#[inline(always)]
unsafe fn generate(sig: u32, info: u64, target: Ptr, group: u8, result: u8) {
    unsafe {
        let pid_tgid = bpf_get_current_pid_tgid();
        let tgid: u32 = Direct::get(target, Field::TaskTgid);
        if is_own_fault(sig) && pid_tgid as u32 == Direct::get::<u32>(target, Field::TaskPid) {
            return;
        }
        part!(Ids);
        // The terminal signals its new size to all (SEND_SIG_PRIV, 1): of interest only where a handler can take it for a stop, as httpd's
        // does. A kill(2) is a pointer, or since 7.3 SEND_SIG_NOINFO, 0.
        let from_kernel = is_from_kernel(info);
        if sig == SIGWINCH && from_kernel && disposition_of(target, sig) != disposition::HANDLER {
            return;
        }
        let code = signal_code(info);
        // Internal to a runtime (.NET interrupts its threads with a real-time signal), but for one without a handler: raise(3) in a handler
        // that has restored the default action.
        if sig >= SIGRTMIN
            && code == SI_TKILL
            && (pid_tgid >> 32) as u32 == tgid
            && disposition_of(target, sig) != disposition::DEFAULT
        {
            return;
        }
        part!(Code);
        let cgroups = task_cgroups::<Direct>(target);
        part!(Cgroup);
        let known = maps::known(cgroups);
        part!(Owner);
        if !known.is_watched {
            remember(target, tgid);
        }
        part!(Remember);
        let senders = with_current!(task_cgroups());
        let of_sender = if senders.are(cgroups) { known } else { maps::known(senders) };
        let is_own = is_own_doing(sig, code, from_kernel) || !from_kernel && of_sender.owner.id == known.owner.id;
        part!(Sender);
        let is_first = place::<Direct>(target, cgroups).is_first();
        if known.owner.is_named && is_own && !is_first && sig != SIGKILL && !maps::is_any_armed(cgroups.id) {
            return;
        }
        part!(Place);
        let from_outside = is_first && !is_own;
        let arms = known.has_sockets && from_outside && may_end(sig, result);
        let charge = Charge {
            class: match (is_first, is_own) {
                (true, false) => Class::Signal,
                (true, true) => Class::SignalWithin,
                (false, _) => Class::SignalToOther,
            },
            owner: known.owner,
            is_rare: from_outside && known.is_watched,
        };
        let Some(mut entry) = maps::reserve::<SignalGenerate>(Kind::SignalGenerate, charge) else {
            return;
        };
        part!(Reserve, entry);
        let record = entry.as_mut_ptr();
        let armed = maps::arm_where(record, arms, cgroups.id, known.owner, signal_flags::ARMED, signal_flags::ARMS);
        part!(Arm, entry);
        with_current!(fill_sender(record, senders, of_sender.container));
        part!(OfSender, entry);
        fill_task::<Direct>(addr_of_mut!((*record).target), target, cgroups, known.container);
        (*record).sig = sig;
        (*record).code = code;
        (*record).group = group;
        (*record).result = result;
        part!(OfTarget, entry);
        (*record).disposition = disposition_of(target, sig);
        (*record).call_abi = call_abi::UNKNOWN;
        part!(Action, entry);
        // Through memory, so that the verifier does not follow both values through all that is between.
        addr_of_mut!((*record).pending).write_volatile(info);
        let is_from_kernel = is_from_kernel(addr_of_mut!((*record).pending).read_volatile());
        let made_by = if is_from_kernel { signal_flags::KERNEL } else { 0 };
        (*record).flags = state_of(target, sig) | armed | made_by;
        (*record).call = 0;
        (*record).pending = if knows_pending() { pending(target) } else { 0 };
        // Last, so that the verifier follows the two ways to the end alone.
        if sig == SIGSYS && is_of_call(code) && has(Field::SiginfoCall) && has(Field::SiginfoArch) {
            (*record).call_abi = call_abi::of_audit(Probed::get(info as Ptr, Field::SiginfoArch));
            (*record).call = Probed::get(info as Ptr, Field::SiginfoCall);
        }
        entry.submit(0);
    }
}

/// The exit of a signalled process is kept even in no watched cgroup; the exit of a namespace's init is always kept.
#[inline(always)]
unsafe fn remember(target: Ptr, tgid: u32) {
    unsafe {
        let leader: Ptr = Direct::get(target, Field::TaskGroupLeader);
        if !is_ns_init::<Direct>(leader, ns_level::<Direct>(leader)) {
            maps::remember_signalled(tgid, Direct::get(leader, Field::TaskStartBoottime));
        }
    }
}

/// Whether the target's own container can have had the signal made, whichever task is current: by its timers and files (their
/// codes), or by its terminal, its limits and its faults, for which the kernel makes all signals but SIGKILL.
///
/// Current is any task then, so its cgroup says nothing. The codes can be forged with rt_sigqueueinfo(2), to the effect that
/// such a signal from outside arms nothing.
#[inline(always)]
fn is_own_doing(sig: u32, code: i32, from_kernel: bool) -> bool {
    if from_kernel {
        return sig != SIGKILL;
    }
    code > 0 || code == SI_ASYNCNL || (SI_SIGIO..=SI_TIMER).contains(&code)
}

/// Whether this signal from outside to a first process may begin a termination, so that the sockets of the target's cgroup are
/// worth watching: any but SIGCONT (a runtime's stop signal may be of any number). Result 1 (ignored) counts: the kill follows. A
/// signal that found no room in the queue is not delivered and does not count.
///
/// Signals between processes of one container do not count (a supervisor and its workers): the exit of the first process arms
/// the sockets before they are closed. Nor do a terminal's: whoever opens a terminal in a container could arm it.
#[inline(always)]
fn may_end(sig: u32, result: u8) -> bool {
    const OVERFLOW_FAIL: u8 = 3;
    sig != SIGCONT && result != OVERFLOW_FAIL
}

#[inline(always)]
unsafe fn fill_sender<R: Read>(sender: Ptr, record: *mut SignalGenerate, cgroups: Cgroups, container: u64) {
    unsafe {
        fill_task::<R>(addr_of_mut!((*record).sender), sender, cgroups, container);
        let parent: Ptr = R::get(sender, Field::TaskRealParent);
        let grandparent: Ptr = R::get(parent, Field::TaskRealParent);
        copy_comm::<R>(
            addr_of_mut!((*record).sender_parent_comm),
            R::get(parent, Field::TaskGroupLeader),
        );
        (*record).sender_grandparent = R::get(grandparent, Field::TaskTgid);
    }
}

#[inline(always)]
unsafe fn disposition_of(target: Ptr, sig: u32) -> u8 {
    // No process can catch or ignore these.
    if sig == SIGKILL {
        return disposition::DEFAULT;
    }
    unsafe {
        let table: Ptr = Direct::get(target, Field::TaskSighand);
        if table.is_null() {
            return disposition::UNKNOWN;
        }
        let handler: u64 = if sig == SIGTERM {
            // The one stop signal of nearly all containers has a constant offset.
            let place = (SIGTERM as usize - 1) * offset(Field::SigactionSize);
            Direct::get(table.add(offset(Field::SighandAction) + place), Field::SigactionHandler)
        } else {
            // Masked for the verifier, as in `deep_upid`: 64 actions of 32 bytes.
            let place = ((sig as usize).wrapping_sub(1) * offset(Field::SigactionSize)) & 0xfff;
            Probed::get(table.add(offset(Field::SighandAction) + place), Field::SigactionHandler)
        };
        match handler {
            0 => disposition::DEFAULT,
            1 => disposition::IGNORE,
            _ => disposition::HANDLER,
        }
    }
}

#[inline(always)]
unsafe fn state_of(target: Ptr, sig: u32) -> u32 {
    // include/linux/sched/signal.h, sched/jobctl.h, sched.h: the same bits from 5.10 on.
    const SIGNAL_STOP_STOPPED: u32 = 1;
    const SIGNAL_GROUP_EXIT: u32 = 4;
    const JOBCTL_STOP_PENDING: u64 = 1 << 17;
    const JOBCTL_TRAP_FREEZE: u64 = 1 << 23;
    // The v1 freezer: a task state since 6.1; a task flag before, read only up to 5.13 (whose state has its old name), because
    // later kernels use the flag's bit for something else.
    const TASK_FROZEN: u32 = 0x8000;
    const PF_FROZEN: u32 = 0x0001_0000;

    unsafe {
        let blocked: u64 = Direct::get(target, Field::TaskBlocked);
        let signal: Ptr = Direct::get(target, Field::TaskSignal);
        let signal_flags: u32 = Direct::get(signal, Field::SignalFlags);
        let jobctl: u64 = Direct::get(target, Field::TaskJobctl);
        let frozen_v1 = if has(Field::TaskState) {
            Direct::get::<u32>(target, Field::TaskState) & TASK_FROZEN != 0
        } else {
            Direct::get::<u32>(target, Field::TaskFlags) & PF_FROZEN != 0
        };
        let mut flags = 0;
        if in_set(blocked, sig) {
            flags |= signal_flags::BLOCKED;
        }
        // do_sigtimedwait: `real_blocked` keeps the whole mask, and `blocked` loses the awaited signals.
        if has(Field::TaskRealBlocked) && in_set(Direct::get::<u64>(target, Field::TaskRealBlocked) & !blocked, sig) {
            flags |= signal_flags::SIGWAIT;
        }
        if knows_pending() {
            flags |= signal_flags::PENDING;
        }
        if signal_flags & SIGNAL_STOP_STOPPED != 0 || jobctl & JOBCTL_STOP_PENDING != 0 {
            flags |= signal_flags::STOPPED;
        }
        if jobctl & JOBCTL_TRAP_FREEZE != 0 || frozen_v1 {
            flags |= signal_flags::FROZEN;
        }
        if signal_flags & SIGNAL_GROUP_EXIT != 0 {
            flags |= signal_flags::EXITING;
        }
        if Direct::get::<u32>(target, Field::TaskPtrace) != 0 {
            flags |= signal_flags::TRACED;
        }
        flags
    }
}

#[inline(always)]
fn in_set(set: u64, sig: u32) -> bool {
    set >> (sig.wrapping_sub(1) & 63) & 1 != 0
}

#[inline(always)]
fn knows_pending() -> bool {
    has(Field::SignalSharedPending) && has(Field::TaskPending)
}

/// See [`SignalGenerate::pending`]. The tracepoint runs after the signal was queued, and a SIGKILL flushes no queue.
#[inline(always)]
unsafe fn pending(target: Ptr) -> u64 {
    unsafe {
        let signal: Ptr = Direct::get(target, Field::TaskSignal);
        Direct::get::<u64>(signal, Field::SignalSharedPending) | Direct::get::<u64>(target, Field::TaskPending)
    }
}

#[btf_tracepoint(function = "signal_deliver")]
pub fn signal_deliver(ctx: BtfTracePointContext) -> i32 {
    let sig = ctx.arg::<i32>(0) as u32;
    if !kept(sig) || is_own_fault(sig) {
        return 0;
    }
    let action: Ptr = ctx.arg(2);
    // SAFETY: the tracepoint gives the action, never NULL; `info` (NULL at every group exit) stays a number.
    unsafe {
        let flags = match Direct::get::<u64>(action, Field::SigactionHandler) {
            SIG_DFL if is_discarded(sig) => deliver_flags::DISCARDED,
            SIG_DFL | SIG_IGN => return 0,
            _ => 0,
        };
        if flags == 0 && sig >= SIGRTMIN && signal_code(ctx.arg(1)) == SI_TKILL {
            return 0;
        }
        let held = if flags == 0 { with_current!(held_in_stop()) } else { 0 };
        with_current!(deliver(sig, flags | held));
    }
    0
}

/// What a process that handles a signal may close before it exits. Looked at only while its sockets are recorded anyway; who signals itself
/// then pays for the look itself.
#[inline(always)]
unsafe fn held_in_stop<R: Read>(current: Ptr) -> u32 {
    unsafe {
        let cgroups = task_cgroups::<R>(current);
        if hierarchy() != 0 || !maps::is_any_armed(cgroups.id) {
            return 0;
        }
        files::look::<R>(current, Look::AtHandler)
            & (deliver_flags::UDP | deliver_flags::UNIX_LISTENER | deliver_flags::UNIX_LAST | deliver_flags::MORE)
    }
}

#[inline(always)]
unsafe fn deliver<R: Read>(current: Ptr, sig: u32, flags: u32) {
    unsafe {
        let cgroups = task_cgroups::<R>(current);
        let known = maps::known(cgroups);
        let is_first = place::<R>(current, cgroups).is_first();
        let is_armed = maps::is_any_armed(cgroups.id);
        if known.owner.is_named && !is_first && !is_armed {
            return;
        }
        let charge = Charge {
            class: if is_first { Class::Deliver } else { Class::SignalToOther },
            owner: known.owner,
            is_rare: is_first && is_armed,
        };
        let Some(mut entry) = maps::reserve::<SignalDeliver>(Kind::SignalDeliver, charge) else {
            return;
        };
        let record = entry.as_mut_ptr();
        fill_task::<R>(addr_of_mut!((*record).task), current, cgroups, known.container);
        (*record).sig = sig;
        (*record).flags = flags;
        entry.submit(0);
    }
}

const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;

/// Whether the kernel discards a signal without a handler that the current process has read from its queue: what
/// `get_signal` does for the init of a pid namespace. A signal that terminates no process by default is not worth a record.
#[inline(always)]
unsafe fn is_discarded(sig: u32) -> bool {
    if matches!(sig, SIGKILL | SIGSTOP | SIGCONT | SIGWINCH) || !has(Field::TaskSignal) || !has(Field::SignalFlags) {
        return false;
    }
    unsafe { with_current!(is_unkillable()) }
}

#[inline(always)]
unsafe fn is_unkillable<R: Read>(task: Ptr) -> bool {
    const SIGNAL_UNKILLABLE: u32 = 0x40;
    unsafe {
        let signal: Ptr = R::get(task, Field::TaskSignal);
        R::get::<u32>(signal, Field::SignalFlags) & SIGNAL_UNKILLABLE != 0
    }
}

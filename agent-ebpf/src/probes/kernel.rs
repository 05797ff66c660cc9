//! Reading the kernel: fields at offsets from its BTF, tasks, cgroups.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::addr_of_mut;

use aya_ebpf::Global;
use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_get_current_task_btf, bpf_probe_read_kernel};
use epitaph_ebpf::{COMM_LEN, Field, Task};

/// Offsets by [`Field`]: frozen before the programs are loaded, so the verifier knows each as a constant.
#[unsafe(no_mangle)]
static OFFSETS: [Global<u32>; Field::COUNT] = [const { Global::new(0) }; Field::COUNT];

/// 1 if the kernel gives the current task as a BTF pointer (5.11 and later).
#[unsafe(no_mangle)]
static CURRENT_TASK_BTF: Global<u32> = Global::new(0);

/// Hierarchy that distinguishes tasks: 0, cgroup v2, unless the machine has v1 alone.
#[unsafe(no_mangle)]
static HIERARCHY: Global<u32> = Global::new(0);

/// A hierarchy of cgroup v1 that distinguishes tasks alongside v2; 0 if there is none.
#[unsafe(no_mangle)]
static V1_HIERARCHY: Global<u32> = Global::new(0);

/// If one of the two is of v1: the offset in a `css_set` of the pointer to its controller's state.
#[unsafe(no_mangle)]
static CSS_SET_STATE: Global<u32> = Global::new(0);

/// 1 if the verifier lets a program read the entries of `pid.numbers` that are past the structure's stated end, at offsets that it knows: an
/// array without a stated length (6.5 and later). Before, it is an array of one.
#[unsafe(no_mangle)]
static OPEN_NUMBERS: Global<u32> = Global::new(0);

/// See [`epitaph_ebpf::Part`].
#[cfg(feature = "parts")]
#[unsafe(no_mangle)]
static STOP_AFTER: Global<u32> = Global::new(0);

/// Whether a profile ends the program after this part. The verifier removes the test; without the feature there is none.
#[cfg(feature = "parts")]
#[inline(always)]
pub fn stops_after(part: epitaph_ebpf::Part) -> bool {
    STOP_AFTER.load() == part as u32
}

#[cfg(not(feature = "parts"))]
#[inline(always)]
pub fn stops_after(_: epitaph_ebpf::Part) -> bool {
    false
}

/// A kernel structure.
pub type Ptr = *const u8;

#[inline(always)]
pub fn offset(field: Field) -> usize {
    OFFSETS[field as usize].load() as usize
}

#[inline(always)]
pub fn has(field: Field) -> bool {
    OFFSETS[field as usize].load() != epitaph_ebpf::ABSENT
}

#[inline(always)]
pub fn hierarchy() -> u16 {
    HIERARCHY.load() as u16
}

#[inline(always)]
pub fn v1_hierarchy() -> u16 {
    V1_HIERARCHY.load() as u16
}

/// A tracepoint's argument that can be NULL, of which `number` is a copy.
///
/// Kernels that take the arguments of a tracepoint as never NULL (`PTR_TRUSTED`, without 838a10bd2ebf of 6.13: 6.10, RHEL 9.5 to 10.0)
/// remove a test of the pointer, and the load behind it is one without a fault handler: it stops the machine. Kernels with that change demand
/// the test. So both are tested.
#[derive(Clone, Copy)]
pub struct Nullable {
    number: u64,
    pointer: Ptr,
}

impl Nullable {
    /// The first two arguments.
    #[inline(always)]
    pub fn two(ctx: *const c_void, pointers: [Ptr; 2]) -> [Nullable; 2] {
        // SAFETY: two arguments of eight bytes.
        let numbers: [u64; 2] = unsafe { Probed::read(ctx.cast()) };
        [0, 1].map(|i| Nullable {
            number: numbers[i],
            pointer: pointers[i],
        })
    }

    #[inline(always)]
    pub fn number(self) -> u64 {
        self.number
    }

    #[inline(always)]
    pub fn get(self) -> Option<Ptr> {
        if self.number == 0 || self.pointer.is_null() {
            None
        } else {
            Some(self.pointer)
        }
    }
}

/// The verifier lets no pointer become a number, but the distance of two.
#[inline(always)]
pub fn distance(from: Ptr, to: Ptr) -> u64 {
    (from as u64).wrapping_sub(to as u64)
}

/// How a structure is read.
pub trait Read {
    /// # Safety
    /// `at` points into a structure that the verifier knows (`Direct`), or anywhere (`Probed`).
    unsafe fn read<T: Copy>(at: Ptr) -> T;

    #[inline(always)]
    unsafe fn get<T: Copy>(base: Ptr, field: Field) -> T {
        unsafe { Self::read(base.add(offset(field))) }
    }
}

/// Through a BTF pointer: one load, about a nanosecond.
pub struct Direct;

impl Read for Direct {
    #[inline(always)]
    unsafe fn read<T: Copy>(at: Ptr) -> T {
        // Volatile: exactly one load of this width, regardless of the optimiser.
        unsafe { at.cast::<T>().read_volatile() }
    }
}

/// Through the helper: about 28 ns. Zeroes if the address cannot be read.
pub struct Probed;

impl Read for Probed {
    #[inline(always)]
    unsafe fn read<T: Copy>(at: Ptr) -> T {
        let mut value = MaybeUninit::<T>::uninit();
        // The helper itself writes zeroes if it fails (bpf_probe_read_kernel_common in kernel/trace/bpf_trace.c, since 5.5). A look
        // at its result would be a branch for the verifier to follow at each of dozens of reads, with a known zero on one side:
        // up to 6.1 no two such states are alike.
        unsafe {
            bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, at.cast());
            value.assume_init()
        }
    }
}

/// `function(…)` is `function::<R>(task, …)` for the current task, with `R` as it is to be read.
///
/// A macro, not a function of two closures: the compiler is free to leave a closure as a function that the program calls. Up to 6.1
/// the verifier compares every number of such a program, so that hardly a path ends at one that it knows (`__mark_reg_unknown` in
/// v6.1's kernel/bpf/verifier.c: `subprog_cnt > 1`). `cargo xtask bpf` refuses such a program.
macro_rules! with_current {
    ($function:ident($($argument:expr),*)) => {
        if $crate::probes::kernel::has_current_btf() {
            $function::<$crate::probes::kernel::Direct>($crate::probes::kernel::current_btf() $(, $argument)*)
        } else {
            $function::<$crate::probes::kernel::Probed>($crate::probes::kernel::current() $(, $argument)*)
        }
    };
}
pub(super) use with_current;

#[inline(always)]
pub fn has_current_btf() -> bool {
    CURRENT_TASK_BTF.load() != 0
}

#[inline(always)]
pub fn current_btf() -> Ptr {
    unsafe { bpf_get_current_task_btf() as Ptr }
}

#[inline(always)]
pub fn current() -> Ptr {
    unsafe { bpf_get_current_task() as Ptr }
}

/// The cgroups of a task.
#[derive(Clone, Copy)]
pub struct Cgroups {
    /// In [`hierarchy`].
    pub id: u64,
    /// The [`epitaph_ebpf::v1_cgroup`] of its cgroup in [`v1_hierarchy`]; 0 if there is none.
    pub v1_cgroup: u64,
}

#[inline(always)]
pub unsafe fn task_cgroups<R: Read>(task: Ptr) -> Cgroups {
    unsafe {
        let set: Ptr = R::get(task, Field::TaskCgroups);
        let v1_cgroup = match v1_hierarchy() {
            0 => 0,
            number => epitaph_ebpf::v1_cgroup(number, v1_id::<R>(set)),
        };
        Cgroups {
            id: id_of::<R>(set),
            v1_cgroup,
        }
    }
}

/// [`Cgroups::id`] of a task.
#[inline(always)]
pub unsafe fn task_cgroup<R: Read>(task: Ptr) -> u64 {
    unsafe { id_of::<R>(R::get(task, Field::TaskCgroups)) }
}

#[inline(always)]
unsafe fn id_of<R: Read>(set: Ptr) -> u64 {
    unsafe {
        // The verifier knows the variant, and drops the other branch.
        if hierarchy() == 0 {
            cgroup_id::<R>(R::get(set, Field::CssSetDflCgrp))
        } else {
            v1_id::<R>(set)
        }
    }
}

#[inline(always)]
unsafe fn v1_id<R: Read>(set: Ptr) -> u64 {
    unsafe {
        let state: Ptr = R::read(set.add(CSS_SET_STATE.load() as usize));
        cgroup_id::<R>(R::get(state, Field::CssCgroup))
    }
}

#[inline(always)]
pub unsafe fn cgroup_id<R: Read>(cgroup: Ptr) -> u64 {
    unsafe {
        let node: Ptr = R::get(cgroup, Field::CgroupKn);
        R::get(node, Field::KernfsNodeId)
    }
}

/// Depth of a task's pid namespace.
#[inline(always)]
pub unsafe fn ns_level<R: Read>(task: Ptr) -> u32 {
    unsafe {
        let pid: Ptr = R::get(task, Field::TaskThreadPid);
        R::get(pid, Field::PidLevel)
    }
}

/// A task's place, by which a first process is told from others: see [`epitaph_ebpf::Class`].
#[derive(Clone, Copy)]
pub struct Place {
    pub cgroups: Cgroups,
    pub parents: Cgroups,
    /// The parent is in an outer pid namespace: the task is the init of its own, or entered that.
    pub parent_is_outer: bool,
}

#[inline(always)]
pub unsafe fn place<R: Read>(task: Ptr, cgroups: Cgroups) -> Place {
    unsafe {
        let parent: Ptr = R::get(task, Field::TaskRealParent);
        Place {
            cgroups,
            parents: task_cgroups::<R>(parent),
            parent_is_outer: ns_level::<R>(task) > ns_level::<R>(parent),
        }
    }
}

impl Place {
    #[inline(always)]
    pub fn is_first(&self) -> bool {
        self.parent_is_outer || !self.cgroups.are(self.parents)
    }
}

impl Cgroups {
    #[inline(always)]
    pub fn are(self, others: Cgroups) -> bool {
        self.id == others.id && self.v1_cgroup == others.v1_cgroup
    }
}

/// (pid in its own namespace, inode number of that namespace) of a thread group leader at `level` above 0.
#[inline(always)]
pub unsafe fn ns_pid<R: Read>(leader: Ptr, level: u32) -> (u32, u32) {
    unsafe {
        let pid: Ptr = R::get(leader, Field::TaskThreadPid);
        if is_direct(level) {
            let upid = first_upid(pid);
            let namespace: Ptr = R::get(upid, Field::UpidNs);
            return (R::get(upid, Field::UpidNr), R::get(namespace, Field::PidNamespaceInum));
        }
        let upid = deep_upid(pid, level);
        let namespace: Ptr = Probed::get(upid, Field::UpidNs);
        (
            Probed::get(upid, Field::UpidNr),
            Probed::get(namespace, Field::PidNamespaceInum),
        )
    }
}

/// Whether a thread group leader at `level` is the init of a pid namespace below the initial one.
#[inline(always)]
pub unsafe fn is_ns_init<R: Read>(leader: Ptr, level: u32) -> bool {
    if level == 0 {
        return false;
    }
    unsafe {
        let pid: Ptr = R::get(leader, Field::TaskThreadPid);
        let nr: u32 = if is_direct(level) {
            R::get(first_upid(pid), Field::UpidNr)
        } else {
            Probed::get(deep_upid(pid, level), Field::UpidNr)
        };
        nr == 1
    }
}

/// A container's namespace is nearly always the first below the initial one: its entry has a constant offset.
#[inline(always)]
fn is_direct(level: u32) -> bool {
    level == 1 && OPEN_NUMBERS.load() != 0
}

#[inline(always)]
fn first_upid(pid: Ptr) -> Ptr {
    // SAFETY: the verifier, or the helper, checks what is read there.
    unsafe { pid.add(offset(Field::PidNumbers) + offset(Field::UpidSize)) }
}

/// The verifier refuses a variable offset into a BTF pointer, so the helper reads what is there.
///
/// The product is masked, not a factor: up to 6.2 the verifier forgets the bounds of a product whose second factor is not a constant, and up
/// to 6.12 it refuses to add an open-ended number. MAX_PID_NS_LEVEL is 32, a upid 16 bytes.
#[inline(always)]
fn deep_upid(pid: Ptr, level: u32) -> Ptr {
    let place = (level as usize * offset(Field::UpidSize)) & 0x3ff;
    // SAFETY: the helper checks what is read there.
    unsafe { pid.add(offset(Field::PidNumbers) + place) }
}

/// `to` = comm of `task`, as two words.
#[inline(always)]
pub unsafe fn copy_comm<R: Read>(to: *mut [u8; COMM_LEN], task: Ptr) {
    unsafe {
        let comm = task.add(offset(Field::TaskComm));
        let to = to.cast::<u64>();
        to.write(R::read(comm));
        to.add(1).write(R::read(comm.add(8)));
    }
}

/// Writes all of `to`; `cgroups` and `container` are the task's, which every caller has read before.
#[inline(always)]
pub unsafe fn fill_task<R: Read>(to: *mut Task, task: Ptr, cgroups: Cgroups, container: u64) {
    unsafe {
        let leader: Ptr = R::get(task, Field::TaskGroupLeader);
        let parent: Ptr = R::get(task, Field::TaskRealParent);
        let tgid: u32 = R::get(task, Field::TaskTgid);
        let level = ns_level::<R>(leader);
        let (ns_pid, pidns) = if level == 0 { (tgid, 0) } else { ns_pid::<R>(leader, level) };
        (*to).tgid = tgid;
        (*to).tid = R::get(task, Field::TaskPid);
        (*to).ppid = R::get(parent, Field::TaskTgid);
        (*to).ns_level = level;
        (*to).ns_pid = ns_pid;
        (*to).pidns = pidns;
        (*to).cgroup = cgroups.id;
        (*to).v1_cgroup = cgroups.v1_cgroup;
        (*to).container = container;
        (*to).start_ns = R::get(leader, Field::TaskStartBoottime);
        copy_comm::<R>(addr_of_mut!((*to).comm), leader);
    }
}

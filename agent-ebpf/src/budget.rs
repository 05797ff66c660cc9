//! Budgets: what one container or unit can make the probes record, and by what its losses are counted.

use core::mem::{offset_of, size_of};

use crate::Kind;

/// What an owner ([`Watched`]) has a budget of, and what losses are counted by: a record's kind, and which evidence its loss can
/// touch. Also the index into `LOST` and into the arrays of [`Account`].
///
/// A *first process* has its parent in another cgroup or in an outer pid namespace: a container's first process, a unit's main
/// process, what is executed into either from outside. Any process of a container can make more of these (in cgroups or
/// namespaces that it nests), at the cost of its own container's budget.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A signal to a first process, from another owner or from the kernel.
    Signal = 1,
    /// The entry of a first process into a handler.
    Deliver = 2,
    /// The exit of a first process.
    Exit = 3,
    Exec = 4,
    Oom = 5,
    Mkdir = 6,
    Rmdir = 7,
    Tcp = 8,
    /// A signal to a first process from its own owner.
    SignalWithin = 9,
    /// A signal to any other process, or its entry into a handler.
    SignalToOther = 10,
    /// The exit of any other process.
    ExitOfOther = 11,
    /// The end of a client's connect: evidence about the owner of the other end.
    Client = 12,
    /// Not a record: a cgroup that its own processes made the probes arm.
    Arm = 13,
}

impl Class {
    pub const ALL: [Class; 13] = [
        Class::Signal,
        Class::Deliver,
        Class::Exit,
        Class::Exec,
        Class::Oom,
        Class::Mkdir,
        Class::Rmdir,
        Class::Tcp,
        Class::SignalWithin,
        Class::SignalToOther,
        Class::ExitOfOther,
        Class::Client,
        Class::Arm,
    ];
    /// Entries of an array indexed by class; the last makes the arrays of an [`Account`] end on 8 bytes.
    pub const SLOTS: usize = 16;
    /// The place of `LOST` that counts the losses counted by owner: while it stands still, no account needs to be read.
    pub const BY_OWNER: u32 = 0;
    /// The place of `LOST` that counts the losses counted in `LOST_CONNECTS`, see [`connects`].
    pub const BY_SERVER: u32 = 14;

    /// Kind of the lost record.
    pub const fn kind(self) -> Kind {
        match self {
            Class::Signal | Class::SignalWithin | Class::SignalToOther => Kind::SignalGenerate,
            Class::Deliver => Kind::SignalDeliver,
            Class::Exit | Class::ExitOfOther => Kind::ProcessExit,
            Class::Exec => Kind::ProcessExec,
            Class::Oom => Kind::OomVictim,
            Class::Mkdir => Kind::CgroupMkdir,
            Class::Rmdir => Kind::CgroupRmdir,
            Class::Tcp | Class::Client | Class::Arm => Kind::Tcp,
        }
    }

    /// Records of one owner in a [`limits::WINDOW_NS`], at most.
    ///
    /// Far more than a container needs whose end is to be judged: it has one first process, a few signals, and thousands of
    /// connections at most. All classes together are 3 MiB in a window, so that two containers can spend all
    /// they have while the reader is a second late, and the rings of 9 MiB are not full.
    pub const fn budget(self) -> u32 {
        match self {
            Class::Tcp => 8192,
            Class::Exec | Class::ExitOfOther | Class::Client => 2048,
            Class::Signal | Class::Deliver | Class::SignalWithin | Class::SignalToOther | Class::Rmdir => 1024,
            Class::Exit | Class::Oom | Class::Mkdir => 512,
            // A container has one cgroup with sockets, and stays armed for seconds: 500 containers that nest cgroups cannot fill `ARMED`
            // in the time that user space takes to disarm what goes on.
            Class::Arm => 8,
        }
    }
}

/// Lost records of [`Class::Client`] concern one server, so they are counted by a hash of its address.
pub mod connects {
    /// A client with failed connects to so many addresses makes every server doubtful.
    pub const BUCKETS: u32 = 1 << BITS;
    const BITS: u32 = 12;

    /// Key in `LOST_CONNECTS`. `address`: IPv6, IPv4 as `::ffff:a.b.c.d`, in network byte order; two halves of it as they are in
    /// memory.
    pub const fn bucket(address: [u64; 2]) -> u32 {
        ((address[0] ^ address[1]).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS)) as u32
    }
}

pub mod limits {
    pub const WINDOW_NS: u64 = 1_000_000_000;
    /// Cgroups that are neither a container's nor a unit's belong to the machine itself: their budgets are larger by so many bits.
    pub const OF_MACHINE: u32 = 8;
    /// Closed ports that one owner may keep in `CLOSED_PORTS`: a server has a few, and 128 owners fill the map together.
    pub const PORTS: u64 = 128;
}

/// An owner's entry in the `ACCOUNTS` map; [`SHARED`] is that of all owners for which the map has no room. Written by the probes only, without locks: with the CPUs' races, a budget may be
/// exceeded by a record per CPU. User space removes the entries that nothing has used for a while.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// When the window began, `CLOCK_BOOTTIME` nanoseconds.
    pub since_ns: u64,
    /// Records in the window, by [`Class`].
    pub used: [u32; Class::SLOTS],
    /// Lost records since the entry was made, by [`Class`]: over the budget, or no room in a ring or a map.
    pub lost: [u64; Class::SLOTS],
}

/// Key in `ACCOUNTS`; no cgroup has this id.
pub const SHARED: u64 = 0;

const _: () = assert!(size_of::<Account>() == 200 && offset_of!(Account, lost) == 72);

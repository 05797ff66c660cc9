//! The open files of a process that exits, or that handles a signal in a stop: the sockets among them that clients may use.

use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use epitaph_ebpf::{Field, armed_flags};

use super::kernel::{Probed, Ptr, Read, has};

const S_IFMT: u16 = 0o170_000;
const S_IFSOCK: u16 = 0o140_000;
const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// MPTCP is 262.
const IPPROTO_TCP: u16 = 6;
const IPPROTO_UDP: u16 = 17;
const ESTABLISHED: u8 = 1;
const FIN_WAIT1: u8 = 4;
const FIN_WAIT2: u8 = 5;
const CLOSE_WAIT: u8 = 8;
const LISTEN: u8 = 10;

/// What the loop has found: in memory, so that the verifier does not follow each set of flags through the loop. No other run of the same
/// program comes between on the same CPU: the kernel skips it.
#[map]
static FOUND: PerCpuArray<u32> = PerCpuArray::with_max_entries(2, 0);

/// Whose place in [`FOUND`].
#[derive(Clone, Copy)]
pub enum Look {
    AtExit = 0,
    AtHandler = 1,
}

impl Look {
    /// Descriptors that are looked at, whatever they are.
    const fn most(self) -> u32 {
        match self {
            // A process of the subject's own with more is a server, and counts as one with a listener.
            Look::AtExit => 128,
            // A server opens its listeners before it has clients.
            Look::AtHandler => 64,
        }
    }
}

/// From here on nothing is looked at.
const BEYOND: u32 = 512;

/// Of [`armed_flags`], what [`armed_flags::LOOKED`] announces; 0 if there is no place to look.
#[inline(always)]
pub unsafe fn look<R: Read>(task: Ptr, when: Look) -> u32 {
    let bound = when.most();
    unsafe {
        let Some(found) = FOUND.get_ptr_mut(when as u32) else {
            return 0;
        };
        let files: Ptr = R::get(task, Field::TaskFiles);
        let table: Ptr = Probed::get(files, Field::FilesTable);
        let most: u32 = Probed::get(table, Field::TableMost);
        let all: Ptr = Probed::get(table, Field::TableFiles);
        let open: Ptr = Probed::get(table, Field::TableOpen);
        found.write_volatile(armed_flags::LOOKED);
        let (mut fd, mut bits) = (0, 0_u64);
        while fd < bound {
            if fd % u64::BITS == 0 {
                if fd >= most {
                    break;
                }
                bits = Probed::read(open.add(fd as usize / 8));
            }
            if bits & 1 != 0 {
                let held = held(Probed::read(all.add(fd as usize * size_of::<Ptr>())));
                found.write_volatile(found.read_volatile() | held);
            }
            bits >>= 1;
            fd += 1;
        }
        // The lowest free descriptor is taken first: what is open far above is one or two that were put there, as the script of a shell or the
        // file of a lock.
        while fd < BEYOND {
            if fd >= most {
                break;
            }
            bits = Probed::read(open.add(fd as usize / 8));
            let mut of_word = 0;
            while of_word < 2 {
                if bits != 0 {
                    let held = held(Probed::read(all.add((fd + lowest(bits)) as usize * size_of::<Ptr>())));
                    found.write_volatile(found.read_volatile() | held);
                }
                bits &= bits.wrapping_sub(1);
                of_word += 1;
            }
            if bits != 0 {
                found.write_volatile(found.read_volatile() | armed_flags::MORE);
            }
            fd += u64::BITS;
        }
        // The table grows for what is put there. It shrinks only in a fork, whose own is sized by what is open.
        if most > BEYOND {
            found.write_volatile(found.read_volatile() | armed_flags::MORE);
        }
        found.read_volatile()
    }
}

/// The number of the lowest bit that is set.
#[inline(always)]
fn lowest(bits: u64) -> u32 {
    bits.trailing_zeros()
}

/// What a file of the process is to clients.
#[inline(always)]
unsafe fn held(file: Ptr) -> u32 {
    unsafe {
        let inode: Ptr = Probed::get(file, Field::FileInode);
        if Probed::get::<u16>(inode, Field::InodeMode) & S_IFMT != S_IFSOCK {
            return 0;
        }
        let socket: Ptr = Probed::get(file, Field::FilePrivate);
        let sk: Ptr = Probed::get(socket, Field::SocketSk);
        let family: u16 = Probed::get(sk, Field::SockFamily);
        let state: u8 = Probed::get(sk, Field::SockState);
        if family == AF_UNIX {
            return match state {
                LISTEN if is_only_holder(file) => armed_flags::UNIX_LISTENER | armed_flags::UNIX_LAST,
                LISTEN => armed_flags::UNIX_LISTENER,
                ESTABLISHED if is_accepted(sk) => armed_flags::UNOBSERVED,
                _ => 0,
            };
        }
        if !matches!(family, AF_INET | AF_INET6) {
            return 0;
        }
        match Probed::get::<u16>(sk, Field::SockProtocol) & 0xff {
            IPPROTO_TCP => match state {
                LISTEN => armed_flags::LISTENER,
                ESTABLISHED | FIN_WAIT1 | FIN_WAIT2 | CLOSE_WAIT if is_bound(sk) => armed_flags::CONNECTION,
                _ => 0,
            },
            // A client mostly connects; what a resolver sends without that has gone by the time of an exit.
            IPPROTO_UDP if state != ESTABLISHED && Probed::get::<u16>(sk, Field::SockNum) != 0 => {
                armed_flags::UNOBSERVED | armed_flags::UDP
            }
            _ => 0,
        }
    }
}

#[inline(always)]
unsafe fn is_only_holder(file: Ptr) -> bool {
    unsafe {
        let is_counted = has(Field::FileCount) && Probed::get::<u64>(file, Field::FileCount) == 1;
        is_counted || has(Field::FileRef) && Probed::get::<u64>(file, Field::FileRef) == 0
    }
}

/// Of a Unix stream socket: it has the address of a listener. A client's has one only if it binds its own, and a socketpair(2) none.
#[inline(always)]
unsafe fn is_accepted(sk: Ptr) -> bool {
    unsafe { has(Field::UnixAddr) && Probed::get::<u64>(sk, Field::UnixAddr) != 0 }
}

/// False for a connection whose port connect(2) chose: `__inet_hash_connect` marks the port's bucket with -1, bind(2) and listen(2) with 0 or
/// 1. An accepted connection shares its listener's bucket.
#[inline(always)]
unsafe fn is_bound(sk: Ptr) -> bool {
    unsafe {
        let bucket: Ptr = Probed::get(sk, Field::CsockBindBucket);
        Probed::get::<u8>(bucket, Field::BindBucketReuse) != u8::MAX
    }
}

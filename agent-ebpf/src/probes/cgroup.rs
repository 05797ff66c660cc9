//! cgroup_mkdir and cgroup_rmdir, of any hierarchy.

use core::ptr::addr_of_mut;

use aya_ebpf::helpers::generated::bpf_probe_read_kernel_str;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::warn;
use epitaph_ebpf::{CgroupMkdir, CgroupRmdir, Class, Field, Kind, PATH_LEN, watch};

use super::kernel::{self, Direct, Ptr, Read, cgroup_id};
use super::maps::{self, Charge, Owner};

#[btf_tracepoint(function = "cgroup_mkdir")]
pub fn cgroup_mkdir(ctx: BtfTracePointContext) -> i32 {
    let cgroup: Ptr = ctx.arg(0);
    let path: Ptr = ctx.arg(1);
    unsafe {
        let id = cgroup_id::<Direct>(cgroup);
        let hierarchy = hierarchy(cgroup);
        // Up through the css, not a cast of it: the verifier knows what `css->cgroup` is.
        let parent_css: Ptr = Direct::get(cgroup, Field::CgroupSelfParent);
        let parent = if parent_css.is_null() {
            0
        } else {
            cgroup_id::<Direct>(Direct::get(parent_css, Field::CssCgroup))
        };

        // Before a process can start in the cgroup. The record follows, so its reader finds the watch in place.
        let mut container = 0;
        let mut owner = Owner::MACHINE;
        if let Some(keys) = key(hierarchy) {
            let of_parent = maps::watched(parent | keys);
            container = of_parent[watch::CONTAINER];
            owner = maps::named_owner(of_parent);
            if of_parent[watch::BITS] & watch::CHILDREN != 0 && !maps::watch_child(id | keys, of_parent) {
                maps::lost_of(owner, Class::Mkdir);
                // A container that fills the map would log thousands of lines a second.
                if !owner.is_named {
                    warn!(&ctx, "no room to watch cgroup {}: exits of its processes may be missed", id);
                }
            }
        }
        let Some(mut entry) = maps::reserve::<CgroupMkdir>(Kind::CgroupMkdir, rare(Class::Mkdir, owner)) else {
            return 0;
        };
        let record = entry.as_mut_ptr();
        (*record).id = id;
        (*record).parent = parent;
        (*record).container = container;
        (*record).hierarchy = hierarchy;
        // The helper does not clear what follows the text, and the room has held other records.
        let words = addr_of_mut!((*record).path).cast::<u64>();
        (0..PATH_LEN / 8).for_each(|i| words.add(i).write_volatile(0));
        let written = bpf_probe_read_kernel_str(words.cast(), PATH_LEN as u32, path.cast());
        // The result includes the NUL; a path of exactly its room was cut.
        (*record).path_len = match written {
            1.. if written as usize == PATH_LEN => PATH_LEN as u32,
            1.. => written as u32 - 1,
            _ => 0,
        };
        entry.submit(0);
    }
    0
}

#[btf_tracepoint(function = "cgroup_rmdir")]
pub fn cgroup_rmdir(ctx: BtfTracePointContext) -> i32 {
    let cgroup: Ptr = ctx.arg(0);
    unsafe {
        let id = cgroup_id::<Direct>(cgroup);
        let hierarchy = hierarchy(cgroup);
        let mut owner = Owner::MACHINE;
        if let Some(keys) = key(hierarchy) {
            owner = maps::named_owner(maps::watched(id | keys));
            maps::unwatch(id | keys);
        }
        let Some(mut entry) = maps::reserve::<CgroupRmdir>(Kind::CgroupRmdir, rare(Class::Rmdir, owner)) else {
            return 0;
        };
        let record = entry.as_mut_ptr();
        (*record).id = id;
        (*record).hierarchy = hierarchy;
        (*record).pad = 0;
        entry.submit(0);
    }
    0
}

#[inline(always)]
fn rare(class: Class, owner: Owner) -> Charge {
    Charge {
        class,
        owner,
        is_rare: true,
    }
}

#[inline(always)]
unsafe fn hierarchy(cgroup: Ptr) -> u32 {
    unsafe {
        let root: Ptr = Direct::get(cgroup, Field::CgroupRoot);
        Direct::get(root, Field::CgroupRootHierarchyId)
    }
}

/// The key under which a cgroup's id is kept, if its hierarchy distinguishes tasks.
#[inline(always)]
fn key(hierarchy: u32) -> Option<u64> {
    let of_v1 = kernel::v1_hierarchy();
    if hierarchy == kernel::hierarchy().into() {
        Some(0)
    } else if of_v1 != 0 && hierarchy == of_v1.into() {
        Some(epitaph_ebpf::v1_cgroup(of_v1, 0))
    } else {
        None
    }
}

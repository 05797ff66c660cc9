//! Files of `/proc`: names of processes and cgroups in them are chosen by anyone.

use std::path::Path;

use super::hierarchy::{Membership, Mount, resolve};
use super::process::{Stat, namespace};
use crate::fuzz::{outcome, run};

const STAT: &str = "4711 (co) mm)) S 1 4711 4711 0 -1 4194304 1 0 0 0 1 2 0 0 20 0 1 0 987654 1 2 3\n";
const STATUS: &str = "Name:\tcat\nUmask:\t0022\nState:\tS (sleeping)\nNSpid:\t4711\t12\t1\nNSpgid:\t4711\n";
const CGROUP: &str = "12:cpu,cpuacct:/docker/3f1c\n1:name=systemd:/system.slice/a.service\n0::/../kubepods.slice (deleted)\n";
const MOUNTINFO: &str = "36 35 0:30 /.. /sys/fs/cgroup/cpu\\040x rw,relatime shared:9 - cgroup cgroup rw,cpu\n\
                         37 35 0:31 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

#[test]
fn procfs() {
    let seeds = [STAT, STATUS, CGROUP, MOUNTINFO].map(|seed| seed.as_bytes().to_vec());
    run("procfs", seeds.into(), |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let stat = Stat::parse(&text);
        assert!(stat.as_ref().is_none_or(|stat| stat.comm.chars().count() <= 45));
        let depth = namespace(&text);
        let memberships: Vec<_> = text.lines().filter_map(Membership::parse).collect();
        let classes: Vec<_> = memberships
            .iter()
            .map(|line| line.preference(|number| number == 12).0)
            .collect();
        for line in &memberships {
            let real = resolve("/kubepods.slice/pod", line.path);
            assert!(real.len() <= line.path.len() + 20, "{real}");
        }
        let mounts = text
            .lines()
            .filter_map(|line| Mount::parse(line, Path::new("/host/sys")))
            .count();
        outcome((stat.is_some(), depth.is_some(), classes, mounts.min(4)))
    });
}

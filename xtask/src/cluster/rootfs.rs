//! What a node's machine is made of: Debian's packages and the programs that the cluster builds, as a disk, a kernel and the
//! small initrd that finds the disk.
//!
//! Nothing here is specific to a node: `tests/src/cluster/node/` appends a node's own files to the initrd.

use std::{
    ffi::OsString,
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    debian,
    kernels::packages,
    shell::{self, Content},
};

/// A Debian that a machine is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Debian 11: systemd 247, kernel 5.10.
    Bullseye,
    /// Debian 12: systemd 252, kernel 6.1; nodes of clusters if asked for.
    Bookworm,
    /// Debian 13: the nodes of clusters.
    Trixie,
    /// Debian 13 with the kernel of its backports, whose AppArmor may mediate D-Bus (from 6.17 on): nodes of clusters if asked for.
    TrixieBackports,
    /// Debian 13 with its own container runtimes, and CRI-O.
    Runtimes,
    /// Debian 12 with its OOM killers in user space, and a second container runtime.
    OomDaemons,
}

impl Suite {
    /// By the number that people know: `11`.
    pub fn numbered(number: &str) -> Option<Suite> {
        match number {
            "11" => Some(Suite::Bullseye),
            "12" => Some(Suite::Bookworm),
            "13" => Some(Suite::Trixie),
            _ => None,
        }
    }

    /// Those that nodes of clusters are made of, as [`Suite::numbered`].
    pub fn of_nodes(name: &str) -> Option<Suite> {
        match name {
            "12" => Some(Suite::Bookworm),
            "13" => Some(Suite::Trixie),
            "13-backports" => Some(Suite::TrixieBackports),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Suite::Bullseye => "bullseye",
            Suite::Bookworm | Suite::OomDaemons => "bookworm",
            Suite::Trixie | Suite::TrixieBackports | Suite::Runtimes => "trixie",
        }
    }

    /// The packages' names, as apt-get takes them.
    fn all_packages(self) -> Vec<&'static str> {
        let kernel = match self {
            Suite::TrixieBackports => KERNEL_OF_BACKPORTS,
            _ => KERNEL,
        };
        [&[kernel][..], &PACKAGES, self.packages()].concat()
    }

    /// Packages besides [`PACKAGES`].
    fn packages(self) -> &'static [&'static str] {
        match self {
            Suite::Bullseye => &[],
            Suite::Bookworm | Suite::Trixie | Suite::TrixieBackports => &OF_NODES,
            Suite::Runtimes => &RUNTIMES,
            Suite::OomDaemons => &OOM_DAEMONS,
        }
    }

    /// Modules besides [`MODULES`], and how mmdebstrap lays the root out as the installer does.
    fn additions(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Suite::Bullseye => (&BEFORE_TRIXIE, &[MERGED_USR]),
            Suite::Bookworm => (&BEFORE_TRIXIE, &[]),
            Suite::Trixie => (&[], &[]),
            Suite::TrixieBackports => (&["virtio_pci", "ext4"], &[]),
            Suite::Runtimes => (&[], &[NOT_AT_BOOT]),
            Suite::OomDaemons => (&BEFORE_TRIXIE, &[ONE_AT_A_TIME]),
        }
    }
}

const BEFORE_TRIXIE: [&str; 3] = ["virtio_pci", "crc32c_generic", "ext4"];
/// As the installer does, and as every later Debian is.
const MERGED_USR: &str =
    "--setup-hook=cd \"$1\" && for dir in bin sbin lib lib64; do mkdir -p usr/$dir && ln -s usr/$dir $dir; done";
/// Docker's daemon is started by the test, once the machine's own containerd runs.
const NOT_AT_BOOT: &str = "--customize-hook=chroot \"$1\" systemctl disable docker.service docker.socket";
/// Each is started by the test, alone.
const ONE_AT_A_TIME: &str = "--customize-hook=chroot \"$1\" systemctl disable systemd-oomd.service earlyoom.service";
/// Its parser, with which containerd loads the default profile of containers. The package's own profiles stay unloaded: the unit is masked.
const OF_NODES: [&str; 1] = ["apparmor"];
const OOM_DAEMONS: [&str; 3] = ["systemd-oomd", "earlyoom", "crun"];
/// Packages that make the disk and the initrd, run the machines and connect to them.
const TOOLS: [&str; 7] = [
    // For the agent's image.
    "ca-certificates",
    "mmdebstrap",
    "e2fsprogs",
    "cpio",
    "xz-utils",
    "qemu-system-x86",
    "openssh-client",
];
const KERNEL: &str = "linux-image-cloud-amd64";
const KERNEL_OF_BACKPORTS: &str = "linux-image-cloud-amd64/trixie-backports";
const PACKAGES: [&str; 22] = [
    "systemd",
    "systemd-sysv",
    "libpam-systemd",
    "dbus",
    "udev",
    "kmod",
    "runc",
    "containernetworking-plugins",
    "conntrack",
    // Both modes of kube-proxy.
    "nftables",
    "iptables",
    "iproute2",
    "iputils-ping",
    "ethtool",
    "util-linux",
    "mount",
    "procps",
    "e2fsprogs",
    "netbase",
    "ca-certificates",
    "openssh-server",
    "busybox-static",
];
/// Docker, Podman, and what Podman only recommends: a network, the pause program of pods, and user namespaces for rootless containers.
const RUNTIMES: [&str; 9] = [
    "docker.io",
    "docker-cli",
    "podman",
    "crun",
    "netavark",
    "catatonit",
    "uidmap",
    "dbus-user-session",
    "passt",
];
/// Omitted from the disk: a third of its size, and unused.
const UNREAD: [&str; 4] = [
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/locale/*",
    "/usr/share/info/*",
];
/// To find the disk and the network; in [`Suite::Trixie`] ext4 and virtio's bus are built into the kernel.
const MODULES: [&str; 3] = ["virtio_blk", "virtio_net", "virtio_rng"];
/// Room for images and logs. The file is sparse.
const DISK_MIB: u32 = 8192;

/// `/node` is what the node's own archive brought.
const INIT: &str = "#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
echo 'epitaph: initrd' >/dev/console
for module in $(cat /modules/order); do insmod /modules/$module; done
while [ ! -b /dev/vda ]; do sleep 0.1; done
mount -t ext4 -o rw,noatime /dev/vda /root || exec sh
cp -a /node/. /root/
umount /proc /sys
mount -o move /dev /root/dev
exec switch_root /root /sbin/init
";

/// The parts of a machine, all in one directory.
pub struct Rootfs {
    /// An ext4 file system, raw. To be copied: a node writes to its own.
    pub disk: PathBuf,
    pub kernel: PathBuf,
    pub initrd: PathBuf,
    /// Static, for images. Not the host's: Debian 12's falls over its own name resolution.
    pub busybox: PathBuf,
}

/// Builds the disk of a `suite` with `programs` in `/usr/local/bin`, once for its content. The path of each program must change with its
/// content.
///
/// # Errors
/// Not root, no Debian archive among the machine's apt sources, or a step of the build fails.
pub fn build(suite: Suite, programs: &[PathBuf]) -> Result<Rootfs> {
    let dir = shell::cache().join("cluster").join(format!("node-{}", key(suite, programs)));
    let parts = Rootfs {
        disk: dir.join("rootfs.raw"),
        kernel: dir.join("vmlinuz"),
        initrd: dir.join("initrd"),
        busybox: dir.join("busybox"),
    };
    debian::ensure(&TOOLS, "the cluster's nodes")?;
    if dir.is_dir() {
        return Ok(parts);
    }
    ensure!(
        shell::is_root(),
        "creating the nodes' Debian root needs root; run this task as root"
    );
    // Under another name until it is whole.
    let partial = dir.with_extension(std::process::id().to_string());
    fs::create_dir_all(&partial).with_context(|| format!("creating {}", partial.display()))?;
    if let Err(error) = make(suite, programs, &partial) {
        fs::remove_dir_all(&partial).with_context(|| format!("removing {}", partial.display()))?;
        return Err(error);
    }
    fs::rename(&partial, &dir).with_context(|| format!("renaming to {}", dir.display()))?;
    Ok(parts)
}

fn make(suite: Suite, programs: &[PathBuf], partial: &Path) -> Result<()> {
    let root = partial.join("root");
    bootstrap(suite, &root)?;
    add_programs(&root, programs)?;
    take_kernel(&root, &partial.join("vmlinuz"))?;
    fs::copy(root.join("bin/busybox"), partial.join("busybox")).context("taking busybox from the nodes' root")?;
    make_initrd(suite, &root, partial)?;
    make_disk(&root, &partial.join("rootfs.raw"))?;
    fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))
}

fn key(suite: Suite, programs: &[PathBuf]) -> String {
    let mut content = Content::default();
    content.part("suite", suite.name().as_bytes());
    let (modules, options) = suite.additions();
    let packages = suite.all_packages();
    for part in packages.iter().chain(&UNREAD).chain(&MODULES).chain(modules).chain(options) {
        content.part("part", part.as_bytes());
    }
    content.part("init", INIT.as_bytes());
    content.part("size", &DISK_MIB.to_le_bytes());
    content.part("files", b"rootfs.raw vmlinuz initrd busybox");
    // Their directory bears the key of their content; reading 200 MB at every call would take seconds.
    for program in programs {
        content.part("program", program.as_os_str().as_encoded_bytes());
    }
    content.hex()[..16].to_owned()
}

fn bootstrap(suite: Suite, root: &Path) -> Result<()> {
    let security = format!("{}-security", suite.name());
    let security: &[&str] = match suite {
        // Its support has ended: the lists name packages that are not there any more.
        Suite::Bullseye => &[],
        Suite::Bookworm | Suite::Trixie | Suite::TrixieBackports | Suite::Runtimes | Suite::OomDaemons => &[&security],
    };
    let suites: &[&str] = match suite {
        Suite::TrixieBackports => &["trixie", "trixie-backports"],
        _ => &[suite.name()],
    };
    let sources = packages::sources(suites, security)?;
    let mut mmdebstrap = Command::new("unshare");
    // A mount namespace of its own: what is mounted for the packages' scripts goes with it.
    mmdebstrap
        .args([
            "--mount",
            "mmdebstrap",
            "--mode=root",
            "--variant=essential",
            "--format=directory",
        ])
        .arg(format!("--include={}", suite.all_packages().join(",")))
        .args(["--aptopt=APT::Install-Recommends \"false\"", "--dpkgopt=force-unsafe-io"])
        .args(UNREAD.map(|path| format!("--dpkgopt=path-exclude={path}")))
        .args(suite.additions().1)
        .arg(suite.name())
        .arg(root)
        .args(sources.lines())
        .env("PATH", shell::path())
        .env_remove("LD_LIBRARY_PATH")
        // The nodes have an initrd of ours.
        .env("INITRD", "No");
    shell::run_quietly(&mut mmdebstrap, "making the nodes' Debian root (once, two to five minutes)")
}

fn add_programs(root: &Path, programs: &[PathBuf]) -> Result<()> {
    for program in programs {
        let name = program
            .file_name()
            .with_context(|| format!("{} is not a program", program.display()))?;
        let target = root.join("usr/local/bin").join(name);
        fs::copy(program, &target).with_context(|| format!("copying {} into the nodes' root", program.display()))?;
        fs::set_permissions(&target, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn take_kernel(root: &Path, target: &Path) -> Result<()> {
    let kernel = only(&root.join("boot"), "vmlinuz-")?;
    fs::copy(&kernel, target).with_context(|| format!("copying {}", kernel.display()))?;
    // No machine boots from the disk.
    fs::remove_dir_all(root.join("boot")).context("emptying /boot")?;
    fs::create_dir(root.join("boot")).context("emptying /boot")
}

/// Busybox, some modules and [`INIT`]: distributions' own initrds start an udev, which costs seconds under emulation.
fn make_initrd(suite: Suite, root: &Path, dir: &Path) -> Result<()> {
    let tree = dir.join("initrd.d");
    for sub in ["bin", "proc", "sys", "dev", "root", "node", "modules"] {
        fs::create_dir_all(tree.join(sub)).with_context(|| format!("making the initrd's {sub}"))?;
    }
    fs::copy(dir.join("busybox"), tree.join("bin/busybox")).context("copying busybox into the initrd")?;
    for applet in ["sh", "mount", "umount", "cat", "cp", "sleep", "insmod", "switch_root"] {
        symlink("busybox", tree.join("bin").join(applet))?;
    }
    let modules = only(&root.join("usr/lib/modules"), "")?;
    let read = |name: &str| fs::read_to_string(modules.join(name)).with_context(|| format!("reading {name}"));
    let wanted = [suite.additions().0, &MODULES].concat();
    let order = in_order(&wanted, &read("modules.dep")?, &read("modules.builtin")?)?;
    let mut names = String::new();
    for module in order {
        let name = module
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .trim_end_matches(".xz")
            .to_owned();
        let target = tree.join("modules").join(&name);
        fs::write(&target, debian::unpacked_module(&modules.join(&module))?)
            .with_context(|| format!("writing {}", target.display()))?;
        names.push_str(&name);
        names.push('\n');
    }
    fs::write(tree.join("modules/order"), names)?;
    fs::write(tree.join("init"), INIT)?;
    fs::set_permissions(tree.join("init"), Permissions::from_mode(0o755))?;
    let mut pack = Command::new("sh");
    pack.args([
        "-ec",
        "find . | sort | cpio --quiet --create --format=newc --owner=+0:+0 --file=../initrd",
    ])
    .current_dir(&tree);
    shell::run_quietly(&mut pack, "packing the nodes' initrd")?;
    fs::remove_dir_all(&tree).with_context(|| format!("removing {}", tree.display()))
}

/// The files of the modules and of what they need, in the order of loading; without those that are built into the kernel.
fn in_order(modules: &[&str], modules_dep: &str, modules_builtin: &str) -> Result<Vec<String>> {
    let mut order: Vec<String> = Vec::new();
    for module in modules {
        let named = |line: &&str| {
            let file = line
                .split(':')
                .next()
                .unwrap_or_default()
                .rsplit('/')
                .next()
                .unwrap_or_default();
            file.split(".ko").next().is_some_and(|name| name.replace('-', "_") == *module)
        };
        if modules_builtin.lines().any(|line| named(&line)) {
            continue;
        }
        let line = modules_dep
            .lines()
            .find(named)
            .with_context(|| format!("the kernel has no module {module}"))?;
        let (file, needs) = line.split_once(':').unwrap_or((line, ""));
        // modules.dep names the last to be loaded first.
        for wanted in needs.split_whitespace().rev().chain([file]) {
            if !order.iter().any(|known| known == wanted) {
                order.push(wanted.to_owned());
            }
        }
    }
    Ok(order)
}

fn make_disk(root: &Path, disk: &Path) -> Result<()> {
    let mut mke2fs = Command::new("mke2fs");
    mke2fs
        .args([
            "-q",
            "-t",
            "ext4",
            "-m",
            "0",
            "-E",
            "lazy_itable_init=1,lazy_journal_init=1",
            "-d",
        ])
        .arg(root)
        .arg(disk)
        .arg(format!("{DISK_MIB}M"))
        .env("PATH", shell::path());
    shell::run_quietly(&mut mke2fs, "making the nodes' disk")
}

/// The only entry of `dir` whose name begins with `prefix`.
fn only(dir: &Path, prefix: &str) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("listing {}", dir.display()))? {
        let name: OsString = entry?.file_name();
        if name.as_encoded_bytes().starts_with(prefix.as_bytes()) {
            found.push(dir.join(name));
        }
    }
    ensure!(
        found.len() == 1,
        "{} has {} entries {prefix}*, expected one",
        dir.display(),
        found.len()
    );
    found.pop().context("one was counted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_loaded_after_what_it_needs_and_once() {
        let dep = "\
kernel/drivers/net/virtio_net.ko.xz: kernel/drivers/net/net_failover.ko.xz kernel/net/core/failover.ko.xz
kernel/drivers/block/virtio_blk.ko.xz:
kernel/drivers/char/hw_random/virtio-rng.ko.xz: kernel/net/core/failover.ko.xz
";
        let order = in_order(&MODULES, dep, "").unwrap();
        let names: Vec<&str> = order.iter().map(|path| path.rsplit('/').next().unwrap()).collect();
        assert_eq!(
            names,
            [
                "virtio_blk.ko.xz",
                "failover.ko.xz",
                "net_failover.ko.xz",
                "virtio_net.ko.xz",
                "virtio-rng.ko.xz"
            ]
        );
        let builtin = "kernel/drivers/block/virtio_blk.ko\nkernel/drivers/net/virtio_net.ko\n";
        let order = in_order(&MODULES, dep, builtin).unwrap();
        assert_eq!(
            order,
            [
                "kernel/net/core/failover.ko.xz",
                "kernel/drivers/char/hw_random/virtio-rng.ko.xz"
            ]
        );
        assert!(in_order(&MODULES, "", "").is_err());
    }
}

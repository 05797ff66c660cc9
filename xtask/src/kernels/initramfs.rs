//! The guest's whole file system: busybox, the programs under test with the libraries they name, and an init.

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    io::Write as _,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use super::{
    Guest,
    cgroups::Layout,
    platform::{Files, Platform},
    vm::END,
};
use crate::{dist, shell};

const APPLETS: [&str; 11] = [
    "mount", "mkdir", "cat", "ls", "ps", "ip", "kill", "uname", "stty", "poweroff", "insmod",
];

/// Not busybox's, because a test looks at what they are, or busybox has nothing of the kind.
const TOOLS: [&str; 6] = ["sh", "sleep", "true", "unshare", "setpriv", "dmesg"];

/// Init's line on the console before the test begins.
pub const BEGIN: &str = "epitaph: init";

/// Builds `DIR/initramfs.cpio` with the guest's programs in `/bin` and an init that runs its command.
///
/// # Errors
/// A program is missing, or busybox-static or cpio are not installed.
pub fn build(dir: &Path, guest: &Guest, cgroups: Layout, platform: &Platform, files: &Files) -> Result<PathBuf> {
    shell::log("packing the guest");
    let root = dir.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    for sub in ["bin", "proc", "sys", "dev", "tmp", "run", "etc", "root", "var"] {
        fs::create_dir_all(root.join(sub))?;
    }
    let busybox = files.which("busybox").context("busybox is missing")?;
    ensure!(
        files.libraries(&busybox)?.is_empty(),
        "{} is not static; run: apt-get install busybox-static",
        busybox.display()
    );
    fs::copy(&busybox, root.join("bin/busybox"))?;
    for applet in APPLETS {
        symlink("busybox", root.join("bin").join(applet))?;
    }
    let mut needed = BTreeSet::new();
    let tools = TOOLS.iter().filter_map(|tool| files.which(tool));
    for program in &guest.programs.iter().cloned().chain(tools).collect::<Vec<_>>() {
        let name = program
            .file_name()
            .with_context(|| format!("{} is not a program", program.display()))?;
        let target = root.join("bin").join(name);
        // Unstripped they would double the guest's memory.
        dist::strip(platform.arch, program, &target)?;
        // A test binary knows its players by the paths they were built at.
        let built = root.join(program.strip_prefix("/").unwrap_or(program));
        if built != target {
            fs::create_dir_all(built.parent().context("a program lies at the root")?)?;
            symlink(Path::new("/bin").join(name), &built)?;
        }
        needed.extend(files.libraries(program)?);
    }
    for (library, there) in needed {
        let target = root.join(there.strip_prefix("/").unwrap_or(&there));
        fs::create_dir_all(target.parent().context("a library lies at the root")?)?;
        fs::copy(&library, &target).with_context(|| format!("copying {} for the guest", library.display()))?;
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    fs::write(root.join("etc/group"), "root:x:0:\n")?;
    fs::write(root.join("etc/hostname"), "epitaph-guest\n")?;
    fs::write(root.join("init"), init(&guest.command, cgroups, platform))?;
    fs::set_permissions(root.join("init"), Permissions::from_mode(0o755))?;
    pack(&root, &dir.join("initramfs.cpio"))
}

/// The report goes to the second serial port.
fn init(command: &str, cgroups: Layout, platform: &Platform) -> String {
    let (cgroups, report) = (cgroups.mounts(), platform.report);
    format!(
        "#!/bin/sh
export PATH=/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
echo '{BEGIN}' >/dev/console
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmp /dev/shm
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
{cgroups}ip link set lo up
for module in /modules/*.ko; do
    if [ -e \"$module\" ]; then insmod \"$module\"; fi
done
stty -F /dev/{report} raw
exec >/dev/{report} 2>&1
{command}
echo \"{END}$?\"
sleep 0.2
poweroff -f
"
    )
}

/// The kernel's own modules in `/modules`, in a second archive behind the first; `initramfs` itself without any.
///
/// # Errors
/// A file cannot be written, or cpio fails.
pub fn with_modules(initramfs: &Path, modules: &Path) -> Result<PathBuf> {
    if !modules.is_dir() {
        return Ok(initramfs.to_owned());
    }
    let both = modules.with_file_name("initramfs.cpio");
    let mut archive = fs::read(initramfs).with_context(|| format!("reading {}", initramfs.display()))?;
    let root = modules.with_file_name("initramfs");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    fs::create_dir_all(root.join("modules"))?;
    for module in fs::read_dir(modules)? {
        let module = module?;
        fs::copy(module.path(), root.join("modules").join(module.file_name()))?;
    }
    archive.extend(fs::read(pack(&root, &both)?)?);
    fs::write(&both, archive).with_context(|| format!("writing {}", both.display()))?;
    Ok(both)
}

/// Uncompressed: under emulation unpacking costs more than reading.
fn pack(root: &Path, archive: &Path) -> Result<PathBuf> {
    let mut names = Vec::new();
    walk(root, root, &mut names)?;
    let mut cpio = Command::new("cpio")
        .args(["--quiet", "--create", "--format=newc", "--owner=+0:+0", "--null", "--file"])
        .arg(archive)
        .current_dir(root)
        .stdin(Stdio::piped())
        .spawn()
        .context("starting cpio")?;
    let mut stdin = cpio.stdin.take().context("cpio's input was not piped")?;
    for name in names {
        stdin.write_all(name.as_os_str().as_encoded_bytes())?;
        stdin.write_all(&[0])?;
    }
    drop(stdin);
    ensure!(cpio.wait()?.success(), "cpio could not write {}", archive.display());
    Ok(archive.to_owned())
}

fn walk(root: &Path, dir: &Path, names: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        names.push(entry.path().strip_prefix(root)?.to_owned());
        if entry.file_type()?.is_dir() {
            walk(root, &entry.path(), names)?;
        }
    }
    Ok(())
}

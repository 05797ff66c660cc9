//! Removes the root when the task ends, also after Ctrl-C or a crash: a separate process, in a process group of its own.
//!
//! *Architecture invariant*: the root is not removed while something is mounted below it or a process runs in it. Its mounts
//! belong to the mount namespace of the processes inside and disappear with the last of them; the keeper's namespace has none.

use std::{
    fs::{self, File, Permissions, TryLockError},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::shell;

/// What the keeper prints once the root directory is empty.
const READY: &str = "ready";

pub struct Keeper {
    child: Child,
}

/// Where the root is.
pub fn root(dir: &Path) -> PathBuf {
    dir.join("root")
}

impl Keeper {
    /// Removes what an earlier run left in `dir`, and locks `dir`.
    pub fn start(dir: &Path) -> Result<Keeper> {
        let mut child = Command::new(std::env::current_exe().context("finding this program")?)
            .args(["test", "fresh", "--keeper"])
            .arg(dir)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the keeper of the fresh root")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("the pipe that was just asked for")?)
            .read_line(&mut line)
            .context("reading from the keeper of the fresh root")?;
        if line.trim() != READY {
            child.wait().context("waiting for the keeper of the fresh root")?;
            bail!("the keeper of the fresh root failed: see above");
        }
        Ok(Keeper { child })
    }

    /// Kills what still runs in the root, and removes it.
    pub fn end(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait().context("waiting for the keeper of the fresh root")?;
        ensure!(status.success(), "the fresh root was not removed: see above");
        Ok(())
    }
}

/// A failed task waits too: nothing is left when its error is printed.
impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The keeper's process: waits until the task closes the pipe or exits.
pub fn keep(dir: &Path) -> Result<ExitCode> {
    let root = root(dir);
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let path = dir.join("lock");
    let lock = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!(
            "another `cargo xtask test fresh` runs on this machine: {} is locked",
            path.display()
        ),
        Err(TryLockError::Error(error)) => return Err(error).with_context(|| format!("locking {}", path.display())),
    }
    clear(&root)?;
    fs::create_dir(&root).with_context(|| format!("creating {}", root.display()))?;
    fs::set_permissions(&root, Permissions::from_mode(0o755)).with_context(|| format!("opening {}", root.display()))?;
    println!("{READY}");
    std::io::stdout().flush().context("writing to the task")?;
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    shell::log("removing the fresh root");
    clear(&root)?;
    Ok(ExitCode::SUCCESS)
}

/// Kills every process in `root`, and removes it.
fn clear(root: &Path) -> Result<()> {
    if !root.exists() {
        return Ok(());
    }
    kill_processes(root)?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("reading the mounts")?;
    let below = mounted_below(&mounts, root);
    ensure!(
        below.is_empty(),
        "{} is not removed because something is mounted there; run: umount {}",
        root.display(),
        below.join(" ")
    );
    fs::remove_dir_all(root).with_context(|| format!("removing {}", root.display()))
}

fn kill_processes(root: &Path) -> Result<()> {
    let mut is_first = true;
    let gone = shell::found_within(Duration::from_secs(10), || {
        let running = processes_in(root)?;
        if running.is_empty() {
            return Ok(Some(()));
        }
        if std::mem::take(&mut is_first) {
            let name = |pid: &String| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let names: Vec<String> = running.iter().map(|pid| name(pid).trim().to_owned()).collect();
            shell::log(format_args!("killing the processes left in it: {}", names.join(", ")));
        }
        let mut kill = Command::new("sh");
        kill.args(["-c", "kill -KILL \"$@\" 2>/dev/null || true", "sh"])
            .args(&running);
        shell::succeeds(&mut kill);
        Ok(None)
    })?;
    ensure!(
        gone.is_some(),
        "processes still run in {} after SIGKILL: {}",
        root.display(),
        processes_in(root)?.join(" ")
    );
    Ok(())
}

/// The processes whose root directory is `root`, by number.
fn processes_in(root: &Path) -> Result<Vec<String>> {
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let wanted = identity(root).with_context(|| format!("looking at {}", root.display()))?;
    let mut running = Vec::new();
    for entry in fs::read_dir("/proc").context("listing /proc")? {
        let entry = entry.context("listing /proc")?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.bytes().all(|byte| byte.is_ascii_digit()) && identity(&entry.path().join("root")).is_ok_and(|at| at == wanted) {
            running.push(name);
        }
    }
    Ok(running)
}

/// The mount points in `/proc/PID/mountinfo` at and below `root`.
fn mounted_below(mountinfo: &str, root: &Path) -> Vec<String> {
    // Spaces, tabs, newlines and backslashes are octal escapes.
    let plain = |text: &str| {
        text.replace("\\040", " ")
            .replace("\\011", "\t")
            .replace("\\012", "\n")
            .replace("\\134", "\\")
    };
    mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(plain)
        .filter(|point| Path::new(point).starts_with(root))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_at_or_below_the_root_is_found_and_a_siblings_is_not() {
        let mounts = "\
25 1 254:0 / / rw - ext4 /dev/vda rw
26 25 0:5 / /cache/fresh/root/proc rw - proc proc rw
27 25 254:0 / /cache/fresh/root rw - ext4 /dev/vda rw
28 25 254:0 / /cache/fresh/rootless rw - ext4 /dev/vda rw
29 25 254:0 / /cache/fresh/root/a\\040b rw - ext4 /dev/vda rw
";
        assert_eq!(
            mounted_below(mounts, Path::new("/cache/fresh/root")),
            ["/cache/fresh/root/proc", "/cache/fresh/root", "/cache/fresh/root/a b"]
        );
    }

    #[test]
    fn a_process_is_found_by_its_root() {
        let own = std::process::id().to_string();
        assert!(processes_in(Path::new("/proc/self/root")).unwrap().contains(&own));
        assert!(!processes_in(Path::new("/proc/self")).unwrap().contains(&own));
    }
}

//! Removes the root when the task is over, however it ends: a process of its own, out of reach of the terminal's Ctrl-C.
//!
//! *Architecture invariant*: nothing is removed while something is mounted below it, or while a process lives in it. The mounts
//! belong to the namespace of the processes in the root and go with the last of them; none is ever in the keeper's.

use std::{
    fs::{self, File, Permissions, TryLockError},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::shell;

/// What the keeper says when the root may be made.
const READY: &str = "ready";

pub struct Keeper {
    child: Child,
}

/// Where the root is made.
pub fn root(dir: &Path) -> PathBuf {
    dir.join("root")
}

impl Keeper {
    /// Removes what an earlier run left in `dir`, and keeps it from others.
    pub fn start(dir: &Path) -> Result<Keeper> {
        let mut child = Command::new(std::env::current_exe().context("finding this program")?)
            .args(["test", "fresh", "--keeper"])
            .arg(dir)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the keeper of the fresh root")?;
        let mut said = String::new();
        BufReader::new(child.stdout.take().context("the pipe that was just asked for")?)
            .read_line(&mut said)
            .context("hearing from the keeper of the fresh root")?;
        if said.trim() != READY {
            child.wait().context("waiting for the keeper of the fresh root")?;
            bail!("there is no room for a fresh root: see above");
        }
        Ok(Keeper { child })
    }

    /// Ends what still runs in the root, and removes it.
    pub fn end(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait().context("waiting for the keeper of the fresh root")?;
        ensure!(status.success(), "the fresh root was not removed: see above");
        Ok(())
    }
}

/// A task that fails waits too, so that nothing is left when its error is read.
impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The keeper's own process: it waits until whoever started it closes the pipe, or is gone.
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
    std::io::stdout().flush().context("saying that the root may be made")?;
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    shell::say("removing the fresh root");
    clear(&root)?;
    Ok(ExitCode::SUCCESS)
}

/// Ends every process that lives in `root`, and removes it.
fn clear(root: &Path) -> Result<()> {
    if !root.exists() {
        return Ok(());
    }
    end_processes(root)?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("reading the mounts")?;
    let below = mounted_below(&mounts, root);
    ensure!(
        below.is_empty(),
        "{} is not removed, for something is mounted below it: umount {}",
        root.display(),
        below.join(" ")
    );
    fs::remove_dir_all(root).with_context(|| format!("removing {}", root.display()))
}

fn end_processes(root: &Path) -> Result<()> {
    for round in 0..100 {
        let living = living_in(root)?;
        if living.is_empty() {
            return Ok(());
        }
        if round == 0 {
            let name = |pid: &String| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let names: Vec<String> = living.iter().map(|pid| name(pid).trim().to_owned()).collect();
            shell::say(format_args!("ending what still runs there: {}", names.join(", ")));
        }
        let mut kill = Command::new("sh");
        kill.args(["-c", "kill -KILL \"$@\" 2>/dev/null || true", "sh"]).args(&living);
        shell::succeeds(&mut kill);
        thread::sleep(Duration::from_millis(100));
    }
    bail!(
        "processes still live in {}, after SIGKILL: {}",
        root.display(),
        living_in(root)?.join(" ")
    )
}

/// The processes whose root directory is `root`, by number.
fn living_in(root: &Path) -> Result<Vec<String>> {
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let wanted = identity(root).with_context(|| format!("looking at {}", root.display()))?;
    let mut living = Vec::new();
    for entry in fs::read_dir("/proc").context("listing /proc")? {
        let entry = entry.context("listing /proc")?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.bytes().all(|byte| byte.is_ascii_digit()) && identity(&entry.path().join("root")).is_ok_and(|at| at == wanted) {
            living.push(name);
        }
    }
    Ok(living)
}

/// The mount points at and below `root`, of what `/proc/PID/mountinfo` says.
fn mounted_below(mountinfo: &str, root: &Path) -> Vec<String> {
    // A space, tab, newline or backslash is written in octal.
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
    fn a_mount_at_or_below_the_root_is_seen_and_a_neighbours_is_not() {
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
    fn whoever_lives_in_a_root_is_found_by_it() {
        let own = std::process::id().to_string();
        assert!(living_in(Path::new("/proc/self/root")).unwrap().contains(&own));
        assert!(!living_in(Path::new("/proc/self")).unwrap().contains(&own));
    }
}

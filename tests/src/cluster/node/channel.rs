//! Root's shell on a node: ssh over the loopback, both keys made for this node alone.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context as _, ensure};

const KEY: &str = "ssh-key";
const KNOWN_HOSTS: &str = "ssh-known-hosts";
/// Relative, because a socket's path is short; ssh runs in the node's directory.
const CONTROL: &str = "ssh-control";

/// What the guest needs of the two key pairs.
pub struct Keys {
    pub host_private: String,
    pub host_public: String,
    pub client_public: String,
}

/// Makes the guest's and the client's keys in `dir`.
///
/// # Errors
/// ssh-keygen is missing or fails.
pub fn make_keys(dir: &Path, loopback: Ipv4Addr, port: u16) -> anyhow::Result<Keys> {
    let make = |name: &str| -> anyhow::Result<(String, String)> {
        let path = dir.join(name);
        let _ = fs::remove_file(&path);
        let done = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", "epitaph", "-f"])
            .arg(&path)
            .output()
            .context("run ssh-keygen (openssh-client)")?;
        ensure!(
            done.status.success(),
            "ssh-keygen: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        );
        Ok((fs::read_to_string(&path)?, fs::read_to_string(path.with_extension("pub"))?))
    };
    let (host_private, host_public) = make("ssh-host-key")?;
    let (_, client_public) = make(KEY)?;
    fs::write(dir.join(KNOWN_HOSTS), format!("[{loopback}]:{port} {host_public}")).context("write the known hosts")?;
    Ok(Keys {
        host_private,
        host_public,
        client_public,
    })
}

/// Exit and output of a command on a node.
#[derive(Debug)]
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    #[must_use]
    pub fn success(&self) -> bool {
        self.status.success()
    }
}

impl Display for Ran {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.status, self.stderr.trim(), self.stdout.trim())
    }
}

/// The first command connects; those after it share the connection, which costs an emulated machine more than the command.
#[derive(Clone, Debug)]
pub struct Shell {
    dir: PathBuf,
    loopback: Ipv4Addr,
    port: u16,
}

impl Shell {
    #[must_use]
    pub fn new(dir: &Path, loopback: Ipv4Addr, port: u16) -> Shell {
        Shell {
            dir: dir.to_path_buf(),
            loopback,
            port,
        }
    }

    /// Runs `script`; its standard output.
    ///
    /// # Errors
    /// No connection, or the script fails.
    pub fn run(&self, script: &str) -> anyhow::Result<String> {
        let ran = self.exec(script, Stdio::null())?;
        ensure!(ran.success(), "{script}: {ran}");
        Ok(ran.stdout)
    }

    /// Runs `script` with `input`. ssh itself fails with status 255.
    ///
    /// # Errors
    /// ssh cannot be started.
    pub fn exec(&self, script: &str, input: Stdio) -> anyhow::Result<Ran> {
        let done = self
            .ssh()
            .arg(script)
            .stdin(input)
            .output()
            .context("run ssh (openssh-client)")?;
        Ok(Ran {
            status: done.status,
            stdout: String::from_utf8_lossy(&done.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&done.stderr).into_owned(),
        })
    }

    /// Starts `script`, its standard input and output in the hands of the caller.
    ///
    /// # Errors
    /// ssh cannot be started.
    pub fn spawn(&self, script: &str) -> anyhow::Result<Child> {
        let mut ssh = self.ssh();
        ssh.arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        ssh.spawn().context("run ssh (openssh-client)")
    }

    /// Copies a file to the node, with `mode`.
    ///
    /// # Errors
    /// Either file cannot be opened, or no connection.
    pub fn put(&self, from: &Path, to: &str, mode: u32) -> anyhow::Result<()> {
        let file = fs::File::open(from).with_context(|| format!("open {}", from.display()))?;
        let to = quoted(to);
        let ran = self.exec(&format!("cat > {to} && chmod {mode:o} {to}"), file.into())?;
        ensure!(ran.success(), "copy {} to the node: {ran}", from.display());
        Ok(())
    }

    /// Copies a file from the node.
    ///
    /// # Errors
    /// Either file cannot be opened, or no connection.
    pub fn get(&self, from: &str, to: &Path) -> anyhow::Result<()> {
        let file = fs::File::create(to).with_context(|| format!("create {}", to.display()))?;
        let done = self
            .ssh()
            .arg(format!("cat -- {}", quoted(from)))
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(Stdio::piped())
            .output()
            .context("run ssh (openssh-client)")?;
        ensure!(
            done.status.success(),
            "copy {from} from the node: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        );
        Ok(())
    }

    /// An ssh to the node that gets its remote command, or none for a terminal, from the caller.
    #[must_use]
    pub fn ssh(&self) -> Command {
        let mut ssh = Command::new("ssh");
        ssh.current_dir(&self.dir)
            .args(["-F", "/dev/null", "-i", KEY, "-p", &self.port.to_string()]);
        let known_hosts = format!("UserKnownHostsFile={KNOWN_HOSTS}");
        let control = format!("ControlPath={CONTROL}");
        for option in [
            "IdentitiesOnly=yes",
            "BatchMode=yes",
            "StrictHostKeyChecking=yes",
            known_hosts.as_str(),
            "GlobalKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            "ConnectTimeout=20",
            // Does not wait for a machine that is paused or gone.
            "ServerAliveInterval=5",
            "ServerAliveCountMax=4",
            "ControlMaster=auto",
            control.as_str(),
            "ControlPersist=120",
        ] {
            ssh.args(["-o", option]);
        }
        ssh.arg(format!("root@{}", self.loopback));
        ssh
    }

    /// Closes the shared connection: after a reboot its other end is gone.
    pub fn forget(&self) {
        let _ = self
            .ssh()
            .args(["-O", "exit"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

/// One argument for the node's shell.
#[must_use]
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

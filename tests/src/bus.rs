//! A system bus of our own: Debian's dbus-daemon in a directory, with the system bus' policy for signals and names.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

use crate::timeout::until;

const PROGRAM: &str = "dbus-daemon";

/// Anybody may send signals and ask, as on every system bus; only the caller may own a name.
const CONFIG: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=SOCKET</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <deny own="*"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow send_type="method_call"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
  </policy>
  <policy user="OWNER">
    <allow own="*"/>
  </policy>
</busconfig>
"#;

/// Killed when dropped.
pub struct SystemBus {
    directory: PathBuf,
    daemon: Option<Child>,
}

impl SystemBus {
    /// Whether this machine has the program.
    pub fn is_possible() -> bool {
        let asked = Command::new(PROGRAM).arg("--version").stdout(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    }

    /// A bus that does not run yet.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub fn new(directory: &Path) -> anyhow::Result<SystemBus> {
        // For other users, too.
        fs::set_permissions(directory, Permissions::from_mode(0o755))?;
        let bus = SystemBus {
            directory: directory.to_owned(),
            daemon: None,
        };
        let owner = nix::unistd::geteuid().to_string();
        let config = CONFIG
            .replace("SOCKET", &bus.socket().to_string_lossy())
            .replace("OWNER", &owner);
        fs::write(bus.config(), config)?;
        Ok(bus)
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join("system_bus_socket")
    }

    /// # Errors
    /// It does not start.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let _ = fs::remove_file(self.socket());
        let child = Command::new(PROGRAM)
            .args(["--nofork", "--nopidfile", "--nosyslog", "--config-file"])
            .arg(self.config())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // Of limits that a daemon of a test cannot raise.
            .stderr(Stdio::null())
            .spawn()
            .context("start dbus-daemon")?;
        self.daemon = Some(child);
        until("dbus-daemon to listen", || {
            let connected = std::os::unix::net::UnixStream::connect(self.socket());
            Ok(connected.map(drop).map_err(|error| error.to_string()))
        })
    }

    /// # Errors
    /// It cannot be waited for.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill()?;
            daemon.wait()?;
        }
        Ok(())
    }

    fn config(&self) -> PathBuf {
        self.directory.join("bus.conf")
    }
}

impl Drop for SystemBus {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

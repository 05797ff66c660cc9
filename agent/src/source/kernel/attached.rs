//! The probes of this machine, or none: a kernel that cannot run them leaves an agent the evidence of its other sources.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use epitaph_core::ids::CgroupId;
use epitaph_core::input::ProbeState;
use epitaph_core::time::Boot;

use super::btf::BtfError;
use super::probes::PROBES;
use super::{Hierarchies, Kernel, LoadError, Loss, MapError, Options, Turn, layout};

/// The oldest kernel with everything that the probes' object needs.
const OLDEST: (u32, u32) = (5, 10);

/// What the loop observes the kernel with.
pub enum Attached {
    Probes(Box<Kernel>),
    /// Nothing is recorded, and nothing is to be written into maps.
    None {
        hierarchies: Hierarchies,
        states: Vec<(String, ProbeState)>,
    },
}

impl Attached {
    /// `reason`: why this kernel cannot run any probe.
    pub fn none(options: &Options, reason: &str) -> Attached {
        let state = || ProbeState::Unsupported(reason.to_owned());
        Attached::None {
            hierarchies: Hierarchies::of(options),
            states: PROBES.iter().map(|probe| (probe.tracepoint.to_owned(), state())).collect(),
        }
    }

    fn kernel(&mut self) -> Option<&mut Kernel> {
        match self {
            Attached::Probes(kernel) => Some(kernel),
            Attached::None { .. } => None,
        }
    }

    fn write(&mut self, write: impl FnOnce(&mut Kernel) -> Result<(), MapError>) -> Result<(), MapError> {
        self.kernel().map_or(Ok(()), write)
    }

    /// As [`Kernel::probes`].
    pub fn probes(&self) -> &[(String, ProbeState)] {
        match self {
            Attached::Probes(kernel) => kernel.probes(),
            Attached::None { states, .. } => states,
        }
    }

    /// As [`Kernel::memory`].
    pub fn memory(&self) -> u64 {
        match self {
            Attached::Probes(kernel) => kernel.memory(),
            Attached::None { .. } => 0,
        }
    }

    /// As [`Kernel::hierarchies`].
    pub fn hierarchies(&self) -> Hierarchies {
        match self {
            Attached::Probes(kernel) => kernel.hierarchies(),
            Attached::None { hierarchies, .. } => *hierarchies,
        }
    }

    /// As [`Kernel::may_write_maps`].
    pub fn may_write_maps(&mut self) -> bool {
        self.kernel().is_none_or(Kernel::may_write_maps)
    }

    /// As [`Kernel::watch`].
    ///
    /// # Errors
    /// As there.
    pub fn watch(&mut self, cgroup: CgroupId, bits: u64, container: Option<CgroupId>) -> Result<(), MapError> {
        self.write(|kernel| kernel.watch(cgroup, bits, container))
    }

    /// As [`Kernel::watch_for`].
    ///
    /// # Errors
    /// As there.
    pub fn watch_for(
        &mut self,
        cgroup: CgroupId,
        bits: u64,
        container: Option<CgroupId>,
        owner: Option<CgroupId>,
    ) -> Result<(), MapError> {
        self.write(|kernel| kernel.watch_for(cgroup, bits, container, owner))
    }

    /// As [`Kernel::arm`].
    ///
    /// # Errors
    /// As there.
    pub fn arm(&mut self, cgroup: CgroupId) -> Result<(), MapError> {
        self.write(|kernel| kernel.arm(cgroup))
    }

    /// As [`Kernel::disarm`].
    ///
    /// # Errors
    /// As there.
    pub fn disarm(&mut self, cgroup: CgroupId) -> Result<(), MapError> {
        self.write(|kernel| kernel.disarm(cgroup))
    }

    /// As [`Kernel::kubelet`].
    ///
    /// # Errors
    /// As there.
    pub fn kubelet(&mut self, cgroup: CgroupId, is_one: bool) -> Result<(), MapError> {
        self.write(|kernel| kernel.kubelet(cgroup, is_one))
    }

    /// As [`Kernel::give_back_ports`].
    ///
    /// # Errors
    /// As there.
    pub fn give_back_ports(&mut self) -> Result<(), MapError> {
        self.write(Kernel::give_back_ports)
    }

    /// As [`Kernel::give_back`].
    ///
    /// # Errors
    /// As there.
    pub fn give_back(&mut self, now: Boot) -> Result<(), MapError> {
        self.write(|kernel| kernel.give_back(now))
    }

    /// As [`Kernel::test_refusals`].
    ///
    /// # Errors
    /// As there.
    pub fn test_refusals(&mut self, before: Boot) -> Result<Option<(ProbeState, Turn)>, MapError> {
        self.kernel().map_or(Ok(None), |kernel| kernel.test_refusals(before))
    }

    /// As [`Kernel::armed`].
    pub fn armed(&mut self) -> Vec<CgroupId> {
        self.kernel().map(|kernel| kernel.armed()).unwrap_or_default()
    }

    /// As [`Kernel::lost`].
    pub fn lost(&mut self) -> Vec<Loss> {
        self.kernel().map(Kernel::lost).unwrap_or_default()
    }

    /// As [`Kernel::readable`]; without probes it waits forever.
    ///
    /// # Errors
    /// As there.
    pub async fn readable(&mut self) -> std::io::Result<()> {
        match self {
            Attached::Probes(kernel) => kernel.readable().await,
            Attached::None { .. } => std::future::pending().await,
        }
    }

    /// As [`Kernel::drain`].
    pub fn drain(&mut self, each: impl FnMut(&[u8])) -> usize {
        self.kernel().map_or(0, |kernel| kernel.drain(each))
    }

    /// As [`Kernel::ring_records`].
    pub fn ring_records(&self) -> usize {
        match self {
            Attached::Probes(kernel) => kernel.ring_records(),
            Attached::None { .. } => 0,
        }
    }
}

/// Remedy where [`incapable`] has a reason.
pub const NEWER: &str = "boot a kernel from 5.10 on that is built with CONFIG_DEBUG_INFO_BTF; where sysfs is not visible here, name a copy of \
                         the host's /sys/kernel/btf/vmlinux with --btf FILE";

/// Why this kernel cannot run any probe, whoever asks; None if nothing shows that: then what is missing is a right, a setting or a mount.
pub fn incapable(options: &Options, proc: &Path) -> Option<String> {
    let release = fs::read_to_string(proc.join("sys/kernel/osrelease")).unwrap_or_default();
    let release = release.trim();
    if version(release).is_some_and(|version| version < OLDEST) {
        let (major, minor) = OLDEST;
        return Some(format!("kernel {release} is older than {major}.{minor}"));
    }
    // A file that a person has named and that is not there is that person's mistake.
    if options.btf.is_some() {
        return None;
    }
    match layout(options) {
        Err(LoadError::Btf(error)) => is_absent(&error).then(|| format!("kernel {release} has no type information: {error}")),
        _ => None,
    }
}

fn is_absent(error: &BtfError) -> bool {
    match error {
        BtfError::Read { source, .. } => source.kind() == ErrorKind::NotFound,
        BtfError::Format { .. } => true,
    }
}

/// `5.4.0-216-generic` is 5, 4.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn proc(release: &str) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir_all(proc.path().join("sys/kernel")).unwrap();
        fs::write(proc.path().join("sys/kernel/osrelease"), format!("{release}\n")).unwrap();
        proc
    }

    #[test]
    fn a_kernel_is_too_old_by_its_release() {
        // A file is named: nothing is said of the machine's own type information.
        let options = Options {
            btf: Some("/nonexistent".into()),
            ..Options::default()
        };
        let of = |release: &str| incapable(&options, proc(release).path());
        assert_eq!(
            of("5.4.0-216-generic").as_deref(),
            Some("kernel 5.4.0-216-generic is older than 5.10")
        );
        assert_eq!(
            of("3.10.0-1160.el7.x86_64").unwrap(),
            "kernel 3.10.0-1160.el7.x86_64 is older than 5.10"
        );
        for release in ["5.10.0-30-amd64", "6.1.0", "10.0", "", "unknown"] {
            assert_eq!(of(release), None, "{release}");
        }
    }

    #[test]
    fn type_information_that_may_not_be_read_is_not_absent() {
        let read = |kind: ErrorKind| BtfError::Read {
            path: "/sys/kernel/btf/vmlinux".into(),
            source: io::Error::from(kind),
        };
        assert!(is_absent(&read(ErrorKind::NotFound)) && !is_absent(&read(ErrorKind::PermissionDenied)));
    }

    #[test]
    fn without_probes_each_has_the_reason_and_nothing_is_written_or_read() {
        let mut none = Attached::none(&Options::default(), "kernel 5.4 is older than 5.10");
        assert_eq!(none.probes().len(), PROBES.len());
        let unsupported = ProbeState::Unsupported("kernel 5.4 is older than 5.10".to_owned());
        assert!(none.probes().iter().all(|(_, state)| *state == unsupported));
        let cgroup = CgroupId::v2(7);
        let written = [
            none.watch(cgroup, 1, None),
            none.watch_for(cgroup, 1, None, None),
            none.arm(cgroup),
            none.disarm(cgroup),
            none.kubelet(cgroup, true),
            none.give_back_ports(),
            none.give_back(Boot(1)),
        ];
        assert!(written.iter().all(Result::is_ok) && none.may_write_maps());
        assert!(none.armed().is_empty() && none.lost().is_empty());
        assert_eq!((none.drain(|_| {}), none.ring_records()), (0, 0));
    }
}

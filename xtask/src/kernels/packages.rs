//! Debian's cloud kernels: which there are, and how to get one, without installing anything.
//!
//! An apt of its own (state, lists and sources in the cache) asks the machine's own Debian archive for more suites than
//! the machine is set up for. Signatures are always checked: a suite that cannot be verified is left out, by name.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{debian, dist::Arch, shell};

/// Suites that hold kernels, oldest first. What is missing from the archive is left out.
const SUITES: [&str; 8] = [
    "bullseye",
    "bookworm",
    "bookworm-backports",
    "trixie",
    "trixie-backports",
    "forky",
    "sid",
    "experimental",
];
const SECURITY: [&str; 3] = ["bullseye-security", "bookworm-security", "trixie-security"];

/// A long-term series keeps its number for years while fields and arguments are ported back to it, and users run all of it.
const EARLY: &str = "5.10";

/// A kernel that the archive offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// `6.12`
    pub series: String,
    /// `6.12.117`, as in `uname` and changelogs; `7.3~rc7` for a candidate.
    pub upstream: String,
    name: String,
    /// `6.12.117-1~deb12u1`
    pub version: String,
}

impl Package {
    /// Order within and across series: release candidates before the release, rebuilds by their Debian revision.
    fn rank(&self) -> (Vec<u32>, bool, &str) {
        let (release, candidate) = match self.upstream.split_once('~') {
            Some((release, _)) => (release, true),
            None => (self.upstream.as_str(), false),
        };
        (
            release.split('.').map(|part| part.parse().unwrap_or(0)).collect(),
            !candidate,
            &self.version,
        )
    }
}

const IMAGE: &str = "vmlinuz";

/// Directory of the modules that are kept.
const MODULES: &str = "modules";

/// For the machine's network card, each after those that it needs; some kernels have a part of them built in.
const CARD: [&str; 8] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
];

/// A private apt in `dir`, for packages of `arch`.
pub struct Apt {
    dir: PathBuf,
    arch: Arch,
    /// Whether every suite's list is today's: not where one could not be fetched.
    pub is_whole: bool,
}

impl Apt {
    /// Sets the private apt up and refreshes its lists. Without network, what an earlier run fetched still serves.
    ///
    /// # Errors
    /// The machine's apt names no Debian archive, or a file cannot be written.
    pub fn open(cache: &Path, arch: Arch) -> Result<Apt> {
        let mut apt = Apt {
            dir: cache.join("apt"),
            arch,
            is_whole: false,
        };
        for sub in ["state/lists/partial", "cache/archives/partial", "etc"] {
            fs::create_dir_all(apt.dir.join(sub)).with_context(|| format!("making the private apt's {sub}"))?;
        }
        fs::write(apt.dir.join("status"), "")?;
        fs::write(apt.dir.join("etc/sources.list"), sources(&SUITES, &SECURITY)?)?;
        shell::log(format_args!("reading apt's lists of the kernels of {}", SUITES.join(", ")));
        let update = apt
            .command("apt-get")
            // Otherwise a list that cannot be fetched is only a warning.
            .args(["-o", "APT::Update::Error-Mode=any", "update"])
            .output()
            .context("running apt-get update")?;
        for line in String::from_utf8_lossy(&update.stderr).lines() {
            shell::log(format_args!("apt: {line}"));
        }
        apt.is_whole = update.status.success();
        if !apt.is_whole {
            shell::log("apt-get update failed in part; only suites that were fetched and verified count");
        }
        Ok(apt)
    }

    /// The newest kernel of every series, oldest series first, and before them the oldest of the series [`EARLY`].
    ///
    /// # Errors
    /// apt-cache fails, or knows no kernel.
    pub fn series(&self) -> Result<Vec<Package>> {
        Ok(chosen(&self.packages()?))
    }

    fn packages(&self) -> Result<Vec<Package>> {
        let names = shell::read(self.command("apt-cache").args(["pkgnames", "linux-image-"]))?;
        let names: Vec<&str> = names
            .lines()
            .filter(|name| name.ends_with(&self.kind()) && bears_version(name))
            .collect();
        ensure!(
            !names.is_empty(),
            "apt lists no cloud kernel; check that the Debian archive is reachable"
        );
        let stanzas = shell::read(self.command("apt-cache").arg("show").args(&names))?;
        Ok(stanzas.split("\n\n").filter_map(parse).collect())
    }

    /// Whether an earlier run fetched the package's kernel image.
    pub fn has_image(&self, package: &Package) -> bool {
        self.home(package).join(IMAGE).exists()
    }

    /// The package's kernel image, fetched and unpacked unless an earlier run did.
    ///
    /// # Errors
    /// The download or its signature fails, or no package holds a kernel image.
    pub fn image(&self, package: &Package) -> Result<PathBuf> {
        let home = self.home(package);
        let image = home.join(IMAGE);
        if image.exists() && home.join(MODULES).is_dir() {
            return Ok(image);
        }
        let scratch = home.join("unpacking");
        fs::create_dir_all(&scratch)?;
        // From 6.19 on the image package is empty and leads to one with the kernel in it.
        let stanza = shell::read(
            self.command("apt-cache")
                .arg("show")
                .arg(format!("{}={}", package.name, package.version)),
        )?;
        let names = [package.name.as_str()]
            .into_iter()
            .chain(stanza.split([',', '|', ' ']).filter(|word| {
                (word.starts_with("linux-binary-") || word.starts_with("linux-image-")) && word.ends_with(&self.kind())
            }));
        for name in names {
            self.unpack(&[format!("{name}={}", package.version)], &scratch)?;
            if let Some(found) = find_image(&scratch)? {
                keep_modules(&scratch, &home.join(MODULES))?;
                fs::rename(found, &image)?;
                fs::remove_dir_all(&scratch)?;
                return Ok(image);
            }
        }
        bail!("neither {} nor its dependencies contain a vmlinuz", package.name)
    }

    /// The modules that [`Apt::image`] kept, in the order of their names; an empty directory where the package has none.
    pub fn modules(&self, package: &Package) -> PathBuf {
        self.home(package).join(MODULES)
    }

    /// Fetches `packages`, each as apt-get names it (`NAME`, `NAME=VERSION`, `NAME/SUITE`), and unpacks them into `dir`, which exists.
    ///
    /// # Errors
    /// The archive has no such package, or a download or its signature fails.
    pub fn unpack(&self, packages: &[String], dir: &Path) -> Result<()> {
        for deb in self.fetch(packages, dir)? {
            shell::read(Command::new("dpkg-deb").arg("--extract").arg(&deb).arg(dir))?;
            fs::remove_file(deb)?;
        }
        Ok(())
    }

    /// Fetches `packages`, named as in [`Apt::unpack`], into `dir`, which exists; the files.
    ///
    /// # Errors
    /// As [`Apt::unpack`].
    pub fn fetch(&self, packages: &[String], dir: &Path) -> Result<Vec<PathBuf>> {
        let mut download = self.command("apt-get");
        download.args(["--quiet=2", "download"]).args(packages).current_dir(dir);
        let what = format!("fetching {} for {}", packages.join(", "), self.arch.name());
        shell::run_quietly(&mut download, &what)?;
        list(dir, |name| name.ends_with(".deb"))
    }

    /// The newest version of `package` in a release of Debian, with its security updates: `NAME=VERSION`.
    ///
    /// # Errors
    /// The release has no such package.
    pub fn newest(&self, package: &str, codename: &str) -> Result<String> {
        let mut policy = self.command("apt-cache");
        policy
            .args(["-o", &format!("APT::Default-Release=/^{codename}(|-security)$/")])
            .args(["policy", package])
            .env("LC_ALL", "C");
        let text = shell::read(&mut policy)?;
        let version = text.lines().find_map(|line| line.trim().strip_prefix("Candidate: "));
        let version = version.filter(|version| *version != "(none)");
        let version = version.with_context(|| format!("Debian {codename} has no {package} for {}", self.arch.name()))?;
        Ok(format!("{package}={version}"))
    }

    /// The end of the names of cloud kernels.
    fn kind(&self) -> String {
        format!("-cloud-{}", self.arch.name())
    }

    fn home(&self, package: &Package) -> PathBuf {
        self.dir.with_file_name(&package.upstream).join(&package.version)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = |sub: &str| self.dir.join(sub).display().to_string();
        for option in [
            format!("Dir::State={}", path("state")),
            format!("Dir::State::status={}", path("status")),
            format!("Dir::Cache={}", path("cache")),
            // Container images of Debian empty these two; without them every question reads all lists again.
            "Dir::Cache::pkgcache=pkgcache.bin".to_owned(),
            "Dir::Cache::srcpkgcache=srcpkgcache.bin".to_owned(),
            format!("Dir::Etc::sourcelist={}", path("etc/sources.list")),
            format!("Dir::Etc::sourceparts={}", path("etc/none")),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false".to_owned(),
            format!("APT::Architecture={}", self.arch.name()),
            format!("APT::Architectures={}", self.arch.name()),
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Retries=2".to_owned(),
        ] {
            command.arg("-o").arg(option);
        }
        command
    }
}

/// `sources.list` lines: the machine's own Debian archive, for more suites. One line per suite, those of `security` only where
/// the machine names a security archive.
///
/// # Errors
/// The machine's apt names no Debian archive.
pub fn sources(suites: &[&str], security_suites: &[&str]) -> Result<String> {
    let codename = codename()?;
    let uris = shell::read(Command::new("apt-get").args(["update", "--print-uris"]))?;
    let (main, security) = archives(&uris, &codename).with_context(|| {
        format!(
            "the machine's apt sources have no Debian archive for {codename}, from which this task reads the archive's address; add one"
        )
    })?;
    let keyring = Path::new("/usr/share/keyrings/debian-archive-keyring.gpg");
    let options = if keyring.exists() {
        format!("[signed-by={}] ", keyring.display())
    } else {
        String::new()
    };
    let mut text = String::new();
    let line = |uri: &str, suite: &str| format!("deb {options}{uri} {suite} main\n");
    text.extend(suites.iter().map(|suite| line(&main, suite)));
    if let Some(security) = security {
        text.extend(security_suites.iter().map(|suite| line(&security, suite)));
    }
    Ok(text)
}

/// This machine's release of Debian, as `bookworm`.
///
/// # Errors
/// The machine's release has no such name.
pub fn codename() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release").context("reading /etc/os-release")?;
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename.context("/etc/os-release has no VERSION_CODENAME; this task needs Debian")?;
    Ok(codename.trim_matches('"').to_owned())
}

/// The Debian archive and the security archive among the index addresses that apt would fetch.
///
/// Other vendors name suites after Debian's codename too; only Debian's own archive has a `-updates` suite next to it.
fn archives(uris: &str, codename: &str) -> Option<(String, Option<String>)> {
    let indexes: Vec<(&str, &str)> = uris
        .lines()
        .filter_map(|line| line.strip_prefix('\'')?.split_once("/InRelease'")?.0.rsplit_once("/dists/"))
        .collect();
    let of = |suite: &str| -> Vec<&str> {
        indexes
            .iter()
            .filter(|(_, found)| *found == suite)
            .map(|(base, _)| *base)
            .collect()
    };
    let updates = of(&format!("{codename}-updates"));
    let mains = of(codename);
    let main = mains.iter().find(|base| updates.contains(base)).or(mains.first())?;
    let security = of(&format!("{codename}-security")).first().map(|base| (*base).to_owned());
    Some(((*main).to_owned(), security))
}

fn chosen(packages: &[Package]) -> Vec<Package> {
    let mut chosen = newest(packages);
    let early = packages.iter().filter(|package| package.series == EARLY);
    let early = early.min_by(|a, b| a.rank().cmp(&b.rank())).cloned();
    if let Some(early) = early.filter(|early| !chosen.contains(early)) {
        chosen.insert(0, early);
    }
    chosen
}

fn newest(packages: &[Package]) -> Vec<Package> {
    let mut newest: BTreeMap<Vec<u32>, &Package> = BTreeMap::new();
    for package in packages {
        let key = package.series.split('.').map(|part| part.parse().unwrap_or(0)).collect();
        match newest.get(&key) {
            Some(known) if known.rank() >= package.rank() => {}
            _ => drop(newest.insert(key, package)),
        }
    }
    newest.into_values().cloned().collect()
}

fn bears_version(name: &str) -> bool {
    name.strip_prefix("linux-image-")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn parse(stanza: &str) -> Option<Package> {
    let field = |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let (name, version) = (field("Package")?, field("Version")?);
    let upstream = version.split('-').next()?;
    let mut parts = upstream.split(['.', '~']);
    let series = format!("{}.{}", parts.next()?, parts.next()?);
    // A meta package of a series carries the same version as the kernel that it leads to; either will do.
    Some(Package {
        series,
        upstream: upstream.to_owned(),
        name: name.to_owned(),
        version: version.to_owned(),
    })
}

/// Those of [`CARD`] that the unpacked package has, named so that they sort in that order, and without compression.
fn keep_modules(unpacked: &Path, kept: &Path) -> Result<()> {
    fs::create_dir_all(kept)?;
    let is_of = |path: &Path, module: &str| {
        let name = path.file_name().map(|name| name.display().to_string()).unwrap_or_default();
        name.split_once(".ko")
            .is_some_and(|(name, _)| name.replace('-', "_") == module)
    };
    for (place, module) in CARD.iter().enumerate() {
        if let Some(found) = find(unpacked, &|path| is_of(path, module))? {
            fs::write(kept.join(format!("{place}-{module}.ko")), debian::unpacked_module(&found)?)?;
        }
    }
    Ok(())
}

/// In `boot`, or since 7.2 next to the modules.
fn find_image(root: &Path) -> Result<Option<PathBuf>> {
    let mut homes = vec![root.join("boot")];
    if let Ok(releases) = list(&root.join("usr/lib/modules"), |_| true) {
        homes.extend(releases);
    }
    for home in homes.iter().filter(|home| home.exists()) {
        if let Some(found) = list(home, |name| name.starts_with("vmlinuz"))?.pop() {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The first file below `dir` that is `wanted`.
fn find(dir: &Path, wanted: &impl Fn(&Path) -> bool) -> Result<Option<PathBuf>> {
    for path in list(dir, |_| true)? {
        let found = match path.is_dir() && !path.is_symlink() {
            true => find(&path, wanted)?,
            false => Some(path).filter(|path| wanted(path)),
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn list(dir: &Path, keep: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(&keep) {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_is_distinguished_from_vendors_that_use_its_codename() {
        let uris = "\
'http://vendor.example/linux/debian/dists/bookworm/InRelease' a 0 \n\
'http://archive.example/debian/dists/bookworm/InRelease' b 0 \n\
'http://archive.example/debian/dists/bookworm-updates/InRelease' c 0 \n\
'http://archive.example/debian-security/dists/bookworm-security/InRelease' d 0 \n\
'http://archive.example/debian/dists/bookworm/main/binary-amd64/Packages.xz' e 0 \n";
        assert_eq!(
            archives(uris, "bookworm"),
            Some((
                "http://archive.example/debian".to_owned(),
                Some("http://archive.example/debian-security".to_owned())
            ))
        );
        assert_eq!(archives(uris, "trixie"), None);
    }

    #[test]
    fn newest_of_a_series_is_by_number_and_a_candidate_is_older_than_its_release() {
        let package = |name: &str, version: &str| parse(&format!("Package: linux-image-{name}\nVersion: {version}\n")).unwrap();
        let (old, new) = (package("a", "6.12.96-1"), package("b", "6.12.117-1~deb12u1"));
        assert_eq!((new.series.as_str(), new.upstream.as_str()), ("6.12", "6.12.117"));
        assert!(old.rank() < new.rank());
        let (candidate, release) = (package("c", "7.3~rc7-1~exp1"), package("d", "7.3.4-1~bpo13+1"));
        assert_eq!((candidate.series.as_str(), candidate.upstream.as_str()), ("7.3", "7.3~rc7"));
        assert!(candidate.rank() < release.rank());
    }
    #[test]
    fn the_oldest_of_the_early_series_comes_along() {
        let of = |version: &str| parse(&format!("Package: linux-image-x\nVersion: {version}\n")).unwrap();
        let packages = ["6.1.180-1", "5.10.262-1", "5.10.218-1", "6.1.192-2", "5.10.251-5"].map(of);
        let versions = |packages: &[Package]| {
            chosen(packages)
                .into_iter()
                .map(|package| package.version)
                .collect::<Vec<_>>()
        };
        assert_eq!(versions(&packages), ["5.10.218-1", "5.10.262-1", "6.1.192-2"]);
        assert_eq!(versions(&packages[1..2]), ["5.10.262-1"]);
    }
}

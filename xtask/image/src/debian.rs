//! Debian's records of the packages that a layer takes files from: a scanner of images finds them, and their licences go along.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

/// A package's stanza in dpkg's database.
pub struct Package {
    pub name: String,
    pub status: String,
    /// `/usr/share/doc/NAME/copyright`, where the machine has it.
    pub copyright: Option<PathBuf>,
}

impl Package {
    /// A line of the stanza; empty if there is none.
    pub fn field(&self, name: &str) -> &str {
        let line = self
            .status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_default()
    }
}

/// The packages that own `files`, which are files of the system in `root`, each once, by name. Empty without dpkg or its database.
pub fn owners(files: &[PathBuf], root: &Path) -> Vec<Package> {
    let names: BTreeSet<String> = files.iter().filter_map(|file| owner(file, root)).collect();
    names.into_iter().filter_map(|name| package(name, root)).collect()
}

/// With its architecture, as `libc6:amd64`.
fn owner(file: &Path, root: &Path) -> Option<String> {
    let file = Path::new("/").join(file.strip_prefix(root).ok()?);
    // A merged /usr: dpkg knows a file by the path of its package, the older or the newer one.
    let other = match file.strip_prefix("/usr") {
        Ok(rest) => Path::new("/").join(rest),
        Err(_) => Path::new("/usr").join(file.strip_prefix("/").ok()?),
    };
    [file, other].into_iter().find_map(|path| {
        let line = read(database(root).arg("--search").arg(path))?;
        let name = line.lines().find(|line| !line.starts_with("diversion"))?.split_once(": ")?.0;
        Some(name.split(", ").next()?.to_owned())
    })
}

fn package(name: String, root: &Path) -> Option<Package> {
    let status = read(database(root).arg("--status").arg(&name))?;
    let name = name.split(':').next()?.to_owned();
    let copyright = root.join(format!("usr/share/doc/{name}/copyright"));
    Some(Package {
        name,
        status,
        copyright: copyright.is_file().then_some(copyright),
    })
}

fn database(root: &Path) -> Command {
    let mut command = Command::new("dpkg-query");
    command.arg("--admindir").arg(root.join("var/lib/dpkg"));
    command
}

fn read(command: &mut Command) -> Option<String> {
    let output = command.env("LC_ALL", "C").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_leads_to_its_package() {
        let files = ["/bin/true", "/usr/bin/env", "/nonexistent"].map(PathBuf::from);
        let found = owners(&files, Path::new("/"));
        if Path::new("/var/lib/dpkg/status").is_file() {
            assert_eq!(found.len(), 1, "both files are of one package, once");
            assert_eq!(found[0].name, "coreutils");
            assert!(found[0].status.starts_with("Package: coreutils\n"), "{}", found[0].status);
        } else {
            assert!(found.is_empty());
        }
    }
}

//! Which shared libraries a program needs, read from its headers: nothing is run, so that programs of other processors work.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use object::{
    Endianness, elf,
    read::elf::{ElfFile64, ProgramHeader as _},
};

use crate::Arch;

/// A system of an architecture: this machine's own, or Debian packages unpacked into a directory.
#[derive(Clone, Debug)]
pub struct Root {
    dir: PathBuf,
    /// The directories of libraries in this system. The first that has a library counts.
    libraries: Vec<PathBuf>,
}

impl Root {
    /// This machine's own libraries, or with `dir` those of the system there.
    ///
    /// # Errors
    /// Without `dir`: this machine is of another architecture.
    pub fn of(arch: Arch, dir: Option<PathBuf>) -> Result<Root> {
        ensure!(
            dir.is_some() || arch == Arch::host()?,
            "this machine has no libraries of {0}: name a directory with them, --root {0}=DIR",
            arch.name()
        );
        let triplet = arch.triplet();
        let libraries = [
            format!("/lib/{triplet}"),
            format!("/usr/lib/{triplet}"),
            "/lib64".into(),
            "/usr/lib64".into(),
            "/lib".into(),
            "/usr/lib".into(),
        ];
        Ok(Root {
            dir: dir.unwrap_or_else(|| "/".into()),
            libraries: libraries.map(PathBuf::from).to_vec(),
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the file of an absolute path is here.
    pub fn here(&self, path: &Path) -> PathBuf {
        self.dir.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Also below `/usr`: a system without Debian's package usrmerge has no link `/lib`.
    fn loader(&self, path: &str) -> PathBuf {
        let loader = self.here(Path::new(path));
        let merged = self.here(&Path::new("/usr").join(path.trim_start_matches('/')));
        if !loader.is_file() && merged.is_file() {
            merged
        } else {
            loader
        }
    }
}

/// The libraries of `program` and of its libraries, and the dynamic loader: path in the image → file here. None for a static
/// program.
///
/// # Errors
/// `program` is not a 64-bit ELF file, or a library is missing.
pub fn libraries(program: &Path, root: &Root) -> Result<BTreeMap<PathBuf, PathBuf>> {
    let mut found = BTreeMap::new();
    let needs = Needs::of(program)?;
    let Some(loader) = needs.loader else {
        ensure!(
            needs.libraries.is_empty(),
            "{} names libraries, but no dynamic loader",
            program.display()
        );
        return Ok(found);
    };
    let source = root.loader(&loader);
    ensure!(
        source.is_file(),
        "{} needs {loader}: no {}",
        program.display(),
        source.display()
    );
    let loader_name = PathBuf::from(Path::new(&loader).file_name().unwrap_or_default());
    found.insert(PathBuf::from(loader), source);

    let mut seen = BTreeSet::from([loader_name]);
    let mut open: Vec<(PathBuf, String)> = needs.libraries.into_iter().map(|name| (program.to_owned(), name)).collect();
    while let Some((by, name)) = open.pop() {
        if !seen.insert(PathBuf::from(&name)) {
            continue;
        }
        let places = root.libraries.iter().map(|dir| dir.join(&name));
        let places = places.map(|there| (root.here(&there), there));
        let Some((here, there)) = places.into_iter().find(|(here, _)| here.is_file()) else {
            let dirs: Vec<String> = root
                .libraries
                .iter()
                .map(|dir| root.here(dir).display().to_string())
                .collect();
            bail!("{} needs {name}, which is not in {}", by.display(), dirs.join(", "));
        };
        let more = Needs::of(&here)?.libraries;
        open.extend(more.into_iter().map(|name| (here.clone(), name)));
        found.insert(there, here);
    }
    Ok(found)
}

struct Needs {
    loader: Option<String>,
    libraries: Vec<String>,
}

impl Needs {
    fn of(file: &Path) -> Result<Needs> {
        let bytes = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
        Needs::read(&bytes).with_context(|| format!("{} is not a 64-bit ELF program or library", file.display()))
    }

    fn read(bytes: &[u8]) -> Result<Needs> {
        let elf = ElfFile64::<Endianness>::parse(bytes)?;
        let mut loader = None;
        for header in elf.elf_program_headers() {
            if let Some(path) = header.interpreter(elf.endian(), bytes)? {
                loader = Some(String::from_utf8(path.to_vec())?);
            }
        }
        let table = elf.elf_dynamic_table()?;
        let names = table.iter().filter(|entry| entry.tag == elf::DT_NEEDED);
        let libraries = names
            .map(|entry| Ok(String::from_utf8(table.string(entry)?.to_vec())?))
            .collect::<Result<_>>()?;
        Ok(Needs { loader, libraries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_brings_its_libraries_and_its_loader() {
        let root = Root::of(Arch::host().unwrap(), None).unwrap();
        let found = libraries(Path::new("/proc/self/exe"), &root).unwrap();
        let names: Vec<String> = found.keys().map(|path| path.display().to_string()).collect();
        for part in ["libc.so.6", "libgcc_s.so.1", "ld-linux"] {
            assert_eq!(
                names.iter().filter(|name| name.contains(part)).count(),
                1,
                "{part}: {names:?}"
            );
        }
        assert!(found.values().all(|file| file.is_file()));
    }

    #[test]
    fn a_missing_library_is_named_with_the_file_that_needs_it() {
        let root = Root {
            dir: "/".into(),
            libraries: vec!["/nonexistent".into()],
        };
        let error = libraries(Path::new("/proc/self/exe"), &root).unwrap_err().to_string();
        assert!(error.starts_with("/proc/self/exe needs lib"), "{error}");
        assert!(error.ends_with("which is not in /nonexistent"), "{error}");
    }

    #[test]
    fn a_system_in_a_directory_has_its_own_loader_and_libraries() {
        let arch = Arch::host().unwrap();
        let own = libraries(Path::new("/proc/self/exe"), &Root::of(arch, None).unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let root = Root::of(arch, Some(dir.path().into())).unwrap();
        let error = libraries(Path::new("/proc/self/exe"), &root).unwrap_err().to_string();
        assert!(error.contains(&dir.path().display().to_string()), "{error}");
        // As in a package for a merged /usr.
        for (there, here) in &own {
            let to = root.here(Path::new("/usr/lib")).join(there.file_name().unwrap());
            let to = if there.to_string_lossy().contains("/ld-linux") {
                root.here(&Path::new("/usr").join(there.strip_prefix("/").unwrap()))
            } else {
                to
            };
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(here, to).unwrap();
        }
        let found = libraries(Path::new("/proc/self/exe"), &root).unwrap();
        assert_eq!(found.len(), own.len());
        assert!(found.values().all(|file| file.starts_with(dir.path())), "{found:?}");
        assert!(found.keys().all(|path| !path.starts_with(dir.path())), "{found:?}");
    }

    #[test]
    fn another_architecture_needs_a_directory() {
        let host = Arch::host().unwrap();
        let other = Arch::ALL.into_iter().find(|arch| *arch != host).unwrap();
        let error = Root::of(other, None).unwrap_err().to_string();
        assert!(error.contains(&format!("--root {}=DIR", other.name())), "{error}");
        assert!(Root::of(other, Some("/nonexistent".into())).is_ok());
    }

    #[test]
    fn a_file_that_is_no_program_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("script");
        fs::write(&file, "#!/bin/sh\n").unwrap();
        let root = Root::of(Arch::host().unwrap(), None).unwrap();
        assert!(libraries(&file, &root).is_err());
    }
}

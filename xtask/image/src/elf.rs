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

/// Where the libraries of an architecture are on this machine, and where a system of that architecture has them.
#[derive(Clone, Debug)]
pub struct Root {
    /// Directory here, directory in the image. The first that has a library counts.
    dirs: Vec<(PathBuf, PathBuf)>,
    /// Before the absolute path of the dynamic loader.
    loader: Option<PathBuf>,
}

impl Root {
    /// This machine's own libraries; for another architecture those of Debian's cross compiler.
    ///
    /// # Errors
    /// This machine is of an architecture without images.
    pub fn of(arch: Arch) -> Result<Root> {
        let triplet = arch.triplet();
        if arch == Arch::host()? {
            let own = [
                format!("/lib/{triplet}"),
                format!("/usr/lib/{triplet}"),
                "/lib64".into(),
                "/usr/lib64".into(),
                "/lib".into(),
                "/usr/lib".into(),
            ];
            return Ok(Root {
                dirs: own.map(|dir| (PathBuf::from(&dir), PathBuf::from(&dir))).to_vec(),
                loader: None,
            });
        }
        let cross = PathBuf::from(format!("/usr/{triplet}/lib"));
        Ok(Root {
            dirs: vec![(cross.clone(), PathBuf::from(format!("/lib/{triplet}")))],
            loader: Some(cross),
        })
    }

    fn loader(&self, path: &str) -> PathBuf {
        match (&self.loader, Path::new(path).file_name()) {
            (Some(dir), Some(name)) => dir.join(name),
            _ => PathBuf::from(path),
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
        let places = root.dirs.iter().map(|(here, there)| (here.join(&name), there.join(&name)));
        let Some((here, there)) = places.into_iter().find(|(here, _)| here.is_file()) else {
            let dirs: Vec<String> = root.dirs.iter().map(|(here, _)| here.display().to_string()).collect();
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
        let root = Root::of(Arch::host().unwrap()).unwrap();
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
            dirs: vec![("/nonexistent".into(), "/lib".into())],
            loader: None,
        };
        let error = libraries(Path::new("/proc/self/exe"), &root).unwrap_err().to_string();
        assert!(error.starts_with("/proc/self/exe needs lib"), "{error}");
        assert!(error.ends_with("which is not in /nonexistent"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_program_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("script");
        fs::write(&file, "#!/bin/sh\n").unwrap();
        let root = Root::of(Arch::host().unwrap()).unwrap();
        assert!(libraries(&file, &root).is_err());
    }
}

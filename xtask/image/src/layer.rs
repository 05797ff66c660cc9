//! A layer: files, directories and links, owned by root, in the order of their names, with time 0.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use flate2::{Compression, GzBuilder};

use crate::{Root, libraries};

/// Paths are absolute in the image.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Clone, Debug)]
enum Entry {
    File { source: PathBuf, mode: u32 },
    Text { bytes: Vec<u8>, mode: u32 },
    Link(PathBuf),
}

impl Layer {
    pub fn file(&mut self, path: impl AsRef<Path>, source: &Path, mode: u32) {
        let source = source.to_owned();
        self.add(path.as_ref(), Entry::File { source, mode });
    }

    pub fn text(&mut self, path: impl AsRef<Path>, bytes: impl Into<Vec<u8>>, mode: u32) {
        let bytes = bytes.into();
        self.add(path.as_ref(), Entry::Text { bytes, mode });
    }

    pub fn link(&mut self, path: impl AsRef<Path>, target: impl Into<PathBuf>) {
        self.add(path.as_ref(), Entry::Link(target.into()));
    }

    /// The executable `source` as `path`, with the libraries that it needs.
    ///
    /// # Errors
    /// `source` is not a program, or a library is missing.
    pub fn program(&mut self, path: impl AsRef<Path>, source: &Path, root: &Root) -> Result<()> {
        ensure!(source.is_file(), "{} is not built", source.display());
        self.libraries(source, root)?;
        self.file(path, source, 0o755);
        Ok(())
    }

    /// Only the libraries that `program` needs; their files here.
    ///
    /// # Errors
    /// As [`Layer::program`].
    pub fn libraries(&mut self, program: &Path, root: &Root) -> Result<Vec<PathBuf>> {
        let found = libraries(program, root)?;
        for (path, source) in &found {
            self.file(path, source, 0o755);
        }
        Ok(found.into_values().collect())
    }

    /// The layer, uncompressed. The times are 0: a layer whose files are those of the last release is not fetched again.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn tar(&self) -> Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        let mut made: Vec<&Path> = Vec::new();
        for (path, entry) in &self.entries {
            let mut parents: Vec<&Path> = path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()).collect();
            parents.reverse();
            for parent in parents {
                if !made.contains(&parent) {
                    tar.append_data(&mut header(tar::EntryType::Directory, 0, 0o755), parent, std::io::empty())?;
                    made.push(parent);
                }
            }
            match entry {
                Entry::File { source, mode } => {
                    let bytes = fs::read(source).with_context(|| format!("reading {}", source.display()))?;
                    append(&mut tar, path, &bytes, *mode)?;
                }
                Entry::Text { bytes, mode } => append(&mut tar, path, bytes, *mode)?,
                Entry::Link(target) => {
                    tar.append_link(&mut header(tar::EntryType::Symlink, 0, 0o777), path, target)?;
                }
            }
        }
        tar.into_inner().context("finishing the layer")
    }

    fn add(&mut self, path: &Path, entry: Entry) {
        self.entries.insert(path.strip_prefix("/").unwrap_or(path).to_owned(), entry);
    }
}

/// Without a name and a time in the header: the same input gives the same bytes.
pub fn compressed(bytes: &[u8]) -> Result<Vec<u8>> {
    const UNKNOWN_SYSTEM: u8 = 255;
    let builder = GzBuilder::new().mtime(0).operating_system(UNKNOWN_SYSTEM);
    let mut gzip = builder.write(Vec::new(), Compression::best());
    gzip.write_all(bytes)?;
    gzip.finish().context("compressing a layer")
}

/// Adds a regular file to a tar archive.
///
/// # Errors
/// The archive cannot be written.
pub fn append<W: std::io::Write>(tar: &mut tar::Builder<W>, path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let size = u64::try_from(bytes.len()).context("a file's size")?;
    Ok(tar.append_data(&mut header(tar::EntryType::Regular, size, mode), path, bytes)?)
}

fn header(kind: tar::EntryType, size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer() -> Layer {
        let mut layer = Layer::default();
        layer.text("/etc/b/c", "d", 0o640);
        layer.link("/bin/sh", "busybox");
        layer.text("/etc/a", "e", 0o644);
        layer
    }

    #[test]
    fn entries_are_sorted_and_their_directories_come_first() {
        let bytes = layer().tar().unwrap();
        let mut shown = Vec::new();
        for entry in tar::Archive::new(&bytes[..]).entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!(
                (header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()),
                (0, 0, 0)
            );
            let path = entry.path().unwrap().display().to_string();
            shown.push(format!("{path} {:o}", header.mode().unwrap()));
        }
        let expected = ["bin/ 755", "bin/sh 777", "etc/ 755", "etc/a 644", "etc/b/ 755", "etc/b/c 640"];
        let shown: Vec<String> = shown.into_iter().map(|line| line.replace("bin 755", "bin/ 755")).collect();
        let shown: Vec<String> = shown.into_iter().map(|line| line.replace("etc 755", "etc/ 755")).collect();
        let shown: Vec<String> = shown
            .into_iter()
            .map(|line| line.replace("etc/b 755", "etc/b/ 755"))
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn the_compressed_layer_names_no_time_and_no_file() {
        let bytes = layer().tar().unwrap();
        let once = compressed(&bytes).unwrap();
        assert_eq!(once, compressed(&layer().tar().unwrap()).unwrap());
        // RFC 1952: flags, four bytes of time, extra flags, system.
        assert_eq!(once[3..8], [0; 5]);
        assert_eq!(once[9], 255);
    }
}

//! The archive with a node's own files: appended to the initrd, unpacked by the kernel.

use super::files::{Content, File};

/// `files` below the directory `top`, in the format that the kernel unpacks (`newc`, Documentation/driver-api/early-userspace).
pub fn archive(top: &str, files: &[File]) -> Vec<u8> {
    const DIRECTORY: u32 = 0o040_755;
    let mut archive = Archive::default();
    let mut made = Vec::new();
    for file in files {
        let path = format!("{top}/{}", file.path.trim_start_matches('/'));
        let parents = path.match_indices('/').map(|(at, _)| path[..at].to_owned());
        for parent in parents.collect::<Vec<_>>() {
            if !made.contains(&parent) {
                archive.entry(&parent, DIRECTORY, &[]);
                made.push(parent);
            }
        }
        match &file.content {
            Content::Text(text) => archive.entry(&path, 0o100_000 | file.mode, text.as_bytes()),
            Content::Link(target) => archive.entry(&path, 0o120_777, target.as_bytes()),
        }
    }
    archive.entry("TRAILER!!!", 0, &[]);
    archive.bytes
}

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.inode += 1;
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name = u32::try_from(path.len() + 1).unwrap_or(u32::MAX);
        let links = 1;
        // inode, mode, uid, gid, links, mtime, size, device ×2, special device ×2, name, no checksum
        let fields = [self.inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08X}").bytes());
        }
        self.bytes.extend(path.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;

    /// Path → mode and content, in the archive's order, as read by another crate. The program `cpio` would do as well, but
    /// a fresh machine does not have it.
    fn unpacked(mut bytes: &[u8]) -> Vec<(String, u32, String)> {
        let mut entries = Vec::new();
        loop {
            let mut reader = cpio::NewcReader::new(bytes).unwrap();
            let entry = reader.entry();
            if entry.is_trailer() {
                assert_eq!(reader.finish().unwrap(), b"", "nothing follows the trailer");
                return entries;
            }
            let (path, mode) = (entry.name().to_owned(), entry.mode());
            assert_eq!((entry.uid(), entry.gid(), entry.nlink()), (0, 0, 1), "{path}");
            let mut content = String::new();
            reader.read_to_string(&mut content).unwrap();
            entries.push((path, mode, content));
            bytes = reader.finish().unwrap();
        }
    }

    #[test]
    fn a_reader_by_others_unpacks_it() {
        let files = [
            File::text("/etc/a/b", 0o640, "text\n"),
            File::link("/etc/c", "a/b"),
            File::text("/d", 0o755, ""),
        ];
        let entries = unpacked(&archive("node", &files));
        let found: Vec<(&str, u32, &str)> = entries.iter().map(|(path, mode, text)| (&**path, *mode, &**text)).collect();
        assert_eq!(
            found,
            [
                ("node", 0o040_755, ""),
                ("node/etc", 0o040_755, ""),
                ("node/etc/a", 0o040_755, ""),
                ("node/etc/a/b", 0o100_640, "text\n"),
                ("node/etc/c", 0o120_777, "a/b"),
                ("node/d", 0o100_755, ""),
            ]
        );
    }

    /// Names and contents of every length modulo 4: what follows a wrong padding is not found, and the kernel would stop there.
    #[test]
    fn padding_fits_every_length() {
        let files: Vec<File> = (1..=9)
            .flat_map(|name| (0..=5).map(move |size| (name, size)))
            .map(|(name, size)| File::text(&format!("/{}{size}", "n".repeat(name)), 0o644, "x".repeat(size)))
            .collect();
        let found: BTreeMap<String, String> = unpacked(&archive("t", &files))
            .into_iter()
            .map(|(path, _, content)| (path, content))
            .collect();
        for file in &files {
            let Content::Text(text) = &file.content else { unreachable!() };
            assert_eq!(found.get(&format!("t{}", file.path)), Some(text), "{}", file.path);
        }
    }
}

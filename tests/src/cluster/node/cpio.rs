//! The archive that makes a node: appended to the initrd, unpacked by the kernel.

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
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn cpio_unpacks_it() {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            File::text("/etc/a/b", 0o640, "text\n"),
            File::link("/etc/c", "a/b"),
            File::text("/d", 0o755, ""),
        ];
        let mut cpio = Command::new("cpio")
            .args(["--quiet", "--extract", "--make-directories", "--no-preserve-owner"])
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        cpio.stdin.take().unwrap().write_all(&archive("node", &files)).unwrap();
        assert!(cpio.wait().unwrap().success());
        let top = dir.path().join("node");
        assert_eq!(std::fs::read_to_string(top.join("etc/c")).unwrap(), "text\n");
        assert_eq!(std::fs::read_link(top.join("etc/c")).unwrap().to_str(), Some("a/b"));
        assert!(top.join("d").is_file());
    }
}

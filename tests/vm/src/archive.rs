//! Writes an initial RAM file system: a cpio archive in `newc` format, as the kernel unpacks it at boot
//! (initramfs-buffer-format.rst of the kernel's documentation).

use std::collections::BTreeSet;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;

/// An archive that is being written.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    /// The names of all entries. For duplicates the kernel takes the last entry; here the first stays.
    names: BTreeSet<String>,
}

impl Archive {
    /// Adds a folder with its parents. Paths are absolute.
    pub fn folder(&mut self, path: &str) {
        let path = relative(path);
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
            self.entry(&path[..end], FOLDER, &[]);
        }
    }

    /// Adds a file with its permissions.
    pub fn file(&mut self, path: &str, permissions: u32, content: &[u8]) {
        self.folder_of(path);
        self.entry(relative(path), FILE | permissions, content);
    }

    /// The finished archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn folder_of(&mut self, path: &str) {
        if let Some((folder, _)) = relative(path).rsplit_once('/') {
            self.folder(folder);
        }
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        if name.is_empty() || !self.names.insert(name.to_owned()) {
            return;
        }
        let inode = self.names.len();
        let links = 1;
        // No owner, time or device: all 0. The name's size counts its final NUL.
        let header = format!(
            "070701{inode:08x}{mode:08x}{0:08x}{0:08x}{links:08x}{0:08x}{size:08x}{0:08x}{0:08x}{0:08x}{0:08x}\
             {name_size:08x}{0:08x}",
            0,
            size = content.len(),
            name_size = name.len() + 1
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

fn relative(path: &str) -> &str {
    path.trim_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The entries: name, mode, content.
    fn entries(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |n: usize| {
                let text = std::str::from_utf8(&bytes[at + 6 + 8 * n..at + 14 + 8 * n]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name = &bytes[at + 110..at + 110 + name_size];
            let content = (at + 110 + name_size).next_multiple_of(4);
            assert_eq!(name.last(), Some(&0));
            let name = String::from_utf8_lossy(&name[..name_size - 1]).into_owned();
            entries.push((name, mode, bytes[content..content + size].to_vec()));
            at = (content + size).next_multiple_of(4);
        }
        entries
    }

    #[test]
    fn archive_lists_each_folder_once_before_its_files() {
        let mut archive = Archive::default();
        archive.file("/usr/bin/ip", 0o755, b"ip");
        archive.file("/usr/bin/tc", 0o644, b"t");
        archive.folder("/usr/lib");
        archive.file("/init", 0o755, b"#!");
        let entries = entries(&archive.finish());
        let seen: Vec<_> = entries.iter().map(|(name, mode, _)| (name.as_str(), *mode)).collect();
        assert_eq!(
            seen,
            [
                ("usr", FOLDER),
                ("usr/bin", FOLDER),
                ("usr/bin/ip", FILE | 0o755),
                ("usr/bin/tc", FILE | 0o644),
                ("usr/lib", FOLDER),
                ("init", FILE | 0o755),
                ("TRAILER!!!", 0),
            ]
        );
        assert_eq!((&*entries[2].2, &*entries[3].2), (&b"ip"[..], &b"t"[..]));
    }
}

//! Atomic writes of small files.

use std::io::{self, Write as _};
use std::path::Path;

/// Replaces a file atomically; only its owner can read it.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = Path::new(&name);
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(new)?;
    file.write_all(content)?;
    std::fs::rename(new, path)
}

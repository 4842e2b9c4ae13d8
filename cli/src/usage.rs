//! What a process uses, as `/proc` tells (proc(5)).

use anyhow::Context as _;

/// Resident memory, in KiB.
pub(crate) fn resident_kib(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse().ok());
    kib.with_context(|| format!("no VmRSS in {path}"))
}

/// How many file descriptors are open.
pub(crate) fn open_files(pid: u32) -> anyhow::Result<usize> {
    let path = format!("/proc/{pid}/fd");
    Ok(std::fs::read_dir(&path).with_context(|| format!("reading {path}"))?.count())
}

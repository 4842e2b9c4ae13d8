//! Resource usage of a process from `/proc` (proc(5)).

use std::collections::HashSet;
use std::net::SocketAddr;

use anyhow::Context as _;
use procfs::process::{FDTarget, Process};

/// Resident memory, in KiB.
pub(crate) fn resident_kib(pid: u32) -> anyhow::Result<u64> {
    let status = process(pid)?.status().with_context(|| format!("reading what process {pid} uses"))?;
    status.vmrss.with_context(|| format!("process {pid} has no memory"))
}

/// The largest resident memory since its start, in KiB.
pub(crate) fn peak_kib(pid: u32) -> anyhow::Result<u64> {
    let status = process(pid)?.status().with_context(|| format!("reading what process {pid} uses"))?;
    status.vmhwm.with_context(|| format!("process {pid} has no memory"))
}

/// CPU time of all threads so far, in seconds.
pub(crate) fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let stat = process(pid)?.stat().with_context(|| format!("reading what process {pid} uses"))?;
    #[expect(clippy::cast_precision_loss, reason = "far below where a number loses its last digit")]
    Ok((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
}

/// The number of open file descriptors, without connections to one server.
pub(crate) fn open_files(pid: u32, server: SocketAddr) -> anyhow::Result<usize> {
    let reading = || format!("reading what process {pid} has open");
    let process = process(pid)?;
    let connections: HashSet<u64> = process
        .tcp()
        .with_context(reading)?
        .into_iter()
        .filter(|connection| connection.remote_address == server)
        .map(|connection| connection.inode)
        .collect();
    let counts =
        |target: &FDTarget| !matches!(target, FDTarget::Socket(inode) if connections.contains(inode));
    let open: Result<Vec<_>, _> = process.fd().with_context(reading)?.collect();
    Ok(open.with_context(reading)?.iter().filter(|file| counts(&file.target)).count())
}

fn process(pid: u32) -> anyhow::Result<Process> {
    let number = i32::try_from(pid).with_context(|| format!("{pid} is no process ID"))?;
    Process::new(number).with_context(|| format!("looking for process {pid}"))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn usage_ignores_connections_to_a_server() {
        let servers = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [one, other] = servers.each_ref().map(|server| server.local_addr().unwrap());
        let pid = std::process::id();
        let connections = [one; 60].map(|server| TcpStream::connect(server).unwrap());
        // Concurrent tests open and close files, too.
        assert!(open_files(pid, other).unwrap() > open_files(pid, one).unwrap() + 30);
        drop(connections);
        assert!(resident_kib(pid).unwrap() > 1000);
        assert!(peak_kib(pid).unwrap() > 1000);
        assert!(cpu_seconds(pid).unwrap() < 3600.0);
    }
}

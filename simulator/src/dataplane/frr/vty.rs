//! A client of the vty sockets of FRR's daemons: a command ends with a NUL, its reply with three NULs and a status.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::dataplane::unixctl;

/// Timeout of all commands of a call.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// The largest reply that is read.
const MAX_REPLY: usize = 64 << 20;
/// `CMD_SUCCESS`.
const SUCCESS: u8 = 0;

/// Runs commands to the first error and returns the replies. The error names the command.
pub(super) async fn run(directory: &Path, daemon: &str, commands: &[String]) -> io::Result<Vec<String>> {
    let calls = async {
        let mut stream = unixctl::connect(directory, &format!("{daemon}.vty")).await?;
        let mut replies = Vec::with_capacity(commands.len());
        exchange(&mut stream, "enable").await?;
        for command in commands {
            replies.push(exchange(&mut stream, command).await?);
        }
        Ok(replies)
    };
    tokio::time::timeout(RESPONSE_TIMEOUT, calls).await?
}

async fn exchange(stream: &mut UnixStream, command: &str) -> io::Result<String> {
    let mut request = command.as_bytes().to_vec();
    request.push(0);
    stream.write_all(&request).await?;
    let mut reply = Vec::new();
    let (text, status) = loop {
        if let Some(whole) = split(&reply) {
            break whole;
        }
        if reply.len() > MAX_REPLY || stream.read_buf(&mut reply).await? == 0 {
            return Err(io::Error::other(format!("gives no whole reply to `{}`", without_password(command))));
        }
    };
    let text = String::from_utf8_lossy(text);
    if status == SUCCESS {
        return Ok(text.into_owned());
    }
    let reason = if command.contains(" password ") { "" } else { text.trim() };
    let command = without_password(command);
    Err(io::Error::other(format!("refuses `{command}` with the status {status}: {reason}")))
}

/// The text and the status of a whole reply.
fn split(reply: &[u8]) -> Option<(&[u8], u8)> {
    match reply {
        [text @ .., 0, 0, 0, status] => Some((text, *status)),
        _ => None,
    }
}

fn without_password(command: &str) -> &str {
    command.split_once(" password ").map_or(command, |(before, _)| before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_end_with_three_nuls_and_a_status() {
        assert_eq!(split(b"\0\0\0\0"), Some((&b""[..], 0)));
        assert_eq!(split(b"% no\n\0\0\0\x02"), Some((&b"% no\n"[..], 2)));
        for incomplete in [&b""[..], b"text", b"text\0\0\0"] {
            assert_eq!(split(incomplete), None);
        }
    }

    #[test]
    fn passwords_are_in_no_error() {
        assert_eq!(without_password("neighbor 10.7.0.1 password secret"), "neighbor 10.7.0.1");
        assert_eq!(without_password("neighbor 10.7.0.1 timers 3 9"), "neighbor 10.7.0.1 timers 3 9");
    }
}

//! Runs the commands of the book in a sandbox, page by page, in one shell.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use eno_control_plane::parts::{Part, Parts};
use eno_lab::sandbox::SandboxOptions;
use eno_tests::{poll, with_own_sandbox};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::blocks::{Step, steps};
use super::output::is_as_shown;
use super::{pages, read, root};

/// Time in which a command ends.
const TIMEOUT: Duration = Duration::from_mins(2);
/// The directory of the sandbox in the book.
const SHOWN_DIR: &str = "/tmp/eno";
/// The last line of a command, before its number and its exit code.
const END: &str = "--- end of command ";
/// Commands that only read, and may be repeated until the state is reached.
const READS: [&str; 7] = [
    "kubectl get",
    "kubectl -n cnf-a get",
    "curl -s $",
    "eno status",
    "eno blame",
    "eno plan",
    "eno addresses",
];

struct Shell {
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// Number of commands so far.
    count: usize,
    _child: Child,
}

impl Shell {
    async fn start() -> Self {
        let eno = eno::programs::eno().expect("the program: cargo build --workspace --bins");
        let parts = Parts::from_env().expect("a place for the control plane's programs");
        let kubectl = parts.get(Part::Kubectl).await.expect("kubectl");
        let folders =
            [&eno, &kubectl].map(|program| program.parent().expect("a folder").display().to_string());
        let path = std::env::var("PATH").unwrap_or_default();
        let mut child = Command::new("bash")
            .current_dir(root())
            .env("PATH", format!("{}:{path}", folders.join(":")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("bash");
        let stdin = child.stdin.take().expect("a pipe");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { stdin, lines, count: 0, _child: child }
    }

    /// The output of a command, and its exit code. The output of an earlier command that was given up is skipped.
    async fn run(&mut self, command: &str) -> (String, String) {
        self.count += 1;
        let end = format!("{END}{}: ", self.count);
        let script = format!("{{ {command}\n}} 2>&1 < /dev/null\necho; echo '{end}'$?\n");
        self.stdin.write_all(script.as_bytes()).await.expect("the shell reads");
        let mut output = String::new();
        loop {
            let line = timeout(TIMEOUT, self.lines.next_line()).await;
            let line = line.unwrap_or_else(|_| panic!("`{command}` does not end: {output}"));
            let line =
                line.expect("UTF-8").unwrap_or_else(|| panic!("`{command}` ended the shell: {output}"));
            match line.strip_prefix(&end) {
                Some(code) => return (output, code.to_owned()),
                None if line.starts_with(END) => output.clear(),
                None => output.extend([&line, "\n"]),
            }
        }
    }
}

/// Runs a step. Returns what is wrong with it.
async fn check(shell: &mut Shell, dir: &Path, step: &Step) -> Result<(), String> {
    let actual_dir = dir.display().to_string();
    let command = step.command.replace(SHOWN_DIR, &actual_dir);
    let reads = READS.iter().any(|read| command.starts_with(read));
    let mut last = String::new();
    let attempt = async |last: &mut String, shell: &mut Shell| {
        let (output, code) = shell.run(&command).await;
        let output = output.replace(&actual_dir, SHOWN_DIR);
        let is_right = code == "0" && is_as_shown(&step.output, &output);
        *last = format!("$ {command}\n{output}(exit code {code})\ninstead of\n{}", step.output.join("\n"));
        is_right.then_some(())
    };
    let shown = if reads {
        poll(async || attempt(&mut last, shell).await).await
    } else {
        attempt(&mut last, shell).await
    };
    shown.ok_or(last)
}

fn like_the_tutorial(options: &mut SandboxOptions) {
    options.topology = eno_lab::sandbox::topology(4);
}

#[test]
fn console_blocks_show_what_the_commands_print() {
    with_own_sandbox(like_the_tutorial, async |system| {
        let mut shell = Shell::start().await;
        let mut wrong = Vec::new();
        let mut count = 0;
        for page in pages() {
            for step in steps(&read(&page)) {
                count += 1;
                if let Err(problem) = check(&mut shell, system.sandbox.dir(), &step).await {
                    wrong.push(format!("{}:{}\n{problem}\n", page.display(), step.line));
                }
            }
        }
        assert!(count > 100, "only {count} commands were found");
        assert!(wrong.is_empty(), "{} of {count} commands:\n{}", wrong.len(), wrong.join("\n"));
    });
}

//! 1,000 ports in Open vSwitch's database: one transaction of this crate, side by side with one `ovs-vsctl` per port.
//!
//! Both write the same rows to a real ovsdb-server of their own and wait for no switch (`--no-wait`), so that only the
//! ways to the database are compared. `ovs-vsctl` is measured on a sample of ports, on a bridge that has none at first.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use eno_ovsdb::{
    Client, Condition, Endpoint, Mutation, NamedUuid, Operation, Options, Transaction, Value, row,
};
use tempfile::TempDir;

const PORTS: usize = 1000;
const SAMPLE: usize = 50;
const ROUNDS: usize = 5;
const DB: &str = "Open_vSwitch";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut native = Vec::new();
    let mut vsctl = Vec::new();
    // Alternating, so that other load on the machine affects both.
    for _ in 0..ROUNDS {
        native.push(runtime.block_on(one_transaction())? / u32::try_from(PORTS)?);
        vsctl.push(one_by_one()? / u32::try_from(SAMPLE)?);
    }
    native.sort();
    vsctl.sort();
    let (native, vsctl) = (native[ROUNDS / 2], vsctl[ROUNDS / 2]);
    let ratio = vsctl.as_secs_f64() / native.as_secs_f64();
    println!("per port, median of {ROUNDS} rounds in turns");
    println!("  one transaction of {PORTS} ports   {:9.3} ms", native.as_secs_f64() * 1e3);
    println!("  ovs-vsctl add-port, {SAMPLE} ports    {:9.3} ms", vsctl.as_secs_f64() * 1e3);
    println!("  {ratio:.0} times faster");
    Ok(())
}

async fn one_transaction() -> Result<Duration, Box<dyn std::error::Error>> {
    let server = Server::start()?;
    let client = Client::new(Endpoint::Unix(server.dir.path().join("sock")), Options::default());
    client.echo().await?;
    let start = Instant::now();
    let mut transaction = Transaction::new();
    let mut ports = Vec::new();
    for number in 0..PORTS {
        let (interface, port) = (NamedUuid::numbered("i", number), NamedUuid::numbered("p", number));
        let name = Value::from(format!("port{number}"));
        let columns = row([("name", name.clone())]);
        transaction.push(Operation::insert_named("Interface", columns, interface.clone()));
        let columns = row([("name", name), ("interfaces", Value::set([interface])), ("tag", 10.into())]);
        transaction.push(Operation::insert_named("Port", columns, port.clone()));
        ports.push(port);
    }
    let mutation = Mutation::insert("ports", Value::set(ports));
    transaction.push(Operation::mutate("Bridge", [Condition::equal("name", "br0")], [mutation]));
    transaction.push(Operation::mutate(DB, [], [Mutation::add("next_cfg", 1)]));
    client.transact(DB, &transaction).await?;
    Ok(start.elapsed())
}

fn one_by_one() -> Result<Duration, Box<dyn std::error::Error>> {
    let server = Server::start()?;
    let start = Instant::now();
    for number in 0..SAMPLE {
        server.vsctl(&["add-port", "br0", &format!("port{number}"), "tag=10"])?;
    }
    Ok(start.elapsed())
}

/// A server with the bridge `br0`.
struct Server {
    dir: TempDir,
    child: Child,
}

impl Server {
    fn start() -> Result<Self, Box<dyn std::error::Error>> {
        let dir = TempDir::with_prefix("eno-ovsdb-")?;
        let path = |name: &str| dir.path().join(name).display().to_string();
        let schema = Path::new("/usr/share/openvswitch/vswitch.ovsschema");
        run(program("ovsdb-tool").arg("create").arg(path("db")).arg(schema))?;
        let child = program("ovsdb-server")
            .args([path("db"), format!("--remote=punix:{}", path("sock"))])
            .args([format!("--unixctl={}", path("ctl")), "--no-chdir".into(), "-vconsole:off".into()])
            .stderr(Stdio::null())
            .spawn()?;
        let server = Self { dir, child };
        let deadline = Instant::now() + Duration::from_secs(30);
        while UnixStream::connect(server.dir.path().join("sock")).is_err() {
            assert!(Instant::now() < deadline, "ovsdb-server does not listen");
            std::thread::yield_now();
        }
        server.vsctl(&["init"])?;
        server.vsctl(&["add-br", "br0"])?;
        Ok(server)
    }

    fn vsctl(&self, args: &[&str]) -> Result<(), Box<dyn std::error::Error>> {
        let db = format!("--db=unix:{}", self.dir.path().join("sock").display());
        run(program("ovs-vsctl").args(["--timeout=30", "--no-wait", &db]).args(args))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(command: &mut Command) -> Result<(), Box<dyn std::error::Error>> {
    let output = command.output()?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
    }
}

fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

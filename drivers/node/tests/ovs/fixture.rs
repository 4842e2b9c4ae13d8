//! A private Open vSwitch: a real ovsdb-server, with a fake or a real switch.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eno_conformance::ovs_database::{OvsDatabase, end, output, program};
use eno_driver_node::ovs::{BridgeDesired, Datapath, Ovs, OvsDesired, PortDesired, PortVlans, UplinkDesired};
use eno_ovsdb::{
    Client, Condition, Endpoint, MonitorRequest, Mutation, Operation, Options, Row, Transaction, Value, row,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

pub const DB: &str = "Open_vSwitch";

/// A database of Open vSwitch, and clients of it.
pub struct Database(OvsDatabase);

impl Deref for Database {
    type Target = OvsDatabase;

    fn deref(&self) -> &OvsDatabase {
        &self.0
    }
}

impl DerefMut for Database {
    fn deref_mut(&mut self) -> &mut OvsDatabase {
        &mut self.0
    }
}

impl Database {
    pub fn start() -> Self {
        Self(OvsDatabase::start(TempDir::with_prefix("eno-ovs-").unwrap(), Vec::new()))
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.path("db.sock"))
    }

    pub fn client(&self) -> Client {
        Client::new(
            self.endpoint(),
            Options { max_backoff: Duration::from_millis(100), ..Options::default() },
        )
    }

    pub fn ovs(&self) -> Ovs {
        Ovs::new(self.endpoint(), Datapath::Netdev)
    }

    /// Runs `ovs-vsctl` as an administrator would, without waiting for a switch.
    pub fn vsctl(&self, args: &[&str]) -> String {
        self.0.vsctl(&[&["--no-wait"], args].concat())
    }

    /// All rows of bridges, ports and interfaces, for comparison.
    pub async fn all_rows(&self) -> Vec<Row> {
        let tables = [
            ("Bridge", &["name", "datapath_type", "external_ids", "other_config", "ports"][..]),
            ("Port", &["name", "tag", "trunks", "vlan_mode", "bond_mode", "external_ids", "interfaces"]),
            ("Interface", &["name", "type", "options", "external_ids", "mtu_request"]),
        ];
        let selects = tables.map(|(table, columns)| Operation::select(table, [], columns.iter().copied()));
        let transaction: Transaction = selects.into_iter().collect();
        let outcome = self.client().transact(DB, &transaction).await.unwrap();
        let mut rows: Vec<Row> = (0..3).flat_map(|index| outcome.rows(index).to_vec()).collect();
        rows.sort();
        rows
    }

    pub async fn next_cfg(&self) -> i64 {
        let transaction = Transaction::new().with(Operation::select(DB, [], ["next_cfg"]));
        let outcome = self.client().transact(DB, &transaction).await.unwrap();
        outcome.rows(0)[0]["next_cfg"].as_integer().unwrap()
    }
}

/// A task that writes to the database what ovs-vswitchd would write.
pub struct FakeSwitch {
    task: JoinHandle<()>,
    host: Arc<Mutex<Host>>,
}

/// The simulated interfaces of the host.
#[derive(Default)]
struct Host {
    /// Names of interfaces that don't exist.
    missing: BTreeSet<String>,
    mtus: BTreeMap<String, i64>,
}

impl FakeSwitch {
    pub fn start(database: &Database) -> Self {
        let client = database.client();
        let host = Arc::new(Mutex::new(Host::default()));
        let task = tokio::spawn({
            let host = Arc::clone(&host);
            async move { run_fake_switch(&client, &host).await }
        });
        Self { task, host }
    }

    /// Simulates that the host lacks an interface.
    pub fn without(self, interface: &str) -> Self {
        self.host.lock().unwrap().missing.insert(interface.into());
        self
    }

    /// The MTU of an interface in bytes.
    pub fn mtu(&self, interface: &str) -> Option<i64> {
        self.host.lock().unwrap().mtus.get(interface).copied()
    }
}

impl Drop for FakeSwitch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run_fake_switch(client: &Client, host: &Mutex<Host>) {
    let request = MonitorRequest::new()
        .table(DB, ["next_cfg", "cur_cfg"])
        .table("Interface", ["name", "ofport", "mtu", "mtu_request"]);
    let mirror = client.mirror(DB, request);
    loop {
        let transaction = mirror
            .wait_for(|replica| {
                let mut transaction = Transaction::new();
                for (uuid, interface) in replica.table("Interface") {
                    let name = interface["name"].as_str()?;
                    let mut host = host.lock().unwrap();
                    let gone = host.missing.contains(name);
                    let there = host.mtus.entry(name.into()).or_insert(1500);
                    let mtu = interface["mtu_request"].as_integer().unwrap_or(*there);
                    *there = mtu;
                    let wanted = if gone {
                        row([("ofport", (-1).into()), ("error", "No such device".into())])
                    } else {
                        row([("ofport", 1.into()), ("mtu", mtu.into())])
                    };
                    if wanted
                        .iter()
                        .any(|(column, value)| interface.get(column).is_some_and(|there| there != value))
                    {
                        transaction.push(Operation::update("Interface", [Condition::uuid(uuid)], wanted));
                    }
                }
                let (uuid, root) = replica.table(DB).next()?;
                if root["next_cfg"] != root["cur_cfg"] {
                    let columns = row([("cur_cfg", root["next_cfg"].clone())]);
                    transaction.push(Operation::update(DB, [Condition::uuid(uuid)], columns));
                }
                (!transaction.is_empty()).then_some(transaction)
            })
            .await;
        match transaction {
            // After a restart of the database the loop tries again.
            Ok(transaction) => drop(client.transact(DB, &transaction).await),
            Err(_) => return,
        }
    }
}

/// A transaction that adds a foreign port to a bridge.
pub fn add_foreign(bridge: &str, name: &str) -> Transaction {
    let (interface, port) = (eno_ovsdb::NamedUuid::numbered("i", 0), eno_ovsdb::NamedUuid::numbered("p", 0));
    let interfaces = Value::set([&interface]);
    Transaction::new()
        .with(Operation::insert_named("Interface", row([("name", name.into())]), interface))
        .with(Operation::insert_named(
            "Port",
            row([("name", name.into()), ("interfaces", interfaces)]),
            port.clone(),
        ))
        .with(Operation::mutate(
            "Bridge",
            [Condition::equal("name", bridge)],
            [Mutation::insert("ports", Value::set([port]))],
        ))
}

pub fn desired() -> OvsDesired {
    OvsDesired { cluster: "c1".into(), ..OvsDesired::default() }
}

pub fn bridge(interfaces: &[&str], vlans: &[u16]) -> BridgeDesired {
    let uplink = match interfaces {
        [] => None,
        [one] => Some(UplinkDesired { port: (*one).into(), interfaces: vec![(*one).into()], mtu: None }),
        several => Some(UplinkDesired {
            port: "enobond0".into(),
            interfaces: several.iter().map(|name| (*name).into()).collect(),
            mtu: None,
        }),
    };
    BridgeDesired { uplink, vlans: vlans.iter().copied().collect(), ..BridgeDesired::default() }
}

pub fn access(bridge: &str, vlan: u16) -> PortDesired {
    PortDesired { bridge: bridge.into(), id: "pod/a".into(), vlans: PortVlans::Access(vlan), mtu: None }
}

/// ovs-vswitchd in a network namespace that acts as the node, and further namespaces that act as pods.
pub struct Node {
    pub database: Database,
    name: String,
    namespaces: Vec<String>,
    switch: Option<Child>,
}

impl Node {
    pub fn start() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("enoovs{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut node =
            Self { database: Database::start(), name: name.clone(), namespaces: vec![], switch: None };
        node.add_namespace(name);
        node.resume();
        node
    }

    fn add_namespace(&mut self, name: String) {
        output(Command::new("ip").args(["netns", "add", &name]));
        output(Command::new("ip").args(["-n", &name, "link", "set", "lo", "up"]));
        self.namespaces.push(name);
    }

    /// `ip` in the node's namespace.
    pub fn ip(&self, args: &[&str]) {
        output(Command::new("ip").args(["-n", &self.name]).args(args));
    }

    /// The node's namespace.
    pub fn namespace(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    /// Adds a pod without an interface, and returns the path of its namespace.
    pub fn bare_pod(&mut self, name: &str) -> PathBuf {
        let namespace = format!("{}-{name}", self.name);
        self.add_namespace(namespace.clone());
        Path::new("/run/netns").join(namespace)
    }

    /// Adds a pod with the address `10.0.0.<last>/24` and the interface `<name>` on the node.
    pub fn pod(&mut self, name: &str, last: u8) {
        self.add_namespace(format!("{}-{name}", self.name));
        self.attach_pod(name, last);
    }

    /// Gives a pod its interface.
    pub fn attach_pod(&self, name: &str, last: u8) {
        let namespace = format!("{}-{name}", self.name);
        self.ip(&["link", "add", "name", name, "type", "veth", "peer", "name", "eth0", "netns", &namespace]);
        self.ip(&["link", "set", "dev", name, "up"]);
        let in_pod = |args: &[&str]| output(Command::new("ip").args(["-n", &namespace]).args(args));
        in_pod(&["address", "add", &format!("10.0.0.{last}/24"), "dev", "eth0"]);
        in_pod(&["link", "set", "eth0", "up"]);
    }

    /// A cable between two interfaces of the node.
    pub fn cable(&self, one: &str, other: &str) {
        self.ip(&["link", "add", "name", one, "type", "veth", "peer", "name", other]);
        self.ip(&["link", "set", one, "up"]);
        self.ip(&["link", "set", other, "up"]);
    }

    /// True when a ping gets through, after the switch has applied all earlier changes.
    pub fn reaches(&self, pod: &str, last: u8) -> bool {
        let pid = self.switch.as_ref().unwrap().id();
        let control = self.database.path(&format!("ovs-vswitchd.{pid}.ctl")).display().to_string();
        output(program("ovs-appctl").args(["-t", &control, "revalidator/wait"]));
        let namespace = format!("{}-{pod}", self.name);
        let mut ping = Command::new("ip");
        ping.args(["netns", "exec", &namespace, "ping", "-c", "3", "-i", "0.2", "-W", "1"]);
        ping.arg(format!("10.0.0.{last}")).output().unwrap().status.success()
    }

    pub fn kill(&mut self) {
        end(self.switch.take());
    }

    pub fn resume(&mut self) {
        let remote = format!("unix:{}", self.database.path("db.sock").display());
        let mut daemon = self.database.daemon("ovs-vswitchd", Some(&self.name));
        self.switch = Some(daemon.arg(remote).spawn().unwrap());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        for namespace in &self.namespaces {
            // Errors are ignored: a second panic would abort a failing test.
            let _ = Command::new("ip").args(["netns", "del", namespace]).output();
        }
    }
}

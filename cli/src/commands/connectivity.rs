//! `eno connectivity`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Subcommand;
use eno_engine::forecast::{Key, Kind, is_namespaced};
use futures::{StreamExt as _, stream};
use tokio_util::sync::CancellationToken;

use crate::connectivity::ask::{Asker, Question, points};
use crate::connectivity::junit::junit;
use crate::connectivity::neighbour::neighbour;
use crate::connectivity::print::print;
use crate::connectivity::{Tested, exit_code};
use crate::inspect::{ClusterArgs, parse_object};

/// Maximum ConnectionPoints that are tested at the same time.
const MAX_CONCURRENT_TESTS: usize = 4;
/// The exit codes when the question could not be asked, and when a signal came first.
const EXIT_NO_ANSWER: u8 = 2;
const EXIT_STOPPED: u8 = 130;

/// Test whether packets pass.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno connectivity test l2sa/oam -n cnf-a
  eno connectivity test l2s/net-100 --mtu
  eno connectivity test l2sa/oam -n cnf-a --isolation=sig
  eno connectivity test --all -o junit")]
pub(super) struct ConnectivityArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Test(TestArgs),
}

/// Have the agents of the nodes ask each other and the gateways now, on all VLANs of an object, and show what comes of it.
///
/// It needs the rights to patch the object and to list and watch it: it puts the annotation eno.k8s.io/verify on it, and
/// takes it away at the end. No address of the networks is used, and no pod is touched.
///
/// The exit code is 0 when all passed, 1 when something was lost, silent, too big or leaking, and 2 when it could not be
/// asked, or not all of it, or when no answer came in time. With --all, a ConnectionPoint where nothing can be probed
/// changes nothing, unless all are so. It is 130 when a signal ended the test.
#[derive(Debug, clap::Args)]
struct TestArgs {
    /// An L2ServiceAttachment, an L2Service or a ConnectionPoint, as KIND/NAME.
    #[arg(value_name = "OBJECT", num_args = 1..=2, required_unless_present = "all", conflicts_with = "all")]
    object: Vec<String>,
    /// Test every ConnectionPoint, 4 at a time.
    #[arg(long)]
    all: bool,
    /// The namespace of an object that has one; absent: that of the kubeconfig.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Have packets of the networks' MTU sent, too.
    #[arg(long)]
    mtu: bool,
    /// Show that packets of its VLANs don't reach those of another object of the same kind: of this one, or of one at the
    /// same ConnectionPoint with the nearest VLAN. You need the right to patch both.
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "all")]
    isolation: Option<String>,
    /// The wait for the answer of each object, such as 30s or 2m.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = super::duration)]
    timeout: Duration,
    /// How it is written.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people.
    #[default]
    Table,
    /// JSON: of one object, or with --all and --isolation a list of them.
    Json,
    /// JUnit XML: a test suite for each object, a test case for each result.
    Junit,
}

/// Runs the command. Errors have an exit code of their own.
pub(super) async fn run(args: ConnectivityArgs, stop: CancellationToken) -> ExitCode {
    let Command::Test(args) = args.command;
    match test(&args, stop).await {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("eno: {error:#}");
            ExitCode::from(EXIT_NO_ANSWER)
        }
    }
}

async fn test(args: &TestArgs, stop: CancellationToken) -> anyhow::Result<u8> {
    let question = Question { mtu: args.mtu, timeout: args.timeout };
    let preparation = async {
        let asker = Asker::new(args.cluster.client().await?, question, stop.clone());
        let objects = Objects::choose(args, &asker).await?;
        anyhow::Ok((asker, objects))
    };
    let (asker, objects) = tokio::select! {
        prepared = preparation => prepared?,
        () = stop.cancelled() => return Ok(EXIT_STOPPED),
    };
    let tests: Vec<Tested> = match &objects {
        Objects::Each(keys) => {
            stream::iter(keys).map(|key| asker.test(key)).buffered(MAX_CONCURRENT_TESTS).collect().await
        }
        Objects::Pair(key, other) => asker.test_isolation(key, other).await,
    };
    args.output.print(&tests, args)?;
    Ok(exit_code(&tests, args.all))
}

/// The objects that are tested.
enum Objects {
    /// Each for itself.
    Each(Vec<Key>),
    /// Two together, which must not reach each other.
    Pair(Key, Key),
}

impl Objects {
    async fn choose(args: &TestArgs, asker: &Asker) -> anyhow::Result<Self> {
        if args.all {
            return Ok(Self::Each(points(&asker.client).await?));
        }
        let key = args.key().await?;
        let Some(other) = &args.isolation else { return Ok(Self::Each(vec![key])) };
        ensure!(
            key.kind != Kind::ConnectionPoint,
            "name an L2Service or an L2ServiceAttachment: --isolation compares the VLANs of two of them"
        );
        let name = Some(other.as_str()).filter(|name| !name.is_empty());
        let other = neighbour(&asker.client, &key, name).await?;
        Ok(Self::Pair(key, other))
    }
}

impl TestArgs {
    async fn key(&self) -> anyhow::Result<Key> {
        let key = parse_object(&self.object, self.namespace.as_deref().unwrap_or_default())?;
        ensure!(
            matches!(key.kind, Kind::L2ServiceAttachment | Kind::L2Service | Kind::ConnectionPoint),
            "name an l2sa, an l2s or a cp: nothing is probed for a {}",
            key.kind.as_str()
        );
        if self.namespace.is_some() || !is_namespaced(key.kind) {
            return Ok(key);
        }
        let namespace = self.cluster.namespace().await.context("name the namespace with -n")?;
        parse_object(&self.object, &namespace)
    }
}

impl Output {
    fn print(self, tests: &[Tested], args: &TestArgs) -> anyhow::Result<()> {
        let is_list = args.all || args.isolation.is_some();
        match (self, tests) {
            (Self::Table, _) => print(tests, args.all),
            (Self::Json, [one]) if !is_list => crate::outln!("{}", serde_json::to_string_pretty(one)?),
            (Self::Json, _) => crate::outln!("{}", serde_json::to_string_pretty(tests)?),
            (Self::Junit, _) => crate::outln!("{}", junit(tests)?),
        }
        Ok(())
    }
}

//! `eno callbacks`.

use anyhow::{Context as _, bail};
use clap::Subcommand;
use eno_engine::callbacks::{Undelivered, dead_letters, send_request, undelivered};
use eno_engine::forecast::{Key, is_namespaced};
use eno_schemas::{CallbackAction, CallbackAnswer, CallbackRequest, DeadLetter};
use serde::Serialize;

use crate::inspect::output::{Format, name, table};
use crate::inspect::{ClusterArgs, NatsClientArgs, parse_object};
use crate::screen::local_time;

/// What became of callbacks: which were not taken, and what to do about them. It needs NATS.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno callbacks list
  eno callbacks retry l2s/net-100
  eno callbacks test --endpoint l2sa/oam -n cnf-a")]
pub(super) struct CallbacksArgs {
    #[command(subcommand)]
    command: Command,
    /// How it is written.
    #[arg(short, long, value_enum, default_value_t, global = true)]
    output: Format,
    #[command(flatten)]
    messages: NatsClientArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the objects with a callback that was not taken, and the callbacks that were given up.
    List {
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// Deliver the callbacks of an object that were given up, then try at once what waits.
    Retry(ObjectArgs),
    /// Send the object to its CallbackURL as it is, as a message of its own; with --endpoint, GET it, which has to be
    /// answered 204 (ETSI GS NFV-SOL 013).
    Test {
        #[command(flatten)]
        object_args: ObjectArgs,
        /// Send nothing but a GET.
        #[arg(long)]
        endpoint: bool,
    },
}

impl Command {
    fn cluster(&self) -> &ClusterArgs {
        match self {
            Self::List { cluster } => cluster,
            Self::Retry(object_args) | Self::Test { object_args, .. } => &object_args.cluster,
        }
    }
}

#[derive(Debug, clap::Args)]
struct ObjectArgs {
    /// The object, as KIND/NAME.
    #[arg(value_name = "OBJECT", num_args = 1..=2, required = true)]
    object: Vec<String>,
    /// The namespace of an object that has one; absent: that of the kubeconfig.
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

impl ObjectArgs {
    async fn key(&self) -> anyhow::Result<Key> {
        let key = parse_object(&self.object, self.namespace.as_deref().unwrap_or_default())?;
        if self.namespace.is_some() || !is_namespaced(key.kind) {
            return Ok(key);
        }
        let namespace = self.cluster.namespace().await.context("name the namespace with -n")?;
        parse_object(&self.object, &namespace)
    }
}

/// The answer of `eno callbacks list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    undelivered: Vec<Undelivered>,
    dead_letters: Vec<DeadLetter>,
}

pub(super) async fn run(args: CallbacksArgs) -> anyhow::Result<()> {
    // With the URL of NATS, the answer needs no access to the cluster.
    let client = args.command.cluster().client().await.ok();
    let nats = args.messages.connect_required(client.as_ref()).await?;
    let (object_args, action) = match args.command {
        Command::List { .. } => {
            let listed =
                Listed { undelivered: undelivered(&nats).await?, dead_letters: dead_letters(&nats).await? };
            return args.output.print(&listed, show);
        }
        Command::Retry(object_args) => (object_args, CallbackAction::Retry),
        Command::Test { object_args, endpoint: true } => (object_args, CallbackAction::TestEndpoint),
        Command::Test { object_args, endpoint: false } => (object_args, CallbackAction::TestMessage),
    };
    let key = object_args.key().await?;
    let request = CallbackRequest {
        action,
        kind: key.kind.as_str().to_owned(),
        namespace: key.namespace().map(str::to_owned),
        name: key.name.to_string(),
    };
    let answer = send_request(&nats, &request).await.context("check that the engine runs")?;
    args.output.print(&answer, |answer| crate::outln!("{}", summary(&key, action, answer)))?;
    match answer.error {
        Some(error) => bail!("{key}: {error}"),
        None => Ok(()),
    }
}

fn show(listed: &Listed) {
    table(
        ["OBJECT", "CALLBACK", "TRIES", "NEXT TRY", "LAST ERROR"],
        listed.undelivered.iter().map(|one| {
            [
                name(&one.kind, one.namespace.as_deref(), &one.name),
                one.counter.to_string(),
                one.attempts.to_string(),
                one.next_try_at().map_or_else(|| "given up".to_owned(), |at| local_time(&at)),
                one.error.clone(),
            ]
        }),
    );
    table(
        ["GIVEN UP", "CALLBACK", "PHASE", "AT", "TRIES", "LAST ERROR"],
        listed.dead_letters.iter().map(|letter| {
            let transition = &letter.transition;
            [
                name(&transition.kind, transition.namespace.as_deref(), &transition.name),
                transition.counter.to_string(),
                transition.phase.to_string(),
                local_time(&letter.at),
                letter.attempts.to_string(),
                letter.error.to_string(),
            ]
        }),
    );
    if listed.undelivered.is_empty() && listed.dead_letters.is_empty() {
        crate::outln!("All callbacks were taken so far.");
    }
}

fn summary(key: &Key, action: CallbackAction, answer: &CallbackAnswer) -> String {
    let CallbackAnswer { delivered, dead, waiting, error } = answer;
    match (action, error) {
        (CallbackAction::Retry, _) => format!(
            "{key}: {delivered} given up before and delivered now, {dead} still given up, {waiting} tried at once"
        ),
        (CallbackAction::TestEndpoint, None) => format!("{key}: the endpoint answers 204"),
        (CallbackAction::TestMessage, None) => format!("{key}: the endpoint took the message"),
        (CallbackAction::TestEndpoint | CallbackAction::TestMessage, Some(_)) => {
            format!("{key}: the endpoint did not pass")
        }
    }
}

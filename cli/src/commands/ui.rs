//! `eno ui`.

use tokio_util::sync::CancellationToken;

use crate::inspect::source::{FromArgs, Source};
use crate::inspect::{NatsClientArgs, parse_object};
use crate::ui::{Console, Options};

/// Show all that in a browser: what is not ready, the path of one object from pod to gateway, the fabric, the history,
/// plans and addresses.
///
/// It prints a URL on a loopback address that one browser of this machine may open, once. It shows what your kubeconfig may read,
/// changes nothing, and follows each change. What only NATS knows is shown where NATS can be asked.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno ui
  eno ui l2sa/oam -n cnf-a
  eno ui --port 8080
  eno ui --from eno-sysdump-20260101-120000.tar.gz")]
pub(super) struct UiArgs {
    /// The object whose path is shown first, as KIND/NAME; absent: the first page.
    #[arg(value_name = "OBJECT", num_args = 0..=2)]
    object: Vec<String>,
    /// The namespace of objects that name none; absent: that of the kubeconfig.
    #[arg(short, long)]
    namespace: Option<String>,
    /// This port of 127.0.0.1; absent: a free one, on a loopback address of its own.
    #[arg(long)]
    port: Option<u16>,
    #[command(flatten)]
    from: FromArgs,
    #[command(flatten)]
    messages: NatsClientArgs,
}

pub(super) async fn run(args: UiArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let opening = async {
        let source = Source::open(&args.from).await?;
        let namespace = args.namespace.clone().unwrap_or_else(|| source.namespace().to_owned());
        let page = match args.object.as_slice() {
            [] => "/".to_owned(),
            words => format!("/path/{}", parse_object(words, &namespace)?),
        };
        let (place, flags) = match &source {
            Source::Live(_) => (args.from.cluster.server().await?, args.from.cluster.flags()),
            Source::Dump(dump) => (dump.path().display().to_string(), source.flags()),
        };
        let nats = args.messages.clone();
        let console = Console::new(Options { source, place, namespace, flags, nats, port: args.port });
        anyhow::Ok((console.await?, page))
    };
    let (console, page) = tokio::select! {
        opened = opening => opened?,
        () = stop.cancelled() => return Ok(()),
    };
    crate::outln!("Open http://{}{page}?token={}", console.address, console.token);
    eprintln!("eno: the URL works once, for one browser; Ctrl-C ends it");
    console.serve(stop).await
}

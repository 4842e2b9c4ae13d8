//! stub
#[derive(Debug, clap::Args)]
pub struct BenchArgs {}
/// stub
pub async fn run(_: BenchArgs, _: tokio_util::sync::CancellationToken) -> anyhow::Result<()> {
    Ok(())
}

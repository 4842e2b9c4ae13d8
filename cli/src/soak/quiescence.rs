//! Waiting until all is quiet, and saying what is not.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use eno_sbi::nats::Connection;
use reqwest::Url;

use super::check::Wanted;
use super::growth::Sample;
use super::inject::{DRIVERS, ENGINES, NATS};
use super::model::Ends;
use super::observed::ObservedState;
use super::round::Soak;
use super::streams;
use crate::{engine_metrics, usage};

/// By when all has to be quiet.
const LIMIT: Duration = Duration::from_mins(4);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// So long nothing may be written before it counts as quiet: longer than the engine holds back a status.
const QUIET: Duration = Duration::from_secs(2);
/// Callbacks that were not delivered yet.
const CALLBACKS: &str = "eno_engine_callbacks_pending";
/// How much of what is wrong is shown.
const SHOWN: usize = 40;

impl Soak<'_> {
    /// Waits until everything is as it has to be, nothing is under way, and nothing was written for a while; then counts
    /// what processes use. An error says what is not as it has to be.
    pub(super) async fn until_quiescent(&mut self, what: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut before, mut since) = (BTreeMap::new(), Instant::now());
        let ends = self.world.ends();
        let mut nats = None;
        loop {
            looks.tick().await;
            let seen = ObservedState::read(self.sandbox, self.http).await?;
            let mut wrong = self.wrong(&ends, &seen);
            let leader = self.leader(&mut wrong).await;
            if wrong.is_empty() {
                wrong.extend(self.kept(&mut nats, &ends, &seen).await);
            }
            if !self.callback_log.wrong().is_empty() {
                bail!("{what}: callbacks came in a wrong order:{}", shown(self.callback_log.wrong()));
            }
            if seen.versions != before || !wrong.is_empty() {
                (before, since) = (seen.versions, Instant::now());
            } else if since.elapsed() >= QUIET {
                let objects = ends.services.len() + ends.attachments.len();
                self.tally.update(|tally| {
                    tally.quiet.push(since.duration_since(began));
                    tally.most_objects = tally.most_objects.max(objects);
                });
                return self.count(leader);
            }
            if began.elapsed() > LIMIT {
                if wrong.is_empty() {
                    wrong.push("objects or switches are written again and again".to_owned());
                }
                bail!("{what}: it is not quiet after {} s:{}", LIMIT.as_secs(), shown(&wrong));
            }
        }
    }

    fn wrong(&mut self, ends: &Ends, seen: &ObservedState) -> Vec<String> {
        let foreign = self.injector.foreign.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let wanted = Wanted {
            world: &self.world,
            ends,
            foreign: &foreign,
            fabric: self.fabric,
            objects: &self.objects,
            prefix: &self.prefix,
        };
        let mut wrong = wanted.differences(seen);
        let listed_in_vain = wanted.listed_in_vain(seen);
        self.callback_log.take(self.receiver.take());
        self.tally.update(|tally| {
            tally.listed_in_vain = listed_in_vain;
            tally.posts = self.receiver.posts();
            tally.repeated = self.callback_log.repeated;
        });
        wrong.extend(self.callback_log.missing(&Wanted::living(seen)));
        wrong
    }

    /// What NATS keeps too much or too little. `nats`: the way to it, once there is one.
    async fn kept(&self, nats: &mut Option<Connection>, ends: &Ends, seen: &ObservedState) -> Vec<String> {
        let all_gone = ends.services.is_empty() && ends.attachments.is_empty();
        let looked = async {
            let nats = match nats {
                Some(nats) => nats,
                None => nats.insert(streams::reach(self.sandbox).await?),
            };
            streams::read(nats).await
        };
        match looked.await {
            Ok(kept) => {
                let attachments = seen.objects.keys().filter(|key| key.starts_with("L2ServiceAttachment "));
                let (switches, most) = (seen.switches.len(), attachments.count());
                let targets = switches + seen.nads.len()..=switches + most;
                streams::differences(&kept, &targets, all_gone)
            }
            Err(error) => vec![format!("{error:#}")],
        }
    }

    /// The engine that leads. `wrong`: gets what the operator's processes still do, or that they don't answer.
    async fn leader(&self, wrong: &mut Vec<String>) -> Option<&'static str> {
        let mut leaders = Vec::new();
        for name in ENGINES.into_iter().chain(DRIVERS) {
            let Some(url) = self.sandbox.url(name) else { continue };
            let get =
                |path: &str| self.http.get(format!("{url}/{path}")).timeout(Duration::from_secs(5)).send();
            match get("readyz").await {
                Ok(answer) if answer.status().is_success() => {}
                Ok(answer) => wrong.push(format!("{name} is not ready: {}", answer.status())),
                Err(_) => wrong.push(format!("{name} does not answer")),
            }
            if !ENGINES.contains(&name) {
                continue;
            }
            let Ok(answer) = get("metrics").await else { continue };
            let metrics = answer.text().await.unwrap_or_default();
            if engine_metrics::value(&metrics, "eno_engine_leading") != Some(1.0) {
                continue;
            }
            leaders.push(name);
            let undelivered = engine_metrics::value(&metrics, CALLBACKS) != Some(0.0);
            let busy = engine_metrics::under_way(&metrics);
            let busy = busy.or_else(|| undelivered.then(|| format!("{CALLBACKS} is not 0")));
            wrong.extend(busy.map(|what| format!("of {name} {what}")));
        }
        if leaders.len() != 1 {
            wrong.push(format!("{} engines lead", leaders.len()));
        }
        leaders.pop()
    }

    /// Counts what processes use.
    fn count(&self, leader: Option<&str>) -> anyhow::Result<()> {
        let api_server = Url::parse(self.sandbox.control_plane().server())?.socket_addrs(|| None)?;
        let api_server = *api_server.first().context("the API server has no address")?;
        for name in ENGINES.into_iter().chain(DRIVERS).chain([NATS]) {
            let Some(pid) = self.sandbox.control_plane().supervisor().pid(name) else {
                bail!("{name} does not run");
            };
            let sample = Sample {
                pid,
                leads: leader == Some(name),
                resident_kib: usage::resident_kib(pid)?,
                files: usage::open_files(pid, api_server)?,
            };
            self.tally.update(|tally| tally.growth.add(name, sample));
        }
        Ok(())
    }
}

fn shown(wrong: &[String]) -> String {
    let more = wrong.len().saturating_sub(SHOWN);
    let more = (more > 0).then(|| format!("and {more} more"));
    wrong.iter().take(SHOWN).chain(&more).fold(String::new(), |text, one| text + "\n  " + one)
}

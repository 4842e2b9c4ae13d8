//! Asks for new probes of objects, waits for the answers, and takes the requests away again.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use eno_engine::forecast::{Key, Kind};
use eno_engine::resource;
use eno_nbi_crds::{VERIFY_ANNOTATION, VerifyRequest};
use eno_schemas::Text;
use futures::StreamExt as _;
use futures::future::join_all;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::ObjectList;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watch_object, watcher};
use kube::{Client, ResourceExt as _};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::watched::{Seen, seen, verified, why_never};
use super::{Tested, Verdict};
use crate::apply::reason;

/// The field manager of the annotation.
const MANAGER: &str = "eno-connectivity";
/// Maximum wait for an answer of the API server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum wait until the attachments of a ConnectionPoint tell what is lost.
const EXPLAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum attachments of a ConnectionPoint that are named.
const MAX_NAMED: usize = 8;
/// Why a test has no answer when the program is told to end.
const STOPPED: &str = "a signal ended it";

/// What is asked of each object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    /// Packets of the network's MTU must pass, too.
    pub mtu: bool,
    /// The wait for each answer.
    pub timeout: Duration,
}

/// Asks for new probes.
pub(crate) struct Asker {
    pub client: Client,
    question: Question,
    /// A signal ends it.
    stop: CancellationToken,
    /// All attachments at the beginning. `None`: they can't be listed.
    attachments: OnceCell<Option<Vec<DynamicObject>>>,
}

impl Asker {
    pub(crate) fn new(client: Client, question: Question, stop: CancellationToken) -> Self {
        Self { client, question, stop, attachments: OnceCell::new() }
    }

    /// Tests an object.
    pub(crate) async fn test(&self, key: &Key) -> Tested {
        let target = key.to_string();
        let why_never = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Tested::unanswered(target, Verdict::Stopped, STOPPED),
            why = self.why_never(key) => why,
        };
        match why_never {
            Some(why) => Tested::unanswered(target, Verdict::NotProbed, why),
            None => self
                .ask(&[(key, None)])
                .await
                .pop()
                .unwrap_or_else(|| Tested::unanswered(target, Verdict::NoAnswer, "nothing was asked")),
        }
    }

    /// Tests two objects, and that their VLANs don't reach each other.
    pub(crate) async fn test_isolation(&self, key: &Key, other: &Key) -> Vec<Tested> {
        let mut tests = self.ask(&[(key, Some(other)), (other, Some(key))]).await;
        tests.iter_mut().for_each(Tested::expect_crossed);
        tests
    }

    /// Asks objects with one nonce, each isolated from another one or not. All requests stay until each is answered.
    async fn ask(&self, objects: &[(&Key, Option<&Key>)]) -> Vec<Tested> {
        let nonce = match nonce() {
            Ok(nonce) => nonce,
            Err(error) => {
                let failed = |(key, _): &(&Key, _)| {
                    Tested::unanswered(Key::to_string(key), Verdict::NoAnswer, format!("{error:#}"))
                };
                return objects.iter().map(failed).collect();
            }
        };
        let mut requests: Vec<(&Key, String)> = Vec::new();
        let mut refusal = None;
        for (key, other) in objects {
            let request = VerifyRequest {
                nonce: nonce.clone(),
                mtu: self.question.mtu,
                isolation_from: other.map(relative),
            };
            let text = serde_json::to_string(&request).unwrap_or_default();
            let asked = self.annotate(key, &text).await;
            // A request that failed may have been carried out.
            requests.push((key, text));
            if let Err(error) = asked {
                refusal = Some(format!("{error:#}"));
                break;
            }
        }
        let tests = match refusal {
            None => join_all(objects.iter().map(|(key, _)| self.answer(key, &nonce))).await,
            Some(why) => {
                let failed = |(key, _): &(&Key, _)| {
                    Tested::unanswered(Key::to_string(key), Verdict::NoAnswer, why.clone())
                };
                objects.iter().map(failed).collect()
            }
        };
        for (key, text) in &requests {
            self.withdraw(key, text).await;
        }
        tests
    }

    /// Puts a request on an object.
    async fn annotate(&self, key: &Key, text: &str) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { (VERIFY_ANNOTATION): text } } }));
        let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        let api = api(&self.client, key);
        let patched = timeout(REQUEST_TIMEOUT, api.patch_metadata(&key.name, &params, &patch)).await;
        patched.with_context(|| slow("asking", key))?.map_err(|error| explained(&error, "patch", key))?;
        Ok(())
    }

    /// Takes a request away, if it is still this one. It must not fail the test, which is over.
    async fn withdraw(&self, key: &Key, text: &str) {
        let path = format!("/metadata/annotations/{}", VERIFY_ANNOTATION.replace('/', "~1"));
        let steps = json!([
            { "op": "test", "path": path, "value": text },
            { "op": "remove", "path": path },
        ]);
        let removed = async {
            let patch = Patch::<()>::Json(serde_json::from_value(steps)?);
            let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
            match timeout(REQUEST_TIMEOUT, api(&self.client, key).patch_metadata(&key.name, &params, &patch))
                .await
                .with_context(|| slow("changing", key))?
            {
                // Somebody else has changed it, or the object is gone.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 422) => Ok(()),
                // It may not be asked, so it was not.
                Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
                Err(error) => Err(explained(&error, "patch", key)),
                Ok(_) => Ok(()),
            }
        };
        if let Err(error) = removed.await {
            eprintln!(
                "eno: the annotation {VERIFY_ANNOTATION} of {key} may be left; take it away: {error:#}"
            );
        }
    }

    /// Waits for the answer of an object.
    async fn answer(&self, key: &Key, nonce: &str) -> Tested {
        let target = key.to_string();
        tokio::select! {
            tested = self.watch(key, nonce) => tested,
            () = self.stop.cancelled() => Tested::unanswered(target, Verdict::Stopped, STOPPED),
        }
    }

    /// Watches an object until its answer is there, or can't come any more.
    async fn watch(&self, key: &Key, nonce: &str) -> Tested {
        let end = |verdict, why: String| Tested::unanswered(key.to_string(), verdict, why);
        let deadline = Instant::now() + self.question.timeout;
        let mut objects = pin!(watch_object(api(&self.client, key), &key.name).default_backoff());
        let mut why = "the API server does not answer".to_owned();
        while let Ok(Some(next)) = timeout_at(deadline, objects.next()).await {
            let mut object = match next {
                Ok(Some(object)) => object,
                Ok(None) => return end(Verdict::NoAnswer, "it is gone".into()),
                Err(error) => {
                    if let Some(status) = refused(&error) {
                        let error = kube::Error::Api(Box::new(status.clone()));
                        let why = explained(&error, "list and watch", key);
                        return end(Verdict::NoAnswer, format!("{why:#}"));
                    }
                    why = clean(&error.to_string());
                    continue;
                }
            };
            object.data.get_mut("status").into_iter().for_each(Text::clean);
            why = match seen(&object, nonce) {
                Seen::Answer(answer, lost) => {
                    let mut tested = Tested::answered(key.to_string(), answer, lost);
                    if tested.verdict == Verdict::Failed && key.kind == Kind::ConnectionPoint {
                        tested.message = self.lost_at(key).await;
                    }
                    return tested;
                }
                Seen::Never(why) => return end(Verdict::NotProbed, why),
                Seen::Replaced => {
                    let why =
                        "its annotation was changed meanwhile: somebody else asked for new probes".into();
                    return end(Verdict::NoAnswer, why);
                }
                Seen::Unreadable(why) => return end(Verdict::NoAnswer, why),
                Seen::NotYet(why) => why,
            };
        }
        if key.kind == Kind::ConnectionPoint
            && let Ok(attachments) = list(&self.client, Kind::L2ServiceAttachment, None).await
        {
            why = unverified(&attachments, key).unwrap_or(why);
        }
        end(Verdict::NoAnswer, format!("none came in {} s: {why}", self.question.timeout.as_secs()))
    }

    /// Why nothing can be probed for an object, as far as is known. A ConnectionPoint's attachments tell it.
    async fn why_never(&self, key: &Key) -> Option<String> {
        if key.kind != Kind::ConnectionPoint {
            return None;
        }
        // Without the right to list attachments, the answer tells.
        let listed = async || list(&self.client, Kind::L2ServiceAttachment, None).await.ok();
        let attachments = self.attachments.get_or_init(listed).await.as_ref()?;
        let here = attachments.iter().filter(|one| is_at(one, key));
        let whys: Vec<String> = here.map(why_never).collect::<Option<_>>()?;
        Some(whys.into_iter().next().unwrap_or_else(|| "no L2ServiceAttachment uses it".into()))
    }

    /// What the attachments of a ConnectionPoint say of packets that are lost. They may say it a moment later.
    async fn lost_at(&self, point: &Key) -> String {
        let all: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &resource(Kind::L2ServiceAttachment));
        let deadline = Instant::now() + EXPLAIN_TIMEOUT;
        let mut events = pin!(watcher(all, watcher::Config::default()).default_backoff());
        let mut found: Vec<String> = Vec::new();
        let mut is_listed = false;
        while found.is_empty() || !is_listed {
            let Ok(Some(event)) = timeout_at(deadline, events.next()).await else { break };
            match event {
                Ok(Event::Apply(mut object) | Event::InitApply(mut object)) if is_at(&object, point) => {
                    object.data.get_mut("status").into_iter().for_each(Text::clean);
                    let lost = verified(&object).filter(|verified| verified.status == "False");
                    let name = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
                    found.extend(lost.map(|lost| format!("L2ServiceAttachment/{name}: {}", lost.message)));
                }
                Ok(Event::InitDone) => is_listed = true,
                Err(error) if refused(&error).is_some() => break,
                Ok(_) | Err(_) => {}
            }
        }
        let more = found.len().saturating_sub(MAX_NAMED);
        found.truncate(MAX_NAMED);
        if more > 0 {
            found.push(format!("and {more} more"));
        }
        if found.is_empty() {
            return "its L2ServiceAttachments name the hop, in the condition Verified".into();
        }
        found.join("\n")
    }
}

/// The first reason why the attachments of a ConnectionPoint are not verified.
fn unverified(attachments: &[DynamicObject], point: &Key) -> Option<String> {
    attachments.iter().filter(|one| is_at(one, point)).find_map(|object| {
        let verified = verified(object).filter(|verified| verified.status == "Unknown")?;
        let name = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
        Some(format!("L2ServiceAttachment/{name}: {}", verified.message))
    })
}

fn is_at(attachment: &DynamicObject, point: &Key) -> bool {
    attachment.data.pointer("/spec/ConnectionPoint").is_some_and(|name| *name == *point.name)
}

/// All objects of a kind, in a namespace or in the cluster, with clean statuses.
pub(super) async fn list(
    client: &Client,
    kind: Kind,
    namespace: Option<&str>,
) -> anyhow::Result<Vec<DynamicObject>> {
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource(kind)),
        None => Api::all_with(client.clone(), &resource(kind)),
    };
    let listed = timeout(REQUEST_TIMEOUT, api.list(&ListParams::default())).await;
    let listed: ObjectList<DynamicObject> = listed
        .with_context(|| format!("listing {}: the API server does not answer", resource(kind).plural))?
        .map_err(|error| anyhow!("listing {}: {}", resource(kind).plural, clean(&reason(&error))))?;
    let clean_status = |mut object: DynamicObject| {
        object.data.get_mut("status").into_iter().for_each(Text::clean);
        object
    };
    Ok(listed.items.into_iter().map(clean_status).collect())
}

/// The names of all ConnectionPoints.
pub(crate) async fn points(client: &Client) -> anyhow::Result<Vec<Key>> {
    let points = list(client, Kind::ConnectionPoint, None).await?;
    ensure!(!points.is_empty(), "there is no ConnectionPoint");
    let key = |point: &DynamicObject| Key::cluster(Kind::ConnectionPoint, &point.name_any().into());
    Ok(points.iter().map(key).collect())
}

/// The API of an object's kind, in its namespace if it has one.
pub(super) fn api(client: &Client, key: &Key) -> Api<DynamicObject> {
    match key.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource(key.kind)),
        None => Api::all_with(client.clone(), &resource(key.kind)),
    }
}

/// `NAME` or `NAMESPACE/NAME`.
fn relative(key: &Key) -> String {
    match key.namespace() {
        Some(namespace) => format!("{namespace}/{}", key.name),
        None => key.name.to_string(),
    }
}

/// A fresh nonce.
fn nonce() -> anyhow::Result<String> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).map_err(|_| anyhow!("this machine gives no random bytes"))?;
    Ok(format!("eno-{:016x}", u64::from_be_bytes(bytes)))
}

/// A text of the API server, without what changes a terminal.
fn clean(text: &str) -> String {
    Text::new(text).into()
}

fn slow(doing: &str, key: &Key) -> String {
    format!("{doing} {key}: the API server did not answer within {} s", REQUEST_TIMEOUT.as_secs())
}

/// The refusal of a watch, which trying again won't change.
fn refused(error: &watcher::Error) -> Option<&kube::core::Status> {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))
    | watcher::Error::WatchError(status)) = error
    else {
        return None;
    };
    matches!(status.code, 401 | 403 | 404).then_some(status)
}

/// An error of the API server, with the right that is missing and who has it.
pub(super) fn explained(error: &kube::Error, verb: &str, key: &Key) -> anyhow::Error {
    let text = clean(&reason(error));
    let resource = resource(key.kind);
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            let (place, role) = match (key.kind, key.namespace()) {
                (Kind::L2ServiceAttachment, Some(namespace)) => {
                    (format!(" in namespace {namespace}"), "eno-admin, eno-nfvo, or in the namespace admin")
                }
                (Kind::L2Service, _) => (String::new(), "eno-admin or eno-nfvo"),
                _ => (String::new(), "eno-admin"),
            };
            anyhow!(
                "you need the right to {verb} {}.{}{place}, which ClusterRole {role} has: {text}",
                resource.plural,
                resource.group
            )
        }
        kube::Error::Api(status) if status.code == 404 => anyhow!("{key} does not exist"),
        _ => anyhow!("{key}: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: u16) -> kube::Error {
        let status = json!({ "status": "Failure", "message": "no\u{1b}[2J", "reason": "r", "code": code });
        kube::Error::Api(serde_json::from_value(status).expect("a status"))
    }

    #[test]
    fn refusal_names_the_missing_right() {
        let attachment = Key::namespaced(Kind::L2ServiceAttachment, &"ns".into(), &"a".into());
        let service = Key::cluster(Kind::L2Service, &"s".into());
        let point = Key::cluster(Kind::ConnectionPoint, &"cp".into());
        for (key, parts) in [
            (
                &attachment,
                &["patch l2serviceattachments.eno.k8s.io in namespace ns", "eno-nfvo", "admin"][..],
            ),
            (&service, &["patch l2services.eno.k8s.io,", "eno-nfvo"]),
            (&point, &["patch connectionpoints.eno.k8s.io,", "eno-admin"]),
        ] {
            let text = explained(&refusal(403), "patch", key).to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            assert!(!text.contains('\u{1b}'), "{text:?}");
        }
        assert_eq!(
            explained(&refusal(404), "patch", &point).to_string(),
            "ConnectionPoint/cp does not exist"
        );
    }

    #[test]
    fn nonces_differ_and_are_valid() {
        let (one, other) = (nonce().expect("bytes"), nonce().expect("bytes"));
        assert_ne!(one, other);
        let text = serde_json::to_string(&VerifyRequest { nonce: one, mtu: false, isolation_from: None });
        assert!(VerifyRequest::parse(&text.expect("JSON")).is_some());
    }
}

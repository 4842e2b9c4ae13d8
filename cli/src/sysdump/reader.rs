//! Reads a dump. The file may be anything: nothing is unpacked, and no more is read than its index says.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read};
use std::ops::ControlFlow;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use eno_engine::forecast::{ClusterState, Part, StoredError};
use eno_engine::trace::Messages;
use eno_schemas::Text;
use flate2::bufread::MultiGzDecoder;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::core::PartialObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::messages::MessageFiles;
use super::{
    EVENTS, FORMAT, INDEX, Index, IndexedFile, LeftOut, MAX_FILE, MAX_INDEX, MAX_LINE, MAX_TOTAL, MAX_VALUES,
    NotRead, VERSION, is_stream, part_path,
};
use crate::check::plain;

/// The size of a block of tar, in bytes.
const BLOCK: u64 = 512;
/// What an archive has besides the content of its files: a header and padding of each, and its end.
const PER_FILE: u64 = 2 * BLOCK;
/// The largest end of an archive: GNU tar fills its last record of 20 blocks.
const END: u64 = 40 * BLOCK;

/// Why a dump can't be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DumpError {
    /// The file can't be opened or read.
    #[error("name a file that eno sysdump wrote: reading {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is another file.
    #[error("name a file that eno sysdump wrote: {} is not one: {reason}", path.display())]
    NotADump {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A later eno wrote it.
    #[error(
        "read {} with eno {eno}, which wrote it: it has format {format}, and this eno {VERSION} reads formats up to {FORMAT}",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u64,
        /// The version that wrote it.
        eno: String,
    },
    /// Its end is missing.
    #[error("copy {} again, or make another dump: the file ends too early", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
    },
    /// Its content is not what was written.
    #[error("copy {} again, or make another dump: it is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// What was asked for could not be read when it was made.
    #[error("make another dump: {} has no {what}{}", path.display(), because(reason))]
    Lacks {
        /// The file.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
        /// The errors of then.
        reason: String,
    },
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

/// A dump. Its content is read when it is needed.
#[derive(Clone, Debug)]
pub(crate) struct Dump {
    path: PathBuf,
    index: Index,
}

impl Dump {
    /// Opens a dump and checks that all of it is there.
    pub(crate) fn open(path: &Path) -> Result<Self, DumpError> {
        let index = walk(path, |_, _, _| Ok(ControlFlow::Continue(())))?;
        Ok(Self { path: path.to_owned(), index })
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The version of eno that made it.
    pub(crate) fn eno(&self) -> &str {
        &self.index.eno
    }

    /// When it was made.
    pub(crate) fn made_at(&self) -> Timestamp {
        self.index.made_at
    }

    /// The namespace of whoever made it.
    pub(crate) fn namespace(&self) -> &str {
        self.index.namespace.as_deref().unwrap_or("default")
    }

    /// The state of the cluster.
    pub(crate) fn cluster_state(&self) -> Result<ClusterState, DumpError> {
        let parts: BTreeMap<String, Part> = Part::all().map(|part| (part_path(part), part)).collect();
        if !self.index.files.iter().any(|file| parts.contains_key(&file.path)) {
            return Err(self.lacks("objects of the cluster", |what| !what.contains("NATS")));
        }
        let mut objects = Vec::new();
        self.each(
            |path| parts.contains_key(path),
            |path, object: Value| {
                objects.extend(parts.get(path).map(|part| (*part, object)));
            },
        )?;
        let left_out = self.index.left_out.iter().filter_map(super::LeftOut::unlisted).collect();
        ClusterState::stored(objects, left_out, self.namespace()).map_err(|error| match error {
            StoredError::Object { .. } => self.damaged(&error),
            StoredError::Read(_) => self.lacks("objects of the cluster", |what| !what.contains("NATS")),
        })
    }

    /// The metadata of the pods that had not ended.
    pub(crate) fn pods(&self) -> Result<Vec<PartialObjectMeta<Pod>>, DumpError> {
        let wanted = part_path(Part::Pods);
        let mut pods = Vec::new();
        self.each(|path| path == wanted, |_, pod| pods.push(pod))?;
        Ok(pods)
    }

    /// The Events of the operator's objects.
    pub(crate) fn events(&self) -> Result<Vec<Event>, DumpError> {
        let mut events = Vec::new();
        self.each(|path| path == EVENTS, |_, event| events.push(event))?;
        Ok(events)
    }

    /// The messages of NATS; `None`: none were read.
    pub(crate) fn messages(&self) -> Option<Messages> {
        let has_stream = self.index.files.iter().any(|file| is_stream(&file.path));
        has_stream.then(|| Messages::Stored(Arc::new(MessageFiles::new(self.clone()))))
    }

    /// The messages of NATS; an error without them.
    pub(crate) fn messages_required(&self) -> Result<Messages, DumpError> {
        self.messages().ok_or_else(|| self.lacks("messages of NATS", |what| what.contains("NATS")))
    }

    /// True if the dump has this file.
    pub(super) fn has(&self, path: &str) -> bool {
        self.index.files.iter().any(|file| file.path == path)
    }

    /// Why a thing is not in the dump.
    pub(super) fn reason_of(&self, is_about: impl Fn(&str) -> bool) -> String {
        let about = self.index.not_read.iter().filter(|not_read| is_about(&not_read.what));
        let reasons: Vec<String> = about.map(|one| format!("{}: {}", one.what, one.reason)).collect();
        reasons.join("; ")
    }

    fn lacks(&self, what: &'static str, is_about: impl Fn(&str) -> bool) -> DumpError {
        DumpError::Lacks { path: self.path.clone(), what, reason: self.reason_of(is_about) }
    }

    fn damaged(&self, reason: &impl ToString) -> DumpError {
        DumpError::Damaged { path: self.path.clone(), reason: reason.to_string() }
    }

    /// Visits each line of the wanted files, as a JSON document.
    pub(super) fn each<T: DeserializeOwned>(
        &self,
        wanted: impl Fn(&str) -> bool,
        mut visit: impl FnMut(&str, T),
    ) -> Result<(), DumpError> {
        let mut left = self.index.files.iter().filter(|file| wanted(&file.path)).count();
        let mut values = 0;
        walk(&self.path, |_, file, content| {
            if !wanted(&file.path) {
                return Ok(ControlFlow::Continue(()));
            }
            let mut content = BufReader::new(content);
            let mut line = Vec::new();
            loop {
                line.clear();
                let size = content.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
                if size == 0 {
                    break;
                }
                if size as u64 == MAX_LINE && line.last() != Some(&b'\n') {
                    return Err(invalid(&format!("a line of {} is longer than {MAX_LINE} bytes", file.path)));
                }
                // Each value but the first begins behind one of these; those in texts count as well.
                values += line.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
                if values > MAX_VALUES {
                    return Err(invalid(&format!(
                        "it has more than {MAX_VALUES} values up to {}",
                        file.path
                    )));
                }
                let value = serde_json::from_slice(&line).and_then(|mut value: Value| {
                    Text::clean(&mut value);
                    T::deserialize(value)
                });
                let value = value
                    .map_err(|error| invalid(&format!("a line of {} is not valid: {error}", file.path)))?;
                visit(&file.path, value);
            }
            left -= 1;
            Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(())
    }
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason)
}

/// A reader that yields no more bytes than its budget.
struct Limited<R> {
    inner: R,
    budget: Rc<Cell<u64>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let budget = self.budget.get();
        // One byte more than allowed, which shows that there is more.
        let most = usize::try_from(budget.saturating_add(1)).unwrap_or(usize::MAX).min(buffer.len());
        let size = self.inner.read(&mut buffer[..most])?;
        self.budget.set(
            budget
                .checked_sub(size as u64)
                .ok_or_else(|| io::Error::new(ErrorKind::FileTooLarge, "it is larger than its index says"))?,
        );
        Ok(size)
    }
}

/// Visits the files of a dump in their order, until the visitor has seen enough. It returns the index.
fn walk(
    path: &Path,
    mut visit: impl FnMut(&Index, &IndexedFile, &mut dyn Read) -> io::Result<ControlFlow<()>>,
) -> Result<Index, DumpError> {
    let failed = |error: io::Error| failure(path, error);
    let not_a_dump = |reason: String| DumpError::NotADump { path: path.to_owned(), reason };
    let file = File::open(path).map_err(|error| DumpError::Io { path: path.to_owned(), error })?;
    let mut file = BufReader::new(file);
    let start = file.fill_buf().map_err(|error| DumpError::Io { path: path.to_owned(), error })?;
    if start.is_empty() {
        return Err(DumpError::Truncated { path: path.to_owned() });
    }
    if !start.starts_with(&[0x1f, 0x8b]) {
        return Err(not_a_dump("it is no gzip file".into()));
    }
    let budget = Rc::new(Cell::new(MAX_INDEX + PER_FILE));
    let mut archive =
        tar::Archive::new(Limited { inner: MultiGzDecoder::new(file), budget: Rc::clone(&budget) });
    // Raw: entries that change the names or sizes of others are refused like all that are no files.
    let mut entries = archive.entries().map_err(failed)?.raw(true);
    let first = entries.next().ok_or_else(|| not_a_dump("it is empty".into()))?;
    let first = first.map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => DumpError::Truncated { path: path.to_owned() },
        _ => not_a_dump(format!("it is no tar archive: {error}")),
    })?;
    if first.path_bytes().as_ref() != INDEX.as_bytes() || !first.header().entry_type().is_file() {
        return Err(not_a_dump(format!("it does not begin with {INDEX}")));
    }
    let size = first.header().entry_size().map_err(failed)?;
    if size > MAX_INDEX {
        return Err(not_a_dump(format!("its {INDEX} has {size} bytes, and the largest has {MAX_INDEX}")));
    }
    let mut text = Vec::new();
    { first }.read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 != size {
        return Err(DumpError::Truncated { path: path.to_owned() });
    }
    let index = parse_index(path, &text)?;
    let files = indexed(&index).map_err(not_a_dump)?;
    let content: u64 = index.files.iter().map(|file| file.bytes + PER_FILE).sum();
    budget.set(content + END);

    let mut seen = BTreeSet::new();
    for entry in entries {
        let mut entry = entry.map_err(failed)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if !entry.header().entry_type().is_file() {
            return Err(not_a_dump(format!("its entry {name:?} is no regular file")));
        }
        let Some(file) = files.get(name.as_str()) else {
            return Err(not_a_dump(format!("its index does not name its entry {name:?}")));
        };
        if entry.header().entry_size().map_err(failed)? != file.bytes {
            return Err(not_a_dump(format!("the size of {name} is not the one in its index")));
        }
        if !seen.insert(file.path.as_str()) {
            return Err(not_a_dump(format!("it has {name} twice")));
        }
        if visit(&index, file, &mut entry).map_err(failed)?.is_break() {
            return Ok(index);
        }
    }
    if seen.len() != files.len() {
        return Err(DumpError::Truncated { path: path.to_owned() });
    }
    // The checksum is behind the last byte.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(failed)?;
    Ok(index)
}

/// Maximum length of the version of the program that wrote a dump.
const MAX_VERSION: usize = 64;

/// The index of this or an earlier format.
fn parse_index(path: &Path, text: &[u8]) -> Result<Index, DumpError> {
    #[derive(Deserialize)]
    struct Head {
        format: u64,
        eno: String,
    }
    let invalid = |error: serde_json::Error| DumpError::NotADump {
        path: path.to_owned(),
        reason: plain(&format!("its {INDEX} is not valid: {error}")),
    };
    let Head { format, eno } = serde_json::from_slice(text).map_err(invalid)?;
    if eno.len() > MAX_VERSION || !eno.chars().all(|c| c.is_ascii_graphic()) {
        let reason = format!("its {INDEX} names no version of eno");
        return Err(DumpError::NotADump { path: path.to_owned(), reason });
    }
    if format > u64::from(FORMAT) {
        return Err(DumpError::Newer { path: path.to_owned(), format, eno });
    }
    let mut index: Index = serde_json::from_slice(text).map_err(invalid)?;
    // Commands show these texts.
    for NotRead { what, reason } in &mut index.not_read {
        *what = plain(what);
        *reason = plain(reason);
    }
    for LeftOut { resource, except } in &mut index.left_out {
        *resource = plain(resource);
        *except = except.as_deref().map(plain);
    }
    index.namespace = index.namespace.as_deref().map(plain);
    Ok(index)
}

/// The files of an index by their paths; an error says what no index of a dump has.
fn indexed(index: &Index) -> Result<BTreeMap<&str, &IndexedFile>, String> {
    let mut files = BTreeMap::new();
    let mut total = 0u64;
    for file in &index.files {
        let path = file.path.as_str();
        let is_inside = path.chars().all(|c| c.is_ascii_graphic())
            && !path.is_empty()
            && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        if !is_inside {
            return Err(format!("its index names a path outside of it, {path:?}"));
        }
        if files.insert(path, file).is_some() || path == INDEX {
            return Err(format!("its index names {path} twice"));
        }
        total = total.saturating_add(file.bytes);
        if file.bytes > MAX_FILE || total > MAX_TOTAL {
            return Err(format!(
                "it is too large: {path} has {} bytes, all files up to it {total}",
                file.bytes
            ));
        }
    }
    Ok(files)
}

fn failure(path: &Path, error: io::Error) -> DumpError {
    let path = path.to_owned();
    match error.kind() {
        ErrorKind::UnexpectedEof => DumpError::Truncated { path },
        ErrorKind::FileTooLarge => DumpError::NotADump { path, reason: error.to_string() },
        ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::Other => {
            DumpError::Damaged { path, reason: plain(&error.to_string()) }
        }
        _ => DumpError::Io { path, error },
    }
}
